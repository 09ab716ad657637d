//! Logs, traces and metrics, by what arrives where they go.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use reqwest::StatusCode;
use serde_json::Value;
use tokio::{io::AsyncBufReadExt, net::TcpListener};

use crate::{
    harness::{Zone, addresses, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation},
};

/// What runs beside a proxy does: passes each line of its pipe on to the address it names.
fn pass_lines_on(pipe: &Path) {
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    // With a writer of its own it is never at an end.
    let lines = OpenOptions::new().read(true).write(true).open(pipe).unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            let (address, message) = (line["address"].as_str(), line["message"].as_str());
            if let Ok(mut sink) = TcpStream::connect(address.unwrap_or_default()) {
                let _gone = sink.write_all(message.unwrap_or_default().as_bytes());
            }
        }
    });
}

async fn caller(zone: &Zone, work_dir: &Path) -> Member {
    let shape = Shape::http("client-1", "client", &["backend"]);
    let client = Member::join_in(zone, shape, Some(work_dir)).await;
    client.reaches(0, "backend-1").await;
    client
}

#[tokio::test]
async fn a_line_arrives_in_a_file_and_over_a_connection() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let folder = tempfile::tempdir().unwrap();
    pass_lines_on(&folder.path().join("kuma-al-client-1-default.sock"));
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = caller(&zones[0], folder.path()).await;
    let sink = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let file = folder.path().join("requests.log");
    global.apply(&format!(
        "
type: MeshAccessLog
name: calls
mesh: default
spec:
  to:
    - targetRef: {{ kind: MeshService, name: backend }}
      default:
        backends:
          - type: Tcp
            tcp: {{ address: '{}' }}
          - type: File
            file:
              path: {}
              format: {{ type: Plain, plain: '%KUMA_SOURCE_SERVICE%->%KUMA_DESTINATION_SERVICE% %RESPONSE_CODE% %REQ(:PATH)%' }}
",
        sink.local_addr().unwrap(),
        file.display(),
    ));
    let (client, file) = (&client, &file);
    eventually("a line in the file", || async move {
        let (status, seen) = client.call(0, "/logged").await?;
        assert_eq!(status, StatusCode::OK, "{seen}");
        let log = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        if log.contains("client->backend 200 /logged\n") { Ok(()) } else { Err(log) }
    })
    .await;
    // The same request was written to the pipe.
    let (stream, _) = sink.accept().await.unwrap();
    let mut line = String::new();
    tokio::io::BufReader::new(stream).read_line(&mut line).await.unwrap();
    let said = ["default \"GET /logged HTTP/1.1\" 200", "\"client\" \"backend\""];
    assert!(said.iter().all(|part| line.contains(part)), "{line}");
}

/// Bodies that arrived, with the path each came to.
pub type Arrived = Arc<Mutex<Vec<(&'static str, Vec<u8>)>>>;

/// A collector that takes spans of Zipkin, and OTLP over HTTP.
pub async fn collector() -> (SocketAddr, Arrived) {
    let arrived = Arrived::default();
    let takes = |path: &'static str| {
        post(move |State(arrived): State<Arrived>, body: Bytes| async move {
            arrived.lock().unwrap().push((path, body.to_vec()));
            StatusCode::ACCEPTED
        })
    };
    let router = Router::new()
        .route("/api/v2/spans", takes("zipkin"))
        .route(
            "/otlp/v1/traces",
            post(|State(arrived): State<Arrived>, body: Bytes| async move {
                arrived.lock().unwrap().push(("otlp", body.to_vec()));
            }),
        )
        .with_state(Arc::clone(&arrived));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, arrived)
}

