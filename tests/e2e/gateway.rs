//! Builtin gateways: clients outside of the mesh reach services behind sidecars.

use std::net::SocketAddr;

use common::tls::KeyPairPem;
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    harness::{Envoy, Zone, addresses, envoy::admin_address, eventually, http},
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// A proxy that runs a gateway, and where it listens.
struct Edge {
    envoy: Envoy,
    http: SocketAddr,
    https: SocketAddr,
    tcp: SocketAddr,
}

impl Edge {
    async fn join(zone: &Zone) -> Self {
        let address = addresses::loopback();
        let port = || SocketAddr::from((address, addresses::free_port(address)));
        let (http, https, tcp, admin) = (port(), port(), port(), admin_address());
        zone.apply(&format!(
            "
type: Dataplane
mesh: default
name: edge-1
networking:
  address: {address}
  admin: {{ port: {} }}
  gateway:
    type: BUILTIN
    tags: {{ kuma.io/service: edge }}
",
            admin.port(),
        ));
        let envoy = Envoy::sidecar(zone, "default", "edge-1", admin).await;
        Self { envoy, http, https, tcp }
    }

    /// The gateway it runs, as YAML.
    fn gateway(&self) -> String {
        format!(
            "
type: MeshGateway
mesh: default
name: edge
selectors: [{{ match: {{ kuma.io/service: edge }} }}]
conf:
  listeners:
    - port: {}
      protocol: HTTP
      resources: {{ connectionLimit: 100 }}
      tags: {{ listener: plain }}
    - port: {https}
      protocol: HTTPS
      hostname: shop.example.com
      tags: {{ listener: shop }}
      tls: {{ mode: TERMINATE, certificates: [{{ secret: shop-certificate }}] }}
    - port: {https}
      protocol: HTTPS
      hostname: '*.example.org'
      tags: {{ listener: other }}
      tls: {{ mode: TERMINATE, certificates: [{{ secret: other-certificate }}] }}
    - port: {}
      protocol: TCP
      tags: {{ listener: bytes }}
",
            self.http.port(),
            self.tcp.port(),
            https = self.https.port(),
        )
    }

    /// Asks for `path` of `host` over TLS, believing only `certificate`.
    async fn ask(
        &self,
        host: &str,
        path: &str,
        certificate: &KeyPairPem,
    ) -> Result<(StatusCode, Value), String> {
        let believed = reqwest::Certificate::from_pem_bundle(certificate.certificate.as_bytes()).unwrap();
        let client = Client::builder().tls_certs_only(believed).resolve(host, self.https).build().unwrap();
        answer(client.get(format!("https://{host}:{}{path}", self.https.port()))).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(StatusCode, Value), String> {
    let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

fn certificate(host: &str) -> KeyPairPem {
    KeyPairPem::self_signed(&[host.to_owned()]).unwrap()
}

fn secret(name: &str, pair: &KeyPairPem) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let data = STANDARD.encode(format!("{}\n{}", pair.certificate, pair.key));
    format!("\ntype: Secret\nmesh: default\nname: {name}\ndata: {data}\n")
}

const ROUTES: &str = "
type: MeshHTTPRoute
mesh: default
name: edge
spec:
  targetRef: { kind: MeshGateway, name: edge }
  to:
    - targetRef: { kind: Mesh }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default: { backendRefs: [{ kind: MeshService, name: backend }] }
        - matches: [{ path: { type: PathPrefix, value: /canary } }]
          default:
            filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /new } } }]
            backendRefs: [{ kind: MeshService, name: canary }]
---
type: MeshHTTPRoute
mesh: default
name: other
spec:
  targetRef: { kind: MeshGateway, name: edge, tags: { listener: other } }
  to:
    - targetRef: { kind: Mesh }
      hostnames: [canary.example.org]
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default: { backendRefs: [{ kind: MeshService, name: canary }] }
---
type: MeshTCPRoute
mesh: default
name: bytes
spec:
  targetRef: { kind: MeshGateway, name: edge, tags: { listener: bytes } }
  to:
    - targetRef: { kind: Mesh }
      rules: [{ default: { backendRefs: [{ kind: MeshService, name: lines }] } }]
";

