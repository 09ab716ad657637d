//! Metadata as structs of strings.

use std::collections::{BTreeMap, HashMap};

use common::proto::{
    envoy::config::core::v3::Metadata,
    google::protobuf::{Struct, Value, value::Kind},
};

/// Namespace of tags on listeners, by which patches find them.
pub const TAGS: &str = "io.kuma.tags";
/// Namespace of labels on endpoints.
pub const LABELS: &str = "io.kuma.labels";
/// Namespace by which subsets of endpoints are chosen.
pub const LOAD_BALANCER: &str = "envoy.lb";
/// Namespace by which transport sockets of endpoints are chosen.
pub const TRANSPORT_SOCKET: &str = "envoy.transport_socket_match";

/// A struct of strings.
pub fn strings(pairs: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Struct {
    let value = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    Struct { fields: pairs.into_iter().map(|(key, text)| (key.into(), value(text.into()))).collect() }
}

/// Metadata with these namespaces; empty structs are left out, and so is empty metadata.
pub fn of<const N: usize>(namespaces: [(&str, Struct); N]) -> Option<Metadata> {
    let filled = namespaces.into_iter().filter(|(_, content)| !content.fields.is_empty());
    let filter_metadata: HashMap<String, Struct> =
        filled.map(|(namespace, content)| (namespace.to_owned(), content)).collect();
    (!filter_metadata.is_empty()).then(|| Metadata { filter_metadata, ..Metadata::default() })
}

/// Listener metadata with these tags.
pub fn tags(tags: &BTreeMap<String, String>) -> Option<Metadata> {
    of([(TAGS, strings(tags))])
}