#[tokio::test]
async fn spans_arrive_at_zipkin_and_at_a_collector_by_reference() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let (at, arrived) = collector().await;
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let trace = |backend: &str| {
        global.apply(&format!(
            "
type: MeshTrace
name: everything
mesh: default
spec:
  default:
    backends: [{backend}]
    sampling: {{ random: 100 }}
    tags: [{{ name: team, literal: core }}]
"
        ));
    };
    let (client, arrived) = (&client, &arrived);
    let spans = |of: &'static str| async move {
        client.call(0, "/traced").await?;
        let all = arrived.lock().unwrap().clone();
        let bodies: Vec<Vec<u8>> =
            all.into_iter().filter(|(path, _)| *path == of).map(|(_, body)| body).collect();
        if bodies.is_empty() { Err(format!("no {of}")) } else { Ok(bodies) }
    };

    trace(&format!("{{ type: Zipkin, zipkin: {{ url: 'http://{at}/api/v2/spans' }} }}"));
    eventually("a span of the client and one of the backend", || async move {
        let bodies = spans("zipkin").await?;
        let read = |body: &Vec<u8>| serde_json::from_slice::<Vec<Value>>(body).unwrap_or_default();
        let all: Vec<Value> = bodies.iter().flat_map(read).collect();
        let is = |span: &&Value, direction: &str| {
            span["tags"]["kuma.mesh"] == "default"
                && span["tags"]["kuma.zone"] == "zone-1"
                && span["tags"]["team"] == "core"
                && span["tags"]["upstream_cluster.name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(direction))
        };
        let has = |direction| all.iter().any(|span| is(&span, direction));
        if has("backend") && has("localhost_") { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;

    global.apply(&format!(
        "
type: MeshOpenTelemetryBackend
name: shared
mesh: default
spec:
  endpoint: {{ address: {}, port: {}, path: /otlp }}
  protocol: http
",
        at.ip(),
        at.port()
    ));
    trace(
        "{ type: OpenTelemetry, openTelemetry: { backendRef: { kind: MeshOpenTelemetryBackend, name: shared } } }",
    );
    eventually("spans as OTLP", || async move {
        let bodies = spans("otlp").await?;
        let has =
            |text: &str| bodies.iter().any(|body| body.windows(text.len()).any(|w| w == text.as_bytes()));
        let told = ["client", "backend", "kuma.mesh", "core"].into_iter().all(has);
        if told { Ok(()) } else { Err(format!("{} bodies", bodies.len())) }
    })
    .await;
}

#[tokio::test]
async fn an_envoy_nobody_runs_beside_tells_its_own_metrics() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let address = backend.inbound.ip();
    let Ok(ip) = address.to_string().parse::<Ipv4Addr>() else { panic!("{address} is of IPv4") };
    let port = addresses::free_port(ip);
    global.apply(&format!(
        "
type: MeshMetric
name: everybody
mesh: default
spec:
  default: {{ backends: [{{ type: Prometheus, prometheus: {{ port: {port}, path: /stats }} }}] }}
"
    ));
    eventually("metrics of the Envoy", || async move {
        let answer =
            reqwest::get(format!("http://{address}:{port}/stats")).await.map_err(|e| e.to_string())?;
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if text.contains("envoy_cluster_") { Ok(()) } else { Err(text) }
    })
    .await;
}

/// What the mesh itself offers, until a policy says something else.
#[tokio::test]
async fn metrics_are_offered_as_the_mesh_says_until_a_policy_does() {
    let (global, zones) = federation(1).await;
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let address = backend.inbound.ip();
    let Ok(ip) = address.to_string().parse::<Ipv4Addr>() else { panic!("{address} is of IPv4") };
    let (older, newer) = (addresses::free_port(ip), addresses::free_port(ip));
    let metrics = format!(
        "metrics: {{ enabledBackend: m, backends: [{{ name: m, type: prometheus, \
         conf: {{ port: {older}, path: /told, skipMTLS: true, envoy: {{ filterRegex: 'cluster.*' }} }} }}] }}\n"
    );
    global.apply(&format!("{MESH}{metrics}"));
    let asked = |port: u16| async move {
        let answer =
            reqwest::get(format!("http://{address}:{port}/told")).await.map_err(|e| e.to_string())?;
        answer.text().await.map_err(|e| e.to_string())
    };
    eventually("metrics of the Envoy", || async move {
        let text = asked(older).await?;
        let chosen = text.contains("envoy_cluster_") && !text.contains("envoy_server_");
        if chosen { Ok(()) } else { Err(text) }
    })
    .await;
    global.apply(&format!(
        "
type: MeshMetric
name: everybody
mesh: default
spec:
  default: {{ backends: [{{ type: Prometheus, prometheus: {{ port: {newer}, path: /told }} }}] }}
"
    ));
    eventually("metrics in the one place only", || async move {
        let text = asked(newer).await?;
        match asked(older).await {
            Err(_) if text.contains("envoy_server_") => Ok(()),
            there => Err(format!("{there:?}")),
        }
    })
    .await;
}
