//! Resources that an Envoy refuses.

use super::*;

/// What an Envoy refuses.
pub(in crate::envoy_rules::tests) fn bad() -> Vec<Case> {
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
