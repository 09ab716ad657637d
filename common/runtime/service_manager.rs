//! What the service manager that started this process is told: systemd, or whoever speaks as it does. Where nobody
//! asked (`NOTIFY_SOCKET`), nobody is told.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

/// Everything is bound.
pub fn tell_started() {
    tell(NotifyState::Ready);
}

/// The end has begun, by itself or because somebody asked for it.
pub fn tell_stopping() {
    tell(NotifyState::Stopping);
}

/// Says over and over that the runtime still gives tasks their turn, where the service manager ends processes that do
/// not (`WatchdogSec`). It says nothing of the store or of global, since a restart would not bring them back.
///
/// # Errors
/// Never; a task of the supervisor may fail.
pub async fn show_life(shutdown: CancellationToken) -> anyhow::Result<()> {
    let Some(silence) = sd_notify::watchdog_enabled() else {
        shutdown.cancelled().await;
        return Ok(());
    };
    let mut beat = interval(pause(silence));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            _ = beat.tick() => tell(NotifyState::Watchdog),
        }
    }
}

/// Between two signs of life: one may come late.
fn pause(silence: Duration) -> Duration {
    (silence / 3).max(Duration::from_millis(1))
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told how this process is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_sign_of_life_is_early_enough() {
        assert_eq!(pause(Duration::from_secs(60)), Duration::from_secs(20));
        assert!(!pause(Duration::ZERO).is_zero(), "a pause of nothing is no pause");
    }
}
