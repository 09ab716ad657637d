//! Random changes, writes that are lost, and leaders that die in the middle.

use std::collections::BTreeSet;

use chrono::Duration;
use common::model::kinds::{
    dataplane,
    destinations::{HOSTNAME_GENERATOR, MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
    mesh_service,
};
use proptest::prelude::*;

use super::world::{World, proxy};

#[derive(Clone, Debug)]
enum Op {
    Proxy(u8, u8, bool),
    ProxyGone(u8),
    Own(u8),
    ServiceGone(u8),
    MultiZone(u8, u8),
    MultiZoneGone(u8),
    External(u8),
    ExternalGone(u8),
    Generator(u8, bool),
    GeneratorGone(u8),
    Mode(u8),
    /// Time passes.
    Later(u16),
    /// So many of the writes go through, the rest is lost with the leader.
    Death(u8),
    /// All go through.
    Settle,
}

fn op() -> impl Strategy<Value = Op> {
    let few = || 0..4_u8;
    prop_oneof![
        4 => (few(), few(), any::<bool>()).prop_map(|(name, service, ready)| Op::Proxy(name, service, ready)),
        2 => few().prop_map(Op::ProxyGone),
        1 => few().prop_map(Op::Own),
        1 => few().prop_map(Op::ServiceGone),
        3 => (0..12_u8, few()).prop_map(|(name, service)| Op::MultiZone(name, service)),
        2 => (0..12_u8).prop_map(Op::MultiZoneGone),
        2 => (0..12_u8).prop_map(Op::External),
        1 => (0..12_u8).prop_map(Op::ExternalGone),
        1 => (few(), any::<bool>()).prop_map(|(name, same)| Op::Generator(name, same)),
        1 => few().prop_map(Op::GeneratorGone),
        1 => few().prop_map(Op::Mode),
        1 => any::<u16>().prop_map(Op::Later),
        3 => few().prop_map(Op::Death),
        3 => Just(Op::Settle),
    ]
}

fn apply(world: &mut World, op: &Op) {
    let service = |number: u8| format!("s{number}");
    match op {
        Op::Proxy(name, of, ready) => {
            let state = if *ready { "Ready" } else { "NotReady" };
            world.put(&proxy(&format!("p{name}"), &service(*of), 80 + u32::from(*name % 2), state, ""));
        }
        Op::ProxyGone(name) => world.delete(&dataplane::KIND, &format!("p{name}")),
        Op::Own(name) => {
            let name = service(*name);
            if world.service(&name).is_none() {
                world.put(&format!(
                    "{{type: MeshService, mesh: default, name: {name}, spec: {{ports: [{{port: 7}}]}}}}"
                ));
            }
        }
        Op::ServiceGone(name) => world.delete(&mesh_service::KIND, &service(*name)),
        Op::MultiZone(name, of) => world.put(&format!(
            "{{type: MeshMultiZoneService, mesh: default, name: m{name}, spec: {{selector: {{meshService: \
             {{matchLabels: {{kuma.io/display-name: {}}}}}}}, ports: [{{port: 80}}]}}}}",
            service(*of)
        )),
        Op::MultiZoneGone(name) => world.delete(&MESH_MULTI_ZONE_SERVICE, &format!("m{name}")),
        Op::External(name) => world.put(&format!(
            "{{type: MeshExternalService, mesh: default, name: x{name}, spec: {{match: {{port: 80}}, endpoints: \
             [{{address: 192.0.2.{name}, port: 80}}]}}}}"
        )),
        Op::ExternalGone(name) => world.delete(&MESH_EXTERNAL_SERVICE, &format!("x{name}")),
        Op::Generator(name, same) => {
            let template = if *same { "same.mesh" } else { "{{ .DisplayName }}.mesh" };
            let of = if *name % 2 == 0 { "meshService" } else { "meshExternalService" };
            world.put(&format!(
                "{{type: HostnameGenerator, name: g{name}, spec: {{selector: {{{of}: {{}}}}, template: \
                 '{template}'}}}}"
            ));
        }
        Op::GeneratorGone(name) => world.delete(&HOSTNAME_GENERATOR, &format!("g{name}")),
        Op::Mode(number) => {
            let mode = ["Disabled", "Everywhere", "ReachableBackends", "Exclusive"][usize::from(*number)];
            world.put(&format!("{{type: Mesh, name: default, meshServices: {{mode: {mode}}}}}"));
        }
        Op::Later(seconds) => world.now += Duration::seconds(i64::from(*seconds)),
        Op::Death(through) => {
            let writes = world.step();
            writes.into_iter().take(usize::from(*through)).for_each(|write| world.commit(write));
            world.die();
        }
        Op::Settle => world.settle(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn an_address_that_was_stored_is_kept_and_nobody_elses(ops in prop::collection::vec(op(), 1..40)) {
        let mut world = World::generating();
        for op in &ops {
            let before = world.addresses();
            apply(&mut world, op);
            let after = world.addresses();
            for (service, address) in &before {
                prop_assert!(after.get(service).is_none_or(|now| now == address), "{service} was moved");
            }
            let distinct: BTreeSet<_> = after.values().collect();
            prop_assert_eq!(distinct.len(), after.len(), "two services have one address: {:?}", &after);
        }
        world.settle();
        let kinds = [&mesh_service::KIND, &MESH_EXTERNAL_SERVICE, &MESH_MULTI_ZONE_SERVICE];
        for service in kinds.into_iter().flat_map(|kind| world.index.list(kind)) {
            prop_assert!(world.addresses().contains_key(&service.key), "{} has none", service.key);
            let violations = service.kind().validate(&service.spec).unwrap();
            prop_assert!(violations.is_empty(), "no other control plane would take {}: {violations}", service.key);
        }
    }

    /// Whatever is written when it dies, what is left to do comes to the same as if it had not died: nothing is half
    /// done for good.
    #[test]
    fn dying_in_the_middle_changes_nothing_in_the_end(ops in prop::collection::vec(op(), 1..20), through in 0..6_usize) {
        let calm: Vec<Op> = ops.into_iter().filter(|op| !matches!(op, Op::Death(_) | Op::Later(_))).collect();
        let (mut whole, mut dying) = (World::generating(), World::generating());
        for op in &calm {
            apply(&mut whole, op);
            apply(&mut dying, op);
        }
        for round in 0.. {
            let writes = dying.step();
            if writes.is_empty() {
                break;
            }
            prop_assert!(round < 1000, "it writes for ever: {writes:?}");
            writes.into_iter().take(through.max(1)).for_each(|write| dying.commit(write));
            dying.die();
        }
        whole.settle();
        prop_assert_eq!(whole.said(), dying.said());
    }

    #[test]
    fn who_begins_anew_finds_nothing_to_do(ops in prop::collection::vec(op(), 1..40)) {
        let mut world = World::generating();
        for op in &ops {
            apply(&mut world, op);
        }
        world.settle();
        world.die();
        let writes = world.step();
        prop_assert!(writes.is_empty(), "{writes:?}");
    }
}

/// Who lost everything and is told the same again, in another order, gives everybody the address they had.
#[test]
fn a_store_that_is_lost_moves_nobody() {
    let mut told: Vec<Op> = (0..4).map(|n| Op::Proxy(n, n, true)).chain((0..12).map(Op::External)).collect();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let mut world = World::generating();
        for op in &told {
            apply(&mut world, op);
            world.settle();
        }
        addresses.push(world.addresses());
        told.reverse();
    }
    assert_eq!(addresses[0].len(), 16);
    assert_eq!(addresses[0], addresses[1]);
}