#[tokio::test]
async fn clients_outside_of_the_mesh_reach_services_by_host_name_over_tls() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let _canary = Member::join(zone, Shape::http("canary-1", "canary", &[])).await;
    let lines =
        Shape { mesh: "default", name: "lines-1", service: "lines", protocol: "tcp", tags: "", calls: &[] };
    let _lines = Member::join(zone, lines).await;
    let edge = Edge::join(zone).await;
    let (shop, other) = (certificate("shop.example.com"), certificate("*.example.org"));
    for (name, pair) in [("shop-certificate", &shop), ("other-certificate", &other)] {
        global.apply(&secret(name, pair));
    }
    global.apply(&edge.gateway());

    // Without a route it says so.
    let plain = format!("http://{}/", edge.http);
    let (edge, shop, other, plain) = (&edge, &shop, &other, &plain);
    eventually("a gateway without routes", || async move {
        match answer(http::client().get(plain)).await? {
            (StatusCode::NOT_FOUND, text) if text.to_string().contains("No routes") => Ok(()),
            (status, seen) => Err(format!("{status} {seen}")),
        }
    })
    .await;

    global.apply(ROUTES);
    let seen = eventually("the backend", || async move {
        match answer(http::client().get(plain)).await? {
            (StatusCode::OK, seen) if seen["service"] == "backend-1" => Ok(seen),
            (status, seen) => Err(format!("{status} {seen}")),
        }
    })
    .await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/edge"), "the gateway is a member of the mesh: {seen}");

    for (host, pair, path, service, shown) in [
        ("shop.example.com", shop, "/", "backend-1", "/"),
        ("shop.example.com", shop, "/canary/a", "canary-1", "/new/a"),
        ("web.example.org", other, "/", "backend-1", "/"),
        ("canary.example.org", other, "/", "canary-1", "/"),
    ] {
        eventually(host, || async move {
            match edge.ask(host, path, pair).await? {
                (StatusCode::OK, seen) if seen["service"] == service && seen["path"] == shown => Ok(()),
                (status, seen) => Err(format!("{status} {seen}")),
            }
        })
        .await;
    }
    assert!(edge.ask("shop.example.com", "/", other).await.is_err(), "each name has its own certificate");

    let line = eventually("the lines", || async move {
        let mut stream = BufReader::new(TcpStream::connect(edge.tcp).await.map_err(|e| e.to_string())?);
        stream.write_all(b"ping\n").await.map_err(|e| e.to_string())?;
        let mut line = String::new();
        stream.read_line(&mut line).await.map_err(|e| e.to_string())?;
        if line.is_empty() { Err("closed".to_owned()) } else { Ok(line) }
    })
    .await;
    assert_eq!(line, "lines-1\n");
    assert_eq!(edge.envoy.stat("listener_manager.lds.update_rejected").await.unwrap(), 0);
    let runtime = edge.envoy.admin("/runtime").await.unwrap();
    assert!(runtime.contains("envoy.resource_limits.listener.edge-"), "{runtime}");
}

/// Waits until requests for `host` are answered by who shows this certificate.
async fn renewed(edge: &Edge, host: &str, believed: &KeyPairPem) {
    eventually(&format!("the new certificate for {host}"), || async move {
        match edge.ask(host, "/", believed).await? {
            (StatusCode::OK, _) => Ok(()),
            (status, seen) => Err(format!("{status} {seen}")),
        }
    })
    .await;
}

/// What is said of one listener is said of no other, and a certificate that changes disturbs nobody.
#[tokio::test]
async fn listeners_have_policies_of_their_own_and_certificates_are_renewed_while_they_serve() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let edge = &Edge::join(zone).await;
    let (shop, other) = (certificate("shop.example.com"), certificate("*.example.org"));
    for (name, pair) in [("shop-certificate", &shop), ("other-certificate", &other)] {
        global.apply(&secret(name, pair));
    }
    global.apply(&edge.gateway());
    global.apply(ROUTES.split("---").next().unwrap());
    renewed(edge, "shop.example.com", &shop).await;
    renewed(edge, "web.example.org", &other).await;

    global.apply(
        "
type: MeshRateLimit
name: shop
mesh: default
spec:
  targetRef: { kind: MeshGateway, name: edge, tags: { listener: shop } }
  to:
    - targetRef: { kind: Mesh }
      default: { local: { http: { requestRate: { num: 1, interval: 1h }, onRateLimit: { status: 429 } } } }
",
    );
    let (shop, other) = (&shop, &other);
    eventually("a limit for one listener", || async move {
        match edge.ask("shop.example.com", "/", shop).await? {
            (StatusCode::TOO_MANY_REQUESTS, _) => Ok(()),
            (status, seen) => Err(format!("{status} {seen}")),
        }
    })
    .await;
    for _ in 0..5 {
        let (status, seen) = edge.ask("web.example.org", "/", other).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{seen}");
    }
    global.straitctl(&["delete", "meshratelimit", "shop"]);
    renewed(edge, "shop.example.com", shop).await;

    // One client keeps its connection, and goes on asking by it.
    let believed = reqwest::Certificate::from_pem_bundle(shop.certificate.as_bytes()).unwrap();
    let client =
        Client::builder().tls_certs_only(believed).resolve("shop.example.com", edge.https).build().unwrap();
    let (client, url) = (&client, &format!("https://shop.example.com:{}/", edge.https.port()));
    let kept = || async move {
        let (status, seen) = answer(client.get(url)).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{seen}");
    };
    kept().await;
    for _ in 0..3 {
        let next = certificate("shop.example.com");
        global.apply(&secret("shop-certificate", &next));
        kept().await;
        renewed(edge, "shop.example.com", &next).await;
        kept().await;
        let (status, _) = edge.ask("web.example.org", "/", other).await.unwrap();
        assert_eq!(status, StatusCode::OK, "the other name keeps its own");
    }
    assert_eq!(edge.envoy.stat("listener_manager.lds.update_rejected").await.unwrap(), 0);
}
