//! What a builtin gateway shows to its clients, and an ingress of the mesh to other zones: the parts that all their
//! proxies share.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use super::{admission, outbound::CompiledListener, way_in};
use crate::{
    generator::{Chain, Encoded, ListenerDraft, ProxyMetadata, RoutesDraft, Terminal, envoy::tls, gateway},
    mesh::{
        Dataplane, Edge, Gateway, Lookup, MeshContext, Problem, ZoneListener,
        gateway::{CertificateSource, GatewayHost, GatewayPort, GatewayProtocol},
        problem::Subject,
    },
    policy::{self, GatewayRules, GatewayScope, Outside, mesh_http_route, mesh_tcp_route, route::Uses},
};

/// One resource of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Front {
    /// The listener of a port, at this address.
    Listener(IpAddr, u32),
    /// The routes of requests that come in by a port, for one host name where each has its own.
    Routes(u32, Option<Arc<str>>),
    /// A certificate with its key.
    Certificate(CertificateSource),
    /// How many connections listeners take.
    Limits,
    /// A listener for what comes from other zones, on a machine where several may listen on one port or not.
    Ingress(ZoneListener, bool),
}

/// The resources of what `dataplane` runs. An Envoy that runs a gateway waits at its start until it is told the
/// limits, so it is told them also when nobody has said yet what the gateway listens for.
pub(super) fn fronts(dataplane: &Dataplane, metadata: &ProxyMetadata) -> Vec<Arc<Front>> {
    let ingresses = dataplane.edges(Edge::Ingress).cloned();
    let mut fronts: BTreeSet<Front> =
        ingresses.map(|listener| Front::Ingress(listener, metadata.reuses_port())).collect();
    if !dataplane.is_builtin_gateway() {
        return fronts.into_iter().map(Arc::new).collect();
    }
    fronts.insert(Front::Limits);
    for port in dataplane.gateway.iter().flat_map(|gateway| gateway.ports.values()) {
        fronts.extend(dataplane.address.map(|address| Front::Listener(address, port.number)));
        if port.protocol.is_http() {
            let split = gateway::is_split(port);
            let name = |host: &GatewayHost| split.then(|| Arc::clone(&host.hostname));
            fronts.extend(port.hosts.iter().map(|host| Front::Routes(port.number, name(host))));
        }
        let sources = port.hosts.iter().flat_map(|host| host.certificates.iter().flatten());
        fronts.extend(sources.cloned().map(Front::Certificate));
    }
    fronts.into_iter().map(Arc::new).collect()
}

impl Front {
    /// Compiles it; `None` when the gateway has no such thing (any more).
    pub(super) fn compile(&self, outside: Outside<'_>) -> Option<CompiledListener> {
        if let Self::Ingress(listener, reuses_port) = self {
            return Some(way_in::listener(outside, listener, *reuses_port));
        }
        let rules = match &outside.profile.gateway {
            Some(rules) => rules,
            None if *self == Self::Limits => return Some(CompiledListener::of(gateway::limits(None))),
            None => return None,
        };
        let mut problems = BTreeSet::new();
        let of_gateway = || Some(format!("MeshGateway {}", rules.gateway.name));
        let mut uses = Uses::new(outside.mesh);
        let mut made = Making { outside, rules, uses: &mut uses, problems: &mut problems };
        let encoded = match self {
            Self::Listener(address, port) => {
                // What it follows from is noted also when there is none.
                let draft = made.listener(*address, rules.gateway.ports.get(port)?);
                let patches = outside.profile.patches();
                draft.and_then(|draft| admission::patched(draft.encode(), patches, of_gateway, &mut problems))
            }
            Self::Routes(port, hostname) => {
                let port = rules.gateway.ports.get(port)?;
                let routes = made.routes(port, hostname.as_deref());
                admission::caused(routes, of_gateway, &mut problems)
            }
            Self::Certificate(source) => {
                let certificate = made.certificate(source);
                certificate.and_then(|made| admission::caused(made.encode(), of_gateway, &mut problems))
            }
            Self::Limits => Some(gateway::limits(Some(&rules.gateway))),
            Self::Ingress(..) => None,
        };
        Some(CompiledListener {
            listener: encoded,
            backends: uses.backends.into_values().collect(),
            consulted: uses.consulted,
            lookups: uses.lookups,
            problems,
        })
    }
}

/// Something that is being made, with what it follows from.
struct Making<'a, 'b> {
    outside: Outside<'a>,
    rules: &'a GatewayRules,
    uses: &'b mut Uses<'a>,
    problems: &'b mut BTreeSet<Problem>,
}

