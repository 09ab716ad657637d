//! Requests through real sidecars.

use reqwest::StatusCode;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    harness::eventually,
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, ingress},
};

#[tokio::test]
async fn requests_inside_a_zone_are_mutually_authenticated_and_permitted() {
    let (global, zones) = federation(1).await;
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;

    // Mutual TLS without a permission: nobody may call anybody.
    client.gets(0, StatusCode::FORBIDDEN).await;

    global.apply(ALLOW_ALL);
    let seen = client.reaches(0, "backend-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/client"), "{seen}");

    // A permission for somebody else takes it away again.
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    global.apply(
        "
type: MeshTrafficPermission
name: only-others
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: MeshSubset, tags: { kuma.io/service: somebody-else } }
      default: { action: Allow }
",
    );
    client.gets(0, StatusCode::FORBIDDEN).await;
    assert!(backend.envoy.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));
}

#[tokio::test]
async fn http2_grpc_and_tcp_services_are_reached() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let zone = &zones[0];
    let mut members = Vec::new();
    for protocol in ["http2", "grpc", "tcp"] {
        let shape =
            Shape { mesh: "default", name: protocol, service: protocol, protocol, tags: "", calls: &[] };
        members.push(Member::join(zone, shape).await);
    }
    let client = Member::join(zone, Shape::http("client", "client", &["http2", "grpc", "tcp"])).await;
    for (n, name) in ["http2", "grpc"].into_iter().enumerate() {
        let seen = client.reaches(n, name).await;
        assert_eq!(seen["version"], "HTTP/2.0", "{seen}");
    }
    let at = client.outbounds[2];
    let line = eventually("the TCP service", || async move {
        let mut stream = BufReader::new(TcpStream::connect(at).await.map_err(|e| e.to_string())?);
        stream.write_all(b"ping\n").await.map_err(|e| e.to_string())?;
        let mut line = String::new();
        stream.read_line(&mut line).await.map_err(|e| e.to_string())?;
        stream.read_line(&mut line).await.map_err(|e| e.to_string())?;
        if line.is_empty() { Err("closed".to_owned()) } else { Ok(line) }
    })
    .await;
    assert_eq!(line, "tcp\nping\n");
}

#[tokio::test]
async fn a_client_reaches_a_service_that_lives_only_in_the_other_zone() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let _ingress = ingress(&global, &zones[1]).await;
    let _inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;
    let orders = Shape {
        mesh: "default",
        name: "orders-1",
        service: "orders",
        protocol: "grpc",
        tags: "",
        calls: &[],
    };
    let _orders = Member::join(&zones[1], orders).await;
    let calls = ["inventory", "orders"];
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &calls)).await;
    for (n, name) in ["inventory-1", "orders-1"].into_iter().enumerate() {
        let seen = client.reaches(n, name).await;
        let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
        assert!(peer.contains("URI=spiffe://default/client"), "the ingress must not end TLS: {seen}");
    }
}

#[tokio::test]
async fn another_zone_is_called_only_when_this_one_has_nobody_left() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&format!("{MESH}routing: {{ localityAwareLoadBalancing: true }}\n"));
    let _ingress = ingress(&global, &zones[1]).await;
    let _there = Member::join(&zones[1], Shape::http("stock-there", "stock", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["stock"])).await;
    client.reaches(0, "stock-there").await;

    let here = Member::join(&zones[0], Shape::http("stock-here", "stock", &[])).await;
    let client = &client;
    eventually("every request in this zone", || async move {
        for _ in 0..20 {
            let (_, seen) = client.call(0, "/").await?;
            if seen["service"] != "stock-here" {
                return Err(seen.to_string());
            }
        }
        Ok(())
    })
    .await;
    zones[0].straitctl(&["delete", "dataplane", "stock-here"]);
    drop(here);
    client.reaches(0, "stock-there").await;
}

#[tokio::test]
async fn a_policy_on_global_reaches_envoy_in_every_zone() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let mut clients = Vec::new();
    let mut backends = Vec::new();
    for (n, zone) in zones.iter().enumerate() {
        let name = format!("backend-{}", n + 1);
        backends.push(Member::join(zone, Shape::http(&name, "backend", &[])).await);
        let client = Member::join(zone, Shape::http(&format!("client-{n}"), "client", &["backend"])).await;
        client.reaches(0, &name).await;
        clients.push(client);
    }
    global.apply(
        "
type: MeshHTTPRoute
name: mark
mesh: default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default:
            filters:
              - type: RequestHeaderModifier
                requestHeaderModifier: { set: [{ name: x-mark, value: from-global }] }
---
# The smaller name wins over the mesh's first policy, mesh-timeout-all-default.
type: MeshTimeout
name: backend-is-quick
mesh: default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: backend }
      default: { http: { requestTimeout: 1s } }
",
    );
    for client in &clients {
        eventually("the mark", || async move {
            let (_, seen) = client.call(0, "/").await?;
            if seen["headers"]["x-mark"] == "from-global" { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
        eventually("the request timeout", || async move {
            let (status, seen) = client.call(0, "/delay/5000").await?;
            if status == StatusCode::GATEWAY_TIMEOUT { Ok(()) } else { Err(format!("{status} {seen}")) }
        })
        .await;
    }
    global.straitctl(&["delete", "meshhttproute", "mark"]);
    for client in &clients {
        eventually("the end of the mark", || async move {
            let (_, seen) = client.call(0, "/").await?;
            if seen["headers"].get("x-mark").is_none() { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn weights_take_effect() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let zone = &zones[0];
    let mut versions = Vec::new();
    for (name, version) in [("backend-v1", ", version: v1"), ("backend-v2", ", version: v2")] {
        let shape =
            Shape { mesh: "default", name, service: "backend", protocol: "http", tags: version, calls: &[] };
        versions.push(Member::join(zone, shape).await);
    }
    let client = Member::join(zone, Shape::http("client", "client", &["backend"])).await;
    global.apply(
        "
type: MeshHTTPRoute
name: split
mesh: default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default:
            backendRefs:
              - { kind: MeshServiceSubset, name: backend, tags: { version: v1 }, weight: 0 }
              - { kind: MeshServiceSubset, name: backend, tags: { version: v2 }, weight: 1 }
",
    );
    let client = &client;
    eventually("every request at v2", || async move {
        for _ in 0..20 {
            let (_, seen) = client.call(0, "/").await?;
            if seen["service"] != "backend-v2" {
                return Err(seen.to_string());
            }
        }
        Ok(())
    })
    .await;
}
