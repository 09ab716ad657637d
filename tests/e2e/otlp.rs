//! A collector that speaks OTLP over gRPC, and what arrives there: spans, lines of logs and metrics.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{
            ExportLogsServiceRequest, ExportLogsServiceResponse,
            logs_service_server::{LogsService, LogsServiceServer},
        },
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_client::MetricsServiceClient,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{KeyValue, any_value::Value as Any},
    metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Endpoint};

use crate::{
    harness::{Global, Options, Zone, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation, federation_with},
};

/// Everything that arrived.
#[derive(Clone, Default)]
struct Collector {
    traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    logs: Arc<Mutex<Vec<ExportLogsServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

impl Collector {
    async fn start() -> (Self, SocketAddr) {
        let collector = Self::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .add_service(LogsServiceServer::new(collector.clone()))
            .add_service(MetricsServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        (collector, address)
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.traces.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.logs.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

/// Describes a collector that policies refer to.
fn describe(global: &Global, name: &str, at: SocketAddr) {
    let (ip, port) = (at.ip(), at.port());
    global.apply(&format!(
        "
type: MeshOpenTelemetryBackend
name: {name}
mesh: default
spec: {{ endpoint: {{ address: {ip}, port: {port} }} }}
"
    ));
}

/// The attribute of this name, where it is a text.
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match &attributes.iter().find(|one| one.key == key)?.value.as_ref()?.value {
        Some(Any::StringValue(text)) => Some(text),
        _ => None,
    }
}

async fn pair(zone: &Zone, folder: &Path) -> (Member, Member) {
    let backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let shape = Shape::http("client-1", "client", &["backend"]);
    let client = Member::join_in(zone, shape, Some(folder)).await;
    client.reaches(0, "backend-1").await;
    (backend, client)
}

#[tokio::test]
async fn spans_arrive_over_grpc() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let (collector, at) = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (_backend, client) = pair(&zones[0], folder.path()).await;
    describe(&global, "shared", at);
    global.apply(
        "
type: MeshTrace
name: everything
mesh: default
spec:
  default:
    backends: [{ type: OpenTelemetry, openTelemetry: { backendRef: { kind: MeshOpenTelemetryBackend, name: shared } } }]
    sampling: { random: 100 }
    tags: [{ name: team, literal: core }]
",
    );
    spans(&client, &collector).await;
}

/// A span of the client and one of the backend, of one trace.
async fn spans(client: &Member, collector: &Collector) {
    eventually("spans of both sides of one trace", || async move {
        client.call(0, "/traced").await?;
        let arrived = collector.traces.lock().unwrap().clone();
        let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
        for resource in arrived.iter().flat_map(|request| &request.resource_spans) {
            let of = resource.resource.as_ref().and_then(|one| text(&one.attributes, "service.name"));
            let spans = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
            for span in spans.filter(|span| text(&span.attributes, "team") == Some("core")) {
                assert_eq!(text(&span.attributes, "kuma.mesh"), Some("default"), "{span:?}");
                seen.push((of.unwrap_or_default().to_owned(), span.trace_id.clone()));
            }
        }
        let both = seen.iter().any(|(of, trace)| {
            of == "client" && seen.iter().any(|(other, same)| other == "backend" && same == trace)
        });
        if both { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

/// The spans of the trace in which a request was made whose path ends so: name, own identifier, that of its parent, and who
/// told it.
fn trace_of(collector: &Collector, path: &str) -> Vec<(String, Vec<u8>, Vec<u8>, String)> {
    let arrived = collector.traces.lock().unwrap().clone();
    let all: Vec<_> = arrived.iter().flat_map(|request| &request.resource_spans).collect();
    let spans = |trace: Option<&[u8]>| {
        let mut found = Vec::new();
        for resource in &all {
            let of = resource.resource.as_ref().and_then(|one| text(&one.attributes, "service.name"));
            for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                let is_it = match trace {
                    Some(trace) => span.trace_id == trace,
                    None => text(&span.attributes, "url.path").is_some_and(|shown| shown.ends_with(path)),
                };
                if is_it {
                    found.push((span.clone(), of.unwrap_or_default().to_owned()));
                }
            }
        }
        found
    };
    let Some((root, _)) = spans(None).into_iter().next() else { return Vec::new() };
    let all = spans(Some(&root.trace_id)).into_iter();
    all.map(|(span, of)| (span.name, span.span_id, span.parent_span_id, of)).collect()
}

#[tokio::test]
async fn a_write_is_one_trace_from_the_request_to_the_answers_of_envoys() {
    let (collector, at) = Collector::start().await;
    let options = Options::default()
        .with("tracing.openTelemetry.enabled", "true")
        .with("tracing.openTelemetry.endpoint", &format!("http://{at}"));
    let (global, zones) = federation_with(2, options.clone(), options).await;
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    global.apply(ALLOW_ALL);
    let collector = &collector;
    eventually("a trace with parts of everybody", || async move {
        let spans = trace_of(collector, "/meshtrafficpermissions/allow-all");
        let find = |name: &str| spans.iter().find(|(shown, ..)| shown == name);
        let root = find("PUT /meshes/{mesh}/meshtrafficpermissions/{name}").ok_or(format!("{spans:?}"))?;
        assert!(root.2.is_empty() && root.3 == "strait-global", "{root:?}");
        for zone in ["zone-1", "zone-2"] {
            let taken = find(&format!("take in zone {zone}")).ok_or(format!("{spans:?}"))?;
            let answered = find(&format!("proxies of zone {zone} answer")).ok_or(format!("{spans:?}"))?;
            assert!(taken.2 == root.1 && answered.2 == taken.1, "{spans:?}");
            assert!([taken, answered].iter().all(|span| span.3 == "strait-zone"), "{spans:?}");
        }
        Ok::<(), String>(())
    })
    .await;
    // What is written in a zone goes no further than to its own proxies.
    zones[0].apply(
        "{type: MeshTimeout, mesh: default, name: own, labels: {kuma.io/origin: zone}, spec: {to: [{targetRef: {kind: Mesh}, \
         default: {connectionTimeout: 3s}}]}}",
    );
    eventually("a trace of the zone", || async move {
        let spans = trace_of(collector, "/meshtimeouts/own");
        let answered = spans.iter().find(|(name, ..)| name == "proxies of zone zone-1 answer");
        let root = spans.iter().find(|(name, ..)| name.starts_with("PUT "));
        match (root, answered) {
            (Some(root), Some(answered)) if answered.2 == root.1 => Ok(()),
            _ => Err(format!("{spans:?}")),
        }
    })
    .await;
}

/// Lines of what is called and of what is served; with the policy there long before its collector, which moves later.
#[tokio::test]
async fn lines_of_logs_arrive_over_grpc() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let folder = tempfile::tempdir().unwrap();
    let (backend, client) = pair(&zones[0], folder.path()).await;
    global.apply(
        "
type: MeshAccessLog
name: called
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default:
        backends:
          - type: OpenTelemetry
            openTelemetry:
              backendRef: { kind: MeshOpenTelemetryBackend, name: shared }
              body: { kvlistValue: { values: [{ key: path, value: { stringValue: '%REQ(:PATH)%' } }] } }
              attributes: [{ key: told, value: 'by %KUMA_SOURCE_SERVICE%' }]
---
type: MeshAccessLog
name: served
mesh: default
spec:
  rules:
    - default:
        backends:
          - type: OpenTelemetry
            openTelemetry:
              backendRef: { kind: MeshOpenTelemetryBackend, name: shared }
              attributes: [{ key: told, value: 'of %KUMA_DESTINATION_SERVICE%' }]
",
    );
    for name in ["client-1", "backend-1"] {
        misses(&zones[0], name).await;
    }
    for _ in 0..2 {
        let (collector, at) = Collector::start().await;
        describe(&global, "shared", at);
        let (client, collector) = (&client, &collector);
        eventually("lines of both sides", || async move {
            client.call(0, "/logged").await?;
            let told = lines(collector);
            let both = ["by client", "of backend"].iter().all(|one| told.iter().any(|(told, _)| told == one));
            let path = told.iter().any(|(_, body)| body.contains("path") && body.contains("/logged"));
            if both && path { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await;
    }
    drop(backend);
}

/// Waits until a proxy tells that it knows no collector to send logs to.
async fn misses(zone: &Zone, name: &str) {
    eventually("word of the collector that is missing", || async move {
        let said = zone.try_get("/debug/proxies").await?;
        let items = said["items"].as_array().into_iter().flatten();
        let of: Vec<&Value> =
            items.filter(|proxy| proxy["id"].as_str().is_some_and(|id| id.ends_with(name))).collect();
        let told = of.iter().any(|proxy| proxy.to_string().contains("there is not exactly one"));
        if told { Ok(()) } else { Err(format!("{of:?}")) }
    })
    .await;
}

/// Who told each line that arrived, and its body.
fn lines(collector: &Collector) -> Vec<(String, String)> {
    let arrived = collector.logs.lock().unwrap().clone();
    let scopes = arrived.iter().flat_map(|request| &request.resource_logs).flat_map(|one| &one.scope_logs);
    let records = scopes.flat_map(|scope| &scope.log_records);
    let told = records.map(|record| {
        let told = text(&record.attributes, "told").unwrap_or_default();
        (told.to_owned(), format!("{:?}", record.body))
    });
    told.collect()
}

/// What runs beside the proxy reads where to leave metrics, and what it leaves there arrives.
#[tokio::test]
async fn metrics_arrive_over_grpc() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let folder = tempfile::tempdir().unwrap();
    let (_backend, _client) = pair(&zones[0], folder.path()).await;
    global.apply(
        "
type: MeshMetric
name: everybody
mesh: default
spec:
  default:
    backends:
      - type: OpenTelemetry
        openTelemetry:
          backendRef: { kind: MeshOpenTelemetryBackend, name: shared }
          refreshInterval: 1s
",
    );
    for _ in 0..2 {
        let (collector, at) = Collector::start().await;
        describe(&global, "shared", at);
        let (folder, collector) = (folder.path(), &collector);
        eventually("a metric", || async move {
            tell(folder).await?;
            let arrived = collector.metrics.lock().unwrap().clone();
            let scopes = arrived
                .iter()
                .flat_map(|request| &request.resource_metrics)
                .flat_map(|one| &one.scope_metrics);
            let names: Vec<&str> =
                scopes.flat_map(|scope| &scope.metrics).map(|metric| &*metric.name).collect();
            if names.contains(&"requests") { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }
}

/// Passes on one metric, as whoever runs a proxy does: to the socket it is told.
async fn tell(folder: &Path) -> Result<(), String> {
    let told = asked(&folder.join("kuma-mesh-metric-config.sock")).await.map_err(|e| e.to_string())?;
    let at = told["observability"]["metrics"]["backends"][0]["openTelemetry"]["endpoint"].as_str();
    let socket = at.ok_or_else(|| told.to_string())?;
    let endpoint = Endpoint::from_shared(format!("unix://{socket}")).map_err(|e| e.to_string())?;
    let channel = endpoint.connect().await.map_err(|e| format!("{socket}: {e}"))?;
    let metrics = vec![Metric { name: "requests".to_owned(), ..Metric::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }];
    let sent =
        MetricsServiceClient::new(channel).export(ExportMetricsServiceRequest { resource_metrics }).await;
    sent.map(drop).map_err(|status| status.to_string())
}

/// What a proxy is told about metrics, at its socket.
async fn asked(socket: &Path) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"GET /meshmetric HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    Ok(serde_json::from_str(body).unwrap_or_default())
}
