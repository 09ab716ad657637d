//! Which proxy is talking: node id and node metadata, as the bootstrap wrote them and the first request
//! of a stream brings them.

use std::{fmt, sync::Arc};

use common::{
    clip::{clip, clipped},
    model::{
        Kind, ResourceKey,
        kinds::{
            dataplane, dataplane_insight, zone_egress, zone_egress_insight, zone_ingress,
            zone_ingress_insight,
        },
        text::TextLimits,
    },
    proto::{
        envoy::config::core::v3::{Node, node::UserAgentVersionType},
        google::protobuf::{ListValue, Struct, Value, value::Kind as Json},
    },
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::generator::FEATURE_GRPC;

/// Bytes of a node id: a mesh and a name.
const ID: usize = 512;
/// Bytes of a text from a node in an error.
const SHOWN: usize = 64;
/// Bytes of a version or the like; what is longer is cut.
const VERSION: usize = 256;
/// Bytes of keys and texts in node metadata, without the resource a proxy brings along.
const METADATA: usize = 128 << 10;
/// Values in node metadata.
const VALUES: usize = 4096;
/// How deep they may nest.
const DEPTH: usize = 16;
/// Key of the resource that a proxy brings along.
pub(super) const RESOURCE: &str = "dataplane.resource";
/// Key of the versions a proxy names.
const VERSIONS: &str = "version";

/// What a proxy stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyKind {
    /// Beside a workload.
    #[default]
    Dataplane,
    /// Where traffic of other zones comes in.
    Ingress,
    /// Where traffic to other zones and external services leaves.
    Egress,
}

impl ProxyKind {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dataplane => "dataplane",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Dataplane, Self::Ingress, Self::Egress].into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of resource that describes such a proxy.
    pub fn resource(self) -> &'static Kind {
        match self {
            Self::Dataplane => &dataplane::KIND,
            Self::Ingress => &zone_ingress::KIND,
            Self::Egress => &zone_egress::KIND,
        }
    }

    /// The kind of resource that says what was seen of it.
    pub fn insight(self) -> &'static Kind {
        match self {
            Self::Dataplane => &dataplane_insight::KIND,
            Self::Ingress => &zone_ingress_insight::KIND,
            Self::Egress => &zone_egress_insight::KIND,
        }
    }
}

/// One proxy. Zone proxies have an empty mesh, and so has a node that belongs to none, which is no dataplane that
/// could be stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyId {
    /// What it stands for.
    pub kind: ProxyKind,
    /// Its mesh.
    pub mesh: Arc<str>,
    /// Name of its resource.
    pub name: Arc<str>,
}

impl ProxyId {
    /// A proxy of `kind`; zone proxies lose the mesh.
    pub fn new(kind: ProxyKind, mesh: &str, name: &str) -> Self {
        let mesh = if kind == ProxyKind::Dataplane { mesh } else { "" };
        Self { kind, mesh: mesh.into(), name: name.into() }
    }

    /// From `node.id`, which is `<mesh>.<name>`, split at the first dot.
    ///
    /// # Errors
    /// When the id has no dot or an empty part that must not be empty.
    pub fn parse(kind: ProxyKind, node_id: &str) -> Result<Self, NodeError> {
        let wrong = || NodeError::Id(clip(node_id, SHOWN).to_owned());
        if node_id.len() > ID || node_id.contains(char::is_control) {
            return Err(wrong());
        }
        let (mesh, name) = node_id.split_once('.').ok_or_else(wrong)?;
        if name.is_empty() || (mesh.is_empty() == (kind == ProxyKind::Dataplane)) {
            return Err(wrong());
        }
        Ok(Self::new(kind, mesh, name))
    }

    /// A node that belongs to no mesh.
    pub fn of_no_mesh(node_id: Arc<str>) -> Self {
        Self { kind: ProxyKind::Dataplane, mesh: "".into(), name: node_id }
    }

