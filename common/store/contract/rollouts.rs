//! What changes in waves: the change, the run and what was there before come and go together.

use super::*;
use crate::{
    model::kinds::rollout_insight::{self, kept_key},
    store::backup::{resource_from_json, resource_to_json},
};

fn run(state: &str) -> Resource {
    let spec = Bytes::from(format!("{{\"state\":\"{state}\"}}"));
    Resource::new(ResourceKey::global(&rollout_insight::KIND, "canary"), time(0)).with_spec(spec)
}

pub async fn what_a_rollout_changes_comes_and_goes_with_its_run(stores: &dyn Stores) {
    let store = store(stores).await;
    let before = put(&*store, policy("a", 1)).await;
    let old = find(&*store, &policy("a", 1).key).await.unwrap();
    let kept = kept_key("canary", 0);
    let mut keeping = Resource::new(kept.clone(), time(0)).with_spec(resource_to_json(&old).unwrap());
    keeping.owner = Some(run("running").key);
    let begin = |at| {
        Batch::of([
            Write::put_when(policy("a", 2), Precondition::At(at)),
            Write::put_when(policy("b", 1), Precondition::Absent),
            // What it owns may be written before it.
            Write::put(keeping.clone()),
            Write::put_when(run("running"), Precondition::Absent),
        ])
    };
    // Somebody was faster: nothing of it is there.
    store.transact(begin(before.revision + 1)).await.unwrap_err();
    assert_eq!(store.snapshot().await.unwrap().resources, [Arc::clone(&old)]);
    let begun = store.transact(begin(before.revision)).await.unwrap();
    assert_eq!(begun.changed.len(), 4);
    // All of it has one revision, so nobody sees the change without what keeps it back.
    for key in &begun.changed {
        assert_eq!(find(&*store, key).await.unwrap().revision, begun.revision, "{key}");
    }
    let stored = find(&*store, &kept).await.unwrap();
    let restored = resource_from_json(&stored.spec).unwrap();
    assert_eq!(restored, *old);
    let abort = Batch::of([
        Write::put_when(restored, Precondition::At(begun.revision)),
        Write::delete_when(policy("b", 1).key, Precondition::At(begun.revision)),
        Write::delete_when(kept.clone(), Precondition::None),
        Write::put_when(run("aborted"), Precondition::At(begun.revision)),
    ]);
    store.transact(abort).await.unwrap();
    let is = find(&*store, &policy("a", 1).key).await.unwrap();
    assert!(is.same_content(&old) && is.created == old.created, "{is:?}");
    assert!(find(&*store, &policy("b", 1).key).await.is_none() && find(&*store, &kept).await.is_none());
    // What is kept goes with the run, whoever deletes that.
    put(&*store, keeping).await;
    let gone = Batch::of([Write::delete_when(run("aborted").key, Precondition::Exists)]);
    store.transact(gone).await.unwrap();
    assert!(find(&*store, &kept).await.is_none());
}
