//! Whether a zone is there, judged from its session alone.

use std::time::Duration;

use chrono::{DateTime, Utc};
use common::rest::ZoneHealth;
use tokio::time::Instant;

use super::session::Facts;

/// How long silence may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) unknown_after: Duration,
    pub(crate) offline_after: Duration,
}

/// The health of a zone at `now`, and since when.
pub(crate) fn judge(now: Instant, facts: &Facts, patience: Patience) -> (ZoneHealth, DateTime<Utc>) {
    let after = |since: DateTime<Utc>, delay: Duration| {
        since + chrono::Duration::from_std(delay).unwrap_or(chrono::Duration::zero())
    };
    let (heard_at, heard) = facts.heard;
    // Where this side left, the zone goes on to another instance or comes back: until then it is only silent.
    if let Some(end) = facts.ended.as_ref().filter(|end| end.cause.leaves_zone_there()) {
        return match now - end.at {
            silence if silence >= patience.offline_after => (ZoneHealth::Offline, end.since),
            silence if silence >= patience.unknown_after => {
                (ZoneHealth::Unknown, after(end.since, patience.unknown_after))
            }
            _ => (ZoneHealth::Online, facts.opened),
        };
    }
    match &facts.ended {
        Some(end) if end.cause.is_final() || now - end.at >= patience.offline_after => {
            (ZoneHealth::Offline, end.since)
        }
        Some(end) => (ZoneHealth::Unknown, end.since),
        // A zone that does not ping is known by its connection only.
        None if !facts.pings => (ZoneHealth::Online, facts.opened),
        None if now - heard_at >= patience.offline_after => (ZoneHealth::Offline, heard),
        None if now - heard_at >= patience.unknown_after => {
            (ZoneHealth::Unknown, after(heard, patience.unknown_after))
        }
        None => (ZoneHealth::Online, facts.opened),
    }
}

/// When the zone will be offline if nothing more is heard of it; `None` when it is, or when silence means
/// nothing.
pub(crate) fn offline_at(facts: &Facts, patience: Patience) -> Option<Instant> {
    match &facts.ended {
        Some(end) if end.cause.is_final() => None,
        Some(end) => Some(end.at + patience.offline_after),
        None => facts.pings.then(|| facts.heard.0 + patience.offline_after),
    }
}

#[cfg(test)]
mod tests {
    use common::kds::watch::Position;

    use super::*;
    use crate::kds::ending::{End, EndCause};

    const PATIENCE: Patience =
        Patience { unknown_after: Duration::from_secs(10), offline_after: Duration::from_secs(20) };

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + chrono::Duration::seconds(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn health_follows_from_silence_and_from_how_it_ended() {
        let start = Instant::now();
        let facts = |ended: Option<EndCause>, pings| Facts {
            opened: at(-5),
            relay: None,
            heard: (start, at(0)),
            ended: ended.map(|cause| End { at: start, since: at(0), cause }),
            pings,
            version: String::new(),
            protocol: None,
            down: Position::default(),
            up: Position::default(),
            down_since: None,
            up_since: None,
            proxies: None,
            clock: None,
            held_back: None,
            refused: Vec::new(),
            notes: Vec::new(),
        };
        let check = |facts: Facts, later: u64, health, since| {
            let got = judge(start + Duration::from_secs(later), &facts, PATIENCE);
            assert_eq!(got, (health, at(since)), "{later} s later: {facts:?}");
            // Whoever waits until then finds it offline, and not a moment earlier.
            if let Some(due) = offline_at(&facts, PATIENCE) {
                assert_eq!(judge(due, &facts, PATIENCE).0, ZoneHealth::Offline, "{facts:?}");
                assert_ne!(judge(due - Duration::from_millis(1), &facts, PATIENCE).0, ZoneHealth::Offline);
            }
        };
        let broken = || Some(EndCause::Broken("reset".to_owned()));
        let silent = EndCause::Silent(PATIENCE.offline_after);
        check(facts(None, true), 9, ZoneHealth::Online, -5);
        check(facts(None, true), 10, ZoneHealth::Unknown, 10);
        check(facts(None, true), 20, ZoneHealth::Offline, 0);
        check(facts(None, false), 500, ZoneHealth::Online, -5);
        check(facts(Some(EndCause::Goodbye), true), 0, ZoneHealth::Offline, 0);
        check(facts(Some(silent), true), 0, ZoneHealth::Offline, 0);
        check(facts(broken(), true), 1, ZoneHealth::Unknown, 0);
        check(facts(broken(), true), 20, ZoneHealth::Offline, 0);
        for ours in [EndCause::Stopping, EndCause::HandedOver] {
            check(facts(Some(ours.clone()), true), 9, ZoneHealth::Online, -5);
            check(facts(Some(ours.clone()), false), 9, ZoneHealth::Online, -5);
            check(facts(Some(ours.clone()), true), 10, ZoneHealth::Unknown, 10);
            check(facts(Some(ours), true), 20, ZoneHealth::Offline, 0);
        }
    }
}
