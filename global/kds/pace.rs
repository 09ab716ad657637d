//! How often a zone may do what makes global write or answer, whoever it is: begin a session, ask to sign with another key,
//! and ping.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Sessions that a zone may begin one right after the other. A zone of which several replicas come and go, or whose line
/// is bad, needs a few.
pub(super) const SESSIONS: ZonePace = ZonePace { burst: 300, pause: Duration::from_millis(200) };
/// Keys that a zone may ask to sign with. Each costs a certificate for every mesh and backend, which goes to all zones; an
/// honest zone has one for as long as its store.
pub(super) const ISSUING_KEYS: ZonePace = ZonePace { burst: 5, pause: Duration::from_secs(60) };

/// Calls that a zone may make which are no streams. One of ours pings once a second at most, one of Kuma's once in minutes.
pub(super) const CALLS: ZonePace = ZonePace { burst: 500, pause: Duration::from_millis(50) };

/// A pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZonePace {
    /// So often one right after the other.
    pub(super) burst: u32,
    /// Time in which it may once more.
    pub(super) pause: Duration,
}

/// How often each zone did it.
#[derive(Debug)]
pub(super) struct ZonePaces {
    pace: ZonePace,
    /// When each may as often as ever again.
    whole: Mutex<BTreeMap<String, Instant>>,
}

impl ZonePaces {
    /// Nobody did yet.
    pub(super) fn new(pace: ZonePace) -> Self {
        Self { pace, whole: Mutex::default() }
    }

    /// Whether `zone` may now, which is not taken down.
    ///
    /// # Errors
    /// How long it has to wait.
    pub(super) fn allow(&self, zone: &str, now: Instant) -> Result<(), Duration> {
        self.pace.allow(self.lock().get(zone).copied(), now)
    }

    /// Lets `zone` do it, and takes that down: before it is done, since who hangs up meanwhile has cost as much.
    ///
    /// # Errors
    /// How long it has to wait.
    pub(super) fn begin(&self, zone: &str, now: Instant) -> Result<(), Duration> {
        let mut all = self.lock();
        self.pace.allow(all.get(zone).copied(), now)?;
        all.retain(|_, whole| *whole > now);
        *all.entry(zone.to_owned()).or_insert(now) += self.pace.pause;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ZonePace {
    fn allow(self, whole: Option<Instant>, now: Instant) -> Result<(), Duration> {
        let whole = whole.unwrap_or(now).max(now);
        match (whole + self.pause).checked_duration_since(now + self.pause * self.burst) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_burst_and_then_one_in_a_while() {
        for pace in [SESSIONS, ISSUING_KEYS, CALLS] {
            let (paces, start) = (ZonePaces::new(pace), Instant::now());
            let at_once = (0..1000).filter(|_| paces.begin("stolen", start).is_ok()).count();
            assert_eq!(at_once, pace.burst as usize);
            assert_eq!(paces.begin("stolen", start), Err(pace.pause));
            assert_eq!(paces.allow("stolen", start), Err(pace.pause));
            assert!(paces.begin("honest", start).is_ok(), "each zone pays for itself");
            let later = start + pace.pause * 3;
            let then = (0..1000).filter(|_| paces.begin("stolen", later).is_ok()).count();
            assert_eq!(then, 3);
            assert_eq!(paces.begin("honest", start + pace.pause * 1000), Ok(()));
            assert_eq!(paces.lock().len(), 1, "who has rested is forgotten");
        }
    }

    #[test]
    fn to_ask_counts_for_nothing() {
        let (paces, now) = (ZonePaces::new(ISSUING_KEYS), Instant::now());
        assert!((0..1000).all(|_| paces.allow("zone-1", now).is_ok()));
        assert!(paces.begin("zone-1", now).is_ok());
    }
}
