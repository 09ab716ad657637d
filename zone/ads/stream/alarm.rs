//! The one alarm of a stream.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings at the latest when something is due. It may ring for what is over: most of what it is set for never comes, and
/// to set a timer again after each message takes a lock that all streams share.
#[derive(Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl Alarm {
    /// Rings then, if nothing makes it ring earlier.
    pub(super) fn set_for(&mut self, due: Option<Instant>) {
        let Some(due) = due else { return };
        match &mut self.sleep {
            Some(sleep) if self.is_set && sleep.deadline() <= due => return,
            Some(sleep) => sleep.as_mut().reset(due),
            None => self.sleep = Some(Box::pin(sleep_until(due))),
        }
        self.is_set = true;
    }

    /// Waits until it rings. Can be given up and waited for again.
    pub(super) async fn rung(&mut self) {
        match &mut self.sleep {
            Some(sleep) if self.is_set => sleep.await,
            Some(_) | None => std::future::pending().await,
        }
        self.is_set = false;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_for_what_is_due_first_and_again_only_when_set_again() {
        let start = Instant::now();
        let after = |seconds| Some(start + Duration::from_secs(seconds));
        let mut alarm = Alarm::default();
        for due in [after(10), after(20), None, after(5), after(7)] {
            alarm.set_for(due);
        }
        alarm.rung().await;
        assert_eq!(Some(Instant::now()), after(5));
        alarm.set_for(None);
        let silence = tokio::time::timeout(Duration::from_secs(60), alarm.rung()).await;
        assert!(silence.is_err(), "it was not set again");
        alarm.set_for(after(70));
        alarm.rung().await;
        assert_eq!(Some(Instant::now()), after(70));
    }
}
