//! What the older policies say about what one proxy calls.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::{Kind, labels},
    policy::legacy::{
        self as kinds, KINDS, LegacyChange, LegacyConf, LegacyPolicy, LegacyRole, Rank,
        choice::{self, PolicyCandidate},
        rank, tag_sets,
    },
    proto::kuma::mesh::v1alpha1 as proto,
};
use imbl::OrdMap;

use super::{candidates, for_proxy};
use crate::{
    mesh::{Dataplane, MeshContext},
    policy::Particular,
};

/// The policies that are for a proxy as far as it is the one that calls. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct LegacyCalls {
    /// Whether the proxy has the tag of a service.
    has_service: bool,
    /// Of kinds with one policy for each service, by kind and name.
    candidates: BTreeMap<&'static str, OrdMap<Arc<str>, PolicyCandidate>>,
    /// Of kinds with one policy for the proxy.
    whole: BTreeMap<&'static str, Arc<LegacyPolicy>>,
}

/// What tells the calls of some proxies from those of others: not policies that select all alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CallsKey {
    has_service: bool,
    particular: Vec<(&'static str, Arc<str>, Rank)>,
    whole: Vec<(&'static str, Arc<str>)>,
}

impl CallsKey {
    /// Whether its proxies have the tag of a service.
    pub(crate) fn has_service(&self) -> bool {
        self.has_service
    }

    /// The policies in it, by kind and name.
    pub(crate) fn policies(&self) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        let particular = self.particular.iter().map(|(kind, name, _)| (*kind, Arc::clone(name)));
        particular.chain(self.whole.iter().map(|(kind, name)| (*kind, Arc::clone(name))))
    }
}

impl LegacyCalls {
    /// Those of `dataplane`.
    pub(crate) fn of(mesh: &MeshContext, dataplane: &Dataplane) -> Self {
        let mut calls = Self::default();
        let Some(subject) = dataplane.subject.as_ref() else { return calls };
        let tags = tag_sets(subject);
        calls.has_service = tags.iter().any(|tags| tags.contains_key(labels::TAG_SERVICE));
        for kind in KINDS {
            match LegacyRole::of(kind) {
                LegacyRole::Call => {
                    let found = candidates(mesh, dataplane.subject.as_deref(), kind).into_iter();
                    let found = found.filter_map(|policy| PolicyCandidate::of(policy, &tags));
                    let found = found.map(|one| (Arc::clone(one.policy.name()), one));
                    calls.candidates.insert(kind.name, found.collect());
                }
                LegacyRole::Proxy => {
                    let found = for_proxy(mesh, dataplane, kind);
                    calls.whole.extend(found.map(|policy| (kind.name, Arc::clone(policy))));
                }
                LegacyRole::Inbound | LegacyRole::Inbounds => {}
            }
        }
        calls
    }

    /// What tells them from those of other proxies.
    pub(crate) fn key(&self) -> CallsKey {
        let candidates =
            self.candidates.iter().flat_map(|(kind, all)| all.values().map(move |one| (*kind, one)));
        let particular = candidates.filter(|(_, one)| !one.policy.selects_alike());
        CallsKey {
            has_service: self.has_service,
            particular: particular
                .map(|(kind, one)| (kind, Arc::clone(one.policy.name()), one.rank))
                .collect(),
            whole: self.whole.iter().map(|(kind, policy)| (*kind, Arc::clone(policy.name()))).collect(),
        }
    }

