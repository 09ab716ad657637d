//! Waiting on a condition, never for a time.

use std::{fmt::Display, future::Future, time::Duration};

use tokio::time::Instant;

/// Longest wait for anything; a machine under load is slow, a broken program is slower.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(25);

/// Tries `check` until it returns `Ok`, and gives its value; panics with the last error.
pub async fn eventually<T, E, F>(what: &str, check: impl FnMut() -> F) -> T
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    within(PATIENCE, what, check).await
}

/// The same with a limit of its own, where the limit is what is promised.
pub async fn within<T, E, F>(limit: Duration, what: &str, mut check: impl FnMut() -> F) -> T
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + limit;
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => panic!("{what}: not within {limit:?}: {error}"),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