    /// Whether it is a node that belongs to no mesh.
    pub fn is_of_no_mesh(&self) -> bool {
        self.kind == ProxyKind::Dataplane && self.mesh.is_empty()
    }

    /// Key of the resource that describes the proxy.
    pub fn key(&self) -> ResourceKey {
        ResourceKey::new(self.kind.resource(), &self.mesh, &self.name)
    }

    /// Key of its insight.
    pub fn insight_key(&self) -> ResourceKey {
        ResourceKey::new(self.kind.insight(), &self.mesh, &self.name)
    }
}

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_of_no_mesh() {
            return f.write_str(&self.name);
        }
        write!(f, "{}.{}", self.mesh, self.name)
    }
}

/// What is wrong with the node of a first request.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The first request of a stream carries none.
    #[error("the first request of a stream must carry a node; use the bootstrap this control plane serves")]
    Missing,
    /// Not of the form the bootstrap writes.
    #[error("node id {0:?} is not <mesh>.<name> (zone proxies: .<name>), of at most {ID} bytes")]
    Id(String),
    /// None that a node of no mesh can have.
    #[error("node id {0:?} is empty, longer than {ID} bytes or has control characters in it")]
    NodeId(String),
    /// More metadata than any proxy needs.
    #[error("the node metadata has more than {METADATA} bytes, {VALUES} values or {DEPTH} levels")]
    Metadata,
    /// A longer resource than is read.
    #[error("dataplane.resource is {0} bytes long, at most {max} are read", max = TextLimits::INLINE.bytes)]
    Resource(usize),
    /// No such kind of proxy.
    #[error("node metadata dataplane.proxyType is {0:?}, expected dataplane, ingress or egress")]
    ProxyType(String),
}

/// A proxy with what it says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Which one.
    pub id: ProxyId,
    /// The cluster it says it belongs to, which tells nodes of no mesh apart.
    pub cluster: Arc<str>,
    /// Its node metadata, without the resource.
    pub metadata: Arc<Struct>,
    /// What Envoy says about its own version, for nodes without version metadata.
    pub user_agent: String,
}

impl Proxy {
    /// From the node of the first request: the proxy, and the resource it brings along, when it does.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn of(node: Option<Node>) -> Result<(Self, Option<String>), NodeError> {
        let node = node.ok_or(NodeError::Missing)?;
        let mut metadata = node.metadata.unwrap_or_default();
        if node.user_agent_name.starts_with("gRPC") {
            announce(&mut metadata, FEATURE_GRPC);
        }
        let kind = match text(&metadata, "dataplane.proxyType") {
            None | Some("") => ProxyKind::Dataplane,
            Some(name) => ProxyKind::from_name(name)
                .ok_or_else(|| NodeError::ProxyType(clip(name, SHOWN).to_owned()))?,
        };
        let id = ProxyId::parse(kind, &node.id)?;
        let resource = match metadata.fields.remove(RESOURCE).and_then(|value| value.kind) {
            Some(Json::StringValue(text)) if text.len() > TextLimits::INLINE.bytes => {
                return Err(NodeError::Resource(text.len()));
            }
            Some(Json::StringValue(text)) if !text.trim().is_empty() => Some(text),
            _ => None,
        };
        measure(&metadata)?;
        if let Some(versions) = metadata.fields.get_mut(VERSIONS) {
            clip_texts(versions);
        }
        let user_agent = clipped(user_agent(node.user_agent_version_type), VERSION);
        Ok((Self { id, cluster: Arc::default(), metadata: Arc::new(metadata), user_agent }, resource))
    }

    /// From a node that belongs to no mesh.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn of_no_mesh(node: Node) -> Result<Self, NodeError> {
        for text in [&node.id, &node.cluster] {
            if text.len() > ID || text.contains(char::is_control) {
                return Err(NodeError::NodeId(clip(text, SHOWN).to_owned()));
            }
        }
        if node.id.is_empty() {
            return Err(NodeError::NodeId(String::new()));
        }
        let metadata = node.metadata.unwrap_or_default();
        measure(&metadata)?;
        let user_agent = clipped(user_agent(node.user_agent_version_type), VERSION);
        let id = ProxyId::of_no_mesh(node.id.into());
        Ok(Self { id, cluster: node.cluster.into(), metadata: Arc::new(metadata), user_agent })
    }

    /// Text of `version.<part>.<field>`, empty when absent.
    pub fn version(&self, part: &str, field: &str) -> &str {
        let version = member(&self.metadata, VERSIONS).and_then(as_struct);
        version.and_then(|v| member(v, part)).and_then(as_struct).and_then(|v| text(v, field)).unwrap_or("")
    }
}

