#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use chrono::{DateTime, Utc};
use common::{
    kds::{
        features::Features,
        headers::Upstream,
        holdings::HeldResource,
        mapper::{self, DownForm},
    },
    model::{Kind, Origin, Resource, ResourceKey, kinds, labels},
    policy::mesh_timeout,
    store::{Precondition, Snapshot, StoreIdentity, Write, index::Index},
    token,
};
use uuid::Uuid;

use super::{
    plan::{GlobalStanding, RecoveryOptions, RecoveryPlan, plan},
    report::Winner,
};
use crate::kds::ZoneHoldings;

mod repetition;

fn form() -> DownForm {
    DownForm::of(&Features::ours(), &["internal.".to_owned()])
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + chrono::Duration::seconds(seconds)
}

fn resource(kind: &'static Kind, name: &str, seconds: u32) -> Resource {
    let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
    let spec = format!(r#"{{"to":[{{"default":{{"idleTimeout":"{seconds}s"}}}}]}}"#).into_bytes();
    let spec = if kind.is_json() { spec } else { Vec::new() };
    Resource::new(ResourceKey::new(kind, mesh, name), at(i64::from(seconds))).with_spec(spec)
}

fn policy(name: &str, seconds: u32) -> Resource {
    resource(&mesh_timeout::KIND, name, seconds)
}

fn history(store: u128, epoch: u64, revision: u64) -> Option<Upstream> {
    Some(Upstream { store_id: Uuid::from_u128(store), epoch, revision })
}

/// A zone that does not follow, was that far, and holds what global sent it.
fn zone(name: &str, taken: Option<Upstream>, sent: &[Resource]) -> ZoneHoldings {
    let held = |sent: &Resource| HeldResource { resource: mapper::down(sent, &form()).unwrap(), own: false };
    ZoneHoldings {
        zone: name.into(),
        taken,
        held_back: Some("global is another".to_owned()),
        held: sent.iter().map(held).collect(),
        ..ZoneHoldings::default()
    }
}

/// What a global of store 1 in epoch 1 plans that has `own`, each at its place in the list as revision.
fn planned(own: &[Resource], zones: &[ZoneHoldings], remove_absent: bool) -> RecoveryPlan {
    let numbered = own.iter().zip(1..).map(|(r, revision)| Arc::new(Resource { revision, ..r.clone() }));
    let store = StoreIdentity { store_id: Uuid::from_u128(1), epoch: 1 };
    let snapshot = Snapshot { revision: own.len() as u64, commit: None, resources: numbered.collect() };
    let index = Index::of(store, snapshot);
    let standing = GlobalStanding { index: &index, shown: store, form: &form(), now: at(1_000_000) };
    plan(standing, zones, RecoveryOptions { remove_absent, believe_one: false })
}

fn written(plan: &RecoveryPlan) -> Vec<String> {
    let word = |write: &Write| match write {
        Write::Put { when: Precondition::Absent, .. } => "create",
        Write::Put { .. } | Write::PutStatus { .. } => "replace",
        Write::Delete { .. } => "delete",
    };
    plan.writes.iter().map(|write| format!("{} {}", word(write), write.key())).collect()
}

fn winners(plan: &RecoveryPlan) -> Vec<(String, Winner)> {
    plan.report.conflicts.items.iter().map(|c| (c.resource.name.clone(), c.winner)).collect()
}

#[test]
fn what_an_empty_global_lacks_is_restored_under_its_own_name() {
    let sent = [policy("quick", 5), resource(&kinds::mesh::KIND, "default", 1)];
    let plan =
        planned(&[], &[zone("a", history(7, 3, 50), &sent), zone("b", history(7, 3, 50), &sent)], false);
    assert_eq!(written(&plan), ["create Mesh default", "create MeshTimeout default/quick"]);
    assert_eq!(
        plan.next,
        Some(StoreIdentity { store_id: Uuid::from_u128(7), epoch: 4 }),
        "the history goes on"
    );
    let Write::Put { resource, .. } = &plan.writes[1] else { panic!("a put") };
    assert_eq!(resource.owner, Some(ResourceKey::global(&kinds::mesh::KIND, "default")));
    let again = mapper::down(resource, &form()).unwrap();
    let before = mapper::down(&sent[0], &form()).unwrap();
    assert_eq!(
        (again.key, again.labels, again.spec),
        (before.key, before.labels, before.spec),
        "sent as before"
    );
    assert_eq!(plan.report.restored.items[0].zones.len(), 2);
}

#[test]
fn nothing_is_written_where_everything_is_there() {
    let own = [resource(&kinds::mesh::KIND, "default", 1), policy("quick", 5)];
    let plan = planned(&own, &[ZoneHoldings { held_back: None, ..zone("a", history(1, 1, 2), &own) }], true);
    assert_eq!((written(&plan), plan.next), (Vec::new(), None));
    let waiting = planned(&own, &[zone("a", history(1, 1, 2), &own)], true);
    assert_eq!(written(&waiting), Vec::<String>::new());
    assert_eq!(waiting.next.map(|next| next.epoch), Some(2), "who holds back is told to go on");
}

#[test]
fn the_newest_is_right_and_both_sides_are_shown() {
    let mesh = || resource(&kinds::mesh::KIND, "default", 1);
    let own = [mesh(), policy("older", 10), policy("newer", 90), policy("stale", 10)];
    let held = [mesh(), policy("older", 50), policy("newer", 50)];
    let plan = planned(&own, &[zone("a", history(1, 1, 9), &held)], false);
    assert_eq!(written(&plan), ["replace MeshTimeout default/older"]);
    assert_eq!(winners(&plan), [("newer".to_owned(), Winner::Global), ("older".to_owned(), Winner::Zones)]);
    let sides = &plan.report.conflicts.items[1];
    assert_eq!((sides.taken.zones.len(), sides.left[0].on), (1, Some("global")));
    assert!(sides.taken.content.is_some() && sides.left[0].content.is_some());
    assert_eq!(plan.report.absent.items[0].resource.name, "stale");
    let removing = planned(&own, &[zone("a", history(1, 1, 9), &held)], true);
    assert_eq!(written(&removing), ["replace MeshTimeout default/older", "delete MeshTimeout default/stale"]);
}

#[test]
fn what_a_new_global_made_for_itself_gives_way_to_what_there_was() {
    let own = [resource(&kinds::mesh::KIND, "default", 1), policy("mesh-timeout-all-default", 900)];
    let held = [resource(&kinds::mesh::KIND, "default", 1), policy("mesh-timeout-all-default", 5)];
    let plan = planned(&own, &[zone("a", history(7, 1, 9), &held)], false);
    assert_eq!(written(&plan), ["replace MeshTimeout default/mesh-timeout-all-default"]);
}

#[test]
fn labels_that_zones_are_not_sent_stay() {
    let own = [policy("p", 5).with_label("internal.team", "a")];
    let plan = planned(&own, &[zone("a", history(1, 1, 9), &[policy("p", 50)])], false);
    let Write::Put { resource, .. } = &plan.writes[0] else { panic!("a put") };
    assert_eq!(resource.label("internal.team"), Some("a"));
}

#[test]
fn what_the_zone_that_was_further_does_not_have_is_gone() {
    let mesh = resource(&kinds::mesh::KIND, "default", 1);
    let further = zone("a", history(7, 1, 60), std::slice::from_ref(&mesh));
    let behind = zone("b", history(7, 1, 40), &[mesh.clone(), policy("deleted", 5)]);
    let plan = planned(&[], &[further, behind.clone()], false);
    assert_eq!(written(&plan), ["create Mesh default"]);
    assert_eq!(winners(&plan), [("deleted".to_owned(), Winner::Gone)]);
    // A zone that was never sent it does not speak against it.
    let of_b = policy("deleted", 5).with_label("kuma.io/kds-sync", "disabled");
    let kept = zone("b", history(7, 1, 40), &[mesh.clone(), of_b]);
    let plan = planned(&[], &[zone("a", history(7, 1, 60), &[mesh]), kept], false);
    assert_eq!(plan.writes.len(), 2);
}

#[test]
fn a_secret_is_not_shown_and_not_missed_where_secrets_are_kept() {
    let secret = |data: &str| resource(&kinds::secret::SECRET, "s", 5).with_spec(token::secret_spec(data));
    let a = ZoneHoldings { secrets_kept: 1, ..zone("a", history(7, 1, 60), &[]) };
    let plan = planned(&[secret("here")], &[a, zone("b", history(7, 1, 40), &[secret("there")])], false);
    assert_eq!(written(&plan), ["replace Secret default/s"]);
    let conflict = &plan.report.conflicts.items[0];
    assert!(conflict.taken.content.is_none() && conflict.left[0].content.is_none());
    let shown = serde_json::to_string(&plan.report).unwrap();
    assert!(!shown.contains("aGVyZQ") && !shown.contains("dGhlcmU"), "{shown}");
}

#[test]
fn what_zones_export_comes_back_as_theirs_and_in_nobody_elses_name() {
    let service = |name: &str| resource(&kinds::mesh_service::KIND, name, 1);
    let own = |zone: &str, name: &str| HeldResource {
        resource: mapper::up(&service(name), zone, &[]).unwrap(),
        own: true,
    };
    let mut a = zone("a", history(7, 1, 9), &[]);
    a.held = vec![own("a", "web"), own("b", "forged")];
    // What b exports, as a holds it: b itself is not heard.
    let of_b = Resource { origin: Origin::Zone("b".into()), ..own("b", "shop").resource };
    a.held.push(HeldResource { resource: mapper::down(&of_b, &form()).unwrap(), own: false });
    let plan = planned(&[], &[a.clone()], false);
    let owners: Vec<_> = plan.report.restored.items.iter().filter_map(|item| item.owner.as_deref()).collect();
    assert_eq!(plan.report.zones[0].refused.len(), 1, "{:?}", plan.report.zones);
    let mut sorted = owners.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["a", "b"]);
    assert!(
        written(&plan).starts_with(&["create Zone a".to_owned(), "create Zone b".to_owned()]),
        "{:?}",
        written(&plan)
    );
    // b is heard and does not have it.
    let plan = planned(&[], &[a, zone("b", history(7, 1, 9), &[])], false);
    assert_eq!(plan.report.restored.total, 1);
}

