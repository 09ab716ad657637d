//! The behaviour every store must have. Each case takes fresh stores from [`Stores`] and panics with
//! what was wrong.

#![allow(clippy::unwrap_used, missing_docs)]

pub mod durability;
pub mod feed;
pub mod history;
pub mod leases;
pub mod past;
pub mod rollouts;
#[cfg(test)]
mod tests;
pub mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;

use super::{
    Batch, Changes, Commit, Precondition, RETAINED, Revision, Store, StoreError, Write, index::Index,
};
use crate::{
    model::{Kind, Resource, ResourceKey, kinds},
    policy,
};

/// Makes stores of one implementation.
#[async_trait]
pub trait Stores: Send + Sync {
    /// A place with an empty store whose feed reaches back about `retained` entries.
    async fn fresh(&self, retained: usize) -> Arc<dyn Home>;
}

/// Where one store lives, also while it is not open.
#[async_trait]
pub trait Home: Send + Sync {
    /// Opens it; at most one is open at a time.
    async fn open(&self) -> Arc<dyn Store>;
    /// Whether it survives being dropped.
    fn durable(&self) -> bool;
    /// Keeps aside what is there now, while it is not open.
    async fn keep_aside(&self);
    /// Puts back what was kept aside, while it is not open: whatever was written since is lost.
    async fn go_back(&self);
}

type Case = for<'a> fn(&'a dyn Stores) -> BoxFuture<'a, ()>;

macro_rules! cases {
    ($($module:ident :: $case:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), |stores| Box::pin($module::$case(stores)))),*]
    };
}

/// Every case with its name.
pub const CASES: &[(&str, Case)] = cases![
    writes::preconditions_decide,
    writes::equal_content_writes_nothing,
    writes::revisions_are_dense,
    writes::a_batch_is_seen_whole_or_not_at_all,
    writes::created_is_kept,
    writes::owned_resources_fall_with_their_owner,
    writes::another_origin_is_refused_and_both_are_named,
    writes::status_has_its_own_owner,
    writes::every_field_comes_back,
    feed::resumes_from_every_revision,
    feed::pages_end_with_a_whole_batch,
    feed::what_is_large_and_changes_often_is_told_change_by_change,
    feed::outside_the_window_a_reader_starts_over,
    feed::concurrent_writers_lose_nothing,
    feed::a_store_that_lost_its_end_is_noticed_wherever_it_goes_on,
    feed::the_head_wakes_a_reader,
    leases::epochs_only_rise,
    leases::a_fence_stops_the_writer_of_an_old_epoch,
    leases::sessions_stay_out_of_the_feed,
    leases::of_many_claims_at_once_one_counts,
    past::a_change_keeps_what_it_replaced_and_who_made_it,
    past::writers_of_one_resource_leave_an_unbroken_line,
    past::statuses_insights_and_secrets_are_not_kept,
    past::lists_are_narrowed_and_ordered,
    past::what_is_beyond_the_limits_goes_oldest_first,
    past::a_zone_pushes_none_but_its_own_changes_out,
    past::users_have_one_share_of_which_the_oldest_go_whoever_made_them,
    past::the_history_survives_a_restart,
    rollouts::what_a_rollout_changes_comes_and_goes_with_its_run,
    durability::a_reader_catches_up_when_the_wakeup_was_lost,
    durability::reopening_keeps_everything,
    durability::a_closed_store_says_so,
    durability::a_sound_store_is_found_sound,
];

/// Runs every case, saying which on standard output.
pub async fn run_all(stores: &dyn Stores) {
    for (name, case) in CASES {
        println!("contract: {name}");
        case(stores).await;
    }
}

async fn store(stores: &dyn Stores) -> Arc<dyn Store> {
    stores.fresh(RETAINED).await.open().await
}

fn time(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 123_456_789).unwrap()
}

fn mesh(name: &str) -> Resource {
    Resource::new(ResourceKey::global(&kinds::mesh::KIND, name), time(0))
}

fn timeout_kind() -> &'static Kind {
    &policy::mesh_timeout::KIND
}

/// A policy whose content is `value`.
fn policy(name: &str, value: usize) -> Resource {
    let spec = Bytes::from(format!("{{\"value\":{value}}}"));
    Resource::new(ResourceKey::new(timeout_kind(), "default", name), time(0)).with_spec(spec)
}

async fn put(store: &dyn Store, resource: Resource) -> Commit {
    store.transact(Batch::of([Write::put(resource)])).await.unwrap()
}

async fn put_when(store: &dyn Store, resource: Resource, when: Precondition) -> Result<Commit, StoreError> {
    store.transact(Batch::of([Write::put_when(resource, when)])).await
}

async fn find(store: &dyn Store, key: &ResourceKey) -> Option<Arc<Resource>> {
    let snapshot = store.snapshot().await.unwrap();
    snapshot.resources.into_iter().find(|r| r.key == *key)
}

/// The index of what is stored.
pub async fn index_of(store: &dyn Store) -> Index {
    Index::of(store.identity(), store.snapshot().await.unwrap())
}

/// Moves `index` to the end of the feed in pages of about `page` entries.
async fn follow(store: &dyn Store, index: &mut Index, page: usize) {
    loop {
        match store.changes_since(index.point(), page).await.unwrap() {
            Changes::Since { upto, .. } if upto.revision == index.revision => return,
            Changes::Since { changes, upto, .. } => {
                changes.iter().for_each(|change| index.apply(change));
                index.reach(upto);
            }
            other => panic!("revision {} is within the window: {other:?}", index.revision),
        }
    }
}

fn assert_same(left: &Index, right: &Index) {
    assert_eq!(left.revision, right.revision);
    assert!(left.iter().eq(right.iter()), "{left:#?} differs from {right:#?}");
}

/// The entries after `since`, all of them.
async fn entries(store: &dyn Store, since: Revision) -> Vec<(Revision, ResourceKey, bool)> {
    match store.changes_since(since.into(), usize::MAX).await.unwrap() {
        Changes::Since { changes, .. } => {
            changes.into_iter().map(|c| (c.revision, c.key, c.resource.is_some())).collect()
        }
        other => panic!("revision {since} is within the window: {other:?}"),
    }
}
