//! `MeshTrace`: spans of requests, from every listener that sees requests.

use std::collections::BTreeSet;

use common::{
    model::Kind,
    policy::{
        IntOrString,
        mesh_trace::{self, TraceBackend, TraceConf, TraceTag, ZipkinVersion},
        rules::Policy,
    },
    proto::envoy::{
        config::trace::v3::{
            DatadogConfig, OpenTelemetryConfig, ZipkinConfig,
            tracing::{Http, http::ConfigType},
            zipkin_config::CollectorEndpointVersion,
        },
        extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
        r#type::{
            tracing::v3::{
                CustomTag,
                custom_tag::{Header, Literal, Type},
            },
            v3::Percent,
        },
    },
};
use prost::{Message, Name};

use super::{
    InboundConfs, OutboundConfs, PolicyEffect, Reporter,
    caller::{Caller, Particular},
    header, inbound_of,
    telemetry::{self, Collector, Url},
};
use crate::{
    generator::{
        Backend, Chain, ClusterDraft, Draft, ListenerDraft, Sidecar, Terminal,
        envoy::{cluster, flag},
    },
    mesh::{Edge, MeshContext},
};

/// Origin of the cluster of the collector.
const ORIGIN: &str = "mesh-trace";

/// See the module.
pub(super) struct MeshTraceEffect;

impl PolicyEffect for MeshTraceEffect {
    const KIND: &'static Kind = &mesh_trace::KIND;
    type Conf = TraceConf;
    const TELLS: bool = true;

    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        confs: &InboundConfs<'_, TraceConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.single(reporter) else { return };
        let ipv6 = proxy.dataplane.address.is_some_and(|address| address.is_ipv6());
        // What is wrong with a backend is told once for each proxy: here.
        let spans = match own_spans(&conf, mesh) {
            Ok(Some(spans)) => spans,
            Ok(None) => return,
            Err(reason) => return reporter.report(format!("nothing is traced: {reason}")),
        };
        draft.clusters.insert(spans.collector.to_owned(), spans.cluster(ipv6));
        let caller = Caller::everything(mesh, &proxy.dataplane, &proxy.metadata);
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role) else { continue };
            // What leaves the mesh comes in by an egress and is no work of its own.
            let mut ways_out = proxy.dataplane.edges(Edge::Egress);
            let leaves = ways_out.any(|way| (way.port, &way.section) == (inbound.port, &inbound.section));
            set(listener, &spans.tagged(mesh, &caller, if leaves { "" } else { "INBOUND" }));
        }
    }

    fn tells(&self, policy: &Policy) -> BTreeSet<Particular> {
        if policy.default.is_some() {
            BTreeSet::from([Particular::Service, Particular::Workload])
        } else {
            BTreeSet::new()
        }
    }

    fn outbound(
        &self,
        confs: &OutboundConfs<'_, TraceConf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.single(reporter) else { return };
        let mesh = confs.outside.mesh;
        if let Ok(Some(spans)) = own_spans(&conf, mesh) {
            let direction = format!("OUTBOUND_{}", backend.name);
            set(listener, &spans.tagged(mesh, &confs.outside.profile.caller, &direction));
        }
    }

    /// A gateway is where a trace begins, so what it calls is a span of its own.
    fn entrance(
        &self,
        confs: &OutboundConfs<'_, TraceConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.single(reporter) else { return };
        let mesh = confs.outside.mesh;
        if let Ok(Some(spans)) = own_spans(&conf, mesh) {
            let mut tracing = spans.tagged(mesh, &confs.outside.profile.caller, "");
            tracing.spawn_upstream_span = flag(true);
            set(listener, &tracing);
        }
    }
}

pub(super) fn set(listener: &mut ListenerDraft, tracing: &Tracing) {
    for Chain { terminal, .. } in &mut listener.chains {
        if let Terminal::Http(http) = terminal {
            http.manager.tracing = Some(tracing.clone());
        }
    }
}