#[test]
fn tokens_of_a_lost_key_stay_good_and_the_new_key_signs_under_the_next_name() {
    let named = |name: &str, data: &str| {
        resource(&kinds::secret::SECRET, name, 1).with_spec(token::secret_spec(data))
    };
    let half = named("dataplane-token-signing-public-key-default-1", "public");
    let fresh = named("dataplane-token-signing-key-default-1", "no key, but not that of the half either");
    let plan = planned(std::slice::from_ref(&fresh), &[zone("a", history(7, 1, 9), &[half])], false);
    assert_eq!(
        written(&plan),
        [
            "create Secret default/dataplane-token-signing-public-key-default-1",
            "delete Secret default/dataplane-token-signing-key-default-1",
            "create Secret default/dataplane-token-signing-key-default-2",
        ]
    );
    assert_eq!(plan.report.lost, ["Secret default/dataplane-token-signing-key-default-1"]);
}

#[test]
fn the_history_most_zones_followed_goes_on() {
    let zones = [
        zone("a", history(7, 2, 9), &[]),
        zone("b", history(7, 5, 9), &[]),
        zone("c", history(8, 9, 9), &[]),
        zone("d", None, &[]),
    ];
    let plan = planned(&[], &zones, false);
    assert_eq!(plan.next, Some(StoreIdentity { store_id: Uuid::from_u128(7), epoch: 6 }));
    let stays: Vec<_> =
        plan.report.zones.iter().filter(|z| z.stays_held_back).map(|z| z.zone.as_str()).collect();
    assert_eq!(stays, ["c"]);
    let own = planned(&[], &[zone("a", history(1, 4, 9), &[]), zone("b", history(8, 9, 9), &[])], false);
    assert_eq!(
        own.next,
        Some(StoreIdentity { store_id: Uuid::from_u128(1), epoch: 5 }),
        "its own, where none is more common"
    );
}

