//! Random histories: the store must do what the memory store does, and its feed must lead from every
//! revision to the end.

use futures::future::join_all;
use uuid::Uuid;

use super::*;
use crate::{model::Origin, store::memory::MemoryStore};

/// One write of a history; numbers name resources, contents and owners.
#[derive(Clone, Debug)]
pub enum Op {
    Put { name: u8, value: u8, owner: Option<u8>, when: When },
    Status { name: u8, value: u8 },
    Delete { name: u8, when: When },
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Always,
    Absent,
    Exists,
    At(u8),
    OwnedBy(bool),
}

impl When {
    fn precondition(self) -> Precondition {
        match self {
            Self::Always => Precondition::None,
            Self::Absent => Precondition::Absent,
            Self::Exists => Precondition::Exists,
            Self::At(revision) => Precondition::At(revision.into()),
            Self::OwnedBy(zone) => Precondition::OwnedBy(origin(zone)),
        }
    }
}

fn origin(zone: bool) -> Origin {
    if zone { Origin::Zone("east".into()) } else { Origin::Global }
}

impl Op {
    fn write(&self) -> Write {
        match *self {
            Self::Put { name, value, owner, when } => {
                let mut resource = policy(&name.to_string(), value.into());
                resource.owner = owner.map(|owner| policy(&owner.to_string(), 0).key);
                if let When::OwnedBy(zone) = when {
                    resource.origin = origin(zone);
                }
                Write::put_when(resource, when.precondition())
            }
            Self::Status { name, value } => {
                let status = Some(Bytes::from(value.to_string()));
                Write::PutStatus { key: policy(&name.to_string(), 0).key, status, now: time(value.into()) }
            }
            Self::Delete { name, when } => {
                Write::delete_when(policy(&name.to_string(), 0).key, when.precondition())
            }
        }
    }
}

/// Runs the history on a fresh store: `alone` batches one by one, then the rest at once, so that they
/// form groups.
pub async fn check(stores: &dyn Stores, history: &[Vec<Op>], alone: usize) {
    let store = store(stores).await;
    let model = MemoryStore::new(Uuid::nil());
    let batches = || history.iter().map(|ops| Batch::of(ops.iter().map(Op::write)));
    let mut cuts = vec![index_of(&model).await];
    let mut expected = Vec::new();
    for batch in batches() {
        expected.push(model.transact(batch).await.map_err(|error| error.to_string()));
        cuts.push(index_of(&model).await);
    }
    let mut replies = Vec::new();
    for batch in batches().take(alone) {
        replies.push(store.transact(batch).await);
    }
    replies.extend(join_all(batches().skip(alone).map(|batch| store.transact(batch))).await);
    let replies: Vec<_> = replies.into_iter().map(|reply| reply.map_err(|error| error.to_string())).collect();
    assert_eq!(replies, expected);
    let end = index_of(&*store).await;
    assert_same(&end, cuts.last().unwrap());
    for mut cut in cuts {
        // The model did the same, but in commits of its own.
        cut.reach(cut.revision.into());
        follow(&*store, &mut cut, 3).await;
        assert_same(&cut, &end);
    }
    store.close().await;
}
