//! What an operator may ask about a zone.

use chrono::{DateTime, Utc};
use common::kds::watch::Position;
use tokio::time::Instant;

use super::{Health, Kds, health::judge};

/// The state of one zone, as this instance sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneReport {
    /// Whether it is there.
    pub health: Health,
    /// Since when; `None` when it never connected to this process.
    pub since: Option<DateTime<Utc>>,
    /// Version of the zone's program.
    pub version: String,
    /// How far the zone is with what global sends.
    pub down: Position,
    /// How far global is with what the zone sends, as the zone last said.
    pub up: Position,
    /// What to know besides: refusals, missing authentication.
    pub notes: Vec<String>,
}

impl Kds {
    /// The state of `zone`.
    pub fn report(&self, zone: &str) -> ZoneReport {
        let now = Instant::now();
        let patience = self.patience();
        let mut report = match self.inner.sessions.of(zone) {
            Some(session) => {
                let facts = session.facts();
                let (health, since) = judge(now, &facts, patience);
                ZoneReport {
                    health,
                    since: Some(since),
                    version: facts.version,
                    down: facts.down,
                    up: facts.up,
                    notes: facts.notes,
                }
            }
            // Right after a start nobody has had the time to come back.
            None => ZoneReport {
                health: match now - self.inner.started < patience.offline_after {
                    true => Health::Unknown,
                    false => Health::Offline,
                },
                since: None,
                version: String::new(),
                down: Position::default(),
                up: Position::default(),
                notes: Vec::new(),
            },
        };
        if self.inner.authenticator.is_open() {
            report.notes.push("zones are not authenticated (kds.auth is none)".to_owned());
        }
        // What the zone has is compared with what there is now, also while it is away.
        report.down.head = self.inner.index.current().revision.max(report.down.head);
        report
    }
}
