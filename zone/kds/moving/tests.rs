#![allow(clippy::unwrap_used)]

use chrono::DateTime;
use common::{
    model::{Kind, Resource, ResourceKey, kinds},
    policy::mesh_timeout,
    store::{Snapshot, StoreIdentity, memory::MemoryStore},
};

use super::*;

fn resource(kind: &'static Kind, name: &str, spec: &str) -> Resource {
    let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
    let spec = if kind.is_json() { spec.as_bytes().to_vec() } else { Vec::new() };
    Resource::new(ResourceKey::new(kind, mesh, name), DateTime::UNIX_EPOCH).with_spec(spec)
}

fn index(resources: Vec<Resource>) -> Index {
    let resources = resources.into_iter().map(Arc::new).collect();
    Index::of(
        StoreIdentity { store_id: Uuid::nil(), epoch: 1 },
        Snapshot { revision: 1, commit: None, resources },
    )
}

fn target(to: &str) -> MoveTarget {
    MoveTarget { to: to.to_owned(), token: Some("t".to_owned()), ca_cert: None, skip_verify: false }
}

fn moves(store: &Arc<dyn Store>, configured: &str) -> Moves {
    Moves::new(Arc::clone(store), configured.to_owned(), Arc::new(TrustedDials))
}

fn shows(moves: &Moves, to: &str, missing: usize) {
    moves.note(&target(to), |status, shown| {
        (status.connected, status.complete, status.offered) = (true, missing == 0, 5);
        status.difference.missing =
            NamesInShort { total: missing, names: vec!["Mesh a".to_owned(); missing] };
        *shown = Some(Upstream { store_id: Uuid::from_u128(9), epoch: 1, revision: 3 });
    });
}

#[test]
fn only_what_came_from_global_is_compared() {
    let policy = |name, spec: &str| resource(&mesh_timeout::KIND, name, spec);
    let own = Resource { origin: Origin::Zone("east".into()), ..policy("own", "{}") };
    let of_west = resource(&kinds::mesh_service::KIND, "web", "{}").with_label(labels::ZONE, "west");
    let held = index(vec![
        resource(&kinds::mesh::KIND, "default", ""),
        policy("same", "{}"),
        policy("changed", "{}"),
        policy("missing", "{}"),
        own,
        of_west,
        resource(&config::KIND, "kuma-cluster-id", ""),
    ]);
    let offered = index(vec![
        resource(&kinds::mesh::KIND, "default", ""),
        policy("same", "{}"),
        policy("changed", r#"{"to":[]}"#),
        policy("new", "{}"),
    ]);
    let difference = MoveDifference::between(&held, &offered);
    assert_eq!(
        difference.missing.names,
        ["MeshService default/web of zone west", "MeshTimeout default/missing"]
    );
    assert_eq!(difference.changed.names, ["MeshTimeout default/changed"]);
    assert_eq!(difference.added.names, ["MeshTimeout default/new"]);
    assert_eq!(MoveDifference::between(&held, &held), MoveDifference::default());
}

#[tokio::test]
async fn a_move_is_committed_when_nothing_is_missing_or_that_is_accepted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let moves = moves(&store, "grpcs://old:1");
    assert!(matches!(moves.commit(false).await, Err(MoveError::None)));
    assert!(matches!(moves.back().await, Err(MoveError::None)));
    assert!(matches!(moves.begin(target("http://new")).await, Err(MoveError::Dial(_))));
    let long = MoveTarget { token: Some("x".repeat(LONGEST + 1)), ..target("grpcs://new:1") };
    assert!(matches!(moves.begin(long).await, Err(MoveError::TooLong("token"))));

    moves.begin(target("grpcs://new:1")).await.unwrap();
    assert!(matches!(moves.commit(true).await, Err(MoveError::Incomplete(_))), "nobody has seen it yet");
    shows(&moves, "grpcs://other:1", 0);
    assert!(!moves.status().unwrap().complete, "that was a look at another one");
    shows(&moves, "grpcs://new:1", 1);
    assert!(matches!(moves.commit(false).await, Err(MoveError::Missing(1, name)) if name == "Mesh a"));
    assert_eq!(moves.followed(), None);
    shows(&moves, "grpcs://new:1", 0);
    moves.commit(false).await.unwrap();
    let followed = moves.followed().map(|(target, store)| (target.to, store));
    assert_eq!(followed, Some(("grpcs://new:1".to_owned(), Uuid::from_u128(9))));
    assert!(matches!(moves.back().await, Err(MoveError::Committed(_))));
}

#[tokio::test]
async fn what_was_decided_outlives_the_process_until_the_settings_name_another_global() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let before = moves(&store, "grpcs://old:1");
    before.begin(target("grpcs://new:1")).await.unwrap();
    let again = moves(&store, "grpcs://old:1");
    again.load().await;
    assert_eq!(again.looked_at().map(|target| target.to).as_deref(), Some("grpcs://new:1"));
    shows(&again, "grpcs://new:1", 0);
    again.commit(false).await.unwrap();
    let third = moves(&store, "grpcs://old:1");
    third.load().await;
    assert!(third.followed().is_some() && third.looked_at().is_none());
    let changed = moves(&store, "grpcs://new:1");
    changed.load().await;
    assert_eq!((changed.followed(), changed.status()), (None, None), "the settings are right");
}

#[tokio::test]
async fn until_it_is_committed_there_is_a_way_back() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let moves = moves(&store, "grpcs://old:1");
    moves.begin(target("grpcs://new:1")).await.unwrap();
    moves.back().await.unwrap();
    assert_eq!((moves.status(), moves.looked_at()), (None, None));
    assert!(store.sessions(MOVE).await.unwrap().is_empty(), "the token is gone with it");
}

#[tokio::test]
async fn the_global_an_earlier_move_led_to_is_followed_while_there_is_another() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let first = moves(&store, "grpcs://old:1");
    first.begin(target("grpcs://new:1")).await.unwrap();
    shows(&first, "grpcs://new:1", 0);
    first.commit(false).await.unwrap();
    let follows = |moves: &Moves| moves.followed().map(|(target, _)| target.to);
    first.begin(target("grpcs://third:1")).await.unwrap();
    // Also after another start.
    let second = moves(&store, "grpcs://old:1");
    second.load().await;
    for moves in [&first, &second] {
        assert_eq!(follows(moves).as_deref(), Some("grpcs://new:1"));
        assert_eq!(moves.looked_at().map(|target| target.to).as_deref(), Some("grpcs://third:1"));
    }
    second.back().await.unwrap();
    assert_eq!((follows(&second).as_deref(), second.looked_at()), (Some("grpcs://new:1"), None));
    second.begin(target("grpcs://third:1")).await.unwrap();
    shows(&second, "grpcs://third:1", 0);
    second.commit(false).await.unwrap();
    assert_eq!(follows(&second).as_deref(), Some("grpcs://third:1"));
}
