//! `MeshProxyPatch`: changes of what Envoys get, in Envoy's own terms.

mod check;
pub mod native;
mod runtime;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use self::native::Native;
pub use self::runtime::RuntimeModification;
use super::{TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshProxyPatch", "meshproxypatches")
    .flow(61)
    .named("meshproxypatch", "mpp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .typed::<MeshProxyPatch>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshProxyPatch {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// What is changed.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: ProxyPatchConf,
}

/// What is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPatchConf {
    /// One after the other, behind those of less specific policies.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub append_modifications: Vec<Modification>,
}

/// One change. Exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Modification {
    /// Of clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ResourceModification<ClusterMatch, Operation>>,
    /// Of listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<ResourceModification<ListenerMatch, Operation>>,
    /// Of filters of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_filter: Option<ResourceModification<FilterMatch, FilterOperation>>,
    /// Of filters of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_filter: Option<ResourceModification<FilterMatch, FilterOperation>>,
    /// Of virtual hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_host: Option<ResourceModification<VirtualHostMatch, Operation>>,
    /// Of what the Envoy decides by while it runs. Not known to Kuma, which passes over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeModification>,
}

impl Modification {
    /// The message it brings along, as YAML.
    pub fn native(&self) -> Option<(Native, &str)> {
        let Self { cluster, listener, network_filter, http_filter, virtual_host, runtime: _ } = self;
        let written = [
            (Native::Cluster, cluster.as_ref().and_then(|change| change.value.as_deref())),
            (Native::Listener, listener.as_ref().and_then(|change| change.value.as_deref())),
            (Native::NetworkFilter, network_filter.as_ref().and_then(|change| change.value.as_deref())),
            (Native::HttpFilter, http_filter.as_ref().and_then(|change| change.value.as_deref())),
            (Native::VirtualHost, virtual_host.as_ref().and_then(|change| change.value.as_deref())),
        ];
        written.into_iter().find_map(|(native, value)| Some((native, value?)))
    }
}

/// A change of something that is found by `M`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModification<M, O> {
    /// Of which; of all when unset.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub r#match: Option<M>,
    /// What is done.
    pub operation: O,
    /// What is added or merged in, as YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How the JSON form is changed.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub json_patches: Vec<JsonPatch>,
}

/// What can be done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    Add,
    Remove,
    Patch,
}

/// What can be done to a filter in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FilterOperation {
    Remove,
    Patch,
    AddFirst,
    AddBefore,
    AddAfter,
    AddLast,
}

/// Which clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMatch {
    /// What made it: `inbound`, `outbound`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Which listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerMatch {
    /// What made it: `inbound`, `outbound`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags it shows in its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
}

/// Which filters of which listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterMatch {
    /// What made the listener: `inbound`, `outbound`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Name of the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener_name: Option<String>,
    /// Tags the listener shows in its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener_tags: Option<BTreeMap<String, String>>,
}

/// Which virtual hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualHostMatch {
    /// What made the listener: `inbound`, `outbound`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the route configuration it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_configuration_name: Option<String>,
}

/// One step of a JSON patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JsonPatch {
    /// What is done: `add`, `remove`, `replace`, `move` or `copy`.
    pub op: JsonPatchOp,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// From where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What is added.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// A value that is there, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What a step of a JSON patch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum JsonPatchOp {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
}

impl Spec for MeshProxyPatch {
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
