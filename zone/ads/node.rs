//! Which proxy is talking: node id and node metadata, as the bootstrap wrote them and the first request
//! of a stream brings them.

use std::{fmt, sync::Arc};

use common::{
    model::{
        Kind, ResourceKey,
        kinds::{
            dataplane, dataplane_insight, zone_egress, zone_egress_insight, zone_ingress,
            zone_ingress_insight,
        },
    },
    proto::{
        envoy::config::core::v3::{Node, node::UserAgentVersionType},
        google::protobuf::{Struct, Value, value::Kind as Json},
    },
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

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

    fn from_name(name: &str) -> Option<Self> {
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

/// One proxy. Zone proxies have an empty mesh.
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
        let wrong = || NodeError::Id(node_id.to_owned());
        let (mesh, name) = node_id.split_once('.').ok_or_else(wrong)?;
        if name.is_empty() || (mesh.is_empty() == (kind == ProxyKind::Dataplane)) {
            return Err(wrong());
        }
        Ok(Self::new(kind, mesh, name))
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
    #[error("node id {0:?} is not <mesh>.<name> (zone proxies: .<name>)")]
    Id(String),
    /// No such kind of proxy.
    #[error("node metadata dataplane.proxyType is {0:?}, expected dataplane, ingress or egress")]
    ProxyType(String),
}

/// A proxy with what it says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Which one.
    pub id: ProxyId,
    /// All node metadata, as it came.
    pub metadata: Arc<Struct>,
    /// What Envoy says about its own version, for nodes without version metadata.
    pub user_agent: String,
}

impl Proxy {
    /// From the node of the first request.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn of(node: Option<Node>) -> Result<Self, NodeError> {
        let node = node.ok_or(NodeError::Missing)?;
        let metadata = node.metadata.unwrap_or_default();
        let kind = match text(&metadata, "dataplane.proxyType") {
            None | Some("") => ProxyKind::Dataplane,
            Some(name) => ProxyKind::from_name(name).ok_or_else(|| NodeError::ProxyType(name.to_owned()))?,
        };
        let id = ProxyId::parse(kind, &node.id)?;
        Ok(Self { id, metadata: Arc::new(metadata), user_agent: user_agent(node.user_agent_version_type) })
    }

    /// The resource given inline, when there is one.
    pub fn inline_resource(&self) -> Option<&str> {
        text(&self.metadata, "dataplane.resource").filter(|text| !text.trim().is_empty())
    }

    /// Text of `version.<part>.<field>`, empty when absent.
    pub fn version(&self, part: &str, field: &str) -> &str {
        let version = member(&self.metadata, "version").and_then(as_struct);
        version.and_then(|v| member(v, part)).and_then(as_struct).and_then(|v| text(v, field)).unwrap_or("")
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(id: &str, proxy_type: &str) -> Node {
        let value = Value { kind: Some(Json::StringValue(proxy_type.to_owned())) };
        let fields = [("dataplane.proxyType".to_owned(), value)].into_iter().collect();
        Node { id: id.to_owned(), metadata: Some(Struct { fields }), ..Node::default() }
    }

    #[test]
    fn the_id_is_split_at_the_first_dot() {
        let proxy = Proxy::of(Some(node("default.web-1.prod", "dataplane"))).unwrap();
        assert_eq!((&*proxy.id.mesh, &*proxy.id.name), ("default", "web-1.prod"));
        assert_eq!(proxy.id.to_string(), "default.web-1.prod");

        let ingress = Proxy::of(Some(node(".in-1", "ingress"))).unwrap();
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
}
