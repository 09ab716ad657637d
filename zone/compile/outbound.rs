//! What the workload calls: the parts that all proxies of a profile share.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use common::{
    model::kinds::{destinations::MESH_MULTI_ZONE_SERVICE, mesh_external_service, mesh_service},
    proto::envoy::config::route::v3::{
        route::Action,
        route_action::{ClusterSpecifier, HostRewriteSpecifier},
    },
};

use super::admission;
use crate::{
    generator::{
        Backend, ClusterDraft, Encoded, ListenerDraft, Nearness, ProxyMetadata, Terminal, XdsClient,
        envoy::flag, outbound,
    },
    mesh::{
        Dataplane, Destination, Inbound, Lookup, MeshContext, Outbound, Problem, Target, problem::Subject,
    },
    policy::{self, Caller, GatewayScope, Outside, route, route::Routing},
};

/// How a destination is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CalledBy {
    /// At this address and port, where the proxy listens.
    Address(IpAddr, u32),
    /// By this name, for which the gRPC library of an application asks.
    Name(Arc<str>),
    /// By whatever name: what all of them share.
    AnyName,
}

/// An address or a name by which the workload calls a destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OutboundCall {
    /// How.
    pub(super) by: CalledBy,
    /// What is called when no route says otherwise.
    pub(super) destination: Destination,
}

impl OutboundCall {
    /// Whether it takes this address.
    pub(super) fn is_at(&self, address: IpAddr, port: u32) -> bool {
        self.by == CalledBy::Address(address, port)
    }
}

/// A compiled listener and what it follows from.
#[derive(Debug)]
pub(super) struct CompiledListener {
    /// `None` when a policy takes it out, or nothing says where what comes in goes.
    pub(super) listener: Option<Arc<Encoded>>,
    /// What it sends traffic to.
    pub(super) backends: BTreeSet<Destination>,
    /// What decided something about it.
    pub(super) consulted: BTreeSet<Destination>,
    /// References that were looked up.
    pub(super) lookups: BTreeSet<Lookup>,
    /// What was left out.
    pub(super) problems: BTreeSet<Problem>,
}

impl CompiledListener {
    /// What follows from nothing.
    pub(super) fn of(encoded: Arc<Encoded>) -> Self {
        Self {
            listener: Some(encoded),
            backends: BTreeSet::new(),
            consulted: BTreeSet::new(),
            lookups: BTreeSet::new(),
            problems: BTreeSet::new(),
        }
    }
}

/// A compiled cluster.
#[derive(Debug)]
pub(super) struct CompiledCluster {
    /// `None` when a policy takes it out.
    pub(super) cluster: Option<Arc<Encoded>>,
    /// Which of its endpoints are near, when it is not the same for every proxy of the mesh.
    pub(super) nearness: Option<Nearness>,
    /// Who reads it.
    pub(super) client: XdsClient,
    /// What was left out.
    pub(super) problems: BTreeSet<Problem>,
}

/// What `dataplane` calls, in order; what leads nowhere is a problem.
pub(super) fn calls(
    mesh: &MeshContext,
    dataplane: &Dataplane,
    metadata: &ProxyMetadata,
    problems: &mut BTreeSet<Problem>,
) -> Vec<Arc<OutboundCall>> {
    if dataplane.is_builtin_gateway() {
        return Vec::new();
    }
    if metadata.calls_virtually(dataplane) {
        // What is called at the addresses of its own inbounds is the workload itself.
        let own: BTreeSet<(IpAddr, u32)> = dataplane.inbounds.iter().map(|i| (i.listen, i.port)).collect();
        let reached = mesh.reached_by(dataplane).into_iter().filter(|(at, _)| !own.contains(at));
        return virtual_calls(mesh, reached);
    }
    let mut calls = Vec::with_capacity(dataplane.outbounds.len());
    let mut taken: BTreeSet<(IpAddr, u32)> = dataplane.inbounds.iter().map(|i| (i.listen, i.port)).collect();
    for Outbound { address, port, target } in dataplane.outbounds.iter() {
        let mut problem = |reason: String| {
            let reason = format!("outbound {address}:{port}: {reason}");
            problems.insert(Problem { subject: Subject::of(&dataplane.resource), reason });
        };
        match destination(mesh, target) {
            Err(reason) => problem(reason),
            // Envoy refuses a second listener on an address.
            Ok(_) if !taken.insert((*address, *port)) => problem("the address is taken".to_owned()),
            Ok(destination) => {
                calls.push(Arc::new(OutboundCall { by: CalledBy::Address(*address, *port), destination }))
            }
        }
    }
    calls
}

