//! `MeshMetric`: who collects the metrics of a proxy and of what runs beside it.
//!
//! Whoever runs the Envoy merges its metrics with those of the workload: it asks a listener of the proxy what
//! to do, and answers at a socket. Where nobody does, the Envoy itself answers, for itself alone.

mod older;
mod told;

use std::{collections::BTreeSet, net::IpAddr};

use common::{
    model::Kind,
    policy::mesh_metric::{self, MetricBackend, MetricConf, OpenTelemetryMetrics, Prometheus, TlsMode},
    proto::envoy::{
        config::{
            core::v3::{Address, TrafficDirection},
            listener::v3::Listener,
            route::v3::{Route, RouteMatch, route::Action, route_match::PathSpecifier},
        },
        extensions::transport_sockets::tls::v3::DownstreamTlsContext,
    },
};

use super::{
    InboundConfs, PolicyEffect, Reporter,
    telemetry::{self, Collector},
};
use crate::{
    generator::{
        Chain, Draft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Sidecar, Terminal,
        dynamic_config,
        envoy::{
            address, cluster, endpoint, filter, flag,
            http::{self, Share},
            seconds, tls,
        },
    },
    mesh::MeshContext,
};

/// Origin of what answers who asks for metrics.
const PROMETHEUS: &str = "prometheus";
/// Origin of what passes metrics on to collectors.
const OPEN_TELEMETRY: &str = "opentelemetry";
/// The cluster of who has the metrics.
const HIJACKER: &str = "_kuma:metrics:hijacker";

/// See the module.
pub(super) struct MeshMetricEffect;

impl PolicyEffect for MeshMetricEffect {
    const KIND: &'static Kind = &mesh_metric::KIND;
    type Conf = MetricConf;
    const SHAPES_CALLS: bool = false;

    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        confs: &InboundConfs<'_, MetricConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let place = MetricContext { mesh, proxy };
        let Some(conf) = confs.single(reporter) else { return place.offer(draft, reporter) };
        place.replaced(reporter);
        let backends = conf.backends.as_deref().unwrap_or_default();
        let asked: Vec<&Prometheus> = backends.iter().filter_map(|b| b.prometheus.as_ref()).collect();
        let told: Vec<&OpenTelemetryMetrics> =
            backends.iter().filter_map(|b: &MetricBackend| b.open_telemetry.as_ref()).collect();
        if backends.is_empty() {
            return;
        }
        let answered = place.prometheus(&conf, &asked, draft, reporter);
        if proxy.metadata.work_dir.is_empty() {
            if !told.is_empty() {
                reporter.report("no collector is told metrics: nobody runs beside the proxy who could");
            }
            return;
        }
        let collectors = place.collectors(&told, draft, reporter);
        let config = told::config(mesh, &proxy.dataplane, &conf, answered, &collectors);
        let socket = telemetry::socket(&proxy.metadata, dynamic_config::SOCKET);
        dynamic_config::answer(&socket, "/meshmetric", config, proxy.metadata.ipv6, draft);
    }
}

/// A collector and where whoever runs the proxy leaves metrics for it.
struct Told<'a> {
    name: String,
    socket: String,
    conf: &'a OpenTelemetryMetrics,
}

struct MetricContext<'a> {
    mesh: &'a MeshContext,
    proxy: &'a Sidecar,
}

impl<'a> MetricContext<'a> {
    /// Adds a listener for each who asks; says whether there is one.
    fn prometheus(
        &self,
        conf: &MetricConf,
        asked: &[&Prometheus],
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) -> bool {
        if asked.is_empty() {
            return false;
        }
        let Some((at, path)) = self.source(conf, reporter) else {
            reporter.report("nobody is answered who asks for metrics: the proxy has no admin endpoint");
            return false;
        };
        let mut some = false;
        for backend in asked {
            match self.listener(backend, &path, draft) {
                Ok(listener) => {
                    draft.listeners.insert(listener.message.name.clone(), listener);
                    some = true;
                }
                Err(reason) => {
                    let port = backend.port;
                    reporter
                        .report(format!("nobody is answered who asks for metrics on port {port}: {reason}"));
                }
            }
        }
        if some {
            let mut message = cluster::fixed(HIJACKER, endpoint::at_address(HIJACKER, at));
            message.connect_timeout = Some(seconds(5));
            draft.clusters.insert(HIJACKER.to_owned(), telemetry::of_message(message, PROMETHEUS));
        }
        some
    }

    /// Who has the metrics, and on which path.
    fn source(&self, conf: &MetricConf, reporter: &mut Reporter<'_>) -> Option<(Address, String)> {
        let metadata = &self.proxy.metadata;
        if !metadata.work_dir.is_empty() {
            let name = format!("kuma-mh-{}-{}", self.proxy.dataplane.name(), self.mesh.mesh);
            return Some((address::pipe(&telemetry::socket(metadata, &name)), "/meshmetric".to_owned()));
        }
        let selects = conf.sidecar.as_ref().is_some_and(|sidecar| sidecar.profiles.is_some());
        if selects || conf.applications.as_ref().is_some_and(|list| !list.is_empty()) {
            reporter.report(
                "all metrics of the Envoy are told, and none of applications: nobody runs beside it who could \
                 choose or merge them",
            );
        }
        let unused = conf.sidecar.as_ref().is_some_and(|sidecar| sidecar.include_unused);
        let path = if unused { "/stats/prometheus" } else { "/stats/prometheus?usedonly" };
        Some((metadata.admin.as_ref()?.local(), path.to_owned()))
    }

