//! `MeshProxyPatch`: the last stage, over finished messages: those of one proxy, and those its profile shares.

mod finished;
mod json;
mod merge;
mod step;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use common::{
    model::Kind,
    policy::{
        legacy::{self, LegacyPolicy, proxy_template},
        mesh_proxy_patch::{self, KIND, Modification, ProxyPatchConf, RuntimeModification},
        rules::Policy,
    },
};

use serde_json::Map;

use self::{finished::Finished, step::Step};
use super::PolicyEffect;
use crate::{
    generator::{Encoded, ResourceCollection, runtime, type_url},
    mesh::{Problem, problem::Subject},
};

/// See the module. None of the places other policies work on are finished.
pub(super) struct MeshProxyPatchEffect;

impl PolicyEffect for MeshProxyPatchEffect {
    const KIND: &'static Kind = &mesh_proxy_patch::KIND;
    type Conf = ProxyPatchConf;
}

/// What policies change of finished messages, in order.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    changes: Vec<WrittenStep>,
}

/// One change, and where it is written.
#[derive(Debug)]
struct WrittenStep {
    kind: &'static Kind,
    policy: Arc<str>,
    index: usize,
    step: Result<Step, String>,
    /// What it has that nobody knows.
    unknown: Option<String>,
}

impl Patches {
    /// Those of these policies, given from least to most specific, and of the older `template`, which come last.
    pub(crate) fn of<'a>(
        policies: impl IntoIterator<Item = &'a Arc<Policy>>,
        template: Option<&LegacyPolicy>,
    ) -> Self {
        let mut changes = Vec::new();
        for policy in policies {
            let name: Arc<str> = policy.resource.display_name().into();
            // One that does not decode is not among the policies.
            let Ok(spec) = policy.resource.spec::<mesh_proxy_patch::MeshProxyPatch>() else { continue };
            changes.extend(WrittenStep::all(&KIND, &name, spec.default.append_modifications));
        }
        if let Some(LegacyPolicy { resource, conf: legacy::LegacyConf::ProxyTemplate(conf), .. }) = template {
            let modifications = proxy_template::modifications(conf);
            changes.extend(WrittenStep::all(
                &proxy_template::KIND,
                &resource.display_name().into(),
                modifications,
            ));
        }
        Self { changes }
    }

    /// What becomes of a message that is shared; `None` when it is taken out.
    pub(crate) fn shared(
        &self,
        encoded: Arc<Encoded>,
        problems: &mut BTreeSet<Problem>,
    ) -> Option<Arc<Encoded>> {
        if self.changes.is_empty() {
            return Some(encoded);
        }
        let mut finished = Finished::new(encoded);
        for change in &self.changes {
            change.apply(&mut finished, problems);
        }
        finished.encoded()
    }

    /// What becomes of the messages of one proxy. It also gets what is added.
    pub(crate) fn own(
        &self,
        mut own: ResourceCollection,
        problems: &mut BTreeSet<Problem>,
    ) -> ResourceCollection {
        if self.changes.is_empty() {
            return own;
        }
        let patchable = [type_url::CLUSTER, type_url::LISTENER];
        let all = patchable.into_iter().flat_map(|of| own.of_type(of).cloned().collect::<Vec<_>>());
        let mut all: Vec<Finished> = all.map(Finished::new).collect();
        for change in &self.changes {
            if let Some(unknown) = change.unknown.as_ref().filter(|_| change.step.is_ok()) {
                change.report(&format!("passes over what nobody knows: {unknown}"), problems);
            }
            match &change.step {
                Err(reason) => change.report(&format!("is left out: {reason}"), problems),
                Ok(Step::Runtime(_)) => {}
                Ok(Step::Add(added)) => {
                    all.retain(|known| !known.is_at(added));
                    all.push(Finished::new(Arc::clone(added)));
                }
                Ok(_) => all.iter_mut().for_each(|finished| change.apply(finished, problems)),
            }
        }
        for finished in all {
            own.remove(finished.type_url(), finished.name());
            if let Some(encoded) = finished.encoded() {
                own.insert(encoded);
            }
        }
        own
    }
}

impl Patches {
    /// The layer of the runtime of a proxy that has a place for one.
    pub(crate) fn runtime(&self) -> Arc<Encoded> {
        static EMPTY: LazyLock<Arc<Encoded>> = LazyLock::new(|| runtime::layer(Map::new()));
        let mut layer = Map::new();
        self.runtime_changes().for_each(|(_, change)| change.put_over(&mut layer));
        if layer.is_empty() { Arc::clone(&EMPTY) } else { runtime::layer(layer) }
    }

    /// Says of what there is for the runtime of a proxy that has no place for it.
    pub(crate) fn without_runtime(&self, problems: &mut BTreeSet<Problem>) {
        let reason = "has no effect, because the bootstrap of the proxy has no layer for it: make it with \
                      `straitctl bootstrap`";
        self.runtime_changes().for_each(|(written, _)| written.report(reason, problems));
    }

    fn runtime_changes(&self) -> impl Iterator<Item = (&WrittenStep, &RuntimeModification)> {
        self.changes.iter().filter_map(|written| match &written.step {
            Ok(Step::Runtime(change)) => Some((written, change)),
            _ => None,
        })
    }
}

impl WrittenStep {
    fn all(kind: &'static Kind, policy: &Arc<str>, written: Vec<Modification>) -> impl Iterator<Item = Self> {
        written.into_iter().enumerate().map(move |(index, written)| {
            let unknown = written.native().and_then(|(native, value)| native.unknown(value));
            Self { kind, policy: Arc::clone(policy), index, step: Step::of(written), unknown }
        })
    }

    fn apply(&self, finished: &mut Finished, problems: &mut BTreeSet<Problem>) {
        // What cannot be read is reported once for each proxy, and what is added is its own.
        let Ok(step) = &self.step else { return };
        if let Err(reason) = finished.change(step) {
            self.report(&format!("is left out of {}: {reason}", finished.name()), problems);
        }
    }

    fn report(&self, what: &str, problems: &mut BTreeSet<Problem>) {
        let Self { kind, policy, index, .. } = self;
        let reason = format!("modification {index} of {policy} {what}");
        let subject = Subject::Part(kind.name.to_owned());
        problems.insert(Problem { subject, reason });
    }
}

#[cfg(test)]
mod tests;