#[test]
fn a_zone_plants_no_key_of_users_and_replaces_none_that_checks_tokens() {
    let key = |name: &str| {
        let pem = token::new_signing_key().unwrap();
        resource(&kinds::secret::GLOBAL_SECRET, name, 1).with_spec(token::secret_spec(pem.pem()))
    };
    let planted = [
        "user-token-signing-key-99",
        "user-token-revocations",
        "zone-token-signing-key-7",
        "zone-certificate-revocations",
        "admin-user-token",
    ];
    let mut hostile = zone("h", history(1, 1, u64::MAX), &[]);
    let as_it_says = |name: &&str| HeldResource { resource: key(name), own: false };
    hostile.held.extend(planted.iter().map(as_it_says));
    let plan = planned(&[], &[hostile], false);
    assert_eq!(written(&plan), Vec::<String>::new());

    // Of a key that is here, another public half is not believed; of one nobody has, zones must agree.
    let (own, other) = (key("zone-token-signing-key-1"), key("zone-token-signing-key-1"));
    let says = |name: &str, revision| zone(name, history(1, 1, revision), std::slice::from_ref(&other));
    assert_eq!(written(&planned(std::slice::from_ref(&own), &[says("h", 900)], false)), Vec::<String>::new());
    let honest = zone("a", history(1, 1, 5), &[own]);
    assert_eq!(written(&planned(&[], &[honest, says("h", 900)], false)), Vec::<String>::new());
}

