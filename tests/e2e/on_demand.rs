//! What an Envoy asks for when somebody calls it: virtual hosts (VHDS) and clusters (ODCDS).

use std::net::SocketAddr;

use reqwest::{StatusCode, header};
use serde_json::{Value, json};

use crate::{
    harness::{Envoy, Options, Zone, envoy::admin_address, eventually, http},
    nodes::{bootstrap, config, stage},
};

/// A stream of its own to the zone.
fn own_stream() -> Value {
    let service = json!({"envoy_grpc": {"cluster_name": "zone"}});
    json!({
        "resource_api_version": "V3",
        "api_config_source": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [service]},
    })
}

/// A listener at `at` with these routes, which asks on demand.
fn listener(at: SocketAddr, on_demand: Value, routes: Value) -> Value {
    let filter = |name: &str, config: Value, of: &str| {
        let mut config = config;
        config["@type"] = format!("type.googleapis.com/envoy.extensions.filters.http.{of}").into();
        json!({"name": format!("envoy.filters.http.{name}"), "typed_config": config})
    };
    let filters = [
        filter("on_demand", on_demand, "on_demand.v3.OnDemand"),
        filter("router", json!({}), "router.v3.Router"),
    ];
    let manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let mut config = json!({
        "@type": format!("type.googleapis.com/{manager}"), "stat_prefix": "front", "http_filters": filters,
    });
    for (member, value) in routes.as_object().unwrap() {
        config[member] = value.clone();
    }
    json!({
        "name": "front",
        "address": {"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}},
        "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": config},
        ]}],
    })
}

/// A cluster with one endpoint, which needs nothing more.
fn cluster(name: &str, at: SocketAddr) -> Value {
    let place = json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": place}}]}]);
    json!({
        "name": name, "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
    })
}

fn virtual_host(name: &str, domain: &str, cluster: &str) -> Value {
    json!({
        "name": format!("front/{name}"), "domains": [domain],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}],
    })
}

async fn zone() -> Zone {
    let options =
        Options::default().with("dpServer.plaintext", "true").with("dpServer.authn.node.type", "none");
    Zone::alone("zone-1", options).await
}

fn apply(zone: &Zone, name: &str, resources: Value) {
    zone.apply(&config(name, resources).to_string());
}

/// Waits until a call with this header is answered so.
async fn answers(front: SocketAddr, (header, value): (&str, &str), status: StatusCode, text: &str) {
    eventually(&format!("{value} is answered with {status} {text}"), || async {
        let call = http::client().get(format!("http://{front}/")).header(header, value);
        let answer = call.send().await.map_err(|error| error.to_string())?;
        let (is, body) = (answer.status(), answer.text().await.map_err(|error| error.to_string())?);
        if is == status && body.contains(text) { Ok(()) } else { Err(format!("{is} {body}")) }
    })
    .await;
}

#[tokio::test]
async fn virtual_hosts_come_when_somebody_calls_them() {
    let ([one, other], _echoes, front) = stage().await;
    let zone = zone().await;
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let routes = json!({"rds": {"route_config_name": "front", "config_source": ads}});
    apply(
        &zone,
        "front",
        json!({
            "listeners": [listener(front, json!({}), routes)],
            "routes": [{"name": "front", "vhds": {"config_source": own_stream()}}],
            "clusters": [cluster("one", one), cluster("other", other)],
        }),
    );
    let hosts =
        json!([virtual_host("one", "one.test", "one"), virtual_host("other", "*.other.test", "other")]);
    apply(&zone, "hosts", json!({"virtualHosts": hosts, "onDemand": true}));
    let admin = admin_address();
    let document = bootstrap("front-1", "DELTA_GRPC", zone.dp_server, admin, None);
    let envoy = Envoy::start("front-1", document, admin).await;
    let host = header::HOST.as_str();
    answers(front, (host, "one.test"), StatusCode::OK, "first-backend").await;
    answers(front, (host, "a.other.test"), StatusCode::OK, "second-backend").await;
    answers(front, (host, "b.other.test"), StatusCode::OK, "second-backend").await;
    answers(front, (host, "nobody.test"), StatusCode::NOT_FOUND, "").await;
    let dump = envoy.admin("/config_dump").await.unwrap();
    assert!(dump.contains("front/one") && dump.contains("front/other"), "{dump}");

    // Who was asked for in vain is told when it comes, and what changes is told to who has it.
    apply(
        &zone,
        "late",
        json!({"virtualHosts": [virtual_host("late", "nobody.test", "one")], "onDemand": true}),
    );
    answers(front, (host, "nobody.test"), StatusCode::OK, "first-backend").await;
    let hosts =
        json!([virtual_host("one", "one.test", "other"), virtual_host("other", "*.other.test", "other")]);
    apply(&zone, "hosts", json!({"virtualHosts": hosts, "onDemand": true}));
    answers(front, (host, "one.test"), StatusCode::OK, "second-backend").await;
    zone.straitctl(&["delete", "envoyconfig", "hosts"]);
    answers(front, (host, "one.test"), StatusCode::NOT_FOUND, "").await;
    answers(front, (host, "nobody.test"), StatusCode::OK, "first-backend").await;
}

#[tokio::test]
async fn clusters_come_when_somebody_calls_them() {
    let ([one, other], _echoes, front) = stage().await;
    let zone = zone().await;
    let on_demand = json!({"odcds": {"source": own_stream(), "timeout": "5s"}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster_header": "x-cluster"}});
    let routes = json!({"route_config": {"name": "front", "virtual_hosts": [
        {"name": "all", "domains": ["*"], "routes": [route]},
    ]}});
    apply(&zone, "front", json!({"listeners": [listener(front, on_demand, routes)]}));
    apply(&zone, "clusters", json!({"clusters": [cluster("one", one), cluster("unheard", other)]}));
    let admin = admin_address();
    let mut document: Value =
        serde_json::from_str(&bootstrap("front-1", "DELTA_GRPC", zone.dp_server, admin, None)).unwrap();
    // It asks for no cluster of its own accord.
    document["dynamic_resources"].as_object_mut().unwrap().remove("cds_config");
    let envoy = Envoy::start("front-1", document.to_string(), admin).await;
    answers(front, ("x-cluster", "one"), StatusCode::OK, "first-backend").await;
    answers(front, ("x-cluster", "missing"), StatusCode::SERVICE_UNAVAILABLE, "").await;
    assert_eq!(
        envoy.stat("cluster_manager.active_clusters").await,
        Ok(2),
        "that of the zone, and the one asked for"
    );

    apply(&zone, "late", json!({"clusters": [cluster("missing", other)]}));
    answers(front, ("x-cluster", "missing"), StatusCode::OK, "second-backend").await;
    apply(&zone, "clusters", json!({"clusters": [cluster("one", other)]}));
    answers(front, ("x-cluster", "one"), StatusCode::OK, "second-backend").await;
}
