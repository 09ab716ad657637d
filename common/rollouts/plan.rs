//! Which zones are in which wave.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::model::{
    Resource,
    kinds::{
        rollout::{Rollout, RolloutWave},
        rollout_insight::WaveRun,
    },
};

/// Why a rollout cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Nobody would be in a wave.
    #[error(
        "no zone would be in wave {0}: its zones are there under no such name or label, or are in a wave before; \
         correct spec.waves[{index}].zones of the rollout", index = .0 - 1
    )]
    Empty(usize),
}

/// The waves of `rollout` over all `zones`, with one for everybody else at the end.
///
/// # Errors
/// [`PlanError`] when there is a wave without zones.
pub fn planned_waves<'a>(
    rollout: &Rollout,
    zones: impl Iterator<Item = &'a Resource>,
) -> Result<Vec<WaveRun>, PlanError> {
    let mut left: Vec<&Resource> = zones.collect();
    // Which zones a share means has nothing to do with how they are called, and is the same each time.
    left.sort_by_cached_key(|zone| Sha256::digest(zone.name()));
    let all = left.len();
    let mut waves = Vec::new();
    for (n, wave) in rollout.waves.iter().enumerate() {
        let zones = chosen(wave, &left, all);
        if zones.is_empty() {
            return Err(PlanError::Empty(n + 1));
        }
        left.retain(|zone| !zones.contains(zone.name()));
        waves.push(WaveRun { zones, pause: wave.pause, ..WaveRun::default() });
    }
    waves.push(WaveRun { everybody: true, ..WaveRun::default() });
    Ok(waves)
}

fn chosen(wave: &RolloutWave, left: &[&Resource], all: usize) -> BTreeSet<String> {
    let zones = &wave.zones;
    let names =
        |zones: &mut dyn Iterator<Item = &&Resource>| zones.map(|zone| zone.name().to_owned()).collect();
    match zones.share {
        Some(share) => names(&mut left.iter().take((all * usize::from(share)).div_ceil(100))),
        None if !zones.names.is_empty() => {
            names(&mut left.iter().filter(|zone| zones.names.iter().any(|name| name == zone.name())))
        }
        None => names(&mut left.iter().filter(|zone| {
            zones.labels.iter().all(|(label, value)| zone.label(label) == Some(value.as_str()))
        })),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::{ResourceKey, Spec, kinds::zone};

    fn zones(count: usize) -> Vec<Resource> {
        let zone = |n: usize| {
            let key = ResourceKey::global(&zone::KIND, &format!("zone-{n}"));
            Resource::new(key, DateTime::UNIX_EPOCH)
                .with_label("tier", if n == 0 { "canary" } else { "other" })
        };
        (0..count).map(zone).collect()
    }

    fn plan(waves: serde_json::Value, count: usize) -> Result<Vec<usize>, PlanError> {
        let rollout = Rollout::decode(json!({ "waves": waves }).to_string().as_bytes()).unwrap();
        let waves = planned_waves(&rollout, zones(count).iter())?;
        assert!(waves.last().unwrap().everybody);
        Ok(waves.iter().map(|wave| wave.zones.len()).collect())
    }

    #[test]
    fn zones_are_named_labelled_or_a_share_of_all() {
        let waves = json!([
            { "zones": { "labels": { "tier": "canary" } } },
            { "zones": { "names": ["zone-0", "zone-1", "zone-9"] } },
            { "zones": { "share": 21 } },
        ]);
        assert_eq!(plan(waves, 10), Ok(vec![1, 2, 3, 0]));
        assert_eq!(plan(json!([{ "zones": { "share": 1 } }]), 3), Ok(vec![1, 0]));
        assert_eq!(plan(json!([]), 3), Ok(vec![0]));
        assert_eq!(plan(json!([{ "zones": { "names": ["nowhere"] } }]), 3), Err(PlanError::Empty(1)));
        let twice = json!([{ "zones": { "names": ["zone-0"] } }, { "zones": { "names": ["zone-0"] } }]);
        assert_eq!(plan(twice, 3), Err(PlanError::Empty(2)));
    }

    proptest! {
        #[test]
        fn nobody_is_in_two_waves(shares in prop::collection::vec(1..50u8, 0..4), count in 1..40usize) {
            let waves: Vec<_> = shares.iter().map(|share| json!({ "zones": { "share": share } })).collect();
            if let Ok(sizes) = plan(waves.into(), count) {
                prop_assert!(sizes.iter().sum::<usize>() <= count);
            }
        }
    }
}
