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
use super::{PolicyEffect, legacy::RAW};
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
    /// The older policy among those that made them, which may also add what somebody wrote in whole.
    template: Option<Arc<str>>,
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
        let (mut changes, mut named) = (Vec::new(), None);
        for policy in policies {
            let name: Arc<str> = policy.resource.display_name().into();
            // One that does not decode is not among the policies.
            let Ok(spec) = policy.resource.spec::<mesh_proxy_patch::MeshProxyPatch>() else { continue };
            changes.extend(WrittenStep::all(&KIND, &name, spec.default.append_modifications));
        }
        if let Some(LegacyPolicy { resource, conf: legacy::LegacyConf::ProxyTemplate(conf), .. }) = template {
            let name: Arc<str> = resource.display_name().into();
            changes.extend(WrittenStep::all(
                &proxy_template::KIND,
                &name,
                proxy_template::modifications(conf),
            ));
            named = Some(name);
        }
        Self { changes, template: named }
    }

    /// What makes Envoys refuse what becomes of a shared message; `None` when they would refuse the message itself.
    pub(crate) fn cause(&self, original: &Arc<Encoded>) -> Option<String> {
        self.culprit(original, Some(original), false).map(WrittenStep::place)
    }

    /// What makes Envoys refuse `own`, which becomes of a message of one proxy or is added to them.
    pub(crate) fn cause_of_own(&self, own: &Encoded, original: Option<&Arc<Encoded>>) -> Option<String> {
        let template = self.template.as_ref().filter(|_| own.origin == RAW);
        let culprit = self.culprit(own, original, true).map(WrittenStep::place);
        culprit.or_else(|| template.map(|name| format!("{} {name}", proxy_template::KIND.name)))
    }

    /// The last change after which Envoys refuse what they would have taken before it. This is only asked of what
    /// they do refuse.
    fn culprit(&self, place: &Encoded, original: Option<&Arc<Encoded>>, adds: bool) -> Option<&WrittenStep> {
        let is_bad = |now: &Option<Finished>| {
            let encoded = now.clone().and_then(Finished::encoded);
            encoded.is_some_and(|encoded| !encoded.broken_rules().is_empty())
        };
        let mut now = original.cloned().map(Finished::new);
        let (mut was_bad, mut culprit) = (is_bad(&now), None);
        for change in &self.changes {
            match (&change.step, &mut now) {
                (Err(_), _) => continue,
                (Ok(Step::Add(added)), _) if adds && Finished::new(Arc::clone(added)).is_at(place) => {
                    (now, was_bad) = (Some(Finished::new(Arc::clone(added))), false);
                }
                // What cannot be done leaves it as it is, and is told where it is done.
                (Ok(step), Some(now)) => drop(now.change(step)),
                (Ok(_), None) => continue,
            }
            let bad = is_bad(&now);
            if bad && !was_bad {
                culprit = Some(change);
            }
            was_bad = bad;
        }
        culprit
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

    /// Where it is written.
    fn place(&self) -> String {
        format!("modification {} of {} {}", self.index, self.kind.name, self.policy)
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
