//! What a peer says about itself in the `Node` of its requests.

use std::collections::HashMap;

use super::features::Features;
use crate::{
    clip::clip,
    proto::{
        envoy::config::core::v3::Node,
        google::protobuf::{ListValue, Struct, Value, value::Kind as Kinds},
        kuma::system::v1alpha1::KumaCpVersion,
    },
    redact,
};

const VERSION: &str = "version";
const CONFIG: &str = "config";
const CONTROL_PLANE_ID: &str = "control-plane-id";
const FEATURES: &str = "features";
/// What is kept of a text in the node of a peer, in bytes.
const LONGEST_TEXT: usize = 256;
/// Longest configuration of a peer that is kept, in bytes: three times a real one. Half of a document is of no
/// use to those who read it, so it is kept whole or not at all.
const LONGEST_CONFIG: usize = 64 * 1024;

/// A control plane as its peer sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// Build.
    pub version: KumaCpVersion,
    /// Effective configuration as JSON, secrets masked; empty from global.
    pub config: String,
    /// Instance id, new at every start.
    pub instance: String,
    /// What it can do.
    pub features: Features,
}

impl Peer {
    /// The node of the first request of a type. `zone` is the id in both directions.
    pub fn node(&self, zone: &str) -> Node {
        let version = &self.version;
        let version = structure([
            ("version", text(&version.version)),
            ("gitTag", text(&version.git_tag)),
            ("gitCommit", text(&version.git_commit)),
            ("buildDate", text(&version.build_date)),
        ]);
        let features = self.features.iter().map(text).collect();
        let metadata = fields([
            (VERSION, structure([("kumaCp", version)])),
            (CONFIG, text(&self.config)),
            (CONTROL_PLANE_ID, text(&self.instance)),
            (FEATURES, Value { kind: Some(Kinds::ListValue(ListValue { values: features })) }),
        ]);
        Node { metadata: Some(metadata), ..bare_node(zone) }
    }

    /// Reads the node of a first request. What is missing or of another type stays empty, and of what is
    /// longer than it has to be only the beginning is kept: it is shown, logged and stored. A peer should have masked its
    /// secrets itself.
    pub fn read(node: &Node) -> Self {
        let empty = HashMap::new();
        let metadata = node.metadata.as_ref().map_or(&empty, |m| &m.fields);
        let version = member(metadata, VERSION)
            .and_then(as_fields)
            .and_then(|v| member(v, "kumaCp"))
            .and_then(as_fields)
            .unwrap_or(&empty);
        let whole = |fields, name| member(fields, name).and_then(as_text).unwrap_or_default();
        let string = |fields, name| redact::words(clip(whole(fields, name), LONGEST_TEXT), LONGEST_TEXT);
        let features = match member(metadata, FEATURES).and_then(|v| v.kind.as_ref()) {
            Some(Kinds::ListValue(list)) => list.values.iter().filter_map(as_text).collect(),
            _ => Features::default(),
        };
        Self {
            version: KumaCpVersion {
                version: string(version, "version"),
                git_tag: string(version, "gitTag"),
                git_commit: string(version, "gitCommit"),
                build_date: string(version, "buildDate"),
                kuma_cp_global_compatible: false,
            },
            config: Some(whole(metadata, CONFIG))
                .filter(|c| c.len() <= LONGEST_CONFIG)
                .map(|config| redact::text(config).into_owned())
                .unwrap_or_default(),
            instance: string(metadata, CONTROL_PLANE_ID),
            features,
        }
    }
}

/// The node of every request after the first. Peers expect one in each.
pub fn bare_node(zone: &str) -> Node {
    Node { id: zone.to_owned(), ..Node::default() }
}

fn fields<const N: usize>(members: [(&str, Value); N]) -> Struct {
    Struct { fields: members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

fn structure<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value { kind: Some(Kinds::StructValue(fields(members))) }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kinds::StringValue(text.to_owned())) }
}

fn member<'a>(fields: &'a HashMap<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name)
}

fn as_fields(value: &Value) -> Option<&HashMap<String, Value>> {
    match value.kind.as_ref()? {
        Kinds::StructValue(structure) => Some(&structure.fields),
        _ => None,
    }
}

fn as_text(value: &Value) -> Option<&str> {
    match value.kind.as_ref()? {
        Kinds::StringValue(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_survives_its_node() {
        let peer = Peer {
            version: KumaCpVersion { version: "2.14.3".to_owned(), ..KumaCpVersion::default() },
            config: r#"{"store":{"type":"memory"}}"#.to_owned(),
            instance: "host-1a2b".to_owned(),
            features: Features::ours(),
        };
        let node = peer.node("zone-1");
        assert_eq!(node.id, "zone-1");
        assert_eq!(Peer::read(&node), peer);
    }

    #[test]
    fn of_what_is_beyond_reason_only_the_beginning_is_kept() {
        let long = "ż".repeat(1024 * 1024);
        let names = (0..1000).map(|n| text(&format!("f{n:04}"))).chain([text(&long)]);
        let names = Value { kind: Some(Kinds::ListValue(ListValue { values: names.collect() })) };
        let version = structure([("version", text(&long)), ("gitTag", text(&long))]);
        let metadata = fields([
            (VERSION, structure([("kumaCp", version)])),
            (CONFIG, text(&long)),
            (CONTROL_PLANE_ID, text(&long)),
            (FEATURES, names),
        ]);
        let read = Peer::read(&Node { metadata: Some(metadata), ..bare_node("zone-1") });
        let (instance, version, tag) = (&read.instance, &read.version.version, &read.version.git_tag);
        for kept in [instance, version, tag] {
            assert!(kept.len() <= LONGEST_TEXT && kept.starts_with('ż'), "{}", kept.len());
        }
        assert_eq!(read.config, "");
        assert!(read.features.iter().count() <= 64 && read.features.iter().all(|f| f.starts_with('f')));
    }

    #[test]
    fn a_secret_that_a_peer_tells_is_not_kept() {
        let peer = Peer { config: r#"{"password":"hunter2","port":1}"#.to_owned(), ..Peer::default() };
        let read = Peer::read(&peer.node("zone-1"));
        assert!(!read.config.contains("hunter2") && read.config.contains("port"), "{}", read.config);
    }

    #[test]
    fn a_bare_node_tells_nothing() {
        assert_eq!(Peer::read(&bare_node("zone-1")), Peer::default());
    }
}
