//! Proxies of a mesh that are its ingress and egress, and gateways for other meshes.

use std::net::SocketAddr;

use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    harness::{Echo, Envoy, Zone, addresses, envoy::admin_address, eventually, http},
    identity::{given, permit},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, ingress},
};

const OTHER_MESH: &str = "
type: Mesh
name: other
mtls:
  enabledBackend: ca-1
  backends: [{ name: ca-1, type: builtin }]
";

fn exclusive() -> String {
    format!("{MESH}meshServices: {{ mode: Exclusive }}\n")
}

fn somewhere() -> SocketAddr {
    let address = addresses::loopback();
    SocketAddr::from((address, addresses::free_port(address)))
}

/// Starts the proxy of a dataplane with this networking, for a workload of the same name.
async fn proxy(zone: &Zone, mesh: &str, name: &str, at: SocketAddr, networking: &str) -> Envoy {
    let admin = admin_address();
    zone.apply(&format!(
        "
type: Dataplane
mesh: {mesh}
name: {name}
labels: {{ kuma.io/workload: {name} }}
networking:
  address: {}
  admin: {{ port: {} }}
{networking}",
        at.ip(),
        admin.port()
    ));
    Envoy::sidecar(zone, mesh, name, admin).await
}

/// Starts a proxy that is an edge of the mesh, with a service so that it has an identity.
async fn edge(zone: &Zone, name: &str, kind: &str, at: SocketAddr) -> Envoy {
    let networking = format!(
        "  inbound: [{{ port: {}, tags: {{ kuma.io/service: {name} }} }}]
  listeners: [{{ type: {kind}, address: {}, port: {}, name: {name} }}]
",
        addresses::free_port(match at.ip() {
            std::net::IpAddr::V4(address) => address,
            std::net::IpAddr::V6(_) => unreachable!("loopback addresses are of version 4"),
        }),
        at.ip(),
        at.port()
    );
    proxy(zone, "default", name, at, &networking).await
}

#[tokio::test]
async fn a_proxy_of_the_mesh_is_its_ingress() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&exclusive());
    let inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;
    let at = somewhere();
    let door = edge(&zones[1], "door", "ZoneIngress", at).await;
    zones[1].apply(&format!(
        "
type: MeshZoneAddress
mesh: default
name: door
labels: {{ kuma.io/origin: zone }}
spec: {{ address: {}, port: {} }}
",
        at.ip(),
        at.port()
    ));
    let port = inventory.inbound.port();
    let reference = format!(
        "{{ kind: MeshService, labels: {{ kuma.io/display-name: inventory, kuma.io/zone: zone-2 }}, port: {port} }}"
    );
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &[&reference])).await;
    let seen = client.reaches(0, "inventory-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/client"), "TLS is from proxy to proxy: {seen}");
    assert!(door.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));

    // Without its address nobody gets there, and with it again they do.
    zones[1].straitctl(&["delete", "meshzoneaddress", "door"]);
    client.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
}

#[tokio::test]
async fn a_proxy_of_the_mesh_is_its_egress() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    global.apply(&exclusive());
    let outside = somewhere();
    let _outside = Echo::http("outside-1", outside).await;
    global.apply(&format!(
        "
type: MeshExternalService
name: outside
mesh: default
spec:
  match: {{ port: 80, protocol: http }}
  endpoints: [{{ address: {}, port: {} }}]
",
        outside.ip(),
        outside.port()
    ));
    let door = edge(&zones[0], "door", "ZoneEgress", somewhere()).await;
    let reference = "{ kind: MeshExternalService, name: outside }";
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &[reference])).await;
    let seen = client.reaches(0, "outside-1").await;
    assert_eq!(
        seen["headers"]["x-forwarded-client-cert"],
        Value::Null,
        "nothing of the mesh leaves it: {seen}"
    );

    // Who may call is decided there.
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
    assert!(door.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));
}

#[tokio::test]
async fn an_egress_of_the_mesh_has_an_identity_of_its_own() {
    let (global, zones) = federation(1).await;
    // Nothing but what MeshIdentity gives, and no service that the egress would be known by.
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&given("{}"));
    global.apply(&permit(&["spiffe://default.zone-1.mesh.local/workload/client"]));
    let outside = somewhere();
    let _outside = Echo::http("outside-1", outside).await;
    global.apply(&format!(
        "
type: MeshExternalService
name: outside
mesh: default
spec:
  match: {{ port: 80, protocol: http }}
  endpoints: [{{ address: {}, port: {} }}]
",
        outside.ip(),
        outside.port()
    ));
    let at = somewhere();
    let listeners = format!(
        "  listeners: [{{ type: ZoneEgress, address: {}, port: {}, name: out }}]\n",
        at.ip(),
        at.port()
    );
    let door = proxy(&zones[0], "default", "door", at, &listeners).await;
    let calls = ["{ kind: MeshExternalService, name: outside }"];
    let client = Shape::http("client-1", "client", &calls);
    let client = Member::join_labelled(&zones[0], client, "kuma.io/workload: client").await;
    let thief = Shape::http("thief-1", "thief", &calls);
    let thief = Member::join_labelled(&zones[0], thief, "kuma.io/workload: thief").await;
    client.reaches(0, "outside-1").await;
    thief.gets(0, StatusCode::FORBIDDEN).await;
    for envoy in [&door, &client.envoy] {
        for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert!(envoy.stat(stat).await.is_ok_and(|n| n == 0), "{stat}");
        }
    }
}

