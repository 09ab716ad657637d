//! Applications that are members of the mesh by way of their gRPC library: what they call by name, and what they serve.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use super::outbound::{self, CalledBy, CompiledCluster, CompiledListener, OutboundCall};
use crate::{
    generator::{
        Backend, Draft, Encoded, ResourceCollection, RouteDraft, Shown, Sidecar, Terminal, XdsClient,
        envoy::http::{any_path, forward},
        grpc, inbound, outbound as calling,
    },
    mesh::{Dataplane, Destination, MeshContext, Outbound, Problem, problem::Subject},
    policy::{
        self, Outside, Selections,
        route::{self, Routing},
    },
};

/// What outbounds are called at whose listener nobody binds.
const NOWHERE: (IpAddr, u32) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// All there is, by the names it has for everybody, in order.
pub(super) fn everything(mesh: &MeshContext) -> Vec<Arc<OutboundCall>> {
    let mut targets = Targets::new();
    add_all(&mut targets, mesh, mesh.virtual_outbounds.all());
    listed(targets, mesh)
}

/// What `dataplane` may ask for, in order. What its own outbounds name comes before what is so called for everybody.
pub(super) fn calls(
    mesh: &MeshContext,
    dataplane: &Dataplane,
    problems: &mut BTreeSet<Problem>,
) -> Vec<Arc<OutboundCall>> {
    let mut targets = own_targets(mesh, dataplane, problems);
    add_all(&mut targets, mesh, mesh.reached_by(dataplane));
    listed(targets, mesh)
}

/// Whether all that `dataplane`, which reaches `everything`, may ask for is that, but perhaps by more names, which are its
/// own then.
pub(super) fn shares_everything(
    mesh: &MeshContext,
    dataplane: &Dataplane,
    everything: &[Arc<OutboundCall>],
    problems: &mut BTreeSet<Problem>,
) -> bool {
    let ListedCalls { names, called } = ListedCalls::of(everything);
    let is_there =
        |destination: &Destination| called.binary_search_by(|call| call.destination.cmp(destination)).is_ok();
    own_targets(mesh, dataplane, problems).iter().all(|(name, destination)| {
        is_there(destination) && find(names, name).is_none_or(|known| known == destination)
    })
}

/// By name.
type Targets = BTreeMap<Arc<str>, Destination>;

/// What the outbounds of `dataplane` name; what of that leads nowhere goes to `problems`.
fn own_targets(mesh: &MeshContext, dataplane: &Dataplane, problems: &mut BTreeSet<Problem>) -> Targets {
    let mut targets = Targets::new();
    for Outbound { address, port, target } in dataplane.outbounds.iter() {
        match outbound::destination(mesh, target) {
            Ok(called) => {
                add(&mut targets, (*address, *port), &[], &called);
                add_service(&mut targets, *port, &called);
            }
            Err(reason) => {
                let reason = format!("outbound {address}:{port}: {reason}");
                problems.insert(Problem { subject: Subject::of(&dataplane.resource), reason });
            }
        }
    }
    targets
}

/// What the outbounds of `dataplane` name and nobody else calls so, as far as it is called at all.
fn own_names(mesh: &MeshContext, dataplane: &Dataplane, calls: &[Arc<OutboundCall>]) -> Vec<Arc<Encoded>> {
    let names = ListedCalls::of(calls).names;
    let targets = own_targets(mesh, dataplane, &mut BTreeSet::new()).into_iter();
    let unlisted = targets.filter(|(name, _)| find(names, name).is_none());
    unlisted.filter_map(|(name, called)| Some(grpc::listener(&name, &Backend::of(mesh, &called)?))).collect()
}

/// What is called by name, and then what all names of a destination share, both in order.
struct ListedCalls<'a> {
    names: &'a [Arc<OutboundCall>],
    called: &'a [Arc<OutboundCall>],
}

impl<'a> ListedCalls<'a> {
    fn of(calls: &'a [Arc<OutboundCall>]) -> Self {
        let named = calls.partition_point(|call| matches!(call.by, CalledBy::Name(_)));
        let (names, called) = calls.split_at(named);
        Self { names, called }
    }
}

fn find<'a>(names: &'a [Arc<OutboundCall>], name: &str) -> Option<&'a Destination> {
    let by_name = |call: &Arc<OutboundCall>| match &call.by {
        CalledBy::Name(known) => (**known).cmp(name),
        CalledBy::Address(..) | CalledBy::AnyName => Ordering::Greater,
    };
    names.binary_search_by(by_name).ok().map(|at| &names[at].destination)
}

/// Adds what is called at virtual addresses. A service may be called as another one with its port, or as a host: what names
/// stand for comes first, then services by whose word they exist, the shorter name before those that only begin so.
fn add_all<'a>(
    targets: &mut Targets,
    mesh: &MeshContext,
    all: impl IntoIterator<Item = ((IpAddr, u32), &'a Destination)>,
) {
    let mut names: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
    for (name, address) in mesh.virtual_outbounds.names() {
        names.entry(address).or_default().push(name);
    }
    let mut services = Vec::new();
    for (at, called) in all {
        let names = names.get(&at.0).map(Vec::as_slice).unwrap_or_default();
        add(targets, at, names, called);
        if let Destination::Service(service) = called {
            services.push((mesh.virtual_outbounds.provenance(service), service.len(), at.1, called));
        }
    }
    services.sort_by_key(|(provenance, length, ..)| (*provenance, *length));
    for (_, _, port, called) in services {
        add_service(targets, port, called);
    }
}

