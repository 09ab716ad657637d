//! What is kept of changes.

use std::time::Duration;

use futures::future::join_all;

use super::*;
use crate::{
    model::Origin,
    store::history::{Author, HistoryLimits, HistoryOp, HistoryQuery, PastChange, PastChanges},
};

fn by(name: &str) -> Author {
    Author::User(name.to_owned())
}

async fn write(store: &dyn Store, writes: impl IntoIterator<Item = Write>, author: Author) -> Revision {
    store.transact(Batch::of(writes).by(author)).await.unwrap().revision
}

async fn past(store: &dyn Store, query: HistoryQuery) -> PastChanges {
    store.history(&query).await.unwrap()
}

fn whole() -> HistoryQuery {
    HistoryQuery { contents: true, ..HistoryQuery::default() }
}

/// Revision, change and author, in short.
fn told(changes: &[PastChange]) -> Vec<(Revision, &'static str, String)> {
    changes.iter().map(|c| (c.revision, c.op.as_str(), c.author.to_string())).collect()
}

pub async fn a_change_keeps_what_it_replaced_and_who_made_it(stores: &dyn Stores) {
    let store = store(stores).await;
    let mut first = policy("p", 1);
    first.labels.insert("team", "blue");
    first.owner = Some(mesh("default").key);
    first.origin = Origin::Zone("east".into());
    write(&*store, [Write::put(mesh("default")), Write::put(first.clone())], by("ann")).await;
    write(&*store, [Write::put(policy("p", 2))], Author::Zone("east".to_owned())).await;
    write(&*store, [Write::put(policy("p", 2))], by("nobody, for nothing changes")).await;
    let refused = Batch::of([Write::put_when(policy("p", 3), Precondition::Absent)]).by(by("eve"));
    store.transact(refused).await.unwrap_err();
    write(&*store, [Write::delete_when(first.key.clone(), Precondition::Exists)], Author::ControlPlane).await;

    let of_one = HistoryQuery { key: Some(first.key.clone()), ..whole() };
    let found = past(&*store, of_one).await;
    assert_eq!(found.floor, 0);
    let expected = [
        (3, "delete", "control plane".to_owned()),
        (2, "update", "zone east".to_owned()),
        (1, "create", "user ann".to_owned()),
    ];
    assert_eq!(told(&found.changes), expected);
    let before = |n: usize| found.changes[n].before.as_deref().cloned();
    let second = Resource { revision: 2, created: first.created, ..policy("p", 2) };
    assert_eq!(before(0), Some(second));
    assert_eq!(before(1), Some(Resource { revision: 1, ..first }));
    assert_eq!(before(2), None);
}

pub async fn writers_of_one_resource_leave_an_unbroken_line(stores: &dyn Stores) {
    let store = store(stores).await;
    join_all((0..40).map(|n| write(&*store, [Write::put(policy("p", n))], by(&n.to_string())))).await;
    let found = past(&*store, HistoryQuery { oldest_first: true, ..whole() }).await.changes;
    assert_eq!(found.len(), 40);
    assert!(found[0].before.is_none() && found[0].op == HistoryOp::Create);
    for (one, next) in found.iter().zip(&found[1..]) {
        let before = next.before.as_ref().unwrap();
        assert_eq!(before.revision, one.revision, "each replaced what the one before it wrote");
        let value = one.author.to_string().replace("user ", "");
        assert_eq!(before.spec, policy("p", value.parse().unwrap()).spec);
    }
}

pub async fn statuses_insights_and_secrets_are_not_kept(stores: &dyn Stores) {
    let store = store(stores).await;
    let secret = |value: &'static str| {
        let key = ResourceKey::new(&kinds::secret::SECRET, "default", "s");
        Resource::new(key, time(0)).with_spec(value.as_bytes())
    };
    let insight = Resource::new(ResourceKey::global(&kinds::zone_insight::KIND, "east"), time(0));
    write(&*store, [Write::put(policy("p", 1)), Write::put(secret("a")), Write::put(insight)], by("ann"))
        .await;
    let status = Some(Bytes::from_static(b"{}"));
    let key = policy("p", 1).key;
    write(&*store, [Write::PutStatus { key, status, now: time(1) }], Author::ControlPlane).await;
    write(&*store, [Write::put(secret("b"))], by("ann")).await;
    write(&*store, [Write::delete_when(secret("b").key, Precondition::Exists)], by("ann")).await;
    let found = past(&*store, whole()).await.changes;
    let kinds: Vec<(Revision, &str)> = found.iter().map(|c| (c.revision, c.key.kind.name)).collect();
    assert_eq!(kinds, [(4, "Secret"), (3, "Secret"), (1, "MeshTimeout"), (1, "Secret")]);
    assert!(found.iter().all(|change| change.before.is_none()), "{found:?}");
}

