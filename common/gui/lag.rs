//! How far peers were behind in the last minutes, for a line on the page. Looked at when something moved, not by a clock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::sleep;

use super::{Gui, live::PageSignals, source::Lag};

/// Seconds that one point stands for.
const STEP: i64 = 10;
/// Points that are kept: ten minutes.
pub(super) const POINTS: usize = 60;
/// Between two looks, however much moves.
const PAUSE: Duration = Duration::from_secs(1);

/// The worst of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LagPoint {
    step: i64,
    down: u64,
    up: u64,
}

/// What was seen, by peer.
#[derive(Default)]
pub(super) struct LagRecord(Mutex<BTreeMap<String, VecDeque<LagPoint>>>);

impl LagRecord {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<LagPoint>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down how it is now; who is not among them is forgotten.
    pub(super) fn note(&self, lags: &[Lag], now: DateTime<Utc>) {
        let step = now.timestamp().div_euclid(STEP);
        let mut record = self.lock();
        record.retain(|peer, _| lags.iter().any(|lag| lag.peer == *peer));
        for Lag { peer, down, up } in lags {
            let points = record.entry(peer.clone()).or_default();
            match points.back_mut() {
                Some(last) if last.step == step => {
                    (last.down, last.up) = (last.down.max(*down), last.up.max(*up));
                }
                _ => points.push_back(LagPoint { step, down: *down, up: *up }),
            }
            while points.len() > POINTS {
                points.pop_front();
            }
        }
    }

    /// The last minutes of a peer, the oldest first, as pairs of down and up. While nothing was seen it was as before.
    pub(super) fn series(&self, peer: &str, now: DateTime<Utc>) -> Vec<(u64, u64)> {
        let newest = now.timestamp().div_euclid(STEP);
        let oldest = newest - i64::try_from(POINTS).unwrap_or_default() + 1;
        let record = self.lock();
        let Some(points) = record.get(peer) else { return Vec::new() };
        let mut seen = points.iter().peekable();
        let mut last = None;
        let mut series = Vec::with_capacity(POINTS);
        for step in oldest..=newest {
            while let Some(point) = seen.next_if(|point| point.step <= step) {
                last = Some((point.down, point.up));
            }
            series.extend(last);
        }
        series
    }
}

/// Takes down as long as the process runs.
pub(super) async fn record(gui: &Gui) -> anyhow::Result<()> {
    let mut signals = PageSignals::of(gui);
    let mut index = gui.desk.reader();
    loop {
        gui.lags.note(&gui.source.lags(&gui.desk.index()), gui.desk.now());
        tokio::select! {
            () = gui.shutdown.cancelled() => return Ok(()),
            () = sleep(PAUSE) => {}
        }
        tokio::select! {
            () = gui.shutdown.cancelled() => return Ok(()),
            () = signals.changed() => {}
            changed = index.changed() => if !changed {
                gui.shutdown.cancelled().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_worst_of_each_step_and_goes_on_where_nothing_moved() {
        let record = LagRecord::default();
        let at = |seconds: i64| DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        let lag = |down| [Lag { peer: "east".into(), down, up: 1 }];
        assert!(record.series("east", at(1000)).is_empty());
        for (seconds, down) in [(1000, 2), (1003, 7), (1005, 1), (1030, 0)] {
            record.note(&lag(down), at(seconds));
        }
        assert_eq!(record.series("east", at(1039)), [(7, 1), (7, 1), (7, 1), (0, 1)]);
        for step in 0..200 {
            record.note(&lag(step), at(2000 + i64::try_from(step).unwrap_or_default() * 10));
        }
        let series = record.series("east", at(3990));
        assert_eq!((series.len(), series[0], series[59]), (POINTS, (140, 1), (199, 1)));
        record.note(&[], at(3990));
        assert!(record.series("east", at(3990)).is_empty(), "a zone that is gone leaves nothing");
    }
}
