//! Resources that an Envoy takes.

use super::*;

/// What an Envoy takes.
pub(in crate::envoy_rules::tests) fn good() -> Vec<Case> {
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