/// Spans, and the cluster by which they go.
pub(super) struct Spans<'a> {
    conf: &'a TraceConf,
    target: TraceTarget<'a>,
    /// The cluster of the collector.
    collector: &'a str,
    /// Its origin.
    origin: &'static str,
}

/// The spans that `conf` asks for, under the name of the kind of their collector.
///
/// # Errors
/// As [`target`].
fn own_spans<'a>(conf: &'a TraceConf, mesh: &MeshContext) -> Result<Option<Spans<'a>>, String> {
    Ok(target(conf, mesh)?.map(|target| {
        let collector = match target {
            TraceTarget::Zipkin(..) => "meshtrace:zipkin",
            TraceTarget::Datadog(..) => "meshtrace:datadog",
            TraceTarget::OpenTelemetry(_) => "meshtrace:opentelemetry",
        };
        Spans { conf, target, collector, origin: ORIGIN }
    }))
}

/// Where spans go.
enum TraceTarget<'a> {
    Zipkin(&'a mesh_trace::ZipkinTraces, Url),
    Datadog(&'a mesh_trace::DatadogTraces, Url),
    OpenTelemetry(Collector),
}

/// Where the spans of `conf` go; `None` for nowhere.
///
/// # Errors
/// Why they cannot go there, in words.
fn target<'a>(conf: &'a TraceConf, mesh: &MeshContext) -> Result<Option<TraceTarget<'a>>, String> {
    let Some(backend) = conf.backends.iter().flatten().next() else { return Ok(None) };
    let url = |url: &str| Url::of(url).ok_or_else(|| format!("{url:?} is no URL of HTTP"));
    let target = match backend {
        TraceBackend { zipkin: Some(zipkin), .. } => {
            let url = url(&zipkin.url)?;
            if url.path.is_empty() {
                return Err(format!("the URL {:?} has no path, and Zipkin needs one", zipkin.url));
            }
            TraceTarget::Zipkin(zipkin, url)
        }
        TraceBackend { datadog: Some(datadog), .. } => TraceTarget::Datadog(datadog, url(&datadog.url)?),
        TraceBackend { open_telemetry: Some(otel), .. } => {
            let collector = Collector::of(otel.endpoint.as_deref(), otel.backend_ref.as_ref(), mesh)?;
            TraceTarget::OpenTelemetry(collector)
        }
        _ => return Ok(None),
    };
    Ok(Some(target))
}

impl<'a> Spans<'a> {
    /// The spans that `conf` asks for, by a cluster of this name.
    ///
    /// # Errors
    /// As [`target`].
    pub(super) fn of(
        conf: &'a TraceConf,
        mesh: &MeshContext,
        collector: &'a str,
        origin: &'static str,
    ) -> Result<Option<Self>, String> {
        Ok(target(conf, mesh)?.map(|target| Self { conf, target, collector, origin }))
    }

    /// The cluster that reaches the collector.
    pub(super) fn cluster(&self, ipv6: bool) -> ClusterDraft {
        let Self { collector: name, origin, .. } = self;
        match &self.target {
            TraceTarget::Zipkin(_, url) | TraceTarget::Datadog(_, url) => {
                let mut draft = telemetry::host_cluster(name, origin, &url.host, url.port, ipv6);
                draft.tls = url.encrypted.then(|| telemetry::tls(&url.host));
                draft
            }
            TraceTarget::OpenTelemetry(collector) => collector.cluster(name, origin, ipv6),
        }
    }

    /// What a connection manager is told. `direction` is added to the name of the service where each is one
    /// of its own.
    pub(super) fn untagged(&self, service: &str, direction: &str) -> Tracing {
        let sampling = self.conf.sampling.clone().unwrap_or_default();
        Tracing {
            client_sampling: percent(sampling.client.as_ref()),
            random_sampling: percent(sampling.random.as_ref()),
            overall_sampling: percent(sampling.overall.as_ref()),
            spawn_upstream_span: flag(false),
            provider: Some(self.provider(service, direction)),
            ..Tracing::default()
        }
    }

