//! What the policies of one kind say about one place, in the type of the kind.

use std::marker::PhantomData;

use common::{
    model::{FieldPath, SpecError, decode, kri::Kri, labels},
    policy::{
        PeerMatch, TargetKind,
        rules::{
            Destinations, Element, InboundKey, InboundRule, InboundRules, MATCHES_HASH_TAG, OutboundRules,
            ResourceRule, RulesError, Selection, TagRule,
        },
    },
};
use serde::de::DeserializeOwned;

use super::{Outside, Reporter};
use crate::{
    generator::{Backend, RouteDraft},
    mesh::{Inbound, MeshContext},
};

/// What is everything outside the mesh called where services are named.
const PASS_THROUGH: &str = "pass_through";

/// The key of `inbound` in rules.
pub(super) fn inbound_key(inbound: &Inbound) -> InboundKey {
    InboundKey { address: inbound.address.clone(), port: inbound.port }
}

/// What is said about the inbounds of one proxy.
pub(super) struct InboundConfs<'a, C> {
    pub(super) selection: &'a Selection,
    conf: PhantomData<C>,
}

impl<'a, C: DeserializeOwned + Clone> InboundConfs<'a, C> {
    pub(super) fn new(selection: &'a Selection) -> Self {
        Self { selection, conf: PhantomData }
    }

    /// For the traffic of an inbound, whoever the client is.
    pub(super) fn of(&self, inbound: &Inbound, reporter: &mut Reporter<'_>) -> Option<C> {
        known(self.selection.inbound_rules(&inbound_key(inbound)).unconditional(), reporter)
    }

    /// For the proxy as a whole, of a policy without lists.
    pub(super) fn single(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        let (merged, _) = self.selection.single()?;
        known(decode::value_at(&FieldPath::new("default"), &merged).map(Some), reporter)
    }

    /// For what leaves the mesh, in policies with a list of destinations.
    pub(super) fn passing(&self, mesh: &MeshContext, reporter: &mut Reporter<'_>) -> Option<C> {
        let rules = OutboundRules::new(&self.selection.policies, &mesh.destinations);
        MatchedRule::OfTags(usable(rules.service(PASS_THROUGH), reporter)?).conf(reporter)
    }

    /// What each rule for the traffic of an inbound says for itself, narrowest condition first.
    pub(super) fn each(&self, inbound: &Inbound, reporter: &mut Reporter<'_>) -> Vec<(Option<PeerMatch>, C)> {
        let rules = self.selection.inbound_rules(&inbound_key(inbound)).0;
        let one =
            |rule: &InboundRule| Some((rule.condition.clone(), known(rule.conf().map(Some), reporter)?));
        rules.iter().filter_map(one).collect()
    }

    /// For the traffic of an inbound from clients that meet a condition, narrowest first.
    pub(super) fn by_client(&self, inbound: &Inbound, reporter: &mut Reporter<'_>) -> Vec<(PeerMatch, C)> {
        let rules = self.selection.inbound_rules(&inbound_key(inbound));
        known(rules.conditional().map(Some), reporter).unwrap_or_default()
    }
}

/// What is said about the destinations of a profile.
pub(super) struct OutboundConfs<'a, C> {
    rules: &'a OutboundRules,
    destinations: &'a Destinations,
    pub(super) outside: Outside<'a>,
    conf: PhantomData<C>,
}

impl<'a, C: DeserializeOwned + Clone> OutboundConfs<'a, C> {
    pub(super) fn new(rules: &'a OutboundRules, outside: Outside<'a>) -> Self {
        Self { rules, destinations: &outside.mesh.destinations, outside, conf: PhantomData }
    }

    /// For the traffic to a backend.
    pub(super) fn of(&self, backend: &Backend, reporter: &mut Reporter<'_>) -> Option<C> {
        self.said_of(backend, reporter)?.conf(reporter)
    }

    /// For the traffic of the whole mesh, in policies about how it comes in: what one side of a connection
    /// speaks the other has to speak too.
    pub(super) fn of_whole_mesh(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        let of_mesh = self.rules.policies().filter(|policy| policy.top.kind == TargetKind::Mesh);
        let policies: Vec<_> = of_mesh.cloned().collect();
        known(InboundRules::build(&policies).unconditional(), reporter)
    }

