//! `…/_older`: for each part of a proxy the policies of the older generation that are for it, which of them wins, and
//! what of the newer generation stands before them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use prost::Message;
use serde_json::{Value, json};

use super::{
    DATAPLANE,
    attachment::Attachment,
    generation::{OlderPolicies, inbounds, outbounds, service},
    shown,
};
use crate::{
    model::{
        Kind, Resource,
        kinds::{dataplane, legacy::EXTERNAL_SERVICE},
        labels,
    },
    policy::{
        legacy::{
            self, LegacyPolicy, LegacyRole,
            choice::{self, PolicyCandidate},
            tag_sets, traffic_route,
        },
        mesh_http_route, mesh_tcp_route,
        rules::{RuleOrigin, SelectableInbound, SelectableProxy},
    },
    proto::kuma::mesh::v1alpha1::{Dataplane, ExternalService, dataplane::Networking},
    registry,
    rest::{
        ApiError, KindApi, User,
        inspect::{
            InspectPath, dataplanes, is_exclusive,
            matched::{Matched, MeshPolicies},
            meta, present, proxy,
        },
    },
    runtime::http::Client,
    store::index::Index,
};

/// `GET` of it.
pub(in crate::rest::inspect) async fn older(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    at.about_dataplane(&place, &user, &client, dataplanes::weight, |index, subject| {
        let items = Contest::new(index, subject)?.items()?;
        Ok(json!({"total": items.len(), "items": items}))
    })
    .await
}

/// One proxy with everything that may be for it.
struct Contest<'a> {
    index: &'a Index,
    mesh: &'a str,
    networking: Networking,
    proxy: SelectableProxy,
    older: OlderPolicies,
    newer: MeshPolicies,
    matched: Vec<Matched>,
    /// The services of the mesh, and whether they speak HTTP.
    services: BTreeMap<String, bool>,
}

impl<'a> Contest<'a> {
    fn new(index: &'a Index, dataplane: &'a Resource) -> Result<Self, ApiError> {
        let (mesh, proxy) = (dataplane.mesh(), proxy(index, dataplane, DATAPLANE)?);
        let spec = Dataplane::decode(&*dataplane.spec).unwrap_or_default();
        let newer = MeshPolicies::of_kinds(index, mesh, registry::policies_in_order());
        let matched = newer.matching(&proxy);
        let older = OlderPolicies::new(index, mesh, legacy::KINDS.into_iter());
        let networking = spec.networking.unwrap_or_default();
        let services = services(index, mesh);
        Ok(Self { index, mesh, networking, proxy, older, newer, matched, services })
    }

    fn items(&self) -> Result<Vec<Value>, ApiError> {
        let mut items = Vec::new();
        for (kind, policies) in self.older.0.iter().filter(|(_, policies)| !policies.is_empty()) {
            match LegacyRole::of(kind) {
                LegacyRole::Call => self.calls(kind, policies, &mut items)?,
                LegacyRole::Inbound | LegacyRole::Inbounds => self.inbounds(kind, policies, &mut items)?,
                LegacyRole::Proxy => {
                    let all = choice::contenders_for_proxy(policies, &tag_sets(&self.proxy));
                    let before = self.before_proxy(kind);
                    items.extend(entry(&Attachment::dataplane(), kind, &all, before)?);
                }
            }
        }
        Ok(items)
    }

    fn calls(
        &self,
        kind: &Kind,
        policies: &[Arc<LegacyPolicy>],
        items: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        let tags = tag_sets(&self.proxy);
        let callers: Vec<PolicyCandidate> =
            policies.iter().filter_map(|policy| PolicyCandidate::of(policy, &tags)).collect();
        if callers.is_empty() {
            return Ok(());
        }
        for to in self.called() {
            let all = choice::all_for_service(&callers, &to);
            items.extend(entry(&Attachment::service(&to), kind, &all, self.before_call(kind, &to))?);
        }
        Ok(())
    }

    fn inbounds(
        &self,
        kind: &Kind,
        policies: &[Arc<LegacyPolicy>],
        items: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        for ((name, tags), inbound) in std::iter::zip(inbounds(&self.networking), &self.proxy.inbounds) {
            let at = Attachment::inbound(name, service(tags.iter()));
            let before = self.before_inbound(kind, inbound);
            if LegacyRole::of(kind) == LegacyRole::Inbound {
                let all = choice::contenders_for_inbound(policies, &tags);
                items.extend(entry(&at, kind, &all, before)?);
                continue;
            }
            // All of them count, each for the clients it means.
            let mut seen: Vec<&Arc<LegacyPolicy>> = Vec::new();
            for (_, policy) in choice::all_for_inbound(policies, &tags) {
                if !seen.iter().any(|known| Arc::ptr_eq(known, policy)) {
                    seen.push(policy);
                    items.extend(entry(&at, kind, &[policy], before.clone())?);
                }
            }
        }
        Ok(())
    }

