//! Builtin gateways: what a proxy listens for, and the certificates it shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{Resource, labels},
    policy::rules,
    proto::kuma::{
        mesh::v1alpha1::{
            MeshGateway,
            mesh_gateway::{Listener, listener, tls},
        },
        system::v1alpha1::{DataSource, data_source},
    },
};
use imbl::OrdMap;
use prost::Message;

/// Tags of a place, by which policies select it.
pub type GatewayTags = BTreeMap<String, String>;

/// A builtin gateway as all proxies with the same tags run it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gateway {
    /// Its name.
    pub name: Arc<str>,
    /// Tags of the proxies.
    pub tags: GatewayTags,
    /// What it listens on, by port.
    pub ports: BTreeMap<u32, GatewayPort>,
}

/// What a gateway does with connections to one port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayPort {
    /// Which port.
    pub number: u32,
    /// What clients speak.
    pub protocol: GatewayProtocol,
    /// Whether it is for the proxies of other meshes.
    pub cross_mesh: bool,
    /// Connections at the same time.
    pub connection_limit: Option<u32>,
    /// The host names it is for, each once, most exact first.
    pub hosts: Vec<GatewayHost>,
}

/// A listener of a gateway: one host name of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayHost {
    /// The name; `*` for any.
    pub hostname: Arc<str>,
    /// Tags of proxy, gateway and listener.
    pub tags: Arc<GatewayTags>,
    /// Certificates it shows; `None` when it terminates no TLS.
    pub certificates: Option<Vec<CertificateSource>>,
}

/// What clients of a gateway speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GatewayProtocol {
    /// Bytes.
    Tcp,
    /// Bytes over TLS.
    Tls,
    /// Requests.
    Http,
    /// Requests over TLS.
    Https,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateSource {
    /// In the secret of this name.
    Secret(Arc<str>),
    /// In the gateway itself.
    Inline {
        /// What tells it from others of the gateway.
        label: Arc<str>,
        /// The PEM text.
        text: Arc<str>,
    },
    /// Where this control plane does not look.
    Elsewhere(&'static str),
}

impl GatewayProtocol {
    /// As it stands in names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
        }
    }

    /// Whether requests are routed, rather than connections.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether host names are told by the first words of a connection.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Https)
    }

    fn of(listener: &Listener) -> Option<Self> {
        Some(match listener.protocol() {
            listener::Protocol::None => return None,
            listener::Protocol::Tcp => Self::Tcp,
            listener::Protocol::Tls => Self::Tls,
            listener::Protocol::Http => Self::Http,
            listener::Protocol::Https => Self::Https,
        })
    }
}

impl Gateway {
    /// The gateway that policies see `proxy` run; `None` for a proxy that runs none.
    pub fn of(proxy: &rules::SelectableProxy) -> Option<Self> {
        let running = proxy.gateway.as_ref()?;
        let spec = MeshGateway::decode(&*running.resource.spec).ok()?;
        let mut ports: BTreeMap<u32, GatewayPort> = BTreeMap::new();
        let mut labels = BTreeSet::new();
        for listener in spec.conf.iter().flat_map(|conf| &conf.listeners) {
            let Some(protocol) = GatewayProtocol::of(listener) else { continue };
            let limit = listener.resources.as_ref().map(|resources| resources.connection_limit);
            let port = ports.entry(listener.port).or_insert_with(|| GatewayPort {
                number: listener.port,
                protocol,
                cross_mesh: listener.cross_mesh,
                connection_limit: None,
                hosts: Vec::new(),
            });
            port.connection_limit = port.connection_limit.or(limit.filter(|limit| *limit > 0));
            // What does not fit was refused when it was written; what a peer sent anyway loses.
            let known = port.hosts.iter().any(|host| *host.hostname == *listener.hostname());
            if port.protocol == protocol && !known {
                port.hosts.push(host(listener, &spec.tags, &proxy.gateway_tags, &mut labels));
            }
        }
        for port in ports.values_mut() {
            port.hosts.sort_by_cached_key(|host| exactness(&host.hostname));
        }
        let name = running.resource.name().into();
        Some(Self { name, tags: proxy.gateway_tags.clone(), ports })
    }

    /// The service its proxies are known as.
    pub fn service(&self) -> &str {
        self.tags.get(labels::TAG_SERVICE).map_or("unknown", String::as_str)
    }

    /// The listener of `port` for `hostname`.
    pub fn host(&self, port: u32, hostname: &str) -> Option<(&GatewayPort, &GatewayHost)> {
        let port = self.ports.get(&port)?;
        Some((port, port.hosts.iter().find(|host| *host.hostname == *hostname)?))
    }
}

fn host(
    listener: &Listener,
    of_gateway: &GatewayTags,
    of_proxy: &GatewayTags,
    labels: &mut BTreeSet<String>,
) -> GatewayHost {
    let mut tags = of_proxy.clone();
    tags.extend(of_gateway.clone());
    tags.extend(listener.tags.clone());
    let terminated = listener.tls.as_ref().filter(|conf| conf.mode() == tls::Mode::Terminate);
    let certificates = terminated.map(|conf| {
        let hostname = listener.hostname();
        conf.certificates.iter().map(|source| certificate(source, hostname, listener.port, labels)).collect()
    });
    GatewayHost { hostname: listener.hostname().into(), tags: Arc::new(tags), certificates }
}

