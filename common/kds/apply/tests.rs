#![allow(clippy::unwrap_used)]

mod names;

use std::time::Duration;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    signature::Ed25519KeyPair,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    kds::{features::Features, mapper, signature::KeyOfResources},
    policy::mesh_timeout,
    runtime::{Clock, Entropy},
    store::{Snapshot, StoreIdentity, feed::Feed, index::Owned, memory::MemoryStore},
};

const SPEC: &[u8] = br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}"#;

fn zone(name: &str) -> Origin {
    Origin::Zone(name.into())
}

/// Global, as it follows `zone-1`.
fn global(foreign: Foreign) -> Follower {
    Follower::Global {
        zone: "zone-1".into(),
        foreign,
        naming: ZoneNaming::Hashed,
        quota: ZoneQuota::default(),
    }
}

/// The same resource as `zone-1` sends it to global.
fn up(resource: Resource) -> Resource {
    let claimed = resource.labels.get(labels::ZONE).map(str::to_owned);
    let mut sent = mapper::up(&resource, "zone-1", &[]).unwrap();
    sent.labels.extend(claimed.map(|zone| (labels::ZONE.to_owned(), zone)));
    sent
}

/// How it is called there.
fn called(name: &str) -> String {
    up(from_global(name)).name().to_owned()
}

fn resource(name: &str, origin: Origin) -> Resource {
    let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
    Resource { origin, ..Resource::new(key, DateTime::UNIX_EPOCH).with_spec(SPEC) }
}

fn index(resources: impl IntoIterator<Item = Resource>) -> Index {
    let resources = resources.into_iter().map(Arc::new).collect();
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    Index::of(store, Snapshot { revision: 1, commit: None, resources })
}

fn received(items: &[Resource], removed: &[&str], full: bool, follower: &Follower) -> DecodedResponse {
    let encoded: Vec<(String, Any)> = items
        .iter()
        .map(|r| {
            let encoded = codec::encode(r);
            let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: encoded.value.to_vec() };
            (encoded.name.to_string(), any)
        })
        .collect();
    let removed = removed.iter().map(|name| (*name).to_owned()).collect();
    let pairs = encoded.iter().map(|(name, any)| (name.as_str(), Some(any)));
    DecodedResponse::decode(&mesh_timeout::KIND, pairs, removed, full, follower)
}

/// What a plan does, in words.
fn words(plan: &Plan) -> Vec<String> {
    plan.writes
        .iter()
        .map(|write| match write {
            Write::Put { resource, when: Precondition::Absent } => format!("create {}", resource.name()),
            Write::Put { resource, .. } => format!("update {}", resource.name()),
            Write::PutStatus { key, .. } => format!("status {}", key.name),
            Write::Delete { key, .. } => format!("delete {}", key.name),
        })
        .collect()
}

fn on_zone(held: &[Resource], sent: &[Resource], removed: &[&str], full: bool) -> Plan {
    let received = received(sent, removed, full, &Follower::Zone);
    plan(&index(held.to_vec()), &received, &Follower::Zone, DateTime::UNIX_EPOCH)
}

fn from_global(name: &str) -> Resource {
    resource(name, Origin::Global)
}

#[test]
fn a_full_state_replaces_what_is_in_scope() {
    let held = [from_global("stays"), from_global("goes"), resource("own", zone("zone-1"))];
    let plan = on_zone(&held, &[from_global("stays"), from_global("new")], &[], true);
    assert_eq!(words(&plan), ["create new", "delete goes"]);
    assert_eq!((plan.removed, plan.held), (1, 2));
}

#[test]
fn an_increment_touches_what_it_names() {
    let held = [from_global("a"), from_global("b"), from_global("c")];
    let changed = from_global("b").with_label("team", "x");
    let plan = on_zone(&held, &[changed], &["c.default", "unknown.default", "b.default"], false);
    assert_eq!(words(&plan), ["update b", "delete c"]);
}

