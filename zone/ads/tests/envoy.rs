//! Two real Envoys, started with nothing but the bootstrap this server hands out, talk to each other.

use std::{
    fs,
    net::{SocketAddr, TcpListener as StdListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use axum::{Router, routing::get};
use bytes::Bytes;
use common::{model::ResourceKey, registry, testing::needs};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::{Instant, sleep},
};

use super::{
    client::{BOTH, Protocol},
    front_door::exchange,
    harness::{PATIENCE, Zone},
};

/// Ports nobody has at the moment.
fn free_ports<const N: usize>() -> [u16; N] {
    let held: Vec<StdListener> = (0..N).map(|_| StdListener::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|i| held[i].local_addr().unwrap().port())
}

struct Sidecar {
    _process: Child,
    log: PathBuf,
}

impl Sidecar {
    /// Asks for a bootstrap and starts Envoy with it.
    async fn start(
        envoy: &Path,
        zone: &Zone,
        folder: &Path,
        name: &str,
        resource: &str,
        protocol: Protocol,
    ) -> Self {
        Self::start_with(envoy, zone, folder, name, resource, protocol, |_| {}).await
    }

    /// The same with another bootstrap.
    async fn start_with(
        envoy: &Path,
        zone: &Zone,
        folder: &Path,
        name: &str,
        resource: &str,
        protocol: Protocol,
        adjust: impl FnOnce(&mut Value),
    ) -> Self {
        let features = if protocol == Protocol::Delta { vec!["feature-delta-grpc"] } else { Vec::new() };
        let request = json!({
            "mesh": "default", "name": name, "dataplaneToken": zone.token_for(name),
            "dataplaneResource": resource, "features": features, "ipv6Enabled": false,
        });
        let request = Request::post("/bootstrap")
            .header("host", "localhost")
            .body(Full::new(Bytes::from(request.to_string())))
            .unwrap();
        let (status, yaml) = exchange(zone, "http/1.1", request).await;
        assert_eq!(status, StatusCode::OK, "{yaml}");
        let (bootstrap, log) = (folder.join(format!("{name}.yaml")), folder.join(format!("{name}.log")));
        let mut adjusted: Value = serde_norway::from_str(&yaml).unwrap();
        adjust(&mut adjusted);
        fs::write(&bootstrap, adjusted.to_string()).unwrap();
        let process = Command::new(envoy)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"])
            // Or a connection from before a change of permissions would be kept for a while.
            .args(["--drain-strategy", "immediate", "--drain-time-s", "1", "-c"])
            .arg(&bootstrap)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { _process: process, log }
    }
}

fn dataplane(name: &str, service: &str, inbound: (u16, u16), admin: u16, outbound: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.1, admin: {{port: \
         {admin}}}, inbound: [{{port: {}, servicePort: {}, tags: {{kuma.io/service: {service}, \
         kuma.io/protocol: http}}}}], outbound: [{outbound}]}}}}",
        inbound.0, inbound.1
    )
}

