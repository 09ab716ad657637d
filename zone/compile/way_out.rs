//! What a proxy lets out of its mesh: for each service outside that is a resource a chain on its listener, and the cluster
//! that reaches it.

use std::collections::BTreeSet;

use super::server_name::unambiguous;
use crate::{
    generator::{Backend, Draft, Shown, Sidecar, sni, zone_listener},
    mesh::{Edge, ExternalService, MeshContext, Problem, ZoneListener, problem::Subject},
    policy::{self, Caller, Outside, Profile, Selections, legacy::LegacyCalls},
};

/// Adds listeners and clusters of what `proxy` lets out.
pub(super) fn generate(
    proxy: &Sidecar,
    mesh: &MeshContext,
    selections: &Selections,
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    let mut listeners = proxy.dataplane.edges(Edge::Egress).peekable();
    if listeners.peek().is_none() {
        return;
    }
    let legacy = LegacyCalls::of(mesh, &proxy.dataplane);
    let shown = proxy.shown.as_ref().and_then(Shown::given);
    let caller = Caller::of(mesh, &proxy.dataplane, &proxy.metadata, shown, legacy.tells());
    let all = Selections::of_dataplane(mesh, &proxy.dataplane);
    let profile = Profile::new(caller, &all, legacy, mesh);
    let mut way = WayOut { proxy, mesh, selections, profile: &profile, draft, problems };
    for listener in listeners {
        if let Some(reason) = why_not(proxy, mesh) {
            way.report(listener, reason);
        } else {
            way.open(listener);
        }
    }
}

/// Why nobody is let out.
fn why_not(proxy: &Sidecar, mesh: &MeshContext) -> Option<&'static str> {
    if !mesh.services_are_exclusive() {
        Some("the mesh does not have meshServices.mode Exclusive")
    } else if let Some(shown) = &proxy.shown {
        let is_named = shown.name().is_some() || !proxy.dataplane.identities(&mesh.mesh).is_empty();
        let why = "the certificate of the proxy names nobody; give it an inbound with a kuma.io/service tag, or a \
                   MeshIdentity";
        (!is_named).then_some(why)
    } else {
        Some("the mesh has no mutual TLS, and no MeshIdentity is for the proxy")
    }
}

struct WayOut<'a> {
    proxy: &'a Sidecar,
    mesh: &'a MeshContext,
    selections: &'a Selections,
    profile: &'a Profile,
    draft: &'a mut Draft,
    problems: &'a mut BTreeSet<Problem>,
}

impl WayOut<'_> {
    fn report(&mut self, listener: &ZoneListener, reason: &str) {
        let reason = format!("listener {} lets nobody out: {reason}", listener.port);
        let subject = Subject::of(&self.proxy.dataplane.resource);
        self.problems.insert(Problem { subject, reason });
    }

    fn open(&mut self, listener: &ZoneListener) {
        let reuses_port = self.proxy.metadata.reuses_port();
        let mesh = self.mesh;
        let mut whole = None;
        let usable = mesh
            .external
            .resources()
            .filter(|service| service.is_reached_from(&mesh.zone) && !service.endpoints.is_empty());
        for service in usable {
            let (Some(kri), Some(backend)) = (&service.kri, Backend::of_external(mesh, service)) else {
                continue;
            };
            let Some(name) = sni::of_kri(kri) else {
                self.unreached(service, "a part of its identifier cannot stand in a host name");
                continue;
            };
            let (metadata, ipv6) = (&self.proxy.metadata, listener.listen.is_ipv6());
            let known = metadata.system_ca.as_deref();
            let mut cluster = match zone_listener::to_outside(&backend, service, kri, known, ipv6) {
                Ok(cluster) => cluster,
                Err(reason) => {
                    self.unreached(service, &reason);
                    continue;
                }
            };
            let outside = Outside { mesh, profile: self.profile, place: None };
            policy::apply_way_out(outside, &backend, &mut cluster, self.problems);
            let chain = zone_listener::external(
                self.proxy.downstream_on_the_way_out(mesh),
                service,
                kri,
                &name,
                metadata.ipv6,
                policy::tells_tags(mesh),
            );
            let made = zone_listener::listener(listener, reuses_port, vec![chain]);
            let Some(mut made) = made else { continue };
            let at = (listener, &**service);
            policy::apply_zone_listener(mesh, self.proxy, self.selections, at, &mut made, self.problems);
            self.draft.clusters.insert(cluster.message.name.clone(), cluster);
            match &mut whole {
                None => whole = Some(made),
                Some(whole) => whole.chains.extend(made.chains),
            }
        }
        if let Some(mut whole) = whole {
            whole.chains = unambiguous(whole.chains);
            self.draft.listeners.insert(whole.message.name.clone(), whole);
        }
    }

    fn unreached(&mut self, service: &ExternalService, reason: &str) {
        let subject = Subject::Part(service.service.to_string());
        self.problems.insert(Problem { subject, reason: format!("nobody gets to it: {reason}") });
    }
}