    /// The services it calls: those it names, else all there are.
    fn called(&self) -> BTreeSet<String> {
        if self.networking.outbound.is_empty() {
            return self.services.keys().cloned().collect();
        }
        outbounds(&self.networking).map(|(_, to)| to).collect()
    }

    fn matched(&self, kind: &Kind) -> Option<&Matched> {
        self.matched.iter().find(|matched| matched.kind == kind)
    }

    /// What stands before the policies of `kind` for calls of `to`.
    fn before_call(&self, kind: &Kind, to: &str) -> Option<String> {
        if is_exclusive(self.index, self.mesh) {
            return Some(
                "the services of the mesh are resources, of which only newer policies speak".to_owned(),
            );
        }
        let is_for_proxy =
            |kind| self.matched(kind).is_some_and(|matched| !matched.selection.policies.is_empty());
        let route = if self.speaks_http(to) { &mesh_http_route::KIND } else { &mesh_tcp_route::KIND };
        if is_for_proxy(route) {
            return Some(format!("a {} is for the proxy", route.name));
        }
        let of_routes = self.older.0.iter().find(|(kind, _)| *kind == &traffic_route::KIND);
        if of_routes.is_none_or(|(_, routes)| routes.is_empty()) {
            return Some("there is no TrafficRoute in the mesh".to_owned());
        }
        let newer = self.matched(legacy::successor(kind)?)?;
        let rules = newer.selection.to_rules(&self.newer.destinations).ok()?;
        said_by(&rules.tags.service(to)?.origins)
    }

    fn speaks_http(&self, service: &str) -> bool {
        self.services.get(service).copied().unwrap_or_default()
    }

    fn before_inbound(&self, kind: &Kind, inbound: &SelectableInbound) -> Option<String> {
        let newer = self.matched(legacy::successor(kind)?)?;
        let rules = newer.selection.inbound_rules(&inbound.key);
        said_by(&rules.0.iter().map(|rule| rule.origin.clone()).collect::<Vec<_>>())
    }

    fn before_proxy(&self, kind: &Kind) -> Option<String> {
        let (_, origins) = self.matched(legacy::successor(kind)?)?.selection.single()?;
        said_by(&origins)
    }
}

/// Services that are known by their tags, and whether they speak HTTP.
fn services(index: &Index, mesh: &str) -> BTreeMap<String, bool> {
    let proxies = index.list_in_mesh(&dataplane::KIND, mesh);
    let networking = proxies.filter_map(|one| Dataplane::decode(&*one.spec).ok()?.networking);
    let served = networking.flat_map(|networking| networking.inbound).map(|inbound| inbound.tags);
    let external = index.list_in_mesh(&EXTERNAL_SERVICE, mesh);
    let external = external.filter_map(|one| one.spec::<ExternalService>().ok()).map(|one| one.tags);
    let mut services = BTreeMap::new();
    for tags in served.chain(external) {
        let http = ["http", "http2", "grpc"];
        let protocol = tags.get(labels::TAG_PROTOCOL);
        let is_http = protocol.is_some_and(|protocol| http.contains(&protocol.as_str()));
        if let Some(service) = tags.get(labels::TAG_SERVICE) {
            *services.entry(service.clone()).or_default() |= is_http;
        }
    }
    services
}

/// The newer policies that say the same.
fn said_by(origins: &[RuleOrigin]) -> Option<String> {
    let named = |origin: &RuleOrigin| {
        let resource = &origin.policy.resource;
        format!("{}/{}", resource.kind().name, resource.display_name())
    };
    let names: BTreeSet<String> = origins.iter().map(named).collect();
    (!names.is_empty()).then(|| Vec::from_iter(names).join(", "))
}

/// What is for one part, the winner first; `None` when nothing is.
fn entry(
    at: &Attachment,
    kind: &Kind,
    all: &[&Arc<LegacyPolicy>],
    before: Option<String>,
) -> Result<Option<Value>, ApiError> {
    let Some((winner, lost)) = all.split_first() else { return Ok(None) };
    let policy = |policy: &LegacyPolicy| {
        let conf = shown(&policy.resource)?["conf"].take();
        Ok(present(json!({"resourceMeta": meta(&policy.resource), "conf": conf})))
    };
    let lost = lost.iter().map(|one| policy(one)).collect::<Result<Vec<Value>, ApiError>>()?;
    let mut entry = at.shown();
    entry["policyType"] = kind.name.into();
    entry["policy"] = policy(winner)?;
    entry["lost"] = lost.into();
    if let Some(before) = before {
        entry["overriddenBy"] = before.into();
    }
    Ok(Some(entry))
}
