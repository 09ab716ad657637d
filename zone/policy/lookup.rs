//! What the policies of one kind say about one place of a proxy, in the type of the kind.

use std::{marker::PhantomData, sync::Arc};

use common::{
    model::{Kind, SpecError, kri::Kri, labels},
    policy::{
        PeerMatch, mesh_circuit_breaker, mesh_retry, mesh_timeout,
        rules::{Destinations, Element, InboundKey, MATCHES_HASH_TAG, RulesError, Selection, ToRules},
    },
};
use serde::de::DeserializeOwned;

use super::Reporter;
use crate::{
    generator::{Backend, RouteDraft},
    mesh::Inbound,
};

/// A policy with a configuration per inbound or destination.
pub(super) trait TypedPolicy {
    /// Its descriptor.
    const KIND: &'static Kind;
    /// What is merged.
    type Conf: DeserializeOwned + Clone;
}

impl TypedPolicy for mesh_timeout::MeshTimeout {
    const KIND: &'static Kind = &mesh_timeout::KIND;
    type Conf = mesh_timeout::Conf;
}

impl TypedPolicy for mesh_circuit_breaker::MeshCircuitBreaker {
    const KIND: &'static Kind = &mesh_circuit_breaker::KIND;
    type Conf = mesh_circuit_breaker::Conf;
}

impl TypedPolicy for mesh_retry::MeshRetry {
    const KIND: &'static Kind = &mesh_retry::KIND;
    type Conf = mesh_retry::Conf;
}

/// The key of `inbound` in rules.
pub(super) fn inbound_key(inbound: &Inbound) -> InboundKey {
    InboundKey { address: inbound.address.clone(), port: inbound.port }
}

/// Rules of one kind for one proxy.
pub(super) struct Rules<C> {
    selection: Selection,
    to: Arc<ToRules>,
    conf: PhantomData<C>,
}

impl<C: DeserializeOwned + Clone> Rules<C> {
    pub(super) fn new(selection: Selection, all: &Destinations, reporter: &mut Reporter<'_>) -> Self {
        let to: Result<Arc<ToRules>, RulesError> = selection.to_rules(all);
        let to = to.unwrap_or_else(|error| {
            reporter.report(error);
            Arc::default()
        });
        Self { selection, to, conf: PhantomData }
    }

    /// For the traffic of an inbound, whoever the client is.
    pub(super) fn inbound(&self, inbound: &Inbound, reporter: &mut Reporter<'_>) -> Option<C> {
        known(self.selection.inbound_rules(&inbound_key(inbound)).unconditional(), reporter)
    }

    /// For the traffic of an inbound from clients that meet a condition, narrowest first.
    pub(super) fn by_client(&self, inbound: &Inbound, reporter: &mut Reporter<'_>) -> Vec<(PeerMatch, C)> {
        let rules = self.selection.inbound_rules(&inbound_key(inbound));
        known(rules.conditional().map(Some), reporter).unwrap_or_default()
    }

    /// For the traffic to a backend.
    pub(super) fn outbound(&self, backend: &Backend, reporter: &mut Reporter<'_>) -> Option<C> {
        let conf = match &backend.resource {
            Some(resource) => self.to.resource(&resource.kri),
            None => self.to.service(&backend.service),
        };
        known(conf, reporter)
    }

    /// Which policy contributed the rule with these matches for a backend.
    pub(super) fn origin_of(&self, backend: &Backend, hash: &str) -> Option<Kri> {
        let origins = match &backend.resource {
            Some(resource) => &self.to.resources.lookup(&resource.kri)?.origin_by_matches,
            None => &self.to.tags.service(&backend.service)?.origin_by_matches,
        };
        origins.get(hash).and_then(|origin| Kri::of(&origin.policy.resource))
    }

    /// For the requests of one route to a backend, when there is something special about it.
    pub(super) fn route(
        &self,
        backend: &Backend,
        route: &RouteDraft,
        reporter: &mut Reporter<'_>,
    ) -> Option<C> {
        let policy = route.policy.as_ref()?;
        if self.to.resources.0.contains_key(policy) {
            return known(self.to.resource(policy), reporter);
        }
        if backend.resource.is_some() {
            return None;
        }
        let element = Element::from([
            (labels::TAG_SERVICE.to_owned(), backend.service.clone()),
            (MATCHES_HASH_TAG.to_owned(), route.hash.clone()),
        ]);
        self.to.tags.lookup(&element).and_then(|rule| known(rule.conf().map(Some), reporter))
    }
}

/// The configuration, unless it does not decode, which is reported.
fn known<C>(conf: Result<Option<C>, SpecError>, reporter: &mut Reporter<'_>) -> Option<C> {
    conf.unwrap_or_else(|error| {
        reporter.report(error);
        None
    })
}