/// A service that answers everything.
async fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { "hello" }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn ask(port: u16) -> Option<(StatusCode, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::get("/").header("host", "backend").body(Full::<Bytes>::default()).unwrap();
    let response = sender.send_request(request).await.ok()?;
    let status = response.status();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Asks until the answer is this one.
async fn until(port: u16, status: StatusCode, text: &str, sidecars: &[&Sidecar]) {
    let deadline = Instant::now() + PATIENCE;
    let mut last = None;
    while Instant::now() < deadline {
        last = ask(port).await;
        if last.as_ref().is_some_and(|(s, body)| *s == status && body.contains(text)) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    for sidecar in sidecars {
        let log = fs::read_to_string(&sidecar.log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(40).collect();
        eprintln!("{}:\n{}", sidecar.log.display(), tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    panic!("expected {status} {text:?}, the last answer was {last:?}");
}

#[tokio::test]
async fn two_envoys_talk_over_mutual_tls_and_obey_a_pushed_permission() {
    let Some(envoy) = needs::envoy() else { return };
    for protocol in BOTH {
        let zone = Zone::start().await;
        zone.mtls("").await;
        let allow = "{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, \
                     from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}";
        zone.put(allow).await;
        let echo = service().await;
        let folder = tempfile::tempdir().unwrap();
        let [in_backend, in_web, app_web, out, admin_backend, admin_web] = free_ports();
        let backend = dataplane("backend-1", "backend", (in_backend, echo.port()), admin_backend, "");
        let backend = backend.replace("servicePort", "serviceAddress: 127.0.0.1, servicePort");
        let uses = format!("{{port: {out}, tags: {{kuma.io/service: backend}}}}");
        let web = dataplane("web-1", "web", (in_web, app_web), admin_web, &uses);
        let web = web.replace("servicePort", "serviceAddress: 127.0.0.1, servicePort");
        let backend = Sidecar::start(&envoy, &zone, folder.path(), "backend-1", &backend, protocol).await;
        let web = Sidecar::start(&envoy, &zone, folder.path(), "web-1", &web, protocol).await;
        let both = [&backend, &web];
        until(out, StatusCode::OK, "hello", &both).await;

        let permission = registry::by_name("MeshTrafficPermission").unwrap();
        zone.delete(ResourceKey::new(permission, "default", "all")).await;
        until(out, StatusCode::FORBIDDEN, "RBAC", &both).await;
        zone.put(allow).await;
        until(out, StatusCode::OK, "hello", &both).await;

        for name in ["backend-1", "web-1"] {
            let insight = zone.insight(name, |i| i.m_tls.is_some()).await;
            let total = insight.subscriptions[0].status.and_then(|s| s.total).unwrap();
            assert_eq!(total.responses_rejected, 0, "{name}: {total:?}");
            let version = insight.subscriptions[0].version.clone().unwrap().envoy.unwrap().version;
            assert!(version.starts_with("1."), "{version:?}");
        }
        zone.stop().await;
    }
}

/// Clusters and listeners come from the services of these types, what they name over ADS.
#[tokio::test]
async fn r8_envoys_take_clusters_and_listeners_from_their_own_services() {
    let Some(envoy) = needs::envoy() else { return };
    let alone = |bootstrap: &mut Value| {
        let dynamic = &mut bootstrap["dynamicResources"];
        let source = json!({
            "resourceApiVersion": "V3", "initialFetchTimeout": "0s", "apiConfigSource": dynamic["adsConfig"],
        });
        (dynamic["cdsConfig"], dynamic["ldsConfig"]) = (source.clone(), source);
    };
    for protocol in BOTH {
        let zone = Zone::start().await;
        let echo = service().await;
        let folder = tempfile::tempdir().unwrap();
        let [inbound, app, out, admin, admin_web] = free_ports();
        let backend = dataplane("backend-1", "backend", (inbound, echo.port()), admin, "")
            .replace("servicePort", "serviceAddress: 127.0.0.1, servicePort");
        let uses = format!("{{port: {out}, tags: {{kuma.io/service: backend}}}}");
        let [in_web] = free_ports();
        let web = dataplane("web-1", "web", (in_web, app), admin_web, &uses);
        let path = folder.path();
        let backend = Sidecar::start_with(&envoy, &zone, path, "backend-1", &backend, protocol, alone).await;
        let web = Sidecar::start_with(&envoy, &zone, path, "web-1", &web, protocol, alone).await;
        until(out, StatusCode::OK, "hello", &[&backend, &web]).await;
        let insight = zone.insight("web-1", |insight| insight.subscriptions.len() > 2).await;
        let refused = insight.subscriptions.iter().filter_map(|one| one.status?.total);
        assert_eq!(refused.map(|total| total.responses_rejected).sum::<u64>(), 0);
        zone.stop().await;
    }
}
