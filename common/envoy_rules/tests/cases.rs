//! Resources that an Envoy takes, and such that it refuses. Each bad one is like a good one in all but one thing.

mod bad;
mod good;

use serde_json::{Value, json};

pub(super) use self::{bad::bad, good::good};
use super::of_type;
use crate::xds::envoy;

/// What a case is about, the type of the resource, and the resource.
pub(super) type Case = (&'static str, &'static str, Value);

fn merged(mut base: Value, more: Value) -> Value {
    match (&mut base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (name, value) in more {
                let known = base.remove(&name);
                let value = match (known, value) {
                    (_, Value::Null) => continue,
                    (Some(known @ Value::Object(_)), value @ Value::Object(_)) => merged(known, value),
                    (_, value) => value,
                };
                base.insert(name, value);
            }
        }
        (base, more) => *base = more,
    }
    base
}

fn cluster(what: &'static str, more: Value) -> Case {
    (what, envoy::CLUSTER, merged(json!({"name": "a", "type": "STATIC", "connect_timeout": "1s"}), more))
}

fn packed(name: &str, more: Value) -> Value {
    merged(json!({"@type": of_type(name)}), more)
}

const RANDOM_PORT: u32 = 0;

fn listener(what: &'static str, more: Value) -> Case {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": RANDOM_PORT}});
    let base = json!({"name": "l", "address": address, "filter_chains": [{"filters": [tcp(json!({}))]}]});
    (what, envoy::LISTENER, merged(base, more))
}

fn filter(name: &str, config: Value) -> Value {
    json!({"name": name, "typed_config": config})
}

fn tcp(more: Value) -> Value {
    let base = json!({"stat_prefix": "s", "cluster": "a"});
    let config = packed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", merged(base, more));
    filter("tcp", config)
}

fn rbac() -> Value {
    filter("rbac", packed("envoy.extensions.filters.network.rbac.v3.RBAC", json!({"stat_prefix": "r"})))
}

fn router() -> Value {
    filter("router", packed("envoy.extensions.filters.http.router.v3.Router", json!({})))
}

fn fault(more: Value) -> Value {
    filter("fault", packed("envoy.extensions.filters.http.fault.v3.HTTPFault", more))
}

fn manager(more: Value) -> Value {
    let hosts = json!([{"name": "h", "domains": ["*"]}]);
    let base = json!({"stat_prefix": "s", "http_filters": [router()], "route_config": {
        "name": "r", "validate_clusters": false, "virtual_hosts": hosts}});
    let name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    filter("hcm", packed(name, merged(base, more)))
}

fn http(what: &'static str, more: Value) -> Case {
    listener(what, json!({"filter_chains": [{"filters": [manager(more)]}]}))
}

fn hosts(what: &'static str, hosts: Value) -> Case {
    let routes = json!({"name": "r", "validate_clusters": false, "virtual_hosts": hosts});
    (what, envoy::ROUTE, routes)
}

fn route(what: &'static str, route: Value) -> Case {
    let route = merged(json!({"match": {"prefix": "/"}, "route": {"cluster": "a"}}), route);
    hosts(what, json!([{"name": "h", "domains": ["*"], "routes": [route]}]))
}

fn chains(what: &'static str, matches: &[Value]) -> Case {
    let chain = |matches: &Value| json!({"filter_chain_match": matches, "filters": [tcp(json!({}))]});
    let inspector = packed("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector", json!({}));
    let filters = json!([{"name": "tls", "typed_config": inspector}]);
    listener(
        what,
        json!({"listener_filters": filters, "filter_chains": matches.iter().map(chain).collect::<Vec<_>>()}),
    )
}

fn endpoint(address: &str, port: u32) -> Value {
    json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}})
}

fn assigned(endpoints: Value) -> Value {
    json!({"load_assignment": {"cluster_name": "a", "endpoints": endpoints}})
}

fn checked(more: Value) -> Value {
    let base = json!({"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
        "tcp_health_check": {}});
    json!({"health_checks": [merged(base, more)]})
}

fn options(more: Value) -> Value {
    json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":
        packed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", more)}})
}

fn upstream_tls(more: Value) -> Value {
    let name = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    json!({"name": "tls", "typed_config": packed(name, more)})
}

/// Members of these trust domains are believed. That there are none is against the rules of the message, and Envoys take it.
fn believing(domains: &Value) -> Value {
    let name = "envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig";
    let validator = packed(name, json!({"trust_domains": domains}));
    let custom = json!({"name": "envoy.tls.cert_validator.spiffe", "typed_config": validator});
    upstream_tls(json!({"common_tls_context": {"validation_context": {"custom_validator_config": custom}}}))
}

fn downstream_tls(more: Value) -> Value {
    let name = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
    json!({"name": "tls", "typed_config": packed(name, more)})
}

fn ads() -> Value {
    json!({"eds_config": {"ads": {}, "resource_api_version": "V3"}})
}

fn shares(weights: &[u64]) -> Value {
    let share = |(i, weight): (usize, &u64)| json!({"name": format!("c{i}"), "weight": weight});
    let clusters: Vec<Value> = weights.iter().enumerate().map(share).collect();
    json!({"route": {"cluster": null, "weighted_clusters": {"clusters": clusters}}})
}

/// A certificate of some authority.
fn bundle() -> Value {
    let names: [String; 0] = [];
    let authority = rcgen::generate_simple_self_signed(names).unwrap();
    json!({"inline_string": authority.cert.pem()})
}
