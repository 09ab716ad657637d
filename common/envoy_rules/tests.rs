#![allow(clippy::unwrap_used)]

mod agreement;
mod cases;

use prost::Message;
use serde_json::{Value, json};

use super::{BrokenRule, ListenAddress, broken, listens_at};
use crate::{policy::mesh_proxy_patch::native, xds::envoy};

/// The encoded form of a message in its JSON form.
fn encoded(type_url: &str, json: &Value) -> Vec<u8> {
    let message = native::of_json(native::packed(type_url).unwrap(), json);
    message.unwrap_or_else(|error| panic!("{error}: {json}")).encode_to_vec()
}

fn told(type_url: &str, json: &Value) -> Vec<String> {
    let broken = broken(type_url, &encoded(type_url, json));
    broken.into_iter().map(|BrokenRule { field, reason }| format!("{field} {reason}")).collect()
}

fn check(type_url: &str, json: Value, expected: &[&str]) {
    assert_eq!(told(type_url, &json), expected, "{json}");
}

fn of_type(name: &str) -> String {
    format!("type.googleapis.com/{name}")
}

#[test]
fn every_sort_of_rule_is_told_by_its_member() {
    let cluster = |more: Value| {
        let mut cluster = json!({"name": "a", "type": "STATIC"});
        cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cluster
    };
    for (json, expected) in [
        (cluster(json!({})), &[][..]),
        // Texts, also where none is written.
        (json!({"type": "STATIC"}), &["name must not be empty"][..]),
        // Numbers of enums.
        (cluster(json!({"lb_policy": 77})), &["lb_policy 77 is none of its values"]),
        // Durations.
        (cluster(json!({"connect_timeout": "0s"})), &["connect_timeout must be greater than 0s, and is 0s"]),
        (
            cluster(json!({"connect_timeout": "-1.5s"})),
            &["connect_timeout must be greater than 0s, and is -1.5s"],
        ),
        (cluster(json!({"connect_timeout": "0.001s"})), &[]),
        // Numbers in a message of their own, which need not be there.
        (
            cluster(json!({"least_request_lb_config": {"choice_count": 1}})),
            &["least_request_lb_config.choice_count must be at least 2, and is 1"],
        ),
        (cluster(json!({"least_request_lb_config": {}})), &[]),
        (
            cluster(json!({"outlier_detection": {"max_ejection_percent": 101}})),
            &["outlier_detection.max_ejection_percent must be at most 100, and is 101"],
        ),
        // What must be there, in lists as well.
        (
            cluster(
                json!({"health_checks": [{"interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
                "tcp_health_check": {}}]}),
            ),
            &["health_checks[0].timeout is required"],
        ),
        (
            cluster(json!({"health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1,
                "healthy_threshold": 1}]})),
            &["health_checks[0].health_checker is required"],
        ),
        // What is packed, in maps as well.
        (
            cluster(json!({"typed_extension_protocol_options": {"http": {
                "@type": of_type("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")}}})),
            &["typed_extension_protocol_options[\"http\"].upstream_protocol_options is required"],
        ),
        // What is packed in metadata is nobody's business.
        (
            cluster(json!({"metadata": {"typed_filter_metadata": {"x": {
                "@type": of_type("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")}}}})),
            &[],
        ),
        // What Envoy takes no more, also where it is not written.
        (
            cluster(json!({"type": "EDS", "eds_cluster_config": {"eds_config": {"api_config_source": {
                "grpc_services": [{"envoy_grpc": {"cluster_name": "x"}}]}}}})),
            &[
                "eds_cluster_config.eds_config.api_config_source.api_type 0 is a value that Envoy takes no more",
            ],
        ),
    ] {
        check(envoy::CLUSTER, json, expected);
    }
}

