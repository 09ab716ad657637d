//! Which endpoints are near.

use common::{
    policy::{
        IntOrString,
        mesh_load_balancing_strategy::{
            AffinityTag, CrossZone, Failover, FailoverThreshold, LoadBalancingConf, ToZoneType,
        },
    },
    proto::envoy::config::cluster::v3::cluster::{
        CommonLbConfig,
        common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig},
    },
};

use crate::generator::{self, Backend, ClusterDraft, Nearness, SaidNearness, Zones};

/// In percent. Other zones help when less than half of the endpoints before them are healthy.
const OVERPROVISIONING: u32 = 200;
/// As many priorities as Envoy has.
const MOST_PRIORITIES: usize = 128;

/// Makes `cluster`, which reaches `backend`, see its endpoints as `conf` says to clients in `zone`.
pub(super) fn set(cluster: &mut ClusterDraft, conf: &LoadBalancingConf, backend: &Backend, zone: &str) {
    cluster.nearness = nearness(conf, backend, zone);
    if let Some(Nearness::Said(said)) = &cluster.nearness
        && !said.affinity.is_empty()
    {
        let common = cluster.message.common_lb_config.get_or_insert_with(CommonLbConfig::default);
        let weighted = LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {});
        common.locality_config_specifier = Some(weighted);
    }
}

fn nearness(conf: &LoadBalancingConf, backend: &Backend, zone: &str) -> Option<Nearness> {
    let locality = conf.locality_awareness.as_ref();
    if locality.is_some_and(|locality| locality.disabled == Some(true)) {
        return Some(Nearness::Alike);
    }
    if locality.is_none_or(|l| l.local_zone.is_none() && l.cross_zone.is_none()) {
        // Of services that are resources other zones come later without anybody saying so.
        return backend.resource.is_none().then_some(Nearness::Zone);
    }
    let cross = locality.and_then(|locality| locality.cross_zone.as_ref());
    Some(Nearness::Said(SaidNearness {
        affinity: affinity(conf.affinity_tags()),
        failover: cross.map(|cross| failover(cross, zone)).unwrap_or_default(),
        overprovisioning: overprovisioning(cross.and_then(|cross| cross.failover_threshold.as_ref())),
    }))
}

/// Without weights the first tag gets nine tenths of the traffic, the next nine tenths of the rest, and so on.
fn affinity(tags: &[AffinityTag]) -> Vec<(String, u32)> {
    let weights = tags.iter().enumerate().map(|(place, tag)| match tag.weight {
        Some(weight) => u64::from(weight),
        None => {
            let behind = u32::try_from(tags.len() - place - 1).unwrap_or(u32::MAX);
            10_u64.saturating_pow(behind).saturating_mul(9)
        }
    });
    let weights: Vec<u128> = weights.map(u128::from).collect();
    // Envoy adds them up, and what is near by no tag weighs one.
    let (sum, most) = (weights.iter().sum::<u128>(), u128::from(u32::MAX) / 2);
    let bounded = weights.iter().map(|weight| match sum > most {
        true => (weight * most / sum).max(1),
        false => *weight,
    });
    let bounded = bounded.map(|weight| u32::try_from(weight).unwrap_or(u32::MAX));
    tags.iter().map(|tag| tag.key.clone()).zip(bounded).collect()
}

/// What is said to clients in `zone`. The place in the list counts also where others are not for them.
fn failover(cross: &CrossZone, zone: &str) -> Vec<generator::FailoverZones> {
    let rules = cross.failover.iter().flatten().enumerate();
    let applies =
        |rule: &Failover| rule.from.as_ref().is_none_or(|from| from.zones.iter().any(|name| name == zone));
    let rule = |(place, rule): (usize, &Failover)| {
        let named = rule.to.zones.iter().flatten().cloned().collect();
        let zones = match rule.to.kind {
            ToZoneType::None => return None,
            ToZoneType::Any => Zones::Except([].into()),
            ToZoneType::AnyExcept => Zones::Except(named),
            ToZoneType::Only => Zones::Only(named),
        };
        let priority = u32::try_from((place + 1).min(MOST_PRIORITIES)).unwrap_or(u32::MAX);
        Some(generator::FailoverZones { zones, priority })
    };
    rules.filter(|(_, rule)| applies(rule)).filter_map(rule).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of u32; what is behind the point does not count"
)]
fn overprovisioning(threshold: Option<&FailoverThreshold>) -> u32 {
    let share = threshold.and_then(|threshold| IntOrString::value(&threshold.percentage));
    share.map_or(OVERPROVISIONING, |share| (10_000.0 / share).clamp(1.0, f64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(tags: &[Option<u32>]) -> Vec<u32> {
        let tags = tags.iter().map(|weight| AffinityTag { key: String::new(), weight: *weight });
        affinity(&tags.collect::<Vec<_>>()).into_iter().map(|(_, weight)| weight).collect()
    }

    #[test]
    fn weights_can_be_added_up() {
        assert_eq!(weights(&[None, None, None]), [900, 90, 9]);
        assert_eq!(weights(&[Some(80), Some(20)]), [80, 20]);
        for many in [vec![Some(u32::MAX); 3], vec![None; 30]] {
            let sum: u64 = weights(&many).into_iter().map(u64::from).sum();
            assert!(sum < u64::from(u32::MAX), "{sum}");
        }
    }

    #[test]
    fn a_threshold_is_a_share_of_healthy_endpoints() {
        let of = |text: &str| {
            overprovisioning(Some(&FailoverThreshold { percentage: IntOrString::Text(text.to_owned()) }))
        };
        assert_eq!([of("50"), of("70"), of("100"), of("0.0000001")], [200, 142, 100, u32::MAX]);
        assert_eq!(overprovisioning(None), OVERPROVISIONING);
    }
}