#[test]
fn another_origin_is_a_conflict_and_the_rest_is_taken() {
    let held = [resource("own", zone("zone-1"))];
    let plan = on_zone(&held, &[from_global("own"), from_global("new")], &["own.default"], false);
    assert_eq!(words(&plan), ["create new"]);
    assert_eq!(plan.verdicts[0].cause, RefusalCause::Conflict);
    assert!(plan.verdicts[0].reason.contains("zone zone-1"), "{}", plan.verdicts[0].reason);
}

#[test]
fn joining_a_federation_hands_over_what_only_global_may_write() {
    let mesh = |origin| {
        let key = ResourceKey::global(&kinds::mesh::KIND, "default");
        Resource { origin, ..Resource::new(key, DateTime::UNIX_EPOCH) }
    };
    let sent = mesh(Origin::Global).with_label(labels::ORIGIN, "global");
    let encoded = codec::encode(&sent);
    let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: encoded.value.to_vec() };
    let pairs = [(&*encoded.name, Some(&any))];
    let received = DecodedResponse::decode(&kinds::mesh::KIND, pairs, vec![], true, &Follower::Zone);
    let plan = plan(&index([mesh(zone("zone-1"))]), &received, &Follower::Zone, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), ["update default"]);
}

#[test]
fn a_bad_item_refuses_itself_and_spares_what_is_stored() {
    let follower = Follower::Zone;
    let good = from_global("good");
    let mut bad = from_global("bad");
    bad.spec = (&b"[]"[..]).into();
    let received = received(&[good, bad], &[], true, &follower);
    let plan = plan(&index([from_global("bad")]), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), ["create good"]);
    assert_eq!(plan.verdicts.len(), 1);
    assert_eq!(plan.verdicts[0].name, "bad.default");
}

#[test]
fn a_zone_keeps_its_own_status() {
    let service = |status: Option<bytes::Bytes>| {
        let key = ResourceKey::new(&kinds::mesh_service::KIND, "default", "s");
        Resource { status, ..Resource::new(key, DateTime::UNIX_EPOCH) }
    };
    let sent = service(mapper::blank_status(&kinds::mesh_service::KIND)).with_label("a", "b");
    let decode = |follower: &Follower| {
        let on_the_way = if *follower == Follower::Zone { sent.clone() } else { up(sent.clone()) };
        let encoded = codec::encode(&on_the_way);
        let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: encoded.value.to_vec() };
        let pairs = [(&*encoded.name, Some(&any))];
        DecodedResponse::decode(&kinds::mesh_service::KIND, pairs, vec![], false, follower)
    };
    let local = r#"{"vips":[{"ip":"10.0.1.1"}]}"#;
    let status_of = |plan: Plan| match &plan.writes[0] {
        Write::Put { resource, .. } => resource.status.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let held = index([service(Some(local.into()))]);
    let zone_plan = plan(&held, &decode(&Follower::Zone), &Follower::Zone, DateTime::UNIX_EPOCH);
    assert_eq!(status_of(zone_plan), local);
    let follower = global(Foreign::Rewrite);
    let global_plan = plan(&index([]), &decode(&follower), &follower, DateTime::UNIX_EPOCH);
    assert_eq!(status_of(global_plan), sent.status.clone().unwrap());
}

#[test]
fn global_attributes_to_the_session() {
    let follower = global(Foreign::Rewrite);
    let claims = up(from_global("t").with_label(labels::ZONE, "zone-2"));
    let received = received(&[claims], &[], true, &follower);
    assert_eq!(received.misattributed.len(), 1);
    let held = [resource("other", zone("zone-2")), resource("mine", zone("zone-1")), from_global("g")];
    let plan = plan(&index(held), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), [format!("create {}", called("t")), "delete mine".to_owned()]);
    let Write::Put { resource, .. } = &plan.writes[0] else { panic!("a put") };
    assert_eq!(resource.origin, zone("zone-1"));
    assert_eq!(&resource.labels[labels::ZONE], "zone-1");
    assert_eq!(resource.owner, Some(ResourceKey::global(&kinds::zone::KIND, "zone-1")));
}

