//! Resources that an Envoy takes, and such that it refuses. Each bad one is like a good one in all but one thing.

use serde_json::{Value, json};

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

/// What an Envoy takes.
pub(super) fn good() -> Vec<Case> {
    let many =
        |n: u32| -> Vec<Value> { (0..n).map(|i| json!({"server_names": [format!("s{i}.mesh")]})).collect() };
    let routes: Vec<Value> = (0..50)
        .map(|i| {
            json!({"match": {"prefix": format!("/{i}"), "headers": [{"name": "x", "string_match": {"safe_regex": {"regex": "a+"}}}]},
                "route": {"cluster": "a", "timeout": "1s", "retry_policy": {"retry_on": "5xx", "num_retries": 2}}})
        })
        .collect();
    vec![
        cluster("measured: a cluster", json!({})),
        chains("measured: a listener with 500 chains", &many(500)),
        hosts("measured: 50 routes", json!([{"name": "h", "domains": ["*"], "routes": routes}])),
        http("measured: requests", json!({})),
        cluster("a timeout as short as can be", json!({"connect_timeout": "0.000000001s"})),
        cluster("no timeout", json!({"connect_timeout": null})),
        cluster("discovered members", json!({"type": "EDS", "eds_cluster_config": ads()})),
        cluster("the destination decides", json!({"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"})),
        cluster(
            "names",
            merged(
                json!({"type": "STRICT_DNS"}),
                assigned(json!([{"lb_endpoints": [endpoint("localhost", 80)]}])),
            ),
        ),
        cluster(
            "one name",
            merged(
                json!({"type": "LOGICAL_DNS"}),
                assigned(json!([{"lb_endpoints": [endpoint("localhost", 80)]}])),
            ),
        ),
        cluster(
            "addresses",
            assigned(json!([{"lb_endpoints": [endpoint("127.0.0.1", 1), endpoint("::1", 65535)]}])),
        ),
        cluster("a port of nobody", assigned(json!([{"lb_endpoints": [endpoint("127.0.0.1", 0)]}]))),
        cluster(
            "a priority",
            assigned(json!([{"priority": 0, "lb_endpoints": []}, {"priority": 1, "lb_endpoints": []}])),
        ),
        cluster(
            "weights",
            assigned(
                json!([{"load_balancing_weight": 1, "lb_endpoints": [merged(endpoint("127.0.0.1", 1), json!({"load_balancing_weight": 1}))]}]),
            ),
        ),
        cluster(
            "fewest choices",
            json!({"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 2}}),
        ),
        cluster(
            "a ring",
            json!({"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": 8, "maximum_ring_size": 8}}),
        ),
        cluster(
            "the largest ring",
            json!({"lb_policy": "RING_HASH", "ring_hash_lb_config": {"maximum_ring_size": 8_388_608}}),
        ),
        cluster("a table", json!({"lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": 65_537}})),
        cluster(
            "the largest table",
            json!({"lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": 5_000_011}}),
        ),
        cluster("by chance", json!({"lb_policy": "RANDOM"})),
        cluster("a check", checked(json!({}))),
        cluster(
            "a check by HTTP",
            checked(json!({"tcp_health_check": null, "http_health_check": {"path": "/"}})),
        ),
        cluster(
            "a check by gRPC",
            merged(
                checked(json!({"tcp_health_check": null, "grpc_health_check": {}})),
                options(json!({"explicit_http_config": {"http2_protocol_options": {}}})),
            ),
        ),
        cluster(
            "outliers",
            json!({"outlier_detection": {"max_ejection_percent": 100, "interval": "1s", "base_ejection_time": "1s"}}),
        ),
        cluster(
            "thresholds",
            json!({"circuit_breakers": {"thresholds": [{"max_connections": 0, "priority": "HIGH"}]}}),
        ),
        cluster("HTTP/1.1", options(json!({"explicit_http_config": {"http_protocol_options": {}}}))),
        cluster(
            "HTTP/2",
            options(
                json!({"explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 1}}}),
            ),
        ),
        cluster(
            "what the client speaks",
            options(
                json!({"use_downstream_protocol_config": {"http_protocol_options": {}, "http2_protocol_options": {}}}),
            ),
        ),
        cluster(
            "idle",
            options(
                json!({"common_http_protocol_options": {"idle_timeout": "0s"}, "explicit_http_config": {"http_protocol_options": {}}}),
            ),
        ),
        cluster("TLS", json!({"transport_socket": upstream_tls(json!({"sni": "x"}))})),
        cluster("TLS that believes nobody", json!({"transport_socket": believing(&json!([]))})),
        cluster(
            "TLS that believes two domains",
            json!({"transport_socket": believing(&json!([
                {"name": "a", "trust_bundle": bundle()}, {"name": "b", "trust_bundle": bundle()}]))}),
        ),
        cluster(
            "a check by gRPC of what speaks as its clients do",
            merged(
                checked(json!({"tcp_health_check": null, "grpc_health_check": {}})),
                options(json!({"use_downstream_protocol_config": {"http2_protocol_options": {}}})),
            ),
        ),
        cluster(
            "plaintext",
            json!({"transport_socket": {"name": "raw", "typed_config": packed("envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", json!({}))}}),
        ),
        cluster(
            "TLS by match",
            json!({"transport_socket_matches": [{"name": "m", "match": {"a": "b"}, "transport_socket": upstream_tls(json!({}))}]}),
        ),
        cluster("another name for its counts", json!({"alt_stat_name": "b"})),
        cluster("metadata", json!({"metadata": {"filter_metadata": {"x": {"a": 1}}}})),
        cluster(
            "subsets",
            json!({"lb_subset_config": {"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["v"]}]}}),
        ),
        cluster(
            "near ones first",
            json!({"common_lb_config": {"locality_weighted_lb_config": {}, "healthy_panic_threshold": {"value": 0}}}),
        ),
        listener("bytes", json!({})),
        listener(
            "a chain that takes the rest",
            json!({"filter_chains": [], "default_filter_chain": {"filters": [tcp(json!({}))]}}),
        ),
        listener("a chain without filters", json!({"filter_chains": [{"filters": []}]})),
        listener("who may, then bytes", json!({"filter_chains": [{"filters": [rbac(), tcp(json!({}))]}]})),
        listener(
            "split bytes",
            json!({"filter_chains": [{"filters": [tcp(json!({"cluster": null, "weighted_clusters": {"clusters": [{"name": "x", "weight": 1}]}}))]}]}),
        ),
        listener(
            "idle bytes",
            json!({"filter_chains": [{"filters": [tcp(json!({"idle_timeout": "0s", "max_connect_attempts": 1}))]}]}),
        ),
        listener(
            "nobody binds",
            json!({"bind_to_port": false, "address": {"socket_address": {"port_value": 7777}}}),
        ),
        listener("direction", json!({"traffic_direction": "INBOUND"})),
        listener("a pause for filters", json!({"listener_filters_timeout": "0s"})),
        listener("a name of its own for counts", json!({"stat_prefix": "x"})),
        chains(
            "names",
            &[
                json!({"server_names": ["a.b"]}),
                json!({"server_names": ["*.b"]}),
                json!({"server_names": ["b"]}),
            ],
        ),
        chains(
            "protocols",
            &[json!({"transport_protocol": "tls"}), json!({"transport_protocol": "raw_buffer"})],
        ),
        chains(
            "applications",
            &[json!({"application_protocols": ["h2"]}), json!({"application_protocols": ["http/1.1"]})],
        ),
        chains("ports", &[json!({"destination_port": 1}), json!({"destination_port": 65535})]),
        chains(
            "ranges",
            &[
                json!({"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}),
                json!({"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 9}]}),
                json!({}),
            ],
        ),
        chains(
            "sources",
            &[
                json!({"source_ports": [1, 2]}),
                json!({"source_ports": [3]}),
                json!({"source_type": "EXTERNAL"}),
            ],
        ),
        http(
            "a fault",
            json!({"http_filters": [fault(json!({"delay": {"fixed_delay": "1s", "percentage": {"numerator": 1}}})), router()]}),
        ),
        http(
            "a fault that answers",
            json!({"http_filters": [fault(json!({"abort": {"http_status": 503, "percentage": {"numerator": 1}}})), router()]}),
        ),
        http("a limit of headers", json!({"max_request_headers_kb": 1})),
        http("addresses of clients", json!({"use_remote_address": true, "xff_num_trusted_hops": 2})),
        http("upgrades", json!({"upgrade_configs": [{"upgrade_type": "websocket"}]})),
        http(
            "a name of the server",
            json!({"server_name": "me", "server_header_transformation": "PASS_THROUGH"}),
        ),
        http(
            "certificates told",
            json!({"forward_client_cert_details": "SANITIZE_SET", "set_current_client_cert_details": {"uri": true}}),
        ),
        http(
            "timeouts",
            json!({"stream_idle_timeout": "0s", "request_timeout": "1s", "drain_timeout": "1s"}),
        ),
        hosts("two hosts", json!([{"name": "a", "domains": ["a", "*.a"]}, {"name": "b", "domains": ["*"]}])),
        hosts("no host", json!([])),
        hosts("a name twice", json!([{"name": "a", "domains": ["x"]}, {"name": "a", "domains": ["y"]}])),
        route("a prefix", json!({})),
        route("a path", json!({"match": {"prefix": null, "path": "/a"}})),
        route("an expression", json!({"match": {"prefix": null, "safe_regex": {"regex": "/(a|b)+[^/]{2}"}}})),
        route(
            "a redirect",
            json!({"route": null, "redirect": {"host_redirect": "x", "response_code": "FOUND"}}),
        ),
        route(
            "an answer",
            json!({"route": null, "direct_response": {"status": 404, "body": {"inline_string": "no"}}}),
        ),
        route("split", shares(&[1, 0, 99])),
        route(
            "tried again",
            json!({"route": {"retry_policy": {"num_retries": 0, "retry_back_off": {"base_interval": "0.025s"}}}}),
        ),
        route("mirrored", json!({"route": {"request_mirror_policies": [{"cluster": "b"}]}})),
        route("rewritten", json!({"route": {"prefix_rewrite": "/b", "host_rewrite_literal": "x"}})),
        route(
            "hashed",
            json!({"route": {"hash_policy": [{"header": {"header_name": "x"}}, {"cookie": {"name": "c", "ttl": "0s"}}]}}),
        ),
        route(
            "headers",
            json!({"match": {"headers": [{"name": "x", "present_match": true}, {"name": "y", "string_match": {"exact": ""}}]}}),
        ),
        route("parameters", json!({"match": {"query_parameters": [{"name": "q", "present_match": true}]}})),
        route(
            "headers changed",
            json!({"request_headers_to_add": [{"header": {"key": "x", "value": "y"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}], "request_headers_to_remove": ["z"]}),
        ),
        route(
            "some of them",
            json!({"match": {"runtime_fraction": {"default_value": {"numerator": 1, "denominator": "MILLION"}}}}),
        ),
    ]
}

/// What an Envoy refuses.
pub(super) fn bad() -> Vec<Case> {
    vec![
        cluster("no name", json!({"name": ""})),
        cluster("no time to connect", json!({"connect_timeout": "0s"})),
        cluster("less than no time", json!({"connect_timeout": "-1s"})),
        cluster("no such policy", json!({"lb_policy": 77})),
        cluster("no such type", json!({"type": 77})),
        cluster("no such family", json!({"dns_lookup_family": 77})),
        cluster("discovered nowhere", json!({"type": "EDS"})),
        cluster("static and discovered", json!({"eds_cluster_config": ads()})),
        cluster("discovered from nobody", json!({"type": "EDS", "eds_cluster_config": {"eds_config": {}}})),
        cluster("the destination decides, by turns", json!({"type": "ORIGINAL_DST"})),
        cluster(
            "the destination decides, of these",
            merged(json!({"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"}), assigned(json!([]))),
        ),
        cluster("static, the destination decides", json!({"lb_policy": "CLUSTER_PROVIDED"})),
        cluster(
            "one name, of two",
            merged(
                json!({"type": "LOGICAL_DNS"}),
                assigned(json!([{"lb_endpoints": [endpoint("a", 80), endpoint("b", 80)]}])),
            ),
        ),
        cluster("one name, of none", merged(json!({"type": "LOGICAL_DNS"}), assigned(json!([])))),
        cluster("a name for an address", assigned(json!([{"lb_endpoints": [endpoint("somewhere", 80)]}]))),
        cluster("no address", assigned(json!([{"lb_endpoints": [endpoint("", 80)]}]))),
        cluster("no such port", assigned(json!([{"lb_endpoints": [endpoint("127.0.0.1", 65536)]}]))),
        cluster("no such priority", assigned(json!([{"priority": 129}]))),
        cluster("no weight of a place", assigned(json!([{"load_balancing_weight": 0}]))),
        cluster(
            "no weight",
            assigned(
                json!([{"lb_endpoints": [merged(endpoint("127.0.0.1", 1), json!({"load_balancing_weight": 0}))]}]),
            ),
        ),
        cluster("members of nobody", json!({"load_assignment": {"cluster_name": ""}})),
        cluster(
            "no choice",
            json!({"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 1}}),
        ),
        cluster(
            "too large a ring",
            json!({"lb_policy": "RING_HASH", "ring_hash_lb_config": {"maximum_ring_size": 8_388_609}}),
        ),
        cluster(
            "a ring inside out",
            json!({"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": 9, "maximum_ring_size": 8}}),
        ),
        cluster(
            "too large a table",
            json!({"lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": 5_000_012}}),
        ),
        cluster("an even table", json!({"lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": 65_536}})),
        cluster("a policy that is not there", json!({"lb_policy": "LOAD_BALANCING_POLICY_CONFIG"})),
        cluster("a check of nothing", checked(json!({"tcp_health_check": null}))),
        cluster("a check without end", checked(json!({"timeout": null}))),
        cluster("a check at once", checked(json!({"interval": "0s"}))),
        cluster("a check that never fails", checked(json!({"unhealthy_threshold": null}))),
        cluster("a check of no path", checked(json!({"tcp_health_check": null, "http_health_check": {}}))),
        cluster(
            "a check by gRPC of what speaks nothing in particular",
            checked(json!({"tcp_health_check": null, "grpc_health_check": {}})),
        ),
        cluster(
            "a check by gRPC of what speaks HTTP/1.1",
            merged(
                checked(json!({"tcp_health_check": null, "grpc_health_check": {}})),
                options(json!({"explicit_http_config": {"http_protocol_options": {}}})),
            ),
        ),
        cluster(
            "TLS that believes nobody of a domain",
            json!({"transport_socket": believing(&json!([
                {"name": "a", "trust_bundle": bundle()}, {"name": "b", "trust_bundle": {"inline_string": ""}}]))}),
        ),
        cluster(
            "TLS that believes what is no certificate",
            json!({"transport_socket": believing(&json!([{"name": "a", "trust_bundle": {"inline_string": "x"}}]))}),
        ),
        cluster(
            "TLS that believes a domain twice",
            json!({"transport_socket": believing(&json!([
                {"name": "a", "trust_bundle": bundle()}, {"name": "a", "trust_bundle": bundle()}]))}),
        ),
        cluster("more than all", json!({"outlier_detection": {"max_ejection_percent": 101}})),
        cluster("no time to look", json!({"outlier_detection": {"interval": "0s"}})),
        cluster("no such urgency", json!({"circuit_breakers": {"thresholds": [{"priority": 7}]}})),
        cluster("nothing spoken", options(json!({"common_http_protocol_options": {"idle_timeout": "1s"}}))),
        cluster(
            "no streams",
            options(
                json!({"explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 0}}}),
            ),
        ),
        cluster(
            "too small a window",
            options(
                json!({"explicit_http_config": {"http2_protocol_options": {"initial_stream_window_size": 1}}}),
            ),
        ),
        cluster("TLS of a server", json!({"transport_socket": downstream_tls(json!({}))})),
        cluster("TLS of nobody", json!({"transport_socket": {"name": "envoy.transport_sockets.tls"}})),
        cluster(
            "too long a name for TLS",
            json!({"transport_socket": upstream_tls(json!({"sni": "x".repeat(256)}))}),
        ),
        cluster("TLS by a match of no name", json!({"transport_socket_matches": [{"name": ""}]})),
        cluster("no such fallback", json!({"lb_subset_config": {"fallback_policy": 9}})),
        listener("nowhere", json!({"address": null})),
        listener("at no address", json!({"address": {"socket_address": null}})),
        listener("at no such port", json!({"address": {"socket_address": {"port_value": 65536}}})),
        listener("no chain", json!({"filter_chains": []})),
        listener(
            "no such direction",
            json!({"filter_chains": [{"filters": [filter("", json!({"@type": of_type("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"), "stat_prefix": "s", "cluster": "c"}))]}]}),
        ),
        listener(
            "no prefix for counts",
            json!({"filter_chains": [{"filters": [tcp(json!({"stat_prefix": ""}))]}]}),
        ),
        listener(
            "bytes for nobody",
            json!({"filter_chains": [{"filters": [tcp(json!({"cluster": null}))]}]}),
        ),
        listener(
            "bytes split for nobody",
            json!({"filter_chains": [{"filters": [tcp(json!({"cluster": null, "weighted_clusters": {}}))]}]}),
        ),
        listener(
            "bytes split by nothing",
            json!({"filter_chains": [{"filters": [tcp(json!({"cluster": null, "weighted_clusters": {"clusters": [{"name": "x", "weight": 0}]}}))]}]}),
        ),
        listener(
            "never tried",
            json!({"filter_chains": [{"filters": [tcp(json!({"max_connect_attempts": 0}))]}]}),
        ),
        listener("bytes, then who may", json!({"filter_chains": [{"filters": [tcp(json!({})), rbac()]}]})),
        listener("who may, and no more", json!({"filter_chains": [{"filters": [rbac()]}]})),
        listener("bytes twice", json!({"filter_chains": [{"filters": [tcp(json!({})), tcp(json!({}))]}]})),
        listener(
            "a filter by its name",
            json!({"filter_chains": [{"filters": [{"name": "envoy.filters.network.echo"}]}]}),
        ),
        listener(
            "a look by its name",
            json!({"listener_filters": [{"name": "envoy.filters.listener.tls_inspector"}]}),
        ),
        listener(
            "TLS of a client",
            json!({"filter_chains": [{"filters": [tcp(json!({}))], "transport_socket": upstream_tls(json!({}))}]}),
        ),
        chains("the same name twice", &[json!({"server_names": ["a"]}), json!({"server_names": ["a"]})]),
        chains(
            "one name in both",
            &[json!({"server_names": ["a", "b"]}), json!({"server_names": ["b", "c"]})],
        ),
        chains("all twice", &[json!({}), json!({})]),
        chains("a star within", &[json!({"server_names": ["a*b"]})]),
        chains("no port", &[json!({"destination_port": 0})]),
        chains("no such port", &[json!({"destination_port": 65536})]),
        chains("no such source", &[json!({"source_type": 9})]),
        http("no prefix for counts", json!({"stat_prefix": ""})),
        http("no routes", json!({"route_config": null})),
        http("no end", json!({"http_filters": [fault(json!({}))]})),
        http("the end first", json!({"http_filters": [router(), fault(json!({}))]})),
        http("the end twice", json!({"http_filters": [router(), router()]})),
        http("a filter by its name", json!({"http_filters": [{"name": "envoy.filters.http.router"}]})),
        http(
            "a fault of no status",
            json!({"http_filters": [fault(json!({"abort": {"percentage": {}}})), router()]}),
        ),
        http(
            "a fault of no such status",
            json!({"http_filters": [fault(json!({"abort": {"http_status": 100}})), router()]}),
        ),
        http("headers without end", json!({"max_request_headers_kb": 9000})),
        http("no room for headers", json!({"max_request_headers_kb": 0})),
        http("no such codec", json!({"codec_type": 9})),
        http("no such details", json!({"forward_client_cert_details": 9})),
        hosts("a host of no name", json!([{"name": "", "domains": ["*"]}])),
        hosts("a host of no domain", json!([{"name": "h"}])),
        hosts("a domain twice", json!([{"name": "a", "domains": ["x"]}, {"name": "b", "domains": ["x"]}])),
        hosts("all domains twice", json!([{"name": "a", "domains": ["*"]}, {"name": "b", "domains": ["*"]}])),
        hosts("more than one line", json!([{"name": "a", "domains": ["x\ny"]}])),
        route("for nothing", json!({"match": {"prefix": null}})),
        route("for nobody", json!({"route": null})),
        route("to nobody", json!({"route": {"cluster": null}})),
        route("to no name", json!({"route": {"cluster": ""}})),
        route("an open expression", json!({"match": {"prefix": null, "safe_regex": {"regex": "/(a"}}})),
        route("no expression", json!({"match": {"prefix": null, "safe_regex": {"regex": ""}}})),
        route("a star of nothing", json!({"match": {"prefix": null, "safe_regex": {"regex": "*"}}})),
        route("split by nothing", shares(&[0, 0])),
        route("split for nobody", shares(&[])),
        route("split too far", shares(&[u64::from(u32::MAX), 1])),
        route("no such answer", json!({"route": null, "direct_response": {"status": 99}})),
        route("no such redirect", json!({"route": null, "redirect": {"response_code": 9}})),
        route(
            "tried again at once",
            json!({"route": {"retry_policy": {"retry_back_off": {"base_interval": "0s"}}}}),
        ),
        route("tried again whenever", json!({"route": {"retry_policy": {"retry_back_off": {}}}})),
        route(
            "mirrored by no share",
            json!({"route": {"request_mirror_policies": [{"cluster": "b", "runtime_fraction": {}}]}}),
        ),
        route("hashed by nothing", json!({"route": {"hash_policy": [{}]}})),
        route("hashed by no header", json!({"route": {"hash_policy": [{"header": {"header_name": ""}}]}})),
        route("a header of no name", json!({"match": {"headers": [{"name": "", "present_match": true}]}})),
        route(
            "a header of two lines",
            json!({"match": {"headers": [{"name": "a\nb", "present_match": true}]}}),
        ),
        route("a parameter of no name", json!({"match": {"query_parameters": [{"name": ""}]}})),
        route("a header added to nothing", json!({"request_headers_to_add": [{"header": {"key": ""}}]})),
        route(
            "a value of two lines",
            json!({"request_headers_to_add": [{"header": {"key": "x", "value": "a\nb"}}]}),
        ),
        route("rewritten to two lines", json!({"route": {"prefix_rewrite": "/a\nb"}})),
        route("to a host of two lines", json!({"route": {"host_rewrite_literal": "a\nb"}})),
    ]
}