    /// # Errors
    /// Why there can be none, in words.
    fn listener(&self, backend: &Prometheus, path: &str, draft: &Draft) -> Result<ListenerDraft, String> {
        let id = backend.client_id.as_deref().unwrap_or("default-backend");
        let name = format!("_kuma:metrics:prometheus:{id}");
        let (_, at) = self.free(backend.port, draft)?;
        if draft.listeners.contains_key(&name) {
            return Err(format!("clientId {id:?} is taken"));
        }
        let tls = self.tls(backend)?;
        let mut route = forward(&backend.path, HIJACKER);
        if let Some(Action::Route(action)) = &mut route.action {
            path.clone_into(&mut action.prefix_rewrite);
        }
        let message = Listener {
            name,
            address: Some(at),
            traffic_direction: TrafficDirection::Inbound.into(),
            enable_reuse_port: flag(self.proxy.metadata.reuses_ports()),
            ..Listener::default()
        };
        Ok(self.local(message, PROMETHEUS, route, HttpFilters::default(), tls))
    }

    /// The address of the proxy, alone and with this port.
    ///
    /// # Errors
    /// Why nothing can listen there, in words.
    fn free(&self, port: u32, draft: &Draft) -> Result<(IpAddr, Address), String> {
        let ip = self.proxy.dataplane.address.ok_or("the address of the proxy is not resolved")?;
        let at = address::socket(ip, port);
        let mut outbounds = self.proxy.dataplane.outbounds.iter();
        let mut listeners = draft.listeners.values();
        if listeners.any(|listener| listener.message.address.as_ref() == Some(&at))
            || outbounds.any(|outbound| (outbound.address, outbound.port) == (ip, port))
        {
            return Err("the port is taken".to_owned());
        }
        Ok((ip, at))
    }

    /// # Errors
    /// Why there is nothing to show, in words. Plaintext in its place is not what was asked for.
    fn tls(&self, backend: &Prometheus) -> Result<Option<DownstreamTlsContext>, String> {
        match backend.tls.unwrap_or_default().mode {
            TlsMode::Disabled => Ok(None),
            TlsMode::Provided => match &self.proxy.metadata.metrics_certificate {
                Some((certificate, key)) => Ok(Some(tls::of_files(certificate, key))),
                None => Err("the proxy was given no files with a certificate and its key".to_owned()),
            },
            TlsMode::Mesh => match self.proxy.downstream(self.mesh) {
                None => Err("the mesh has no mutual TLS".to_owned()),
                context => Ok(context),
            },
        }
    }

    /// Adds a listener and a cluster for each collector.
    fn collectors(
        &self,
        told: &[&'a OpenTelemetryMetrics],
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) -> Vec<Told<'a>> {
        let ipv6 = self.proxy.dataplane.address.is_some_and(|address| address.is_ipv6());
        let mut all: Vec<Told<'a>> = Vec::new();
        let mut sockets = BTreeSet::new();
        for conf in told {
            let collector = Collector::of(conf.endpoint.as_deref(), conf.backend_ref.as_ref(), self.mesh);
            let collector = match collector {
                Ok(collector) => collector,
                Err(reason) => {
                    reporter.report(format!("a collector of metrics is left out: {reason}"));
                    continue;
                }
            };
            // Whoever runs the proxy sends what it gathered in the form that gRPC has.
            if conf.backend_ref.is_some() && collector.http.is_some() {
                let name = &collector.name;
                reporter.report(format!(
                    "the collector {name:?} of metrics is left out: metrics go to collectors that speak gRPC, and it \
                     speaks HTTP"
                ));
                continue;
            }
            let name = collector.name.replace('/', "").replace(':', "-");
            let socket = telemetry::socket(&self.proxy.metadata, &format!("kuma-otel-{name}"));
            if !sockets.insert(socket.clone()) {
                continue;
            }
            let resource = format!("_kuma:metrics:opentelemetry:{name}");
            let mut cluster = collector.cluster(&resource, OPEN_TELEMETRY, ipv6);
            cluster.http = Some(cluster::http2());
            draft.clusters.insert(resource.clone(), cluster);
            let route = forward("/", &resource);
            let message = Listener {
                name: resource.clone(),
                address: Some(address::pipe(&socket)),
                ..Listener::default()
            };
            let filters = HttpFilters { grpc_stats: Some(filter::grpc_stats()), ..HttpFilters::default() };
            let listener = self.local(message, OPEN_TELEMETRY, route, filters, None);
            draft.listeners.insert(resource, listener);
            all.push(Told { name, socket, conf });
        }
        all
    }

    /// A listener with one route.
    fn local(
        &self,
        message: Listener,
        origin: &'static str,
        route: Route,
        filters: HttpFilters,
        tls: Option<DownstreamTlsContext>,
    ) -> ListenerDraft {
        let http = HttpChain {
            manager: http::local_manager(&message.name, self.proxy.metadata.ipv6),
            filters,
            config: http::route_configuration(""),
            hosts: Vec::new(),
            host: message.name.clone(),
            routes: vec![RouteDraft { message: route, ..RouteDraft::default() }],
        };
        let chain = Chain { tls, terminal: Terminal::Http(Box::new(http)), ..Chain::default() };
        ListenerDraft { role: Role::Telemetry(origin), message, inspects_tls: false, chains: vec![chain] }
    }
}

/// A route from paths that start with `prefix` to `cluster`.
fn forward(prefix: &str, cluster: &str) -> Route {
    let matches = RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix(prefix.to_owned())),
        ..RouteMatch::default()
    };
    http::forward("", matches, &[Share { cluster: cluster.to_owned(), weight: 1 }])
}