/// Whether its metadata says that it is a proxy of a mesh.
pub(super) fn says_what_proxy_it_is(node: &Node) -> bool {
    let metadata = node.metadata.as_ref();
    let says = |name| metadata.and_then(|m| text(m, name)).is_some_and(|text| !text.is_empty());
    says("dataplane.proxyType") || says(RESOURCE)
}

/// Refuses metadata no proxy needs: it is kept as long as the stream lives, and becomes part of the insight.
fn measure(metadata: &Struct) -> Result<(), NodeError> {
    let (mut bytes, mut values) = (0, 0);
    let mut open: Vec<(usize, &Struct)> = vec![(1, metadata)];
    let mut lists: Vec<(usize, &Value)> = Vec::new();
    while let Some((depth, object)) = open.pop() {
        bytes += object.fields.keys().map(String::len).sum::<usize>();
        lists.extend(object.fields.values().map(|value| (depth + 1, value)));
        while let Some((depth, value)) = lists.pop() {
            values += 1;
            match &value.kind {
                Some(Json::StringValue(text)) => bytes += text.len(),
                Some(Json::StructValue(object)) => open.push((depth, object)),
                Some(Json::ListValue(list)) => lists.extend(list.values.iter().map(|v| (depth + 1, v))),
                _ => {}
            }
            if depth > DEPTH || values > VALUES || bytes > METADATA {
                return Err(NodeError::Metadata);
            }
        }
    }
    if bytes > METADATA { Err(NodeError::Metadata) } else { Ok(()) }
}

/// Cuts every text in `value`, whose depth is known to be small.
fn clip_texts(value: &mut Value) {
    match &mut value.kind {
        Some(Json::StringValue(text)) => *text = clipped(std::mem::take(text), VERSION),
        Some(Json::StructValue(object)) => object.fields.values_mut().for_each(clip_texts),
        Some(Json::ListValue(list)) => list.values.iter_mut().for_each(clip_texts),
        _ => {}
    }
}

/// Adds what a proxy can do to what it says it can.
fn announce(metadata: &mut Struct, feature: &str) {
    let announced = metadata.fields.entry("features".to_owned()).or_default();
    if !matches!(announced.kind, Some(Json::ListValue(_))) {
        announced.kind = Some(Json::ListValue(ListValue::default()));
    }
    let Some(Json::ListValue(list)) = &mut announced.kind else { return };
    let named = Value { kind: Some(Json::StringValue(feature.to_owned())) };
    if !list.values.contains(&named) {
        list.values.push(named);
    }
}

fn user_agent(version: Option<UserAgentVersionType>) -> String {
    match version {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version,
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => build
            .version
            .map(|v| format!("{}.{}.{}", v.major_number, v.minor_number, v.patch))
            .unwrap_or_default(),
        None => String::new(),
    }
}

fn member<'a>(object: &'a Struct, name: &str) -> Option<&'a Value> {
    object.fields.get(name)
}

fn as_struct(value: &Value) -> Option<&Struct> {
    match &value.kind {
        Some(Json::StructValue(object)) => Some(object),
        _ => None,
    }
}

/// A text member.
pub fn text<'a>(object: &'a Struct, name: &str) -> Option<&'a str> {
    match &member(object, name)?.kind {
        Some(Json::StringValue(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
