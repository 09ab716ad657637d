#![allow(clippy::unwrap_used)]
use super::*;

fn node(id: &str, proxy_type: &str) -> Node {
    let value = Value { kind: Some(Json::StringValue(proxy_type.to_owned())) };
    let fields = [("dataplane.proxyType".to_owned(), value)].into_iter().collect();
    Node { id: id.to_owned(), metadata: Some(Struct { fields }), ..Node::default() }
}

#[test]
fn the_id_is_split_at_the_first_dot() {
    let (proxy, _) = Proxy::of(Some(node("default.web-1.prod", "dataplane"))).unwrap();
    assert_eq!((&*proxy.id.mesh, &*proxy.id.name), ("default", "web-1.prod"));
    assert_eq!(proxy.id.to_string(), "default.web-1.prod");

    let (ingress, _) = Proxy::of(Some(node(".in-1", "ingress"))).unwrap();
    assert_eq!(ingress.id, ProxyId::new(ProxyKind::Ingress, "", "in-1"));
    assert_eq!(ingress.id.key().to_string(), "ZoneIngress in-1");
}

#[test]
fn a_node_nobody_can_serve_is_refused() {
    let refused = |node| Proxy::of(node).unwrap_err().to_string();
    assert!(refused(None).contains("must carry a node"));
    for (id, proxy_type) in
        [("web-1", "dataplane"), (".web-1", ""), ("default.", ""), ("default.in", "ingress")]
    {
        assert!(refused(Some(node(id, proxy_type))).contains("node id"), "{id}");
    }
    assert!(refused(Some(node("a.b", "router"))).contains("proxyType"));
}

fn string(text: impl Into<String>) -> Value {
    Value { kind: Some(Json::StringValue(text.into())) }
}

fn object(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value { kind: Some(Json::StructValue(Struct { fields: fields.into_iter().collect() })) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Json::ListValue(ListValue { values })) }
}

#[test]
fn what_is_too_much_is_refused_in_few_words() {
    let long = |length: usize| string("x".repeat(length));
    let with = |key: &str, value: Value| {
        let mut node = node("default.web-1", "");
        node.metadata.get_or_insert_default().fields.insert(key.to_owned(), value);
        Some(node)
    };
    let mut deep = string("x");
    for _ in 0..DEPTH {
        deep = list(vec![object([("a".to_owned(), deep)])]);
    }
    let wide = object((0..=VALUES).map(|i| (i.to_string(), Value::default())));
    let keys = object((0..3).map(|i| (format!("{i}{}", "k".repeat(METADATA / 2)), Value::default())));
    let key = "k".repeat(METADATA + 1);
    let cases = [
        (Some(node(&"x.y".repeat(5 << 20), "")), "node id"),
        (Some(node("default.web-1\nforged", "")), "node id"),
        (Some(node("a.b", &"router".repeat(1 << 20))), "proxyType"),
        (with("dynamicMetadata", long(METADATA + 1)), "node metadata"),
        (with(&key, Value::default()), "node metadata"),
        (with("a", deep), "node metadata"),
        (with("a", wide), "node metadata"),
        (with("a", keys), "node metadata"),
        (with("a", list(vec![Value::default(); VALUES + 1])), "node metadata"),
        (with(RESOURCE, long(TextLimits::INLINE.bytes + 1)), "dataplane.resource"),
    ];
    for (node, says) in cases {
        let error = Proxy::of(node).unwrap_err().to_string();
        assert!(error.contains(says) && error.len() < 256, "{error}");
    }
}

#[test]
fn versions_are_cut_and_the_resource_is_taken_out() {
    let mut node = node("default.web-1", "");
    let fields = &mut node.metadata.get_or_insert_default().fields;
    let envoy = object([("version".to_owned(), string("1".repeat(1000)))]);
    fields.insert(VERSIONS.to_owned(), object([("envoy".to_owned(), envoy)]));
    fields.insert(RESOURCE.to_owned(), string("type: Dataplane"));
    node.user_agent_version_type = Some(UserAgentVersionType::UserAgentVersion("2".repeat(1000)));
    let (proxy, resource) = Proxy::of(Some(node)).unwrap();
    assert_eq!(resource.as_deref(), Some("type: Dataplane"));
    assert!(!proxy.metadata.fields.contains_key(RESOURCE));
    assert_eq!(proxy.version("envoy", "version").len(), VERSION);
    assert_eq!(proxy.user_agent.len(), VERSION);
}

#[test]
fn a_library_is_known_by_what_it_calls_itself() {
    let features = |agent: &str, said: Option<Value>| {
        let mut node = node("default.web-1", "");
        node.user_agent_name = agent.to_owned();
        let fields = &mut node.metadata.get_or_insert_default().fields;
        fields.extend(said.map(|said| ("features".to_owned(), said)));
        let (proxy, _) = Proxy::of(Some(node)).unwrap();
        crate::generator::ProxyMetadata::of_node(&proxy.metadata).features
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let said = || Some(list(vec![string("a"), string(FEATURE_GRPC)]));
    assert_eq!(features("gRPC C-core Linux", None), set(&[FEATURE_GRPC]));
    assert_eq!(features("gRPC Node Pure JS", Some(list(vec![string("a")]))), set(&["a", FEATURE_GRPC]));
    assert_eq!(features("gRPC Go", Some(string("broken"))), set(&[FEATURE_GRPC]));
    assert_eq!(features("envoy", said()), set(&["a", FEATURE_GRPC]));
    assert_eq!(features("envoy", None), set(&[]));
}