pub async fn lists_are_narrowed_and_ordered(stores: &dyn Stores) {
    let store = store(stores).await;
    write(&*store, [Write::put(mesh("default")), Write::put(policy("a", 0))], by("ann")).await;
    for n in 1..6 {
        write(&*store, [Write::put(policy("a", n))], by(if n % 2 == 0 { "ann" } else { "bob" })).await;
    }
    let revisions = async |query: HistoryQuery| {
        let found = past(&*store, query).await.changes;
        assert!(found.iter().all(|change| change.before.is_none()), "not asked for");
        found.iter().map(|change| change.revision).collect::<Vec<_>>()
    };
    let all = HistoryQuery::default;
    assert_eq!(revisions(all()).await, [6, 5, 4, 3, 2, 1, 1]);
    assert_eq!(revisions(HistoryQuery { limit: 2, ..all() }).await, [6, 5]);
    assert_eq!(revisions(HistoryQuery { limit: 2, oldest_first: true, ..all() }).await, [1, 1]);
    assert_eq!(revisions(HistoryQuery { after: 2, until: 4, ..all() }).await, [4, 3]);
    assert_eq!(revisions(HistoryQuery { author: Some("user bob".to_owned()), ..all() }).await, [6, 4, 2]);
    assert_eq!(revisions(HistoryQuery { kind: Some(&kinds::mesh::KIND), ..all() }).await, [1]);
    assert_eq!(revisions(HistoryQuery { mesh: Some("other".to_owned()), ..all() }).await, [0_u64; 0]);
    let key = Some(policy("a", 0).key);
    assert_eq!(revisions(HistoryQuery { key, until: 2, ..all() }).await, [2, 1]);
    let later = Some(DateTime::from_timestamp(9_000_000_000, 0).unwrap());
    assert_eq!(revisions(HistoryQuery { since: later, ..all() }).await, [0_u64; 0]);
    let long_ago = Some(DateTime::from_timestamp(0, 0).unwrap());
    assert_eq!(revisions(HistoryQuery { since: long_ago, limit: 1, ..all() }).await, [6]);
}

pub async fn what_is_beyond_the_limits_goes_oldest_first(stores: &dyn Stores) {
    let store = store(stores).await;
    let forever = Duration::from_secs(1 << 32);
    let limits = HistoryLimits { age: forever, changes: u64::MAX, bytes: u64::MAX };
    assert_eq!(store.compact_history(&limits).await.unwrap(), 0);
    for n in 0..10 {
        let pair = [Write::put(policy("a", n)), Write::put(policy("b", n))];
        write(&*store, pair, by("ann")).await;
    }
    assert_eq!(store.compact_history(&limits).await.unwrap(), 0);
    assert_eq!(past(&*store, whole()).await.floor, 0, "nothing went");
    // Of a batch that does not fit whole, nothing stays.
    let few = HistoryLimits { changes: 7, ..limits };
    assert_eq!(store.compact_history(&few).await.unwrap(), 14);
    let left = past(&*store, HistoryQuery { oldest_first: true, ..whole() }).await;
    assert_eq!((left.floor, left.changes.len(), left.changes[0].revision), (7, 6, 8));
    assert_eq!(store.compact_history(&few).await.unwrap(), 0);
    assert_eq!(store.compact_history(&HistoryLimits { bytes: 0, ..limits }).await.unwrap(), 6);
    let nothing = past(&*store, whole()).await;
    assert_eq!((nothing.floor, nothing.changes), (10, vec![]));
    write(&*store, [Write::put(policy("a", 99))], by("ann")).await;
    let found = past(&*store, whole()).await;
    assert_eq!((found.floor, told(&found.changes)), (10, vec![(11, "update", "user ann".to_owned())]));
}