#[test]
fn lists_headers_and_patterns_follow_their_rules() {
    let routes = |host: Value| json!({"name": "r", "virtual_hosts": [host]});
    for (host, expected) in [
        (json!({"name": "h", "domains": ["*"]}), &[][..]),
        (json!({"name": "h"}), &["virtual_hosts[0].domains must have at least 1 of them"][..]),
        (
            json!({"name": "h", "domains": ["*"], "request_headers_to_remove": ["a\nb"]}),
            &["virtual_hosts[0].request_headers_to_remove[0] must not have ends of lines in it, nor zeros"],
        ),
        (
            json!({"name": "h", "domains": ["*"], "request_headers_to_add": [{"header": {"key": "", "value": "b"}}]}),
            &["virtual_hosts[0].request_headers_to_add[0].header.key must not be empty"],
        ),
        (
            json!({"name": "h", "domains": ["*"], "request_headers_to_add": [{"append_action": "OVERWRITE_IF_EXISTS"}]}),
            &["virtual_hosts[0].request_headers_to_add[0].header is required"],
        ),
        (
            json!({"name": "h", "domains": ["*"], "routes": [{"match": {"prefix": "/"}}]}),
            &["virtual_hosts[0].routes[0].action is required"],
        ),
        (
            json!({"name": "h", "domains": ["*"], "routes": [{"redirect": {}}]}),
            &["virtual_hosts[0].routes[0].match is required"],
        ),
    ] {
        check(envoy::ROUTE, routes(host), expected);
    }
}

#[test]
fn no_more_is_told_than_helps_and_nothing_of_what_nobody_knows() {
    let hosts: Vec<Value> = (0..100).map(|_| json!({"name": ""})).collect();
    assert_eq!(told(envoy::ROUTE, &json!({"virtual_hosts": hosts})).len(), super::TOLD);
    assert_eq!(broken("type.googleapis.com/no.such.Message", b"\xff"), []);
    assert_eq!(broken("no url", b""), []);
    let garbage = broken(envoy::CLUSTER, b"\xff\xff\xff");
    assert_eq!(garbage.len(), 1);
    assert_eq!(garbage[0].reason, "is not encoded as its type says");
}

/// Bytes of whatever origin are looked at without fault.
#[test]
fn any_bytes_can_be_looked_at() {
    use proptest::prelude::*;
    let mut runner = proptest::test_runner::TestRunner::default();
    let good = encoded(
        envoy::LISTENER,
        &json!({"name": "l", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
            "filter_chains": [{"filters": [{"name": "f", "typed_config": {
                "@type": of_type("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"), "stat_prefix": "s",
                "cluster": "c"}}]}]}),
    );
    assert_eq!(broken(envoy::LISTENER, &good), []);
    let changes = proptest::collection::vec((0..good.len(), any::<u8>()), 1..8);
    let one =
        proptest::sample::select(&[envoy::LISTENER, envoy::CLUSTER, envoy::ROUTE, envoy::ENDPOINTS][..]);
    let looked = runner.run(&(changes, one), |(changes, type_url)| {
        let mut bytes = good.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        prop_assert!(broken(type_url, &bytes).len() <= super::TOLD);
        Ok(())
    });
    looked.unwrap();
}

#[test]
fn where_a_listener_listens_is_read() {
    let socket = |protocol: &str, address: &str, port: u32| json!({"socket_address": {"protocol": protocol, "address": address, "port_value": port}});
    let listener = json!({"name": "l", "address": socket("TCP", "127.0.0.1", 80), "additional_addresses": [
        {"address": socket("UDP", "::1", 81)}, {"address": socket("TCP", "127.0.0.1", 0)}, {"address": {"pipe": {"path": "/x"}}}]});
    let at = |datagrams, ip: &str, port| ListenAddress { datagrams, ip: ip.parse().unwrap(), port };
    let found = listens_at(&encoded(envoy::LISTENER, &listener));
    assert_eq!(found, [at(false, "127.0.0.1", 80), at(true, "::1", 81)]);
    assert_eq!(listens_at(b"\xff"), []);
}

/// What looking at a resource costs, told and not judged: machines differ.
#[test]
fn what_it_costs_is_told() {
    use std::time::Duration;

    use tokio::time::Instant;
    for (what, type_url, json) in cases::good().into_iter().filter(|(what, ..)| what.starts_with("measured"))
    {
        let bytes = encoded(type_url, &json);
        let _first = broken(type_url, &bytes);
        let (rounds, start) = (200_u32, Instant::now());
        for _ in 0..rounds {
            assert_eq!(broken(type_url, &bytes), []);
        }
        let each: Duration = start.elapsed() / rounds;
        println!("{what}: {} bytes, {each:?}", bytes.len());
    }
}