/// Whether `dataplane` calls [`everything`], as most of those do who call at virtual addresses.
pub(super) fn calls_everything(mesh: &MeshContext, dataplane: &Dataplane, metadata: &ProxyMetadata) -> bool {
    let own = |inbound: &Inbound| mesh.virtual_outbounds.at((inbound.listen, inbound.port)).is_some();
    !dataplane.is_builtin_gateway()
        && metadata.calls_virtually(dataplane)
        && mesh.reaches_everything(dataplane)
        && !dataplane.inbounds.iter().any(own)
}

/// All that is called at virtual addresses, in order.
pub(super) fn everything(mesh: &MeshContext) -> Vec<Arc<OutboundCall>> {
    virtual_calls(mesh, mesh.virtual_outbounds.all())
}

fn virtual_calls<'a>(
    mesh: &MeshContext,
    called: impl Iterator<Item = ((IpAddr, u32), &'a Destination)>,
) -> Vec<Arc<OutboundCall>> {
    let usable = called.filter(|(_, called)| Backend::of(mesh, called).is_some());
    let call = |((address, port), called): (_, &Destination)| {
        Arc::new(OutboundCall { by: CalledBy::Address(address, port), destination: called.clone() })
    };
    usable.map(call).collect()
}

/// What an outbound leads to.
pub(super) fn destination(mesh: &MeshContext, target: &Target) -> Result<Destination, String> {
    match target {
        Target::Tagged(destination) => match Backend::of(mesh, destination) {
            Some(_) => Ok(destination.clone()),
            None => Err("the name of the service is reserved".to_owned()),
        },
        Target::Resource(reference) if reference.kind == mesh_service::KIND.name => {
            let found = mesh.mesh_services.find(reference);
            let name = reference.name.as_deref().unwrap_or_default();
            let missing = || format!("there is no MeshService {name:?} with this port");
            found.map(|(service, port)| service.callee(port)).ok_or_else(missing)
        }
        Target::Resource(reference) if reference.kind == MESH_MULTI_ZONE_SERVICE.name => {
            let found = mesh.multi_zone_services.find(reference);
            let name = reference.name.as_deref().unwrap_or_default();
            let missing = || format!("there is no MeshMultiZoneService {name:?} with this port");
            found.map(|(service, port)| service.callee(port)).ok_or_else(missing)
        }
        Target::Resource(reference) if reference.kind == mesh_external_service::KIND.name => {
            let name = reference.name.as_deref().unwrap_or_default();
            let missing = || format!("there is no MeshExternalService {name:?} with this port");
            mesh.external.find(reference).map(|service| service.destination.clone()).ok_or_else(missing)
        }
        Target::Resource(reference) => Err(format!("references to a {} are not supported", reference.kind)),
    }
}

/// The listener by which `destination` is called `at` an address; `None` when it does not exist any more.
pub(super) fn listener(
    outside: Outside<'_>,
    at: (IpAddr, u32),
    destination: &Destination,
) -> Option<CompiledListener> {
    let mut uses = route::Uses::new(outside.mesh);
    let mut problems = BTreeSet::new();
    let called = uses.backend(destination)?;
    let mut draft = routed(outside, at, &called, &mut uses, &mut problems);
    if let Some(draft) = &mut draft {
        policy::apply_outbound(outside, &called, draft, &mut problems);
    }
    unreached(outside.mesh, &called, &mut problems);
    let blame = || {
        let (mut uses, mut told) = (route::Uses::new(outside.mesh), BTreeSet::new());
        let draft = routed(outside, at, &called, &mut uses, &mut told)?;
        let is_broken = |draft: &ListenerDraft| !draft.encode().broken_rules().is_empty();
        policy::blame::of_outbound(outside, &called, draft, is_broken)
    };
    let patches = outside.profile.patches();
    let finish = |draft: ListenerDraft| admission::patched(draft.encode(), patches, blame, &mut problems);
    let listener = draft.and_then(finish);
    Some(CompiledListener {
        listener,
        backends: uses.backends.into_values().collect(),
        consulted: uses.consulted,
        lookups: uses.lookups,
        problems,
    })
}

/// The same with no policy applied to it but those that say where it leads; `None` for nowhere.
fn routed<'a>(
    outside: Outside<'a>,
    at: (IpAddr, u32),
    called: &Backend,
    uses: &mut route::Uses<'a>,
    problems: &mut BTreeSet<Problem>,
) -> Option<ListenerDraft> {
    let mut draft = match route::decide(outside, called, uses, problems) {
        Routing::Requests(routes) => {
            let Caller { ipv6, tags, .. } = &outside.profile.caller;
            // What proxies tell of themselves is not for those outside.
            let tags = tags.as_deref().filter(|_| !called.is_called_outside(outside.mesh));
            outbound::http_listener(at, called, routes, tags, *ipv6)
        }
        Routing::Bytes(shares) => outbound::tcp_listener(at, called, &shares),
        Routing::Nowhere => return None,
    };
    draft.message.bind_to_port = outside.profile.caller.recognised.then_some(false).and_then(flag);
    rewrite_hosts(&mut draft, outside.mesh, uses);
    Some(draft)
}