#[test]
fn a_claim_of_another_zone_is_refused_alone_and_what_is_stored_stays() {
    let follower = global(Foreign::Refuse);
    let mine = || up(resource("mine", zone("zone-1")));
    let claims = mine().with_label(labels::ZONE, "zone-2");
    let received = received(&[claims, up(resource("good", zone("zone-1")))], &[], true, &follower);
    let plan = plan(&index([mine()]), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), [format!("create {}", called("good"))]);
    let [verdict] = &plan.verdicts[..] else { panic!("{:?}", plan.verdicts) };
    assert_eq!(
        verdict.to_string(),
        called("mine")
            + ".default: labels[\"kuma.io/zone\"] names zone \"zone-2\", but zone \"zone-1\" sends it: apply it \
               on the zone it names, or name \"zone-1\" there"
    );
    assert_eq!(received.misattributed.len(), 1);
}

#[test]
fn an_item_of_another_type_does_not_pass() {
    let mesh = Resource::new(ResourceKey::global(&kinds::mesh::KIND, "m"), DateTime::UNIX_EPOCH);
    let received = received(&[mesh], &[], false, &Follower::Zone);
    assert_eq!(received.refused.len(), 1);
    assert!(received.items.is_empty());
}

struct Epoch;

impl Clock for Epoch {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH
    }
}

async fn applier(store: &Arc<MemoryStore>, follower: Follower) -> Applier {
    let feed = Feed::load(Arc::clone(store) as Arc<dyn Store>).await.unwrap();
    let applier = with_index(store, feed.reader(), follower);
    tokio::spawn(feed.run(tokio_util::sync::CancellationToken::new()));
    applier
}

fn with_index(store: &Arc<MemoryStore>, index: IndexReader, follower: Follower) -> Applier {
    let env = Env { clock: Arc::new(Epoch), entropy: Entropy::seeded(1), instance_id: "test".into() };
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Applier { store, index, env, follower, fence: None, fuse: Fuse::default(), trusted: None }
}

#[test]
fn a_zone_gets_no_more_than_its_quota_and_keeps_what_it_has() {
    let plan_with = |quota, sent: &[Resource], removed: &[&str], full| {
        let follower = Follower::Global {
            zone: "zone-1".into(),
            foreign: Foreign::Refuse,
            naming: ZoneNaming::Hashed,
            quota,
        };
        let own = |name| Resource { origin: zone("zone-1"), ..up(from_global(name)) };
        let foreign = resource("foreign", zone("zone-2"));
        let received = received(sent, removed, full, &follower);
        let plan = plan(&index([own("a"), own("b"), foreign]), &received, &follower, DateTime::UNIX_EPOCH);
        let refused: Vec<String> = plan.verdicts.iter().map(|verdict| verdict.reason.clone()).collect();
        (plan.writes.len(), refused)
    };
    let unlimited = ZoneQuota { total: 0, per_kind: 0, bytes: 0 };
    let of_two = ZoneQuota { per_kind: 2, ..unlimited };
    let (new, other) = (up(from_global("c")), up(from_global("d")));
    let changed = up(from_global("a").with_label("team", "x"));
    assert_eq!(plan_with(unlimited, &[new.clone(), other.clone()], &[], false), (2, vec![]));
    for (quota, setting) in [(of_two, "perKind"), (ZoneQuota { total: 2, ..unlimited }, "total")] {
        // What is there is still changed and removed.
        let (writes, refused) = plan_with(quota, &[changed.clone(), new.clone()], &[], false);
        assert_eq!((writes, refused.len()), (1, 1));
        assert!(refused[0].contains("zone-1") && refused[0].contains(setting), "{refused:?}");
        // And makes room, for as many.
        let gone = format!("{}.default", called("b"));
        let (writes, refused) = plan_with(quota, &[new.clone(), other.clone()], &[&gone], false);
        assert_eq!((writes, refused.len()), (2, 1));
        let (writes, refused) = plan_with(quota, &[new.clone(), other.clone()], &[], true);
        assert_eq!((writes, refused.len()), (4, 0));
    }
    let held = ["a", "b"].map(|name| Owned::one(&up(from_global(name))).bytes).iter().sum();
    let full = ZoneQuota { bytes: held, ..unlimited };
    let (mut longer, mut changed) = (up(from_global("a")), up(from_global("b")));
    longer.spec = [SPEC, b"  "].concat().into();
    changed.spec = String::from_utf8_lossy(SPEC).replace("20s", "30s").into();
    let labelled = up(from_global("a").with_label("team", "x"));
    assert_eq!(plan_with(full, &[changed], &[], false), (1, vec![]), "what gets no longer is taken");
    let (writes, refused) = plan_with(full, &[longer, new], &[], false);
    assert_eq!((writes, refused.len()), (0, 2));
    assert!(refused[0].contains("zoneQuota.bytes"), "{refused:?}");
    let (writes, refused) = plan_with(full, &[labelled], &[], false);
    assert_eq!((writes, refused.len()), (0, 1), "a label is as long as anything else: {refused:?}");
}

