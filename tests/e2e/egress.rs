//! What leaves a zone through its egress.

use std::net::SocketAddr;

use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    harness::{Echo, Zone, addresses, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, egress, federation, ingress},
};

/// Somebody outside the mesh.
async fn outsider(name: &str) -> (Echo, SocketAddr) {
    let address = addresses::loopback();
    let at = SocketAddr::from((address, addresses::free_port(address)));
    (Echo::http(name, at).await, at)
}

/// The mesh with everything that leaves a zone going through its egress.
fn through_egress(more: &str) -> String {
    format!("{MESH}routing: {{ zoneEgress: true{more} }}\n")
}

/// A client with one more outbound, by reference; gives where it listens.
async fn client_of(zone: &Zone, name: &str, calls: &[&str], external: &str) -> (Member, SocketAddr) {
    let client = Member::join(zone, Shape::http(name, "client", calls)).await;
    let address = addresses::loopback();
    let at = SocketAddr::from((address, addresses::free_port(address)));
    let mut dataplane = zone.try_get(&format!("/meshes/default/dataplanes/{name}")).await.unwrap();
    let outbound = serde_json::json!({
        "address": at.ip(), "port": at.port(),
        "backendRef": {"kind": "MeshExternalService", "name": external}});
    match dataplane.pointer_mut("/networking/outbound").and_then(Value::as_array_mut) {
        Some(outbounds) => outbounds.push(outbound),
        None => dataplane["networking"]["outbound"] = serde_json::json!([outbound]),
    }
    for known_here in ["creationTime", "modificationTime", "kri", "labels"] {
        dataplane.as_object_mut().unwrap().remove(known_here);
    }
    zone.apply(&dataplane.to_string());
    (client, at)
}

/// Waits until a GET there is answered with this status; gives what was said.
async fn answered(at: SocketAddr, status: StatusCode) -> Value {
    eventually(&format!("{status} at {at}"), || async move {
        let answer = reqwest::get(format!("http://{at}/")).await.map_err(|e| e.to_string())?;
        let got = answer.status();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if got == status {
            Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
        } else {
            Err(format!("{got}: {text}"))
        }
    })
    .await
}

#[tokio::test]
async fn services_outside_are_called_through_the_egress_by_those_who_may() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    global.apply(&through_egress(""));
    let ((_older, older), (_newer, newer)) = (outsider("older-1").await, outsider("newer-1").await);
    global.apply(&format!(
        "
type: ExternalService
name: older
mesh: default
tags: {{ kuma.io/service: older, kuma.io/protocol: http }}
networking: {{ address: '{older}' }}
"
    ));
    global.apply(&format!(
        "
type: MeshExternalService
name: newer
mesh: default
spec:
  match: {{ port: 80, protocol: http }}
  endpoints: [{{ address: {}, port: {} }}]
",
        newer.ip(),
        newer.port()
    ));
    let egress = egress(&global, zone).await;
    let (client, by_reference) = client_of(zone, "client-1", &["older"], "newer").await;

    let seen = client.reaches(0, "older-1").await;
    assert_eq!(
        seen["headers"]["x-forwarded-client-cert"],
        Value::Null,
        "nothing of the mesh leaves it: {seen}"
    );
    assert_eq!(answered(by_reference, StatusCode::OK).await["service"], "newer-1");
    let requests = egress.stat("cluster.default_older.upstream_rq_200").await.unwrap();
    assert!(requests > 0, "it went past the egress");

    // Who may call is decided there.
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
    assert_eq!(answered(by_reference, StatusCode::OK).await["service"], "newer-1");
    global.apply(&through_egress(", defaultForbidMeshExternalServiceAccess: true"));
    answered(by_reference, StatusCode::FORBIDDEN).await;
    assert!(egress.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));
}

#[tokio::test]
async fn another_zone_is_reached_through_the_egress_here_and_the_ingress_there() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&through_egress(""));
    let _ingress = ingress(&global, &zones[1]).await;
    let egress = egress(&global, &zones[0]).await;
    let _inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["inventory"])).await;

    let seen = client.reaches(0, "inventory-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/client"), "neither of them may end TLS: {seen}");
    let connections = egress.stat("cluster.default_inventory.upstream_cx_total").await.unwrap();
    assert!(connections > 0, "it went past the egress");
}

#[tokio::test]
async fn without_an_egress_services_outside_are_called_where_they_are() {
    let (global, zones) = federation(1).await;
    let (_outside, at) = outsider("outside-1").await;
    global.apply(&format!(
        "
type: ExternalService
name: outside
mesh: default
tags: {{ kuma.io/service: outside, kuma.io/protocol: http }}
networking: {{ address: '{at}' }}
"
    ));
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["outside"])).await;
    client.reaches(0, "outside-1").await;

    // Nothing leaves past an egress that is wanted and not there, and somebody is told.
    global.apply(&through_egress(""));
    client.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
    let zone = &zones[0];
    eventually("the reason", || async move {
        let shown = zone.try_get("/debug/proxies").await?.to_string();
        if shown.contains("of which this zone has none") { Ok(()) } else { Err(shown) }
    })
    .await;
}
