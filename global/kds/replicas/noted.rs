//! What this instance has written about its sessions where no other instance can be: nobody reads it but the process that
//! comes after this one, so only what is new is written.

use std::{collections::BTreeMap, sync::Arc};

use common::rest::ZoneStatus;

use super::SessionReport;

/// The reports that the store has.
#[derive(Default)]
pub(crate) struct NotedReports {
    /// Without what is new each time.
    noted: BTreeMap<Arc<str>, SessionReport>,
    turn: usize,
}

impl NotedReports {
    /// Those of `own` that say something new, and one more, in turn: a store that takes nothing any more is noticed
    /// by that.
    pub(crate) fn due(&mut self, own: Vec<(Arc<str>, SessionReport)>) -> Vec<(Arc<str>, SessionReport)> {
        self.turn = (self.turn + 1) % own.len().max(1);
        let (turn, noted) = (self.turn, &self.noted);
        let is_new = |(zone, report): &(Arc<str>, SessionReport)| noted.get(zone) != Some(&steady(report));
        let all = own.into_iter().enumerate();
        all.filter(|(number, one)| *number == turn || is_new(one)).map(|(_, one)| one).collect()
    }

    /// The store has taken `written`.
    pub(crate) fn note(&mut self, written: &[(Arc<str>, SessionReport)]) {
        self.noted.extend(written.iter().map(|(zone, report)| (Arc::clone(zone), steady(report))));
    }

    /// Forgets zones that do not `exist` any more.
    pub(crate) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.noted.retain(|zone, _| exists(zone));
    }
}

/// What is worth a write of it. Clocks are measured with every ping.
fn steady(report: &SessionReport) -> SessionReport {
    let status = ZoneStatus { clock: None, ..report.status.clone() };
    SessionReport { beat: 0, status, ..report.clone() }
}
