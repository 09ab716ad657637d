//! How zones stand with a run: what they refuse, and how far they are.

use std::sync::Arc;

use crate::{
    kds::outgoing::is_enabled,
    model::{
        Resource,
        kinds::{
            rollout_insight::{HaltReason, RolloutRun},
            zone,
        },
    },
    rest::{ZoneHealth, ZoneStatus, ZoneStatusSource},
    store::{Revision, index::Index},
};

/// What a zone and its proxies refuse of the types that `run` changes.
pub fn standing_refusals(run: &RolloutRun, zone: &str, status: &ZoneStatus) -> Vec<HaltReason> {
    let is_of_run = |note: &&String| {
        let types = run.changes.iter().map(|change| &change.kind);
        types.into_iter().any(|kind| note.starts_with(&format!("the zone refused {kind} ")))
    };
    let zones = status
        .notes
        .iter()
        .filter(is_of_run)
        .map(|note| HaltReason { about: format!("zone {zone}: {note}"), text: format!("{zone}: {note}") });
    let refusals = status.proxies.iter().flat_map(|told| &told.refusals);
    let proxies = refusals.map(|refusal| HaltReason {
        about: format!("proxy {} in {zone}: {}", refusal.proxy, refusal.reason),
        text: format!("proxy {} in {zone} does without something: {}", refusal.proxy, refusal.reason),
    });
    zones.chain(proxies).collect()
}

/// What is seen of the zones of a wave before it gets the change.
#[derive(Default)]
pub(in crate::rest) struct WaveSeen {
    /// Those that are not there.
    pub(in crate::rest) away: std::collections::BTreeSet<String>,
    /// What is refused already.
    pub(in crate::rest) standing: Vec<String>,
}

impl WaveSeen {
    /// Of one wave.
    pub(in crate::rest) fn of(
        source: &dyn ZoneStatusSource,
        index: &Index,
        run: &RolloutRun,
        wave: usize,
    ) -> Self {
        let mut seen = Self::default();
        for zone in index.list(&zone::KIND).filter(|zone| run.wave_of(zone.name()) == wave) {
            let status = source.zone_progress(zone.name());
            if status.status == ZoneHealth::Offline {
                seen.away.insert(zone.name().to_owned());
            }
            seen.standing.extend(standing_refusals(run, zone.name(), &status).into_iter().map(|it| it.about));
        }
        seen
    }
}

/// How a zone stands with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::rest) enum ZoneReached {
    /// It keeps what was before.
    Kept,
    /// It has not answered for the change.
    Waiting,
    /// It has, and some of its proxies have not.
    Proxies,
    /// It has the change.
    Acknowledged,
    /// It may be away.
    Unknown,
    /// It is away, and gets it when it is back.
    Offline,
    /// It is switched off.
    Disabled,
}

impl ZoneReached {
    /// How `zone` stands with `run`, which stands in `stored`.
    pub(in crate::rest) fn of(
        run: &RolloutRun,
        stored: &Arc<Resource>,
        zone: &Resource,
        status: &ZoneStatus,
    ) -> Self {
        let last = run.waves.len().saturating_sub(1);
        let wave = if status.relay.is_some() { last } else { run.wave_of(zone.name()) };
        let needed: Revision = run.waves.get(wave).and_then(|wave| wave.revision).unwrap_or(stored.revision);
        let proxies_have = status.proxies.as_ref().is_none_or(|told| told.acked >= needed);
        match status.status {
            _ if !is_enabled(zone) => Self::Disabled,
            _ if !run.state.is_over() && wave > run.wave => Self::Kept,
            ZoneHealth::Offline if status.down.acked < needed => Self::Offline,
            ZoneHealth::Unknown if status.down.acked < needed => Self::Unknown,
            _ if status.down.acked < needed => Self::Waiting,
            _ if !proxies_have => Self::Proxies,
            _ => Self::Acknowledged,
        }
    }
}
