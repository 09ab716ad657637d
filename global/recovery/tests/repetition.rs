//! A zone counts once, however often it says something.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Of global, as zones are sent it.
fn sent(name: &str, seconds: u32) -> HeldResource {
    HeldResource { resource: mapper::down(&policy(name, seconds), &form()).unwrap(), own: false }
}

/// What zone `away` exports, as another zone holds it.
fn exported(port: u32) -> HeldResource {
    let spec = format!(r#"{{"ports":[{{"port":{port}}}]}}"#).into_bytes();
    let service = resource(&kinds::mesh_service::KIND, "pay", 1).with_spec(spec);
    let own = mapper::up(&service, "away", &[]).unwrap();
    let on_global = Resource { origin: Origin::Zone("away".into()), ..own };
    HeldResource { resource: mapper::down(&on_global, &form()).unwrap(), own: false }
}

fn holding(name: &str, revision: u64, held: &[HeldResource]) -> ZoneHoldings {
    let mut zone = zone(name, history(7, 1, revision), &[]);
    zone.held.extend(held.iter().cloned());
    zone
}

/// Everything but how much each zone told, and what of it was refused.
fn decided(plan: &RecoveryPlan) -> (String, Value) {
    let report = &plan.report;
    let loners: Vec<&str> = report.loners.iter().map(|zone| &**zone).collect();
    let told = json!({
        "restored": report.restored, "conflicts": report.conflicts, "absent": report.absent, "lost": report.lost,
        "alone": report.alone, "loners": loners,
    });
    (format!("{:?}", plan.writes), told)
}

#[test]
fn who_repeats_himself_is_as_alone_as_before() {
    let honest = |name| holding(name, 40, &[sent("p", 5)]);
    let says = |held: &[HeldResource]| {
        planned(&[], &[honest("a"), honest("b"), holding("h", u64::MAX, held)], false)
    };
    let once = says(&[sent("p", 900), sent("made-up", 5)]);
    assert_eq!(once.report.alone, 2, "what all have otherwise, and what nobody else has");
    let repeated = says(&[sent("p", 900), sent("made-up", 5), sent("p", 900), sent("made-up", 5)]);
    assert_eq!(decided(&repeated), decided(&once));
    let otherwise = says(&[sent("p", 900), sent("made-up", 5), sent("p", 5), sent("made-up", 6)]);
    assert_eq!(decided(&otherwise), decided(&once));
    let refused = &repeated.report.zones.iter().find(|zone| zone.zone == "h").unwrap().refused;
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().all(|reason| reason.contains("more than once")), "{refused:?}");
}

#[test]
fn who_repeats_himself_does_not_outvote_nor_speak_for_a_zone_that_is_away() {
    let (true_one, forged) = (exported(80), exported(666));
    let honest = |name| holding(name, 40, std::slice::from_ref(&true_one));
    let shouts = holding("h", u64::MAX, &[forged.clone(), forged.clone(), forged.clone(), exported(667)]);
    let plan = planned(&[], &[honest("a"), honest("b"), shouts.clone()], false);
    let zones: Vec<&str> = plan.report.restored.items[0].zones.iter().map(|zone| &**zone).collect();
    assert_eq!((plan.report.restored.total, zones), (1, vec!["a", "b"]));
    let plan = planned(&[], &[holding("a", 40, &[]), holding("b", 40, &[]), shouts], false);
    assert_eq!(plan.report.restored.total, 0, "{:?}", plan.report);
    assert_eq!(plan.report.conflicts.items[0].winner, Winner::Gone);
}

#[test]
fn one_zone_is_not_several_that_another_stands_against() {
    let further = holding("a", 40, &[sent("p", 50)]);
    let contradicts = holding("h", 30, &[sent("p", 5), sent("p", 6), sent("p", 7)]);
    let plan = planned(&[], &[further, contradicts], false);
    assert_eq!(plan.report.alone, 0, "{:?}", plan.report.conflicts);
    assert_eq!(plan.report.conflicts.items[0].left.len(), 1);
}

#[test]
fn one_zone_does_not_dispute_its_own_half_of_a_key() {
    let half = |data: &str| {
        let name = "dataplane-token-signing-public-key-default-1";
        resource(&kinds::secret::SECRET, name, 1).with_spec(token::secret_spec(data))
    };
    let names = ["Secret default/dataplane-token-signing-public-key-default-1"];
    let restored = |zones: &[ZoneHoldings]| written(&planned(&[], zones, false));
    let twice = zone("h", history(7, 1, 9), &[half("public"), half("public")]);
    assert_eq!(restored(&[twice]), names.map(|name| format!("create {name}")));
    let other = zone("h", history(7, 1, 9), &[half("public"), half("another")]);
    assert_eq!(restored(&[other, zone("a", history(7, 1, 9), &[half("public")])]).len(), 1);
}

/// What zones tell: which of them, about what, in which content.
fn tellings(most: usize) -> impl Strategy<Value = Vec<(usize, u32, u32)>> {
    proptest::collection::vec((0..3_usize, 0..3_u32, 1..4_u32), 0..most)
}

proptest! {
    /// Whatever more a zone tells of what it told already decides nothing.
    #[test]
    fn nothing_is_decided_by_repetition(
        first in tellings(9), again in tellings(20), revisions in proptest::array::uniform3(1..4_u64),
        own in 0..3_usize,
    ) {
        let held = |what: u32, content: u32| match what {
            0 => sent("p", content),
            1 => sent("q", content),
            _ => exported(content),
        };
        let mut zones: Vec<ZoneHoldings> =
            ["a", "b", "c"].iter().zip(revisions).map(|(name, revision)| holding(name, revision, &[])).collect();
        for (zone, what, content) in &first {
            zones[*zone].held.push(held(*what, *content));
        }
        let own: Vec<Resource> = ["p", "q"].iter().take(own).map(|name| policy(name, 2)).collect();
        let before = planned(&own, &zones, true);
        let told = |zone: usize, what: u32| first.iter().any(|known| (known.0, known.1) == (zone, what));
        for (zone, what, content) in again.into_iter().filter(|(zone, what, _)| told(*zone, *what)) {
            zones[zone].held.push(held(what, content));
        }
        prop_assert_eq!(decided(&planned(&own, &zones, true)), decided(&before));
    }
}