#[test]
fn a_zone_that_claims_an_epoch_out_of_reach_is_not_believed() {
    let sent = [resource(&kinds::mesh::KIND, "default", 1)];
    let far = |epoch| planned(&sent, &[zone("a", history(1, epoch, 9), &sent)], false).next.unwrap().epoch;
    assert_eq!([far(4), far(u64::MAX), far(u64::MAX - 1)], [5, 2, 2]);
}

#[test]
fn what_one_zone_says_against_several_is_marked() {
    let mesh = resource(&kinds::mesh::KIND, "default", 1);
    let honest = |name: &str| zone(name, history(7, 1, 40), &[mesh.clone(), policy("p", 5), policy("q", 5)]);
    // It says that it is further: p is something else, q was deleted, and there is one more.
    let hostile = zone("h", history(7, 1, u64::MAX), &[mesh.clone(), policy("p", 900), policy("made-up", 5)]);
    let plan = planned(&[], &[honest("a"), honest("b"), hostile.clone()], false);
    let alone: Vec<_> =
        plan.report.conflicts.items.iter().filter(|c| c.alone).map(|c| &*c.resource.name).collect();
    assert_eq!(alone, ["p", "q"]);
    let made_up = plan.report.restored.items.iter().find(|item| item.resource.name == "made-up").unwrap();
    assert!(made_up.alone && made_up.missing.len() == 2, "{made_up:?}");
    assert_eq!(
        (plan.report.alone, plan.report.loners.iter().map(|z| &**z).collect::<Vec<_>>()),
        (3, vec!["h"])
    );
    // One against one is a conflict like any other.
    assert_eq!(planned(&[], &[honest("a"), hostile], false).report.alone, 0);
    assert_eq!(planned(&[], &[honest("a"), honest("b")], false).report.alone, 0);
}

