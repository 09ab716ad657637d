//! How often a zone may begin a session: each writes to the store, whoever it is.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Sessions that a zone may begin one right after the other. A zone of which several replicas come and go, or whose line
/// is bad, needs a few.
const BURST: u32 = 300;
/// Time in which it may begin one more.
const PAUSE: Duration = Duration::from_millis(200);

/// How often each zone began one.
#[derive(Debug, Default)]
pub(super) struct SessionPaces {
    /// When each may begin as many as ever again.
    whole: Mutex<BTreeMap<String, Instant>>,
}

impl SessionPaces {
    /// Whether `zone` may begin a session.
    ///
    /// # Errors
    /// How long it has to wait.
    pub(super) fn allow(&self, zone: &str, now: Instant) -> Result<(), Duration> {
        let whole = self.lock().get(zone).copied().unwrap_or(now).max(now);
        match (whole + PAUSE).checked_duration_since(now + PAUSE * BURST) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// Takes down that it did.
    pub(super) fn began(&self, zone: &str, now: Instant) {
        let mut all = self.lock();
        all.retain(|_, whole| *whole > now);
        let whole = all.entry(zone.to_owned()).or_insert(now);
        *whole += PAUSE;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_burst_and_then_one_in_a_while() {
        let (paces, start) = (SessionPaces::default(), Instant::now());
        let begin = |zone: &str, now: Instant| paces.allow(zone, now).inspect(|()| paces.began(zone, now));
        let at_once = (0..1000).filter(|_| begin("stolen", start).is_ok()).count();
        assert_eq!(at_once, BURST as usize);
        assert_eq!(begin("stolen", start), Err(PAUSE));
        assert!(begin("honest", start).is_ok(), "each zone pays for itself");
        let later = start + PAUSE * 3;
        let then = (0..1000).filter(|_| begin("stolen", later).is_ok()).count();
        assert_eq!(then, 3);
        assert_eq!(begin("honest", start + PAUSE * 1000), Ok(()));
        assert_eq!(paces.lock().len(), 1, "who has rested is forgotten");
    }
}