    /// Takes over the change of a policy, of which only versions are named that are for these calls. Whom it is
    /// for otherwise has another key. Says whether the template is another one.
    pub(crate) fn apply(&mut self, kind: &'static Kind, change: &LegacyChange) -> bool {
        if LegacyRole::of(kind) == LegacyRole::Proxy {
            let Some(before) = &change.before else { return false };
            let known = self.whole.get(kind.name).is_some_and(|known| known.name() == before.name());
            match change.after.as_ref().filter(|_| known) {
                Some(after) => drop(self.whole.insert(kind.name, Arc::clone(after))),
                None if known => drop(self.whole.remove(kind.name)),
                None => {}
            }
            return kind == &kinds::proxy_template::KIND;
        }
        let all = self.candidates.entry(kind.name).or_default();
        let known = change.before.as_ref().and_then(|before| all.remove(before.name()));
        if let Some(after) = &change.after {
            let known = known.filter(|_| !after.selects_alike()).map(|known| known.rank);
            let rank = known.or_else(|| after.sources.first().map(rank)).unwrap_or_default();
            all.insert(Arc::clone(after.name()), PolicyCandidate { policy: Arc::clone(after), rank });
        }
        false
    }

    /// What has to be told about the proxy when it calls.
    pub(crate) fn tells(&self) -> impl Iterator<Item = Particular> {
        let logs = self.candidates.get(kinds::traffic_log::KIND.name).is_some_and(|all| !all.is_empty());
        let for_logs = [Particular::Service, Particular::Address, Particular::LogPipe];
        let traces = self.whole.contains_key(kinds::traffic_trace::KIND.name);
        let for_logs = for_logs.into_iter().filter(move |_| logs);
        for_logs.chain(traces.then_some(Particular::Service))
    }

    /// The policy of `kind` for calls of `service`.
    pub(super) fn choose(&self, kind: &Kind, service: &str) -> Option<&Arc<LegacyPolicy>> {
        choice::for_service(self.candidates.get(kind.name)?.values(), service)
    }

    /// What is said about spans.
    pub(super) fn trace(&self) -> Option<&LegacyPolicy> {
        self.whole.get(kinds::traffic_trace::KIND.name).map(AsRef::as_ref)
    }

    /// What is changed of finished messages.
    pub(in crate::policy) fn template(&self) -> Option<&LegacyPolicy> {
        self.whole.get(kinds::proxy_template::KIND.name).map(AsRef::as_ref)
    }

    /// Where calls of `service` go.
    pub(super) fn route(&self, service: &str) -> Option<&proto::traffic_route::Conf> {
        match &self.choose(&kinds::traffic_route::KIND, service)?.conf {
            LegacyConf::TrafficRoute(conf) => Some(conf),
            _ => None,
        }
    }

    /// How long calls of `service` may take.
    pub(super) fn timeout(&self, service: &str) -> Option<&proto::timeout::Conf> {
        match &self.choose(&kinds::timeout::KIND, service)?.conf {
            LegacyConf::Timeout(conf) => Some(conf),
            _ => None,
        }
    }

    /// What of calls of `service` is tried again.
    pub(super) fn retry(&self, service: &str) -> Option<&proto::retry::Conf> {
        match &self.choose(&kinds::retry::KIND, service)?.conf {
            LegacyConf::Retry(conf) => Some(conf),
            _ => None,
        }
    }

    /// Limits of calls of `service`.
    pub(super) fn circuit_breaker(&self, service: &str) -> Option<&proto::circuit_breaker::Conf> {
        match &self.choose(&kinds::circuit_breaker::KIND, service)?.conf {
            LegacyConf::CircuitBreaker(conf) => Some(conf),
            _ => None,
        }
    }

    /// How the hosts of `service` are asked whether they are well.
    pub(super) fn health_check(&self, service: &str) -> Option<&proto::health_check::Conf> {
        match &self.choose(&kinds::health_check::KIND, service)?.conf {
            LegacyConf::HealthCheck(conf) => Some(conf),
            _ => None,
        }
    }

    /// Where calls of `service` are logged.
    pub(super) fn log(&self, service: &str) -> Option<&proto::traffic_log::Conf> {
        match &self.choose(&kinds::traffic_log::KIND, service)?.conf {
            LegacyConf::TrafficLog(conf) => Some(conf),
            _ => None,
        }
    }
}