#[test]
fn no_zone_alone_speaks_for_one_that_is_not_heard() {
    let service = |port: u16| {
        let spec = format!(r#"{{"ports":[{{"port":{port}}}]}}"#).into_bytes();
        let own =
            mapper::up(&resource(&kinds::mesh_service::KIND, "shop", 1).with_spec(spec), "b", &[]).unwrap();
        let on_global = Resource { origin: Origin::Zone("b".into()), ..own };
        HeldResource { resource: mapper::down(&on_global, &form()).unwrap(), own: false }
    };
    let holding = |name: &str, revision, held: &[HeldResource]| {
        let mut zone = zone(name, history(7, 1, revision), &[]);
        zone.held.extend(held.iter().cloned());
        zone
    };
    let restored = |zones: &[ZoneHoldings]| -> Vec<Vec<String>> {
        let plan = planned(&[], zones, false);
        plan.report
            .restored
            .items
            .iter()
            .map(|item| item.zones.iter().map(ToString::to_string).collect())
            .collect()
    };
    let (true_one, forged) = (service(80), service(666));
    let [a, c] = ["a", "c"].map(|name| holding(name, 40, std::slice::from_ref(&true_one)));
    let hostile = holding("h", u64::MAX, std::slice::from_ref(&forged));
    assert_eq!(
        restored(&[a.clone(), c, hostile.clone()]),
        [["a", "c"]],
        "as most hold it, however far one is"
    );
    assert_eq!(restored(&[holding("a", 40, &[]), hostile.clone()]), Vec::<Vec<String>>::new());
    let plan = planned(&[], &[holding("a", 40, &[]), hostile], false);
    assert_eq!(plan.report.conflicts.items[0].winner, Winner::Gone, "and listed");
    assert_eq!(restored(&[a]), [["a"]], "who was asked agrees");
}

#[test]
fn a_key_that_zones_are_never_sent_is_believed_of_none() {
    let key = || token::new_signing_key().unwrap().pem().to_owned();
    let named = |name: &str, data: &str| {
        resource(&kinds::secret::SECRET, name, 1).with_spec(token::secret_spec(data))
    };
    let signing = named("dataplane-token-signing-key-default-1", &key());
    let root = named(&common::ca::key_secret("default", "ca-1"), &key());
    let mesh = || resource(&kinds::mesh::KIND, "default", 1);
    let zone_only = mesh().with_label(labels::ISSUING, labels::ISSUING_ZONE_ONLY);
    let claims = |mesh: Resource| zone("h", history(7, 1, 9), &[mesh, signing.clone(), root.clone()]);
    let secrets = |own: &[Resource], zones: &[ZoneHoldings]| -> usize {
        written(&planned(own, zones, false)).iter().filter(|write| write.contains("Secret")).count()
    };
    assert_eq!(secrets(&[], &[claims(mesh())]), 2, "zones of such a mesh have them");
    // Whether global knows it, or another zone, or the one that says it.
    assert_eq!(secrets(std::slice::from_ref(&zone_only), &[claims(mesh())]), 0);
    assert_eq!(
        secrets(&[], &[claims(mesh()), zone("a", history(7, 1, 9), std::slice::from_ref(&zone_only))]),
        0
    );
    assert_eq!(secrets(&[], &[claims(zone_only)]), 0);
    // And where others hold the public half of another one.
    let half = named("dataplane-token-signing-public-key-default-1", "of another key");
    let plan = planned(&[], &[claims(mesh()), zone("a", history(7, 1, 9), &[mesh(), half])], false);
    let private = "create Secret default/dataplane-token-signing-key-default-1".to_owned();
    assert!(!written(&plan).contains(&private), "{:?}", written(&plan));
    assert_eq!(plan.report.zones.iter().find(|zone| zone.zone == "h").unwrap().refused.len(), 1);
}
