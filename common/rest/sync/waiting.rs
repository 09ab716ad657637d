//! Who waits for zones to acknowledge something. All of them look again whenever any zone says something, so they are
//! few, and the more they are the longer each rests in between.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::rest::ApiError;

/// Requests that wait at once.
const ALL: usize = 1_024;
/// Those of callers nobody vouches for.
const STRANGERS: usize = 32;
/// How long one rests for each that waits.
const REST: Duration = Duration::from_millis(2);

/// The requests that wait.
pub(in crate::rest) struct SyncWaits {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for SyncWaits {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { all: places(ALL), strangers: places(STRANGERS) }
    }
}

/// One of them, until it is dropped.
pub(in crate::rest) struct SyncWait {
    all: Arc<Semaphore>,
    _place: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl SyncWaits {
    /// A place to wait, if there is one.
    pub(in crate::rest) fn begin(&self, is_known: bool) -> Result<SyncWait, ApiError> {
        let take = |places: &Arc<Semaphore>| {
            Arc::clone(places).try_acquire_owned().map_err(|_| {
                let detail = "too many requests wait for zones at the moment: ask without timeout, or show a user token";
                ApiError::busy("Could not wait for zones", detail)
            })
        };
        let of_stranger = if is_known { None } else { Some(take(&self.strangers)?) };
        Ok(SyncWait { all: Arc::clone(&self.all), _place: (take(&self.all)?, of_stranger) })
    }
}

impl SyncWait {
    /// How long it rests before it looks again.
    pub(in crate::rest) fn pause(&self) -> Duration {
        let waiting = ALL.saturating_sub(self.all.available_permits());
        REST * u32::try_from(waiting).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strangers_have_few_places_and_the_more_wait_the_longer_each_rests() {
        let waits = SyncWaits::default();
        let strangers: Vec<SyncWait> = (0..STRANGERS).map(|_| waits.begin(false).unwrap()).collect();
        assert_eq!(strangers[0].pause(), REST * 32);
        assert!(waits.begin(false).is_err());
        let known: Vec<SyncWait> = (STRANGERS..ALL).map(|_| waits.begin(true).unwrap()).collect();
        assert_eq!(known[0].pause(), REST * 1_024);
        assert!(waits.begin(true).is_err());
        drop(strangers);
        assert!(waits.begin(false).is_ok());
    }
}