/// What the documentation shows can be applied as it is.
#[tokio::test]
async fn the_example_of_edges_of_a_mesh_is_accepted() {
    let (_global, zones) = federation(1).await;
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/zone-proxies.yaml");
    zones[0].straitctl(&["apply", "-f", &example.display().to_string()]);
    let address = zones[0].get("/meshes/default/meshzoneaddresses/door-1").await;
    assert_eq!(address["spec"]["port"], 10001, "{address}");
}

/// Waits until a GET there is answered by the service of this name; gives what it saw.
async fn answered_by(at: SocketAddr, host: &str, name: &str) -> Value {
    eventually(&format!("an answer of {name} at {at}"), || async move {
        let request = http::client().get(format!("http://{at}/")).header("host", host);
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        let seen = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if seen["service"] == name { Ok(seen) } else { Err(format!("{status}: {seen}")) }
    })
    .await
}

/// A gateway on `port` for proxies of other meshes, and its route to `backend`.
fn cross_mesh_gateway(port: u16, backend: &str) -> String {
    format!(
        "
type: MeshGateway
mesh: default
name: edge
selectors: [{{ match: {{ kuma.io/service: edge }} }}]
conf:
  listeners: [{{ port: {port}, protocol: HTTP, crossMesh: true, hostname: edge.mesh }}]
---
type: MeshHTTPRoute
mesh: default
name: edge
spec:
  targetRef: {{ kind: MeshGateway, name: edge }}
  to:
    - targetRef: {{ kind: Mesh }}
      rules:
        - matches: [{{ path: {{ type: PathPrefix, value: / }} }}]
          default: {{ backendRefs: [{{ {backend} }}] }}
"
    )
}

#[tokio::test]
async fn a_gateway_lets_other_meshes_in() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(OTHER_MESH);
    let _ingress = ingress(&global, &zones[1]).await;
    let _backend = Member::join(&zones[1], Shape::http("backend-1", "backend", &[])).await;
    let at = somewhere();
    let gateway = "  gateway: { type: BUILTIN, tags: { kuma.io/service: edge } }\n";
    let edge = proxy(&zones[1], "default", "edge-1", at, gateway).await;
    global.apply(&cross_mesh_gateway(at.port(), "kind: MeshService, name: backend"));
    // In the same zone, and through the ingress of the zone.
    let mut clients = Vec::new();
    for (zone, name) in [(&zones[1], "near"), (&zones[0], "far")] {
        let (address, calls) = (somewhere(), somewhere());
        let networking = format!(
            "  inbound: [{{ port: {}, tags: {{ kuma.io/service: {name} }} }}]
  outbound: [{{ address: {}, port: {}, tags: {{ kuma.io/service: edge, kuma.io/mesh: default }} }}]
",
            address.port(),
            calls.ip(),
            calls.port()
        );
        clients.push(proxy(zone, "other", name, address, &networking).await);
        answered_by(calls, "edge.mesh", "backend-1").await;
    }
    for envoy in clients.iter().chain([&edge]) {
        assert!(envoy.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));
    }
    // Somebody outside of the meshes is not let in.
    let plain = http::client().get(format!("http://{at}/")).header("host", "edge.mesh").send().await;
    assert!(plain.is_err(), "{plain:?}");
}

/// Who is called and who calls are in trust domains of their own, and the mesh of neither has an authority.
#[tokio::test]
async fn a_gateway_and_those_of_other_meshes_know_each_other_by_their_trust_domains() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    for mesh in ["default", "other"] {
        global.apply(&format!("{{type: Mesh, name: {mesh}, meshServices: {{mode: Exclusive}}}}"));
        global.apply(&given("{}").replace("mesh: default", &format!("mesh: {mesh}")));
    }
    global.apply(&permit(&["spiffe://default.zone-1.mesh.local/workload/edge"]));
    let backend = Shape::http("backend-1", "backend", &[]);
    let backend = Member::join_labelled(zone, backend, "kuma.io/workload: backend").await;
    let (at, calls) = (somewhere(), somewhere());
    let gateway = "  gateway: { type: BUILTIN, tags: { kuma.io/service: edge } }\n";
    let edge = proxy(zone, "default", "edge", at, gateway).await;
    let port = backend.inbound.port();
    let behind = format!("kind: MeshService, name: backend, port: {port}");
    global.apply(&cross_mesh_gateway(at.port(), &behind));
    let address = somewhere();
    let networking = format!(
        "  inbound: [{{ port: {}, tags: {{ kuma.io/service: client }} }}]
  outbound: [{{ address: {}, port: {}, tags: {{ kuma.io/service: edge, kuma.io/mesh: default }} }}]
",
        address.port(),
        calls.ip(),
        calls.port()
    );
    let client = proxy(zone, "other", "client", address, &networking).await;
    let seen = answered_by(calls, "edge.mesh", "backend-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default.zone-1.mesh.local/workload/edge"), "{seen}");
    for envoy in [&client, &edge] {
        for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert!(envoy.stat(stat).await.is_ok_and(|n| n == 0), "{stat}");
        }
    }
}
