//! The listener before the admin endpoint.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::{
    compile::scratch::{Generated, sidecar},
    generator::{AdminEndpoint, AdminIdentity, type_url},
};

const ZONE: &str = "
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{ port: 80, servicePort: 8080, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web } }]
";

fn generated(endpoint: AdminEndpoint) -> Generated {
    let fixture = Fixture::parse(ZONE);
    let mut proxy = fixture.sidecar("web");
    proxy.metadata.admin = Some(endpoint);
    proxy.admin = Some(Arc::new(AdminIdentity {
        address: [10, 0, 0, 1].into(),
        certificate: "certificate".to_owned(),
        key: "key".to_owned(),
        authority: "authority".to_owned(),
    }));
    sidecar(&proxy, &fixture.meshes[0]).unwrap()
}

fn endpoint() -> AdminEndpoint {
    AdminEndpoint { address: Ipv4Addr::LOCALHOST.into(), port: 9901, socket: None, readiness_port: None }
}

fn json(made: &Generated, type_url: &str, name: &str) -> Option<Value> {
    Some(made.set.get(type_url, name)?.to_json().unwrap())
}

#[test]
fn everybody_may_ask_whether_it_is_ready_and_the_control_plane_everything() {
    let made = generated(AdminEndpoint { readiness_port: Some(9902), ..endpoint() });
    let listener = json(&made, type_url::LISTENER, "kuma:envoy:admin").unwrap();
    assert_eq!(listener["address"]["socketAddress"], json!({"address": "10.0.0.1", "portValue": 9901}));
    let chains = listener["filterChains"].as_array().unwrap();
    let routes = |chain: &Value| {
        let routes = &chain["filters"][0]["typedConfig"]["routeConfig"]["virtualHosts"][0]["routes"];
        let routes = routes.as_array().unwrap().iter();
        routes.map(|route| (route["match"].clone(), route["route"]["cluster"].clone())).collect::<Vec<_>>()
    };
    let ready = (json!({"path": "/ready"}), json!("kuma:readiness"));
    let everything = (json!({"prefix": "/"}), json!("kuma:envoy:admin"));
    assert_eq!(routes(&chains[0]), std::slice::from_ref(&ready));
    assert_eq!(chains[0].get("transportSocket"), None);
    assert_eq!(routes(&chains[1]), [ready, everything]);
    assert_eq!(chains[1]["filterChainMatch"], json!({"transportProtocol": "tls"}));
    let tls = &chains[1]["transportSocket"]["typedConfig"];
    assert_eq!(tls["requireClientCertificate"], true);
    let names = &tls["commonTlsContext"]["validationContext"]["matchTypedSubjectAltNames"];
    assert_eq!(*names, json!([{"sanType": "DNS", "matcher": {"exact": "kuma-cp"}}]));
    let address = |name: &str| {
        let cluster = json(&made, type_url::CLUSTER, name).unwrap();
        cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"].clone()
    };
    let local = |port: u32| json!({"socketAddress": {"address": "127.0.0.1", "portValue": port}});
    assert_eq!((address("kuma:envoy:admin"), address("kuma:readiness")), (local(9901), local(9902)));
}

#[test]
fn without_a_reporter_envoy_says_itself_whether_it_is_ready_also_from_a_socket() {
    let made = generated(AdminEndpoint { socket: Some("/run/admin.sock".to_owned()), ..endpoint() });
    assert_eq!(json(&made, type_url::CLUSTER, "kuma:readiness"), None);
    let cluster = json(&made, type_url::CLUSTER, "kuma:envoy:admin").unwrap();
    let address = &cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
    assert_eq!(*address, json!({"pipe": {"path": "/run/admin.sock"}}));
}

#[test]
fn a_port_that_is_taken_is_left_to_who_has_it() {
    let made = generated(AdminEndpoint { port: 80, ..endpoint() });
    assert_eq!(json(&made, type_url::LISTENER, "kuma:envoy:admin"), None);
    assert_eq!(json(&made, type_url::CLUSTER, "kuma:envoy:admin"), None);
    let problem = made.problems.first().unwrap().to_string();
    assert!(problem.contains("networking.admin.port"), "{problem}");
}

#[test]
fn only_an_endpoint_that_leaves_the_address_free_gets_a_listener() {
    let needs = |endpoint: [u8; 4], proxy: [u8; 4]| {
        AdminEndpoint { address: endpoint.into(), ..self::endpoint() }.needs_listener(IpAddr::from(proxy))
    };
    assert!(needs([127, 0, 0, 1], [10, 0, 0, 1]));
    assert!(!needs([127, 0, 0, 1], [127, 0, 0, 1]));
    assert!(!needs([0, 0, 0, 0], [10, 0, 0, 1]));
    let on_socket = AdminEndpoint { socket: Some("/tmp/admin.sock".to_owned()), ..endpoint() };
    assert!(on_socket.needs_listener(Ipv4Addr::LOCALHOST.into()));
}