    /// The same with the tags of the user and the mesh.
    fn tagged(&self, mesh: &MeshContext, caller: &Caller, direction: &str) -> Tracing {
        Tracing {
            custom_tags: tags(self.conf, mesh, caller),
            ..self.untagged(caller.get(Particular::Service), direction)
        }
    }

    fn provider(&self, service: &str, direction: &str) -> Http {
        let collector = self.collector;
        match &self.target {
            TraceTarget::Zipkin(zipkin, url) => {
                let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
                let version = match zipkin.api_version {
                    ZipkinVersion::Json => CollectorEndpointVersion::HttpJson,
                    ZipkinVersion::Proto => CollectorEndpointVersion::HttpProto,
                };
                let config = ZipkinConfig {
                    collector_cluster: collector.to_owned(),
                    collector_endpoint: url.path.clone(),
                    collector_endpoint_version: version.into(),
                    collector_hostname: format!("{host}:{}", url.port),
                    trace_id_128bit: zipkin.trace_id_128bit,
                    shared_span_context: flag(zipkin.shared_span_context),
                    ..ZipkinConfig::default()
                };
                provider("envoy.tracers.zipkin", &config)
            }
            TraceTarget::Datadog(datadog, _) => {
                let split = datadog.split_service;
                let service = if split { format!("{service}_{direction}") } else { service.to_owned() };
                let config = DatadogConfig {
                    collector_cluster: collector.to_owned(),
                    service_name: service,
                    ..DatadogConfig::default()
                };
                provider("envoy.tracers.datadog", &config)
            }
            TraceTarget::OpenTelemetry(collected) => {
                let http_service = collected.http(collector, "traces");
                let config = OpenTelemetryConfig {
                    grpc_service: http_service.is_none().then(|| collected.grpc(collector)),
                    http_service,
                    service_name: service.to_owned(),
                    ..OpenTelemetryConfig::default()
                };
                provider("envoy.tracers.opentelemetry", &config)
            }
        }
    }
}

fn provider<M: Message + Name>(name: &str, config: &M) -> Http {
    Http { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(cluster::pack(config))) }
}

fn percent(share: Option<&IntOrString>) -> Option<Percent> {
    Some(Percent { value: share?.value()?.clamp(0.0, 100.0) })
}

/// The tags of the user, and those of the mesh that the user says nothing about.
fn tags(conf: &TraceConf, mesh: &MeshContext, caller: &Caller) -> Vec<CustomTag> {
    let of_user = conf.tags.iter().flatten().filter_map(tag);
    let mut tags: Vec<CustomTag> = of_user.collect();
    let of_mesh = [
        ("kuma.mesh", &*mesh.mesh),
        ("kuma.zone", &*mesh.zone),
        ("kuma.workload", caller.get(Particular::Workload)),
    ];
    for (name, value) in of_mesh {
        if !value.is_empty() && !tags.iter().any(|known| known.tag == name) {
            let literal = Type::Literal(Literal { value: value.to_owned() });
            tags.push(CustomTag { tag: name.to_owned(), r#type: Some(literal) });
        }
    }
    tags
}

/// One tag of the user; `None` for one that Envoy would refuse.
fn tag(tag: &TraceTag) -> Option<CustomTag> {
    let value = match (&tag.header, &tag.literal) {
        (Some(of), _) if header::is_name(&of.name) => Type::RequestHeader(Header {
            name: of.name.clone(),
            default_value: of.default.clone().unwrap_or_default(),
        }),
        (None, Some(literal)) if !literal.is_empty() => Type::Literal(Literal { value: literal.clone() }),
        _ => return None,
    };
    Some(CustomTag { tag: tag.name.clone(), r#type: Some(value) })
}
