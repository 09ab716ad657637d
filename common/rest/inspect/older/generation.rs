//! Policies that select proxies by `selectors`, or connections by `sources` and `destinations`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost::Message;
use serde::Deserialize;

use super::attachment::Attachment;
use crate::{
    model::{Kind, Resource, labels, transcode},
    policy::{
        legacy::{
            LegacyPolicy, LegacyRole, Tags,
            choice::{self, PolicyCandidate},
            tag_sets, timeout, traffic_route,
        },
        rules::SelectableProxy,
    },
    proto::kuma::mesh::v1alpha1::{Dataplane, dataplane::Networking},
    rest::ApiError,
    store::index::Index,
};

/// Whom a policy selects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selectors {
    /// Proxies.
    selectors: Option<Vec<TagSelector>>,
    /// Who connects.
    sources: Vec<TagSelector>,
    /// To whom.
    destinations: Vec<TagSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TagSelector {
    r#match: Tags,
}

impl Selectors {
    fn of(policy: &Resource) -> Result<Self, ApiError> {
        let broken = |error: String| {
            ApiError::internal("Could not retrieve policy", format!("{}: {error}", policy.key))
        };
        let json =
            transcode::to_json(policy.kind(), &policy.spec).map_err(|error| broken(error.to_string()))?;
        serde_json::from_value(json).map_err(|error| broken(error.to_string()))
    }
}

impl TagSelector {
    fn selects(&self, tags: &Tags) -> bool {
        self.r#match.iter().all(|(key, value)| tags.get(key).is_some_and(|v| value == "*" || v == value))
    }
}

fn any(selectors: &[TagSelector], tag_sets: &[&Tags]) -> bool {
    selectors.iter().any(|selector| tag_sets.iter().any(|tags| selector.selects(tags)))
}

/// Whom `policy` selects in any of its roles.
pub(in super::super) fn selector(
    policy: &Resource,
) -> Result<impl Fn(&SelectableProxy) -> bool + use<>, ApiError> {
    let found = Selectors::of(policy)?;
    Ok(move |proxy: &SelectableProxy| {
        let tags = tag_sets(proxy);
        match &found.selectors {
            Some(selectors) => any(selectors, &tags),
            None => any(&found.sources, &tags) || any(&found.destinations, &tags),
        }
    })
}

/// The policies of each kind, in order of their names.
pub(super) struct OlderPolicies(pub(super) Vec<(&'static Kind, Vec<Arc<LegacyPolicy>>)>);

impl OlderPolicies {
    pub(super) fn new(index: &Index, mesh: &str, kinds: impl Iterator<Item = &'static Kind>) -> Self {
        let of_kind = |kind: &'static Kind| {
            let all = index.list_in_mesh(kind, mesh);
            // One that does not decode selects nothing.
            let all = all.filter_map(|policy| LegacyPolicy::parse(Arc::clone(policy)).ok().map(Arc::new));
            let mut all: Vec<Arc<LegacyPolicy>> = all.collect();
            all.sort_by(|a, b| a.name().cmp(b.name()));
            (kind, all)
        };
        Self(kinds.map(of_kind).collect())
    }

    /// What is attached to `dataplane`, which is `proxy`.
    pub(super) fn attached(
        &self,
        dataplane: &Resource,
        proxy: &SelectableProxy,
    ) -> BTreeMap<Attachment, Vec<Arc<Resource>>> {
        let mut attached: BTreeMap<Attachment, Vec<Arc<Resource>>> = BTreeMap::new();
        let spec = Dataplane::decode(&*dataplane.spec).unwrap_or_default();
        let networking = spec.networking.unwrap_or_default();
        for (kind, policies) in &self.0 {
            for (at, policy) in attachments(kind, policies, &networking, proxy) {
                let known = attached.entry(at).or_default();
                // One that is for several clients of an inbound is shown once.
                if !known.iter().any(|known| known.key == policy.resource.key) {
                    known.push(Arc::clone(&policy.resource));
                }
            }
        }
        attached
    }
}

fn attachments<'a>(
    kind: &Kind,
    policies: &'a [Arc<LegacyPolicy>],
    networking: &Networking,
    proxy: &SelectableProxy,
) -> Vec<(Attachment, &'a Arc<LegacyPolicy>)> {
    let tags = tag_sets(proxy);
    let callers: Vec<PolicyCandidate> =
        policies.iter().filter_map(|policy| PolicyCandidate::of(policy, &tags)).collect();
    let winner = |to: &str| {
        let winner = choice::for_service(&callers, to)?;
        policies.iter().find(|policy| Arc::ptr_eq(policy, winner))
    };
    let mut found = Vec::new();
    match LegacyRole::of(kind) {
        LegacyRole::Proxy => {
            found.extend(choice::for_proxy(policies, &tags).map(|policy| (Attachment::dataplane(), policy)));
        }
        LegacyRole::Inbound => {
            for (name, tags) in inbounds(networking) {
                let at = Attachment::inbound(name, service(tags.iter()));
                found.extend(choice::for_inbound(policies, &tags).map(|policy| (at, policy)));
            }
        }
        LegacyRole::Inbounds => {
            for (name, tags) in inbounds(networking) {
                let at = Attachment::inbound(name, service(tags.iter()));
                let all = choice::all_for_inbound(policies, &tags).into_iter();
                found.extend(all.map(|(_, policy)| (at.clone(), policy)));
            }
        }
        // Timeouts and routes are shown where the proxy listens, all else by what is called.
        LegacyRole::Call if [&timeout::KIND, &traffic_route::KIND].contains(&kind) => {
            for (name, to) in outbounds(networking) {
                found.extend(winner(&to).map(|policy| (Attachment::outbound(name, &to), policy)));
            }
        }
        LegacyRole::Call => {
            let services: BTreeSet<String> = outbounds(networking).map(|(_, to)| to).collect();
            found.extend(services.iter().filter_map(|to| Some((Attachment::service(to), winner(to)?))));
        }
    }
    found
}

pub(super) fn service<'a>(tags: impl Iterator<Item = (&'a String, &'a String)>) -> &'a str {
    let mut tags = tags;
    tags.find(|(key, _)| *key == labels::TAG_SERVICE).map_or("", |(_, value)| value)
}

/// Where a proxy listens: address, port and port of the workload.
pub(super) fn inbounds(networking: &Networking) -> impl Iterator<Item = (String, Tags)> {
    networking.inbound.iter().map(|inbound| {
        let or =
            |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        let address = or(&inbound.address, &networking.address);
        let workload = if inbound.service_port == 0 { inbound.port } else { inbound.service_port };
        let tags = inbound.tags.clone().into_iter().collect();
        (format!("{address}:{}:{workload}", inbound.port), tags)
    })
}

/// Where its workload calls, and which service.
pub(super) fn outbounds(networking: &Networking) -> impl Iterator<Item = (String, String)> {
    networking.outbound.iter().filter_map(|outbound| {
        let address = if outbound.address.is_empty() { "127.0.0.1" } else { &outbound.address };
        let to = outbound.tags.get(labels::TAG_SERVICE)?;
        Some((format!("{address}:{}", outbound.port), to.clone()))
    })
}