/// Requests for what is called outside the mesh name the host they go to.
fn rewrite_hosts(draft: &mut ListenerDraft, mesh: &MeshContext, uses: &route::Uses<'_>) {
    let outside = |cluster: &String| {
        let backend = uses.backends.get(cluster).and_then(|destination| Backend::of(mesh, destination));
        backend.is_some_and(|backend| backend.behind_egress || backend.is_called_outside(mesh))
    };
    for chain in &mut draft.chains {
        let Terminal::Http(http) = &mut chain.terminal else { continue };
        for route in &mut http.routes {
            let Some(Action::Route(action)) = &mut route.message.action else { continue };
            let leaves = match &action.cluster_specifier {
                Some(ClusterSpecifier::Cluster(cluster)) => outside(cluster),
                Some(ClusterSpecifier::WeightedClusters(all)) => {
                    all.clusters.iter().any(|c| outside(&c.name))
                }
                _ => false,
            };
            if leaves && action.host_rewrite_specifier.is_none() {
                action.host_rewrite_specifier = flag(true).map(HostRewriteSpecifier::AutoHostRewrite);
            }
        }
    }
}

/// Notes why calls of something outside the mesh lead nowhere.
fn unreached(mesh: &MeshContext, called: &Backend, problems: &mut BTreeSet<Problem>) {
    let service = mesh.topology.service(&called.destination);
    if !called.behind_egress || !service.endpoints.is_empty() {
        return;
    }
    let elsewhere = |name: &std::sync::Arc<str>| {
        mesh.external.resource(name).is_some_and(|external| !external.is_reached_from(&mesh.zone))
    };
    let why = match &called.destination {
        Destination::External(name) if elsewhere(name) => "it belongs to another zone",
        _ if !mesh.is_encrypted() => "it is reached through an egress, for which the mesh needs mutual TLS",
        _ if mesh.mtls.is_none() => {
            "where the mesh has no authority of its own it is reached through an egress of the mesh alone, of which \
             this zone has none"
        }
        _ => "it is reached through an egress, of which this zone has none",
    };
    let reason = format!("nobody gets to this service outside the mesh: {why}");
    problems.insert(Problem { subject: Subject::Part(called.name.clone()), reason });
}

/// The cluster that reaches `destination`; `None` when that does not exist any more.
pub(super) fn cluster(outside: Outside<'_>, destination: &Destination) -> Option<CompiledCluster> {
    let mut problems = BTreeSet::new();
    let draft = cluster_draft(outside, destination, &mut problems)?;
    let blame = || {
        let (outside, backend) = (beyond(outside, destination), Backend::of(outside.mesh, destination)?);
        let draft = backend.cluster(outside.mesh, None, outside.profile.caller.identity.as_ref()).ok()?;
        let is_broken = |draft: &ClusterDraft| !draft.encode().broken_rules().is_empty();
        policy::blame::of_cluster(outside, &backend, draft, is_broken)
    };
    let patches = outside.profile.patches();
    let patched = |draft: &ClusterDraft| admission::patched(draft.encode(), patches, blame, &mut problems);
    let cluster = draft.as_ref().and_then(patched);
    let nearness = draft.and_then(|draft| draft.nearness);
    Some(CompiledCluster { cluster, nearness, client: XdsClient::Envoy, problems })
}

/// The same with everything that policies say of it, as a draft; within, `None` for one that cannot be called, which is
/// noted.
pub(super) fn cluster_draft(
    outside: Outside<'_>,
    destination: &Destination,
    problems: &mut BTreeSet<Problem>,
) -> Option<Option<ClusterDraft>> {
    let backend = Backend::of(outside.mesh, destination)?;
    let outside = beyond(outside, destination);
    let mut draft = match backend.cluster(outside.mesh, None, outside.profile.caller.identity.as_ref()) {
        Ok(draft) => draft,
        Err(reason) => {
            problems.insert(Problem { subject: Subject::Part(backend.name), reason });
            return Some(None);
        }
    };
    policy::apply_cluster(outside, &backend, &mut draft, problems);
    Some(Some(draft))
}

/// What is called through the listener of a gateway follows from what policies say of that.
fn beyond<'a>(outside: Outside<'a>, destination: &'a Destination) -> Outside<'a> {
    match destination {
        Destination::Through(through) => outside.at(GatewayScope::Tagged(&through.listener)),
        _ => outside,
    }
}
