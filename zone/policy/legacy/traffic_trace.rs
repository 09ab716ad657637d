//! `TrafficTrace`: spans of requests, to a backend of the mesh, where no newer policy traces them.

use std::collections::BTreeSet;

use common::{
    policy::{
        IntOrString,
        legacy::{LegacyConf, LegacyPolicy, traffic_trace::KIND},
        mesh_trace::{
            DatadogTraces, Sampling, TraceBackend, TraceBackendType, TraceConf, ZipkinTraces, ZipkinVersion,
        },
    },
    proto::{
        google::protobuf::{Struct, value::Kind as ValueKind},
        kuma::mesh::v1alpha1::TracingBackend,
    },
};

use super::for_proxy;
use crate::{
    generator::{Backend, Draft, ListenerDraft, Sidecar},
    mesh::{MeshContext, Problem},
    policy::{
        Outside, Particular, PolicyEffect, Reporter, Selections,
        caller::UNKNOWN,
        inbound_of, mesh_circuit_breaker,
        mesh_trace::{self, MeshTraceEffect, Spans},
    },
};

/// Origin of the cluster of the collector.
const ORIGIN: &str = "tracing";

/// Adds the cluster of the collector, and spans of inbounds.
pub(super) fn apply(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    let Some(policy) = for_proxy(mesh, &proxy.dataplane, &KIND) else { return };
    let mut reporter = Reporter { kind: &KIND, problems };
    let conf = match conf(mesh, policy) {
        Ok(conf) => conf,
        Err(reason) => return reporter.report(format!("nothing is traced: {reason}")),
    };
    let cluster = cluster_name(mesh, policy);
    let spans = match Spans::of(&conf, mesh, &cluster, ORIGIN) {
        Ok(Some(spans)) => spans,
        Ok(None) => return,
        Err(reason) => return reporter.report(format!("nothing is traced: {reason}")),
    };
    let ipv6 = proxy.dataplane.address.is_some_and(|address| address.is_ipv6());
    let mut collector = spans.cluster(ipv6);
    mesh_circuit_breaker::set(&mut collector, &Default::default());
    draft.clusters.insert(cluster.clone(), collector);
    if selections.of(MeshTraceEffect::KIND).single().is_some() {
        return reporter.report("policies of this kind have no effect, because a MeshTrace is for the proxy");
    }
    for listener in draft.listeners.values_mut() {
        let Some(inbound) = inbound_of(&listener.role) else { continue };
        let tracing = spans.untagged(inbound.service().unwrap_or(UNKNOWN), "INBOUND");
        mesh_trace::set(listener, &tracing);
    }
}

/// Adds spans of calls.
pub(super) fn apply_outbound(
    outside: Outside<'_>,
    backend: &Backend,
    listener: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    let Some(policy) = outside.profile.legacy.trace() else { return };
    let mut reporter = Reporter { kind: MeshTraceEffect::KIND, problems };
    if outside.confs::<MeshTraceEffect>().single(&mut reporter).is_some() {
        return;
    }
    let mesh = outside.mesh;
    // What is wrong with the backend is told once for each proxy.
    let Ok(conf) = conf(mesh, policy) else { return };
    let cluster = cluster_name(mesh, policy);
    if let Ok(Some(spans)) = Spans::of(&conf, mesh, &cluster, ORIGIN) {
        let direction = format!("OUTBOUND_{}", backend.name);
        mesh_trace::set(
            listener,
            &spans.untagged(outside.profile.caller.get(Particular::Service), &direction),
        );
    }
}

/// The backend that `policy` names; the default one of the mesh when it names none.
fn backend<'a>(mesh: &'a MeshContext, policy: &LegacyPolicy) -> Option<&'a TracingBackend> {
    let LegacyConf::TrafficTrace(conf) = &policy.conf else { return None };
    let tracing = mesh.spec.tracing.as_ref()?;
    let name = if conf.backend.is_empty() { &tracing.default_backend } else { &conf.backend };
    tracing.backends.iter().find(|backend| backend.name == *name)
}

fn cluster_name(mesh: &MeshContext, policy: &LegacyPolicy) -> String {
    format!("tracing:{}", backend(mesh, policy).map_or("", |backend| &backend.name))
}

fn conf(mesh: &MeshContext, policy: &LegacyPolicy) -> Result<TraceConf, String> {
    let backend = backend(mesh, policy).ok_or("the mesh has no tracing backend of this name")?;
    let conf = backend.conf.as_ref();
    let missing = |member: &str| format!("backend {:?} has no {member}", backend.name);
    let none =
        TraceBackend { kind: TraceBackendType::Zipkin, zipkin: None, datadog: None, open_telemetry: None };
    let to = match backend.r#type.as_str() {
        "zipkin" => {
            let proto = text(conf, "apiVersion").as_deref() == Some("httpProto");
            let zipkin = ZipkinTraces {
                url: text(conf, "url").ok_or_else(|| missing("url"))?,
                trace_id_128bit: flag(conf, "traceId128bit").unwrap_or(false),
                api_version: if proto { ZipkinVersion::Proto } else { ZipkinVersion::Json },
                shared_span_context: flag(conf, "sharedSpanContext").unwrap_or(true),
            };
            TraceBackend { zipkin: Some(zipkin), ..none }
        }
        "datadog" => {
            let address = text(conf, "address").ok_or_else(|| missing("address"))?;
            let port = number(conf, "port").ok_or_else(|| missing("port"))?;
            let host = if address.contains(':') { format!("[{address}]") } else { address };
            let datadog = DatadogTraces {
                url: format!("http://{host}:{port}"),
                split_service: flag(conf, "splitService").unwrap_or(false),
            };
            TraceBackend { kind: TraceBackendType::Datadog, datadog: Some(datadog), ..none }
        }
        other => return Err(format!("backend {:?} is of a type nobody knows: {other:?}", backend.name)),
    };
    let overall = backend.sampling.map(|share| IntOrString::Text(share.value.to_string()));
    let sampling = overall.map(|overall| Sampling { overall: Some(overall), ..Sampling::default() });
    Ok(TraceConf { backends: Some(vec![to]), sampling, tags: None })
}

fn member<'a>(conf: Option<&'a Struct>, name: &str) -> Option<&'a ValueKind> {
    conf?.fields.get(name)?.kind.as_ref()
}

/// A text in the configuration of a backend.
pub(super) fn text(conf: Option<&Struct>, name: &str) -> Option<String> {
    match member(conf, name)? {
        ValueKind::StringValue(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

fn flag(conf: Option<&Struct>, name: &str) -> Option<bool> {
    match member(conf, name)? {
        ValueKind::BoolValue(flag) => Some(*flag),
        _ => None,
    }
}

fn number(conf: Option<&Struct>, name: &str) -> Option<String> {
    match member(conf, name)? {
        ValueKind::NumberValue(number) => Some(number.to_string()),
        _ => None,
    }
}
