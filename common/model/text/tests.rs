#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

const LITTLE: TextLimits = TextLimits { bytes: 1 << 20, values: 1000, depth: DEPTH };

fn refused(text: &str) -> String {
    yaml(text, LITTLE).unwrap_err().to_string()
}

#[test]
fn json_is_read_within_its_limits() {
    let read = |text: &str| json(text.as_bytes(), LITTLE);
    let text = r#"{"a": [1, -2, 0.5, null, true, "x"], "b": {"a": {}}}"#;
    assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    for (text, says) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{} {}", "trailing characters"),
        (r#"{"a": 1, "a": 2}"#, "duplicate key \"a\" at line 1 column 12"),
        (r#"{"a": {"b": 1, "\u0062": 2}}"#, "duplicate key \"b\""),
        (&"[".repeat(60), "nested deeper than 48 levels"),
        (&r#"{"a":"#.repeat(60), "nested deeper than 48 levels"),
        (&format!("[{}0]", "0,".repeat(1000)), "too many values"),
    ] {
        assert!(read(text).unwrap_err().to_string().contains(says), "{text}: {}", read(text).unwrap_err());
    }
    let deepest = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    read(&deepest).unwrap();
    assert_eq!(
        json(b"[1, 2]", TextLimits { bytes: 5, ..LITTLE }),
        Err(TextError::TooLong { length: 6, limit: 5 })
    );
}

#[test]
fn a_dump_may_be_of_a_large_envoy_and_of_nothing_that_takes_all_memory() {
    // What Envoy shows for one service that is called with mTLS.
    let shared = json!({"name": "a", "sds_config": {"ads": {}, "resource_api_version": "V3"}});
    let alone = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificate_sds_secret_configs": [shared], "alpn_protocols": ["kuma"],
            "combined_validation_context": {"validation_context_sds_secret_config": shared,
                "default_validation_context": {"match_typed_subject_alt_names": [
                    {"san_type": "URI", "matcher": {"exact": "spiffe://default/backend"}}]}}},
        "sni": "backend{mesh=default}"});
    let protocol = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let cluster = json!({"version_info": "8f4e1", "last_updated": "2026-01-01T00:00:00.000Z", "cluster": {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "backend", "type": "EDS",
        "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
        "connect_timeout": "5s", "circuit_breakers": {"thresholds": [{"track_remaining": true}]},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": alone},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":
            {"@type": protocol, "explicit_http_config": {"http2_protocol_options": {}},
                "common_http_protocol_options": {"idle_timeout": "3600s"}}}}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "15s", "retry_policy":
        {"retry_on": "gateway-error,connect-failure", "num_retries": 5, "per_try_timeout": "16s"}}});
    let routes = json!({"name": "outbound:backend", "validate_clusters": false, "virtual_hosts": [
        {"name": "backend", "domains": ["*"], "routes": [route]}],
        "request_headers_to_add": [{"header": {"key": "x-kuma-tags", "value": "&kuma.io/service=client&"}}]});
    let manager = json!({"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "backend", "route_config": routes,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": protocol}}]});
    let address = json!({"socket_address": {"address": "240.0.0.1", "port_value": 80}});
    let listener = json!({"name": "outbound:240.0.0.1:80", "active_state": {"version_info": "8f4e1",
        "last_updated": "2026-01-01T00:00:00.000Z", "listener": {
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "outbound:240.0.0.1:80",
            "address": address, "traffic_direction": "OUTBOUND", "bind_to_port": false, "filter_chains": [
                {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}}});
    // As it stands two lists deep, indented as Envoy does it.
    let mut text = Vec::new();
    let mut indented = serde_json::Serializer::with_formatter(
        &mut text,
        serde_json::ser::PrettyFormatter::with_indent(b" "),
    );
    json!([[[cluster, listener]]]).serialize(&mut indented).unwrap();
    let services = 10_000;
    let most = TextLimits { values: TextLimits::DUMP.values / services, ..TextLimits::DUMP };
    json(&text, most).unwrap();
    assert!(text.len() * services <= TextLimits::DUMP.bytes, "{}", text.len());

    let little = TextLimits { values: 100, depth: 60, ..TextLimits::DUMP };
    for (text, is_too_much) in [
        ("[{\"\":0},{\"\":0}]", false),
        (&*format!("[{}0]", "{\"\":0},".repeat(40)), true),
        (&*"[".repeat(70), true),
        ("[", false),
    ] {
        let refused = json(text.as_bytes(), little).err();
        assert_eq!(refused.is_some_and(|error| error.is_of_amount()), is_too_much, "{text}");
    }
}

#[test]
fn words_of_yaml_mean_what_they_mean_in_json() {
    for (text, value) in [
        ("", json!(null)),
        ("~", json!(null)),
        ("a: yes", json!({"a": "yes"})),
        ("a: on", json!({"a": "on"})),
        ("a: true", json!({"a": true})),
        ("a: 0755", json!({"a": "0755"})),
        ("a: 1_000", json!({"a": "1_000"})),
        ("a: 0x10", json!({"a": 16})),
        ("a: 1e3", json!({"a": 1000.0})),
        ("a: 5s", json!({"a": "5s"})),
        ("a: 1.2.3", json!({"a": "1.2.3"})),
        ("a: 12:30", json!({"a": "12:30"})),
        ("a: 2001-01-01", json!({"a": "2001-01-01"})),
        ("a: \"7\"", json!({"a": "7"})),
        ("a: !!str 7", json!({"a": "7"})),
        ("a: |\n  x\n  y\n", json!({"a": "x\ny\n"})),
        ("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})),
        ("\u{feff}a: 1", json!({"a": 1})),
        ("{\"a\": [1, {\"b\": null}]}", json!({"a": [1, {"b": null}]})),
        ("%YAML 1.2\n---\na: 1\n...\n", json!({"a": 1})),
        ("1: x", json!({"1": "x"})),
    ] {
        assert_eq!(yaml(text, LITTLE).as_ref(), Ok(&value), "{text}");
    }
}

#[test]
fn yaml_is_read_within_its_limits() {
    for (text, says) in [
        ("a: 1\na: 2", "duplicate mapping key: a"),
        ("{a: {b: 1, \"b\": 2}}", "duplicate mapping key: b"),
        ("--- 1\n--- 2", "multiple YAML documents"),
        ("a: !secret x", "tag"),
        ("? [a]\n: 1", "expected string"),
        ("a: .nan", "non-finite"),
        ("a: *x", "unknown anchor"),
        (&"- ".repeat(60), "epth"),
        (&"{a: ".repeat(60), "at line 1"),
        (&format!("[{}]", "a,".repeat(1001)), "odes"),
        (&(0..70).map(|i| format!("- &a{i} x\n")).collect::<String>(), "nchors"),
        (&format!("- &a x\n{}", "- *a\n".repeat(70)), "liases"),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
    let wide = (0..5).map(|i| format!("a{}: &a{} [{}]\n", i + 1, i + 1, format!("*a{i},").repeat(10)));
    let bomb = format!("a0: &a0 [{}]\n{}", "x,".repeat(10), wide.collect::<String>());
    assert!(refused(&bomb).contains("budget"), "{}", refused(&bomb));
    assert!(refused(&"é".repeat(1 << 19).repeat(2)).contains("at most"));
}

#[test]
fn documents_are_read_one_after_the_other() {
    let read = |text: &str| yaml_documents(text, LITTLE);
    assert_eq!(read("a: 1\n---\nb: 2\n").unwrap(), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(read("").unwrap(), [json!(null); 0]);
    let error = read("a: 1\n---\nb: 2\nb: 3\n---\nc: 4\n").unwrap_err().to_string();
    assert!(error.starts_with("document 2: ") && error.contains("line 4"), "{error}");
    assert_eq!(read(&"---\n".repeat(20_000)).unwrap(), [json!(null); 0]);
}

/// Grows when reading is not linear: the shapes that made other parsers slow, and some more, each of which
/// has to be through with in a time in which a quadratic reader would not be.
#[test]
fn no_shape_of_a_text_makes_reading_slow() {
    let pieces = [
        "{a: ",
        "[",
        "{",
        "[{",
        "? ",
        "- ",
        "-\n ",
        "!",
        "! ",
        "!a ",
        "!!str ",
        "%",
        "%a\n",
        "%TAG ! a\n",
        "\"",
        "'",
        "\"\\\n",
        "#",
        "#\n",
        "a #\n",
        "\t",
        " ",
        "\n",
        "\r",
        "\r\n",
        "---\n",
        "--- a\n",
        "...\n",
        "|\n",
        ">\n ",
        ": ",
        ":",
        "a: ",
        "a:\n ",
        ",",
        "]",
        "}",
        "a\n",
        "a,",
        "a: b,",
        "&",
        "&a ",
        "*",
        "*a ",
        "&a [",
        "<<: ",
        "\\x41",
        "\0",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "é",
        "9",
        "0.",
        "0x",
        "[a]: ",
        "? [",
        "{? ",
        "a: |\n  x\n",
        "k: v\n",
        "- - a\n",
        "  ",
        "@",
        "`",
        "\u{1f600}",
    ];
    let size = 128 << 10;
    for piece in pieces {
        for (before, after) in
            [("", ""), ("[", "]"), ("{", "}"), ("a: \"", "\""), ("a: |\n ", ""), ("{k: [", "]}")]
        {
            let text = format!("{before}{}{after}", piece.repeat(size / piece.len()));
            let begin = tokio::time::Instant::now();
            let _read_or_not = yaml_documents(&text, TextLimits::INLINE);
            let _read_or_not = json(text.as_bytes(), TextLimits::INLINE);
            let took = begin.elapsed();
            // Measured: at most 0.6 s unoptimised; a quadratic reader takes 10 s.
            assert!(took.as_secs() < 5, "{before}{piece:?}…{after} took {took:?}");
        }
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "(yes|no|on|off|~|null|true|0[0-9]{1,3}|1_0|0x1f|0o17|\\.nan|-|\\?|<<|=|1e5|1:30)"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{1,8}", inner, 0..6)
                .prop_map(|members| { Value::Object(members.into_iter().collect()) }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values()) {
        let text = value.to_string();
        prop_assert_eq!(json(text.as_bytes(), LITTLE), Ok(value.clone()));
        prop_assert_eq!(yaml(&text, LITTLE), Ok(value));
    }

    #[test]
    fn what_is_written_as_yaml_is_read(value in values()) {
        let text = to_yaml(&value).unwrap();
        prop_assert_eq!(yaml(&text, LITTLE), Ok(value), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_in_few_words(text in "\\PC{0,200}") {
        for read in [yaml(&text, LITTLE), json(text.as_bytes(), LITTLE)] {
            if let Err(error) = read {
                prop_assert!(error.to_string().len() <= REASON);
            }
        }
    }

    #[test]
    fn any_soup_of_yaml_is_read_or_refused(
        text in prop::collection::vec("(\\{|\\}|\\[|\\]|: |, |- |\\? |\n *|a|&a |\\*a|!|#|'|\"|\\||>|---\n|\\.\\.\\.\n|%|<<)", 0..120),
    ) {
        let _read_or_not = yaml_documents(&text.concat(), LITTLE);
    }
}

#[test]
fn characters_that_once_ended_lines_survive_being_written() {
    for char in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let value = json!({"A": format!("{char}"), "b": [format!("a{char} b")]});
        let text = to_yaml(&value).unwrap();
        assert_eq!(yaml(&text, LITTLE), Ok(value.clone()), "{text:?}");
        let elsewhere: Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(elsewhere, value, "{text:?}");
    }
}

#[test]
fn a_key_that_looks_like_a_merge_is_a_key() {
    let value = json!([{"<<": null}, {"<<": {"a": 1}, "b": 2}]);
    let text = to_yaml(&value).unwrap();
    assert_eq!(yaml(&text, LITTLE), Ok(value), "{text}");
}