fn certificate(
    source: &DataSource,
    hostname: &str,
    port: u32,
    labels: &mut BTreeSet<String>,
) -> CertificateSource {
    // A host name stands for a certificate as long as nothing else has it.
    let mut label = || -> Arc<str> {
        let mut label = hostname.to_owned();
        while !labels.insert(label.clone()) {
            label.push_str(&format!(":{port}"));
        }
        label.into()
    };
    match &source.r#type {
        Some(data_source::Type::Secret(name)) => CertificateSource::Secret(name.as_str().into()),
        Some(data_source::Type::InlineString(text)) => {
            CertificateSource::Inline { label: label(), text: text.as_str().into() }
        }
        Some(data_source::Type::Inline(bytes)) => match std::str::from_utf8(&bytes.value) {
            Ok(text) => CertificateSource::Inline { label: label(), text: text.into() },
            Err(_) => CertificateSource::Elsewhere("it is not text"),
        },
        Some(data_source::Type::File(_)) => {
            CertificateSource::Elsewhere("it is in a file of the control plane, which is not read")
        }
        None => CertificateSource::Elsewhere("it is nowhere"),
    }
}

/// Sorts exact names before `*.` before a domain, longer domains first, and `*` last.
pub fn exactness(hostname: &str) -> impl Ord + use<> {
    let parts = hostname.split('.').count();
    let wildcard = hostname.starts_with('*');
    (wildcard, if wildcard { usize::MAX - parts } else { 0 }, hostname.to_owned())
}

/// Whether every host that `inner` stands for is one `outer` stands for.
pub fn covers(outer: &str, inner: &str) -> bool {
    match outer.strip_prefix('*') {
        Some("") => true,
        Some(domain) => inner.len() > domain.len() && inner.ends_with(domain),
        None => outer == inner,
    }
}

/// The gateways of a mesh, and the proxies that may run one.
#[derive(Clone, Debug, Default)]
pub struct Gateways {
    by_name: OrdMap<Arc<str>, Arc<Resource>>,
    /// Proxies by the service they are known as.
    proxies: OrdMap<(Arc<str>, Arc<str>), ()>,
}

impl Gateways {
    /// Takes in a gateway that came, changed or went; gives the proxies that may run it or have run it.
    pub(super) fn set(&mut self, name: &Arc<str>, resource: Option<&Arc<Resource>>) -> BTreeSet<Arc<str>> {
        let before = match resource {
            Some(resource) => self.by_name.insert(Arc::clone(name), Arc::clone(resource)),
            None => self.by_name.remove(name),
        };
        let versions = before.iter().chain(resource);
        let services: BTreeSet<String> = versions.flat_map(|resource| services(resource)).collect();
        let mut concerned = BTreeSet::new();
        for service in services {
            let all = service == "*";
            let start: (Arc<str>, Arc<str>) = (if all { "" } else { &service }.into(), "".into());
            let range = self.proxies.range(start..).map(|(key, ())| key);
            let meant = range.take_while(|(known, _)| all || **known == *service);
            concerned.extend(meant.map(|(_, name)| Arc::clone(name)));
        }
        concerned
    }

    /// Takes in that a proxy runs gateways of other services than before; `None` for one that runs none.
    pub(super) fn moved(&mut self, name: &Arc<str>, before: Option<&str>, after: Option<&str>) {
        if let Some(service) = before {
            self.proxies.remove(&(service.into(), Arc::clone(name)));
        }
        if let Some(service) = after {
            self.proxies.insert((service.into(), Arc::clone(name)), ());
        }
    }

    /// Those that may be for a proxy known as `service`.
    pub(super) fn for_service(&self, service: &str) -> Vec<Arc<Resource>> {
        let may_be = |resource: &&Arc<Resource>| {
            services(resource).iter().any(|selected| selected == "*" || selected == service)
        };
        self.by_name.values().filter(may_be).cloned().collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values()
    }
}

/// The services that the selectors of a gateway ask for.
fn services(gateway: &Resource) -> BTreeSet<String> {
    let spec = MeshGateway::decode(&*gateway.spec).unwrap_or_default();
    let of =
        |selector: &GatewayTags| selector.get(labels::TAG_SERVICE).map_or("*", String::as_str).to_owned();
    spec.selectors.iter().map(|selector| of(&selector.r#match)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_come_before_domains_and_those_before_everything() {
        let mut names = ["*", "*.com", "*.example.com", "b.com", "a.example.com"];
        names.sort_by_cached_key(|name| exactness(name));
        assert_eq!(names, ["a.example.com", "b.com", "*.example.com", "*.com", "*"]);
    }

    #[test]
    fn a_domain_covers_what_is_below_it() {
        for (outer, inner) in
            [("*", "a.com"), ("*", "*"), ("*.com", "a.b.com"), ("*.com", "*.b.com"), ("a", "a")]
        {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [("*.com", "com"), ("*.com", "*"), ("a.com", "*.com"), ("*.b.com", "ab.com")] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }
}