pub async fn a_zone_pushes_none_but_its_own_changes_out(stores: &dyn Stores) {
    let store = store(stores).await;
    let zone = |name: &str| Author::Zone(name.to_owned());
    for n in 0..4 {
        write(&*store, [Write::put(policy("of-ann", n))], by("ann")).await;
    }
    write(&*store, [Write::put(policy("of-nobody", 0))], Author::ControlPlane).await;
    for n in 0..30 {
        let pair = [Write::put(policy("a", n)), Write::put(policy("b", n))];
        write(&*store, pair, zone("stolen")).await;
    }
    write(&*store, [Write::put(policy("c", 0))], zone("honest")).await;
    let limits = |changes| HistoryLimits { age: Duration::from_secs(1 << 32), changes, bytes: u64::MAX };
    let left = async || {
        let found = past(&*store, whole()).await;
        let of = |author: &str| found.changes.iter().filter(|c| c.author.to_string() == author).count();
        let of = ["user ann", "control plane", "zone stolen", "zone honest"].map(of);
        (found.floor, found.users_floor, of)
    };
    assert_eq!(left().await, (0, 0, [4, 1, 60, 1]));
    assert_eq!(store.compact_history(&limits(20)).await.unwrap(), 46);
    assert_eq!(left().await, (28, 0, [4, 1, 14, 1]), "all is known from there on, and of ann everything");
    assert_eq!(store.compact_history(&limits(20)).await.unwrap(), 0);
    // Of each share the oldest go.
    assert_eq!(store.compact_history(&limits(8)).await.unwrap(), 13);
    assert_eq!(left().await, (34, 1, [3, 1, 2, 1]));
    let found = past(&*store, HistoryQuery { author: Some("user ann".to_owned()), ..whole() }).await.changes;
    assert_eq!(found.iter().map(|change| change.revision).collect::<Vec<_>>(), [4, 3, 2]);
    // By bytes as well.
    let bytes = HistoryLimits { bytes: 0, ..limits(u64::MAX) };
    store.compact_history(&bytes).await.unwrap();
    let (floor, users_floor, left) = left().await;
    assert_eq!((floor, users_floor, left[0], left[2]), (35, 35, 0, 0));
}

/// What users did is known from one revision on, which an undo goes by: so they have no shares among themselves.
pub async fn users_have_one_share_of_which_the_oldest_go_whoever_made_them(stores: &dyn Stores) {
    let store = store(stores).await;
    for n in 0..4 {
        write(&*store, [Write::put(policy("of-ann", n))], by("ann")).await;
    }
    for n in 0..30 {
        write(&*store, [Write::put(policy("of-bob", n))], by("bob")).await;
    }
    let limits = HistoryLimits { age: Duration::from_secs(1 << 32), changes: 20, bytes: u64::MAX };
    assert_eq!(store.compact_history(&limits).await.unwrap(), 14);
    let found = past(&*store, whole()).await;
    let of = |author: &str| found.changes.iter().filter(|c| c.author.to_string() == author).count();
    assert_eq!((of("user ann"), of("user bob")), (0, 20));
    assert_eq!((found.floor, found.users_floor), (14, 14), "all is known from there on");
}

pub async fn the_history_survives_a_restart(stores: &dyn Stores) {
    let home = stores.fresh(RETAINED).await;
    if !home.durable() {
        return;
    }
    let store = home.open().await;
    write(&*store, [Write::put(policy("a", 1))], by("ann")).await;
    write(&*store, [Write::put(policy("a", 2))], by("żółw")).await;
    let before = past(&*store, whole()).await;
    store.close().await;
    let store = home.open().await;
    assert_eq!(past(&*store, whole()).await, before);
    // What is years old goes by its age, what was just written does not.
    let old = HistoryLimits { age: Duration::from_secs(3600), changes: 1000, bytes: u64::MAX };
    assert_eq!(store.compact_history(&old).await.unwrap(), 0);
    store.close().await;
}