#[test]
fn an_index_knows_what_zones_own() {
    let held = |name: &str, owner: &str| resource(name, zone(owner));
    let mut index = index([held("a", "zone-1"), held("b", "zone-1"), held("c", "zone-2"), from_global("d")]);
    let owned = |index: &Index, zone: &str| {
        let (of_kind, all) = (index.owned_of(&zone.into(), &mesh_timeout::KIND), index.owned(&zone.into()));
        assert_eq!(of_kind, all);
        (all.items, all.bytes)
    };
    let one = Owned::one(&held("a", "zone-1")).bytes;
    assert!(one > SPEC.len());
    assert_eq!(owned(&index, "zone-1"), (2, 2 * one));
    assert_eq!((owned(&index, "zone-2").0, owned(&index, "zone").0), (1, 0));
    let mut change = |resource: Resource, stays: bool| {
        let (key, revision) = (resource.key.clone(), index.revision + 1);
        let resource = Some(Arc::new(resource)).filter(|_| stays);
        index.apply(&crate::store::Change { revision, key, resource });
        (owned(&index, "zone-1"), owned(&index, "zone-2"))
    };
    assert_eq!(change(held("a", "zone-2"), true), ((1, one), (2, 2 * one)));
    assert_eq!(change(held("b", "zone-1").with_spec(&b"x"[..]), true).0, (1, one - SPEC.len() + 1));
    let labelled = held("b", "zone-1").with_label("team", &"x".repeat(1000));
    assert!(change(labelled, true).0.1 > one + 1000);
    assert_eq!(change(held("b", "zone-1"), false), ((0, 0), (2, 2 * one)));
    assert_eq!(change(held("b", "zone-1"), false).0, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn applying_twice_writes_once() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let applier = applier(&store, Follower::Zone).await;
    let response = received(&[from_global("a"), from_global("b")], &[], true, &Follower::Zone);
    assert_eq!(applier.apply(&response).await.unwrap().changed, 2);
    let again = applier.apply(&response).await.unwrap();
    assert_eq!((again.changed, again.revision), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_fuse_keeps_everything() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let applier = applier(&store, Follower::Zone).await;
    let many: Vec<Resource> = (0..21).map(|i| from_global(&format!("t{i}"))).collect();
    applier.apply(&received(&many, &[], true, &Follower::Zone)).await.unwrap();
    let empty = received(&[], &[], true, &Follower::Zone);
    let error = applier.apply(&empty).await.unwrap_err();
    assert!(matches!(error, ApplyError::Blown { removed: 21, held: 21, .. }), "{error}");
    assert_eq!(applier.index.current().count(&mesh_timeout::KIND), 21);
    let open = Applier { fuse: Fuse::OPEN, ..applier };
    assert_eq!(open.apply(&empty).await.unwrap().changed, 21);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_session_writes_nothing() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let ttl = Duration::from_secs(60);
    let old = store.acquire("kds/zone-1", "a", ttl, true).await.unwrap().unwrap();
    store.acquire("kds/zone-1", "b", ttl, true).await.unwrap();
    let mut applier = applier(&store, Follower::Zone).await;
    applier.fence = Some(Fence { name: old.name, epoch: old.epoch });
    let response = received(&[from_global("a")], &[], true, &Follower::Zone);
    let error = applier.apply(&response).await.unwrap_err();
    assert!(matches!(error, ApplyError::Store(StoreError::Fenced { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_stored_for_a_zone_that_was_deleted() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let follower = global(Foreign::Rewrite);
    let applier = applier(&store, follower.clone()).await;
    let error = applier.apply(&received(&[from_global("a")], &[], true, &follower)).await.unwrap_err();
    assert!(matches!(error, ApplyError::ZoneGone(_)), "{error}");
}

/// The zone is deleted after the plan was made and before it is committed: the index is behind the store
/// until the feed runs.
#[tokio::test(start_paused = true)]
async fn nothing_outlives_a_zone_that_is_deleted_meanwhile() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let zone = ResourceKey::global(&kinds::zone::KIND, "zone-1");
    let put = Write::put(Resource::new(zone.clone(), DateTime::UNIX_EPOCH));
    store.transact(Batch::of([put])).await.unwrap();
    let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let follower = global(Foreign::Rewrite);
    let applier = with_index(&store, feed.reader(), follower.clone());
    store.transact(Batch::of([Write::delete_when(zone, Precondition::None)])).await.unwrap();
    let response = received(&[up(from_global("a"))], &[], true, &follower);
    let (applied, ()) = tokio::join!(biased; applier.apply(&response), async {
        tokio::spawn(feed.run(tokio_util::sync::CancellationToken::new()));
    });
    assert!(matches!(applied, Err(ApplyError::ZoneGone(_))), "{applied:?}");
    assert_eq!(store.snapshot().await.unwrap().resources.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_is_changed_meanwhile_is_no_obstacle() {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let zone = Resource::new(ResourceKey::global(&kinds::zone::KIND, "zone-1"), DateTime::UNIX_EPOCH);
    store.transact(Batch::of([Write::put(zone.clone())])).await.unwrap();
    let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let follower = global(Foreign::Rewrite);
    let applier = with_index(&store, feed.reader(), follower.clone());
    store.transact(Batch::of([Write::put(zone.with_label("a", "b"))])).await.unwrap();
    let response = received(&[up(from_global("a"))], &[], true, &follower);
    let (applied, ()) = tokio::join!(biased; applier.apply(&response), async {
        tokio::spawn(feed.run(tokio_util::sync::CancellationToken::new()));
    });
    assert_eq!(applied.unwrap().changed, 1);
    let kept = store.snapshot().await.unwrap();
    assert!(kept.resources.iter().any(|r| r.label("a") == Some("b")), "the zone is as it was");
}

fn any_origin() -> impl Strategy<Value = Origin> {
    prop_oneof![Just(Origin::Global), Just(zone("zone-1")), Just(zone("zone-2"))]
}

fn any_resources() -> impl Strategy<Value = Vec<Resource>> {
    let one = (0..6usize, any_origin(), 0..3usize).prop_map(|(name, origin, label)| {
        resource(&format!("r{name}"), origin).with_label("x", &label.to_string())
    });
    proptest::collection::vec(one, 0..8).prop_map(|all| {
        let unique: BTreeMap<ResourceKey, Resource> = all.into_iter().map(|r| (r.key.clone(), r)).collect();
        unique.into_values().collect()
    })
}

fn any_follower() -> impl Strategy<Value = Follower> {
    prop_oneof![Just(Follower::Zone), Just(global(Foreign::Rewrite))]
}

proptest! {
    #[test]
    fn never_touches_foreign_origin_and_converges(
        held in any_resources(),
        sent in any_resources(),
        removed in proptest::collection::vec(0..6usize, 0..4),
        full: bool,
        follower in any_follower(),
    ) {
        // On global every name of a zone is made of the zone.
        let on_global = |resource: Resource| match resource.origin.clone() {
            Origin::Zone(zone) => mapper::up(&resource, &zone, &[]).unwrap(),
            Origin::Global => resource,
        };
        let (mut before, mut sent) = (held, sent);
        if matches!(follower, Follower::Global { .. }) {
            before = before.into_iter().map(on_global).collect();
            sent = sent.into_iter().map(up).collect();
            let key = ResourceKey::global(&kinds::zone::KIND, "zone-1");
            before.push(Resource::new(key, DateTime::UNIX_EPOCH));
        }
        let removed: Vec<String> = removed.iter().map(|n| format!("r{n}.default")).collect();
        let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
        let response = received(&sent, &removed, full, &follower);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(MemoryStore::new(Uuid::nil()));
            store.transact(Batch::of(before.iter().cloned().map(Write::put))).await.unwrap();
            let applier = applier(&store, follower.clone()).await;
            applier.apply(&response).await.unwrap();
            let after = applier.index.current();
            for foreign in before.iter().filter(|r| !follower.in_scope(r)) {
                let kept = after.get(&foreign.key).unwrap();
                prop_assert!(kept.same_content(foreign), "{} was touched", foreign.key);
            }
            let again = applier.apply(&response).await.unwrap();
            prop_assert_eq!(again.changed, 0);
            Ok(())
        })?;
    }
}

/// A key that signs, and the text by which it is trusted.
fn signing_key() -> (KeyOfResources, String) {
    let pair = Ed25519KeyPair::generate().unwrap();
    let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let text = pem::encode(&pem::Pem::new("PRIVATE KEY", private.as_ref()));
    let key = KeyOfResources::from_pem(&text).unwrap();
    let public = key.public_pem();
    (key, public)
}

#[tokio::test]
async fn what_is_not_signed_changes_nothing_and_holds_back_nothing() {
    let ((key, public), (_, strange)) = (signing_key(), signing_key());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), strange).unwrap();
    let trusted = TrustedFile::open(file.path(), "keys").unwrap();
    let form = mapper::DownForm::of(&Features::ours(), &[]);
    let sent = |name: &str, is_signed: bool| {
        let mut form = mapper::down(&from_global(name), &form).unwrap();
        if is_signed {
            form.labels.insert(labels::SIGNATURE, key.signature_of(&form));
        }
        let wanted = codec::encode(&form);
        let any = Any { type_url: wanted.type_url.to_owned(), value: wanted.value.to_vec() };
        (wanted.name.to_string(), any)
    };
    let decode = |items: &[(String, Any)]| {
        let items = items.iter().map(|(name, any)| (name.as_str(), Some(any)));
        let mut received =
            DecodedResponse::decode(&mesh_timeout::KIND, items, Vec::new(), true, &Follower::Zone);
        received.demand_signatures(&trusted);
        received
    };
    let all = [sent("t", true), sent("u", true), sent("v", false)];
    let received = decode(&all);
    assert_eq!((received.items.len(), received.refused.len()), (0, 3), "nobody trusts that key yet");
    std::fs::write(file.path(), public).unwrap();
    let received = decode(&all);
    assert_eq!((received.items.len(), received.refused.len()), (2, 1), "a key that was added counts at once");
    assert!(received.refused[0].name == all[2].0 && received.refused[0].reason.contains("not signed"));

    // What a forged one would replace stays, also where the state without it is all there is.
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let applier = applier(&store, Follower::Zone).await;
    assert_eq!(applier.apply(&received).await.unwrap().changed, 2);
    let forged = [sent("t", true), sent("u", false)];
    let applied = applier.apply(&decode(&forged)).await.unwrap();
    assert_eq!((applied.changed, applied.verdicts.len()), (0, 1));
}
