//! What is compiled away from everything else: values in, values out, on all cores.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::{
    outbound::OutboundCall,
    part::{CompiledPart, Part},
    sidecar::{self, CompileError},
};
use crate::{
    generator::{ResourceCollection, Sidecar},
    mesh::{MeshContext, Problem},
    policy::{Profile, Selections},
};

/// Something to compile, with all it takes.
pub(super) enum Task {
    Part(Part, Arc<Profile>),
    Own(Arc<str>, Box<Sidecar>, Arc<[Arc<OutboundCall>]>),
}

/// What came of a [`Task`].
pub(super) enum TaskOutcome {
    /// `None` when compiling it panicked.
    Part(Part, Option<CompiledPart>),
    Own(Arc<str>, OwnOutcome),
}

/// What belongs to one proxy alone, and what was left out of it.
pub(super) type OwnOutcome = (Result<ResourceCollection, CompileError>, BTreeSet<Problem>);

impl Task {
    /// Does it. One that panics spoils nothing but itself.
    pub(super) fn run(self, mesh: &MeshContext) -> TaskOutcome {
        match self {
            Self::Part(part, profile) => {
                let made = guarded(|| part.compile(mesh, &profile));
                TaskOutcome::Part(part, made)
            }
            Self::Own(name, proxy, calls) => {
                let own = guarded(|| own(&proxy, &calls, mesh));
                let panicked = || (Err(CompileError::Panicked(Arc::clone(&name))), BTreeSet::new());
                let own = own.unwrap_or_else(panicked);
                TaskOutcome::Own(name, own)
            }
        }
    }
}

fn own(proxy: &Sidecar, calls: &[Arc<OutboundCall>], mesh: &MeshContext) -> OwnOutcome {
    let selections = Selections::of_inbounds(mesh, &proxy.dataplane);
    let called = |address, port| {
        calls.iter().any(|call| call.is_at(address, port)) || proxy.dataplane.has_entrance(address, port)
    };
    let mut problems = BTreeSet::new();
    let own = sidecar::own(proxy, mesh, &selections, calls, called, &mut problems);
    problems.extend(proxy.dataplane.problems.iter().cloned());
    (own, problems)
}

/// What `run` gives; `None` when it panics, which the log has then. A resource that brings out a fault in
/// here must not keep everybody else from what they need.
pub(super) fn guarded<R>(run: impl FnOnce() -> R) -> Option<R> {
    // Nothing that is changed in there is seen again by anybody.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Runs `run` on each of `items`, on all cores when that is worth it.
pub(super) fn in_parallel<T: Send, R: Send>(items: Vec<T>, run: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() < 4 {
        items.into_iter().map(run).collect()
    } else {
        items.into_par_iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_panics_spoils_only_itself() {
        let made = in_parallel((0..8).collect(), |n| guarded(|| if n == 3 { panic!("at {n}") } else { n }));
        assert_eq!(made.iter().filter(|made| made.is_none()).count(), 1);
        assert_eq!(made.into_iter().flatten().sum::<i32>(), (0..8).sum::<i32>() - 3);
    }
}