fn listed(mut targets: Targets, mesh: &MeshContext) -> Vec<Arc<OutboundCall>> {
    targets.retain(|_, called| Backend::of(mesh, called).is_some());
    let called: BTreeSet<Destination> = targets.values().cloned().collect();
    let named = targets.into_iter().map(|(name, destination)| (CalledBy::Name(name), destination));
    let all = named.chain(called.into_iter().map(|destination| (CalledBy::AnyName, destination)));
    all.map(|(by, destination)| Arc::new(OutboundCall { by, destination })).collect()
}

/// Adds the names under which `called` is asked for where it is: its address, and its names with the port.
fn add(targets: &mut Targets, (address, port): (IpAddr, u32), names: &[&str], called: &Destination) {
    offer(targets, SocketAddr::new(address, u16::try_from(port).unwrap_or_default()).to_string(), called);
    for name in names {
        offer(targets, format!("{name}:{port}"), called);
    }
}

/// Adds those under which a service is asked for that is known by its tag: by that, with the port and without.
fn add_service(targets: &mut Targets, port: u32, called: &Destination) {
    if let Destination::Service(service) = called {
        offer(targets, format!("{service}:{port}"), called);
        offer(targets, service.to_string(), called);
    }
}

fn offer(targets: &mut Targets, name: String, called: &Destination) {
    targets.entry(name.into()).or_insert_with(|| called.clone());
}

/// The listener by which `destination` is called by this name; `None` when it does not exist any more.
pub(super) fn listener(
    outside: Outside<'_>,
    name: &str,
    destination: &Destination,
) -> Option<CompiledListener> {
    let mut uses = route::Uses::new(outside.mesh);
    let called = uses.backend(destination)?;
    let compiled = CompiledListener::of(grpc::listener(name, &called));
    Some(CompiledListener { consulted: uses.consulted, ..compiled })
}

/// The routes by which `destination` is called, whatever it speaks; `None` when it does not exist any more.
pub(super) fn routes(outside: Outside<'_>, destination: &Destination) -> Option<CompiledListener> {
    let mut uses = route::Uses::new(outside.mesh);
    let mut problems = BTreeSet::new();
    let called = uses.backend(destination)?;
    let routes = match route::decide(outside, &called, &mut uses, &mut problems) {
        Routing::Requests(routes) => routes,
        Routing::Bytes(shares) => {
            vec![RouteDraft { message: forward("", any_path(), &shares), ..RouteDraft::default() }]
        }
        Routing::Nowhere => Vec::new(),
    };
    let mut draft = calling::http_listener(NOWHERE, &called, routes, None, true);
    policy::apply_outbound(outside, &called, &mut draft, &mut problems);
    let http = draft.chains.into_iter().find_map(|chain| match chain.terminal {
        Terminal::Http(http) => Some(http),
        Terminal::Tcp(_) | Terminal::Other(_) => None,
    });
    let routes = http.map(|http| grpc::routes(&called, &http));
    Some(CompiledListener {
        listener: routes,
        backends: uses.backends.into_values().collect(),
        consulted: uses.consulted,
        lookups: uses.lookups,
        problems,
    })
}

/// The cluster that reaches `destination`; `None` when that does not exist any more.
pub(super) fn cluster(outside: Outside<'_>, destination: &Destination) -> Option<CompiledCluster> {
    let mut problems = BTreeSet::new();
    let draft = outbound::cluster_draft(outside, destination, &mut problems)?;
    // Sidecars tell mesh TLS from that of the workload by a protocol of which gRPC libraries do not speak.
    let permissive = outside.mesh.mtls.as_ref().is_some_and(|mtls| mtls.permissive)
        && outside.profile.caller.identity.is_none();
    let mut made = |draft: &_| match grpc::cluster(draft, permissive) {
        Ok(cluster) => Some(cluster),
        Err(reason) => {
            let subject = Subject::Part(draft.message.name.clone());
            problems.insert(Problem { subject, reason });
            None
        }
    };
    let cluster: Option<Arc<Encoded>> = draft.as_ref().and_then(&mut made);
    let nearness = draft.and_then(|draft| draft.nearness);
    Some(CompiledCluster { cluster, nearness, client: XdsClient::Grpc, problems })
}

/// What belongs to one application alone: what it serves, the secrets for that, and names by which nobody else asks for
/// what it calls, which is `calls`.
pub(super) fn own(
    proxy: &Sidecar,
    mesh: &MeshContext,
    selections: &Selections,
    calls: &[Arc<OutboundCall>],
    problems: &mut BTreeSet<Problem>,
) -> ResourceCollection {
    let mut draft = Draft::default();
    inbound::generate(proxy, mesh, &mut draft);
    policy::apply_inbound(mesh, proxy, selections, &mut draft, problems);
    let mut own = ResourceCollection::default();
    for listener in own_names(mesh, &proxy.dataplane, calls) {
        own.insert(listener);
    }
    for (name, listener) in &draft.listeners {
        let mut problem = |reason: &str| {
            let reason = format!("{name}: {reason}");
            problems.insert(Problem { subject: Subject::of(&proxy.dataplane.resource), reason });
        };
        for encoded in grpc::listeners(listener, proxy.may_be_plain(mesh), &mut problem) {
            own.insert(encoded);
        }
    }
    if let Some(Shown::FromAgent(_)) = &proxy.shown {
        let reason = "it takes no certificate from here: it has its identity from an agent of SPIRE, whose certificate \
                      and roots have to be written into the files that its library reads";
        let subject = Subject::of(&proxy.dataplane.resource);
        problems.insert(Problem { subject, reason: reason.to_owned() });
    }
    grpc::secrets(proxy, mesh, &mut own);
    own
}