impl<'a> Making<'a, '_> {
    fn gateway(&self) -> &'a Gateway {
        &self.rules.gateway
    }

    fn report(&mut self, reason: String) {
        let subject = Subject::Part(format!("MeshGateway {}", self.gateway().name));
        self.problems.insert(Problem { subject, reason });
    }

    /// The listener of a port; `None` when nothing could come in.
    fn listener(mut self, address: IpAddr, port: &'a GatewayPort) -> Option<ListenerDraft> {
        let shown = self.outside.profile.caller.identity.is_some();
        if port.cross_mesh && !shown && self.outside.mesh.mtls.is_none() {
            let port = port.number;
            self.report(format!(
                "port {port} takes no connections: it is for other meshes, and this one has no mutual TLS, nor does a \
                 MeshIdentity say who its proxies are"
            ));
            return None;
        }
        let mut chains = Vec::new();
        if port.protocol.is_tls() {
            for host in &port.hosts {
                chains.extend(self.chain_of_host(port, host));
            }
        } else {
            chains.push(self.chain_of_port(port)?);
        }
        if chains.is_empty() {
            return None;
        }
        let mut draft = gateway::listener(self.gateway(), address, port, chains);
        policy::apply_entrance(self.outside.at(GatewayScope::Port(port.number)), &mut draft, self.problems);
        Some(draft)
    }

    /// One chain for all host names.
    fn chain_of_port(&mut self, port: &'a GatewayPort) -> Option<Chain> {
        let terminal =
            if port.protocol.is_http() { self.requests(port, "*") } else { self.bytes(port, &port.hosts)? };
        let chain = Chain { terminal, ..Chain::default() };
        if !port.cross_mesh {
            return Some(chain);
        }
        // Who calls asks for a service and not for a host name.
        let shown = self.outside.profile.caller.identity.as_ref();
        let tls = tls::downstream_of_all(&self.outside.mesh.mesh, shown, &["h2", "http/1.1"]);
        Some(Chain { matches: Some(gateway::from_meshes()), tls: Some(tls), ..chain })
    }

    /// A chain for connections that ask for one host name.
    fn chain_of_host(&mut self, port: &'a GatewayPort, host: &'a GatewayHost) -> Option<Chain> {
        let http = port.protocol == GatewayProtocol::Https;
        let tls = match &host.certificates {
            None => None,
            Some(sources) => {
                let usable = sources.iter().filter_map(|source| self.certificate(source));
                let names: Vec<String> = usable.map(|certificate| certificate.name).collect();
                if names.is_empty() {
                    let (port, name) = (port.number, &host.hostname);
                    self.report(format!("port {port} does not serve {name}: there is no certificate for it"));
                    return None;
                }
                let alpn: &[&str] = if http { &["h2", "http/1.1"] } else { &[] };
                Some(tls::serving(names, alpn))
            }
        };
        let terminal = if http {
            self.requests(port, &host.hostname)
        } else {
            self.bytes(port, std::slice::from_ref(host))?
        };
        let matches = Some(gateway::asking_for(&host.hostname));
        Some(Chain { matches, tls, terminal, ..Chain::default() })
    }

    fn requests(&self, port: &GatewayPort, hostname: &str) -> Terminal {
        let routes = gateway::routes_name(self.gateway(), port, hostname);
        gateway::http_terminal(self.gateway(), routes, self.outside.profile.caller.ipv6)
    }

    /// `None`, reported, when connections lead nowhere.
    fn bytes(&mut self, port: &'a GatewayPort, hosts: &'a [GatewayHost]) -> Option<Terminal> {
        let mesh: &'a MeshContext = self.outside.mesh;
        let mut reporter = policy::reporter_of_gateway(self.problems);
        let shares = mesh_tcp_route::gateway::shares(mesh, self.rules, port, hosts, self.uses, &mut reporter);
        if shares.is_empty() {
            self.report(format!("port {} takes no connections: no route is for it", port.number));
            return None;
        }
        Some(gateway::tcp_terminal(self.gateway(), &shares))
    }

    fn routes(self, port: &'a GatewayPort, hostname: Option<&str>) -> Arc<Encoded> {
        let listeners = port.hosts.iter().filter(|host| hostname.is_none_or(|name| *host.hostname == *name));
        let mut reporter = policy::reporter_of_gateway(self.problems);
        let mut hosts = mesh_http_route::gateway::hosts(
            self.outside.mesh,
            self.rules,
            port,
            listeners,
            self.uses,
            &mut reporter,
        );
        for host in &mut hosts {
            let at = GatewayScope::Host(port.number, &host.listener);
            policy::apply_gateway_routes(self.outside.at(at), &mut host.routes, self.problems);
        }
        let name = gateway::routes_name(self.gateway(), port, hostname.unwrap_or("*"));
        let secure = port.protocol == GatewayProtocol::Https || port.cross_mesh;
        RoutesDraft { name, secure, hosts }.encode()
    }

    /// A certificate; `None`, reported, when it cannot be shown.
    fn certificate(&mut self, source: &CertificateSource) -> Option<gateway::GatewayCertificate> {
        let text = match source {
            CertificateSource::Secret(name) => {
                self.uses.lookups.insert(Lookup::Secret(Arc::clone(name)));
                self.outside.mesh.secret(name)
            }
            CertificateSource::Inline { text, .. } => Ok(text.to_string()),
            CertificateSource::Elsewhere(reason) => Err((*reason).to_owned()),
        };
        match text.and_then(|text| gateway::GatewayCertificate::of(source, &text)) {
            Ok(certificate) => Some(certificate),
            Err(reason) => {
                let source = match source {
                    CertificateSource::Secret(name) => format!("the certificate in the secret {name:?}"),
                    CertificateSource::Inline { label, .. } => format!("the certificate for {label}"),
                    CertificateSource::Elsewhere(_) => "a certificate".to_owned(),
                };
                self.report(format!("{source} is not shown: {reason}"));
                None
            }
        }
    }
}
