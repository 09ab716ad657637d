//! What proxies are told of what they lack.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{kept, part::SetId};
use crate::{
    generator::{Encoded, ResourceCollection, ResourceSet, SharedResources},
    mesh::{Problem, problem::EnvoyResource},
};

/// What a proxy was told of what it lacks, and why. Most of what is told anew changes nothing of that.
#[derive(Debug)]
pub(super) struct KnownProblems {
    /// Its set, and which problems that had.
    set: Option<(SetId, u64)>,
    /// Those of the proxy itself.
    own: BTreeSet<Problem>,
    trouble: Option<String>,
    pub(super) told: ToldProblems,
}

impl KnownProblems {
    /// What was `told` because of these.
    pub(super) fn new(
        set: Option<(SetId, u64)>,
        own: &BTreeSet<&Problem>,
        trouble: Option<&str>,
        told: ToldProblems,
    ) -> Self {
        let own = own.iter().copied().cloned().collect();
        Self { set, own, trouble: trouble.map(str::to_owned), told }
    }

    /// Whether nothing else is to be told because of these.
    pub(super) fn rests_on(
        &self,
        set: Option<(SetId, u64)>,
        own: &BTreeSet<&Problem>,
        trouble: Option<&str>,
    ) -> bool {
        self.set == set && self.trouble.as_deref() == trouble && own.iter().copied().eq(&self.own)
    }
}

/// What was left out of sets, put into words once.
pub(super) type SharedProblems = HashMap<SetId, ToldProblems>;

/// What was left out for a proxy, or why there is nothing new for it.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldProblems {
    /// In words.
    pub(super) words: Arc<[String]>,
    /// Those that are about what an Envoy gets.
    pub(super) of_envoy: Arc<[Problem]>,
    /// The first of them by which it does without something.
    pub(super) lacks: Option<Arc<str>>,
}

impl ToldProblems {
    /// These, and what keeps the proxy from getting something new.
    pub(super) fn of<'a>(problems: impl Iterator<Item = &'a Problem>, trouble: Option<&str>) -> Self {
        let all: BTreeSet<&Problem> = problems.collect();
        let of_envoy =
            all.iter().filter(|problem| problem.is_of_envoy()).map(|problem| Problem::clone(problem));
        let of_envoy = of_envoy.collect();
        let lack: Option<Arc<str>> =
            all.iter().find(|problem| problem.is_lack()).map(|problem| problem.to_string().into());
        let lacks = lack.or_else(|| trouble.map(Arc::from));
        let words = all.into_iter().map(ToString::to_string).chain(trouble.map(str::to_owned));
        Self { words: words.collect(), of_envoy, lacks }
    }

    /// `own` with what a proxy keeps of what it `had`, and what that is; `None` when it keeps nothing.
    pub(super) fn kept(
        &self,
        own: &ResourceCollection,
        shared: &SharedResources,
        had: Option<&ResourceSet>,
    ) -> Option<(ResourceCollection, Vec<Arc<Encoded>>)> {
        let refused: BTreeSet<&EnvoyResource> = self.of_envoy.iter().filter_map(Problem::refused).collect();
        let had = had.filter(|had| kept::some(&refused, had))?;
        Some(kept::with_kept(own, shared, refused, had))
    }
}
