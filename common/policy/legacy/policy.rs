//! One policy, decoded once.

use std::{collections::BTreeSet, sync::Arc};

use prost::Message;

use super::{
    circuit_breaker, fault_injection, health_check, proxy_template, rate_limit, retry, selector::ANY,
    timeout, traffic_log, traffic_permission, traffic_route, traffic_trace,
};
use crate::{
    model::{Kind, Resource, SpecError, labels},
    policy::rules::{Reach, SelectableProxy, most_telling},
    proto::kuma::mesh::v1alpha1 as proto,
};

/// A policy and what it says.
#[derive(Debug)]
pub struct LegacyPolicy {
    /// The resource it was read from.
    pub resource: Arc<Resource>,
    /// Who connects; of a policy for proxies, which ones.
    pub sources: Vec<proto::Selector>,
    /// To whom.
    pub destinations: Vec<proto::Selector>,
    /// What is to happen then.
    pub conf: LegacyConf,
}

/// What policies of each kind say.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are those of the kinds")]
pub enum LegacyConf {
    CircuitBreaker(proto::circuit_breaker::Conf),
    FaultInjection(proto::fault_injection::Conf),
    HealthCheck(proto::health_check::Conf),
    ProxyTemplate(proto::proxy_template::Conf),
    RateLimit(proto::rate_limit::Conf),
    Retry(proto::retry::Conf),
    Timeout(proto::timeout::Conf),
    TrafficLog(proto::traffic_log::Conf),
    TrafficPermission,
    TrafficRoute(proto::traffic_route::Conf),
    TrafficTrace(proto::traffic_trace::Conf),
}

/// What the policies of a kind are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyRole {
    /// What a proxy calls: one for each service.
    Call,
    /// What a proxy serves: one for each inbound.
    Inbound,
    /// What a proxy serves: all that fit an inbound.
    Inbounds,
    /// The proxy as a whole: one.
    Proxy,
}

impl LegacyRole {
    /// That of the policies of `kind`.
    pub fn of(kind: &Kind) -> Self {
        if [&traffic_trace::KIND, &proxy_template::KIND].contains(&kind) {
            Self::Proxy
        } else if kind == &traffic_permission::KIND {
            Self::Inbound
        } else if [&fault_injection::KIND, &rate_limit::KIND].contains(&kind) {
            Self::Inbounds
        } else {
            Self::Call
        }
    }
}

impl LegacyPolicy {
    /// Reads `resource`, which is of one of the older kinds.
    ///
    /// # Errors
    /// [`SpecError`] when its spec does not decode.
    pub fn parse(resource: Arc<Resource>) -> Result<Self, SpecError> {
        let (kind, spec) = (resource.kind(), &resource.spec[..]);
        // The kinds have the same members for whom they select, each in a message of its own.
        macro_rules! read {
            ($message:ty, $conf:expr) => {{
                let message = <$message>::decode(spec)?;
                let conf = $conf(message.conf.unwrap_or_default());
                (message.sources, message.destinations, conf)
            }};
        }
        macro_rules! read_of_proxies {
            ($message:ty, $conf:expr) => {{
                let message = <$message>::decode(spec)?;
                (message.selectors, Vec::new(), $conf(message.conf.unwrap_or_default()))
            }};
        }
        let (sources, destinations, conf) = if kind == &circuit_breaker::KIND {
            read!(proto::CircuitBreaker, LegacyConf::CircuitBreaker)
        } else if kind == &fault_injection::KIND {
            read!(proto::FaultInjection, LegacyConf::FaultInjection)
        } else if kind == &health_check::KIND {
            read!(proto::HealthCheck, LegacyConf::HealthCheck)
        } else if kind == &proxy_template::KIND {
            read_of_proxies!(proto::ProxyTemplate, LegacyConf::ProxyTemplate)
        } else if kind == &rate_limit::KIND {
            read!(proto::RateLimit, LegacyConf::RateLimit)
        } else if kind == &retry::KIND {
            read!(proto::Retry, LegacyConf::Retry)
        } else if kind == &timeout::KIND {
            read!(proto::Timeout, LegacyConf::Timeout)
        } else if kind == &traffic_log::KIND {
            read!(proto::TrafficLog, LegacyConf::TrafficLog)
        } else if kind == &traffic_route::KIND {
            read!(proto::TrafficRoute, LegacyConf::TrafficRoute)
        } else if kind == &traffic_trace::KIND {
            read_of_proxies!(proto::TrafficTrace, LegacyConf::TrafficTrace)
        } else {
            let message = proto::TrafficPermission::decode(spec)?;
            (message.sources, message.destinations, LegacyConf::TrafficPermission)
        };
        Ok(Self { resource, sources, destinations, conf })
    }

    /// Core name.
    pub fn name(&self) -> &Arc<str> {
        &self.resource.key.name
    }

    /// Whom a proxy must be selected by for the policy to be for it: its inbounds by what they serve, or itself.
    pub fn selectors(&self) -> &[proto::Selector] {
        match LegacyRole::of(self.resource.kind()) {
            LegacyRole::Call | LegacyRole::Proxy => &self.sources,
            LegacyRole::Inbound | LegacyRole::Inbounds => &self.destinations,
        }
    }

    /// What a proxy must have for a selector to select it, one for each.
    pub fn reaches(&self) -> BTreeSet<Reach> {
        let of_one = |selector: &proto::Selector| {
            let asked = selector.r#match.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let tag = |(key, value): (&str, &str)| Reach::Tagged(key.to_owned(), value.to_owned());
            most_telling(asked).map_or(Reach::Everybody, tag)
        };
        let reaches: BTreeSet<Reach> = self.selectors().iter().map(of_one).collect();
        if reaches.is_empty() && LegacyRole::of(self.resource.kind()) == LegacyRole::Proxy {
            return [Reach::Everybody].into();
        }
        reaches
    }

    /// Whether it is for `proxy` at all.
    pub fn may_select(&self, proxy: &SelectableProxy) -> bool {
        let selectors = self.selectors();
        let nobody_asked = selectors.is_empty() && LegacyRole::of(self.resource.kind()) == LegacyRole::Proxy;
        nobody_asked || super::selector::best(selectors, &super::tag_sets(proxy)).is_some()
    }

    /// Whether it selects all alike who call: whoever has the tag of a service.
    pub fn selects_alike(&self) -> bool {
        let any_service = |selector: &proto::Selector| {
            selector.r#match.len() == 1
                && selector.r#match.get(labels::TAG_SERVICE).is_some_and(|value| value == ANY)
        };
        LegacyRole::of(self.resource.kind()) == LegacyRole::Call
            && !self.sources.is_empty()
            && self.sources.iter().all(any_service)
    }

    /// Whether it wins where `other` wins: both select the same, and were made at the same time.
    pub fn competes_like(&self, other: &Self) -> bool {
        self.sources == other.sources
            && self.destinations == other.destinations
            && self.resource.created == other.resource.created
    }
}
