//! How often what proxies say of themselves is written: each revision goes to every stream, to global and to other zones,
//! so nobody makes them as fast as a connection carries them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::node::ProxyId;

/// How many of those who were paced are remembered before those who are not slowed down are forgotten.
const REMEMBERED: usize = 1024;
/// Writes of all proxies with one token, when so many came at once as there may be: enough for a zone that has one
/// token for all and is deployed anew, one after the other.
const OF_TOKEN: Duration = Duration::from_millis(50);

/// So many at once, and then one each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRate {
    /// So many.
    pub(super) at_once: u32,
    /// How long one more takes.
    pub(super) every: Duration,
}

impl WriteRate {
    /// How long one who would be free at `free` has to wait.
    fn wait(self, free: Option<Instant>, now: Instant) -> Duration {
        let credit = self.every.saturating_mul(self.at_once.saturating_sub(1));
        free.map_or(Duration::ZERO, |free| free.saturating_duration_since(now).saturating_sub(credit))
    }
}

/// Who is slowed down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PacedWriter {
    Proxy(ProxyId),
    Token(Arc<str>),
}

/// Says when a proxy may have something written.
pub(super) struct WritePace {
    proxy: WriteRate,
    token: WriteRate,
    /// When each would have paid for all that was written for it.
    free: Mutex<PacedWriters>,
}

#[derive(Default)]
struct PacedWriters {
    by: HashMap<PacedWriter, Instant>,
    /// At how many it is looked who can be forgotten.
    look_at: usize,
}

impl WritePace {
    /// For proxies at this rate, and as many at once with one token.
    pub(super) fn new(proxy: WriteRate, at_once: usize) -> Self {
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
        Self { proxy, token: WriteRate { at_once, every: OF_TOKEN }, free: Mutex::default() }
    }

    /// One write for `proxy`, which showed the token with this fingerprint.
    ///
    /// # Errors
    /// How long it has to wait, when that is not now; nothing was counted then.
    pub(super) fn take(&self, proxy: &ProxyId, token: Option<&str>, now: Instant) -> Result<(), Duration> {
        let proxy = (PacedWriter::Proxy(proxy.clone()), self.proxy);
        let token = token.map(|token| (PacedWriter::Token(token.into()), self.token));
        let paced: Vec<(PacedWriter, WriteRate)> = [proxy].into_iter().chain(token).collect();
        // Nothing in between can panic.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = paced.iter().map(|(writer, rate)| rate.wait(free.by.get(writer).copied(), now)).max();
        match wait {
            Some(wait) if !wait.is_zero() => return Err(wait),
            _ => {}
        }
        for (writer, rate) in paced {
            let at = free.by.entry(writer).or_insert(now);
            *at = (*at).max(now) + rate.every;
        }
        if free.by.len() >= free.look_at.max(REMEMBERED) {
            free.by.retain(|_, at| *at > now);
            free.look_at = free.by.len() * 2;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ads::node::ProxyKind;

    fn proxy(name: &str) -> ProxyId {
        ProxyId::new(ProxyKind::Dataplane, "default", name)
    }

    #[test]
    fn some_come_at_once_and_then_one_each_time() {
        let every = Duration::from_secs(5);
        let pace = WritePace::new(WriteRate { at_once: 3, every }, 1000);
        let start = Instant::now();
        let mut written = 0;
        for tick in 0..1000_u32 {
            let now = start + Duration::from_millis(1) * tick;
            written += usize::from(pace.take(&proxy("web"), None, now).is_ok());
        }
        assert_eq!(written, 3, "a thousand in a second");
        assert_eq!(
            pace.take(&proxy("web"), None, start + Duration::from_secs(4)),
            Err(Duration::from_secs(1))
        );
        assert_eq!(pace.take(&proxy("api"), None, start), Ok(()), "others do not wait");
        assert_eq!(pace.take(&proxy("web"), None, start + every), Ok(()));
        let later = start + Duration::from_secs(60);
        let at_once = (0..10).filter(|_| pace.take(&proxy("web"), None, later).is_ok()).count();
        assert_eq!(at_once, 3, "nobody saves up more");
    }

    #[test]
    fn other_names_with_the_same_token_are_no_way_around() {
        let rate = WriteRate { at_once: 3, every: Duration::from_secs(5) };
        let (pace, start) = (WritePace::new(rate, 100), Instant::now());
        let written = |token: &str, now: Instant| {
            let names = (0..5000).map(|n| proxy(&format!("web-{n}")));
            names.filter(|proxy| pace.take(proxy, Some(token), now).is_ok()).count()
        };
        assert_eq!(written("thief", start), 100);
        assert_eq!(written("thief", start + OF_TOKEN), 1);
        assert_eq!(written("other", start), 100);
    }

    #[test]
    fn who_is_not_slowed_down_is_forgotten() {
        let rate = WriteRate { at_once: 3, every: Duration::from_secs(5) };
        let (pace, start) = (WritePace::new(rate, 100), Instant::now());
        for n in 0..20_000_u32 {
            let now = start + Duration::from_millis(100) * n;
            assert_eq!(pace.take(&proxy(&n.to_string()), None, now), Ok(()));
        }
        let known = pace.free.lock().unwrap_or_else(PoisonError::into_inner).by.len();
        assert!(known <= REMEMBERED, "{known}");
    }
}