    /// The rule for a backend.
    pub(super) fn said_of(&self, backend: &Backend, reporter: &mut Reporter<'_>) -> Option<MatchedRule> {
        match &backend.resource {
            Some(resource) => {
                let rule = self.rules.resource(&resource.kri, self.destinations);
                usable(rule, reporter).map(MatchedRule::OfResource)
            }
            None => usable(self.rules.service(&backend.name), reporter).map(MatchedRule::OfTags),
        }
    }

    /// For all traffic of a place of a builtin gateway.
    pub(super) fn of_gateway(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        MatchedRule::OfTags(usable(self.rules.lookup(&Element::new()), reporter)?).conf(reporter)
    }

    /// For the requests of one route of a builtin gateway: its own, else those of all.
    pub(super) fn of_gateway_route(&self, route: &RouteDraft, reporter: &mut Reporter<'_>) -> Option<C> {
        let own = route.policy.as_ref().and_then(|policy| self.of_route(policy, reporter));
        let by_hash = || Element::from([(MATCHES_HASH_TAG.to_owned(), route.hash.clone())]);
        let said = |rule, reporter: &mut Reporter<'_>| MatchedRule::OfTags(rule).conf(reporter);
        own.or_else(|| {
            let rule = usable(self.rules.lookup(&by_hash()), reporter)?;
            said(rule, reporter)
        })
    }

    /// For what comes in at a place of a builtin gateway, whoever the client is.
    pub(super) fn of_incoming(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        let policies: Vec<_> = self.rules.policies().cloned().collect();
        known(InboundRules::build(&policies).unconditional(), reporter)
    }

    /// For all traffic, of a policy without lists.
    pub(super) fn single(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        let merged = self.rules.single()?;
        known(decode::value_at(&FieldPath::new("default"), &merged).map(Some), reporter)
    }

    /// For the requests of one route, when an item points at that.
    pub(super) fn of_route(&self, policy: &Kri, reporter: &mut Reporter<'_>) -> Option<C> {
        usable(self.rules.own(policy, self.destinations), reporter)?;
        let rule = usable(self.rules.resource(policy, self.destinations), reporter)?;
        MatchedRule::OfResource(rule).conf(reporter)
    }

    /// For the requests of one route to a backend, when there is something special about it.
    pub(super) fn route(
        &self,
        backend: &Backend,
        route: &RouteDraft,
        reporter: &mut Reporter<'_>,
    ) -> Option<C> {
        let policy = route.policy.as_ref()?;
        if let Some(conf) = self.of_route(policy, reporter) {
            return Some(conf);
        }
        if backend.resource.is_some() {
            return None;
        }
        let element = Element::from([
            (labels::TAG_SERVICE.to_owned(), backend.name.clone()),
            (MATCHES_HASH_TAG.to_owned(), route.hash.clone()),
        ]);
        MatchedRule::OfTags(usable(self.rules.lookup(&element), reporter)?).conf(reporter)
    }
}

/// What is said about one place.
pub(super) enum MatchedRule {
    /// As a service known by its tag.
    OfTags(TagRule),
    /// As a resource.
    OfResource(ResourceRule),
}

impl MatchedRule {
    /// In the type of the kind.
    pub(super) fn conf<C: DeserializeOwned>(&self, reporter: &mut Reporter<'_>) -> Option<C> {
        let conf = match self {
            Self::OfTags(rule) => rule.conf().map(Some),
            Self::OfResource(rule) => rule.conf(),
        };
        known(conf, reporter)
    }

    /// Which policy contributed the rule with these matches.
    pub(super) fn origin(&self, hash: &str) -> Option<Kri> {
        let origins = match self {
            Self::OfTags(rule) => &rule.origin_by_matches,
            Self::OfResource(rule) => &rule.origin_by_matches,
        };
        origins.get(hash).and_then(|origin| Kri::of(&origin.policy.resource))
    }
}

/// The rule, unless the policies contradict themselves, which is reported.
fn usable<R>(rule: Result<Option<R>, RulesError>, reporter: &mut Reporter<'_>) -> Option<R> {
    rule.unwrap_or_else(|error| {
        reporter.report(error);
        None
    })
}

/// The configuration, unless it does not decode, which is reported.
fn known<C>(conf: Result<Option<C>, SpecError>, reporter: &mut Reporter<'_>) -> Option<C> {
    conf.unwrap_or_else(|error| {
        reporter.report(error);
        None
    })
}
