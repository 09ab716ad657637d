//! Envoy resources as somebody wrote them, and which nodes they are for.
//!
//! A node need not be a proxy of a mesh: it is selected by what it says about itself. Nothing is made of these
//! resources and nothing added to them; a zone sends them as they are.

mod check;
mod pattern;

use std::collections::BTreeMap;

use prost_reflect::DynamicMessage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    model::{Kind, Spec, SpecError, Violations, decode},
    policy::mesh_proxy_patch::native::{self, NativeError},
    xds::envoy,
};

pub use pattern::{fits, is_like};

/// The descriptor. What is written in a zone stays there: no peer knows the kind. There may be private keys in it.
pub static KIND: Kind = Kind::json("EnvoyConfig", "envoyconfigs")
    .global()
    .flow(8)
    .named("envoyconfig", "ec")
    .admin_only()
    .typed::<EnvoyConfig>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvoyConfig {
    /// Who gets the resources: whoever one of these selects.
    pub nodes: Vec<NodeSelector>,
    /// The version of these resources, as clients are told it in place of a digest of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// For whom these resources are, among those who ask for their names with dynamic parameters: for who has all of
    /// these. Without any they are for everybody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// CDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Value>,
    /// EDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Value>,
    /// SDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Value>,
    /// LDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Value>,
    /// RDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Value>,
    /// VHDS. The name of each is `<route configuration>/<name>`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub virtual_hosts: Vec<Value>,
    /// The virtual hosts go to who asks for a host of theirs, and not to everybody who has the route configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    /// RTDS.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<Value>,
}

/// Says of a node what it must say about itself, everything of it. Texts may have `*` in them, which stands for any
/// text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelector {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Members of its metadata; of those that are objects, what is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, Value>>,
}

/// The resources of one type in an [`EnvoyConfig`].
#[derive(Clone, Copy, Debug)]
pub struct RawResources<'a> {
    /// The member of the spec they stand in.
    pub member: &'static str,
    /// Their type.
    pub type_url: &'static str,
    /// The member that names one.
    named_by: &'static str,
    /// In their JSON form.
    pub resources: &'a [Value],
}

impl EnvoyConfig {
    /// Its resources by type.
    pub fn by_type(&self) -> [RawResources<'_>; 7] {
        let of = |member, type_url, resources| RawResources { member, type_url, named_by: "name", resources };
        [
            of("clusters", envoy::CLUSTER, &self.clusters[..]),
            RawResources { named_by: "cluster_name", ..of("endpoints", envoy::ENDPOINTS, &self.endpoints) },
            of("secrets", envoy::SECRET, &self.secrets),
            of("listeners", envoy::LISTENER, &self.listeners),
            of("routes", envoy::ROUTE, &self.routes),
            of("virtualHosts", envoy::VIRTUAL_HOST, &self.virtual_hosts),
            of("runtimes", envoy::RUNTIME, &self.runtimes),
        ]
    }
}

impl RawResources<'_> {
    /// One of them as a message, with its name.
    ///
    /// # Errors
    /// [`NativeError`] when it is no such message, or something in it nobody knows.
    pub fn message(&self, resource: &Value) -> Result<(String, DynamicMessage), NativeError> {
        let mut json = resource.clone();
        if let Some(members) = json.as_object_mut() {
            members.remove(check::TYPE);
        }
        let message = native::of_json(native::packed(self.type_url)?, &json)?;
        let name = message.get_field_by_name(self.named_by);
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned();
        Ok((name, message))
    }
}

impl Spec for EnvoyConfig {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        check::check(self)
    }
}
