//! How long writes take, and over how many connections.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{Batch, Commit, Precondition, StoreError, Write};

/// Connections of a store to its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConnections {
    /// What they are for: `read`, `past` or `write`.
    pub pool: &'static str,
    /// Those somebody uses.
    pub in_use: u32,
    /// Those nobody uses.
    pub idle: u32,
    /// How many there may be.
    pub most: u32,
}

/// A write that is under way.
pub(super) struct MeasuredWrite {
    began: Instant,
    /// Each sort of write and kind of resource in it.
    sorts: BTreeSet<(&'static str, &'static str)>,
}

impl MeasuredWrite {
    /// Begins now.
    pub(super) fn of(batch: &Batch) -> Self {
        let sorts = batch.writes.iter().map(|write| (operation(write), write.key().kind.name)).collect();
        Self { began: Instant::now(), sorts }
    }

    /// It was decided.
    pub(super) fn ended(self, outcome: &Result<Commit, StoreError>) {
        let took = self.began.elapsed().as_secs_f64();
        for (operation, kind) in self.sorts {
            metrics::histogram!("store", "operation" => operation, "resource_type" => kind).record(took);
        }
        if let Err(StoreError::Conflict { .. }) = outcome {
            metrics::counter!("store_conflicts").increment(1);
        }
    }
}

/// What a write means to do; whether a put without a precondition finds something is decided later.
fn operation(write: &Write) -> &'static str {
    match write {
        Write::Put { when: Precondition::Absent, .. } => "create",
        Write::Put { .. } | Write::PutStatus { .. } => "update",
        Write::Delete { .. } => "delete",
    }
}
