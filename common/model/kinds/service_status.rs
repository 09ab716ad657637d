//! What a zone says about a service in its status: by which addresses and host names it is called, and who
//! serves it.
//!
//! One type for the three kinds of services, since each has some of the same members.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::Resource;

/// The status of a `MeshService`, a `MeshExternalService` or a `MeshMultiZoneService`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// Host names that lead to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Virtual addresses this zone has for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<Vip>,
    /// The same of a `MeshExternalService`, which has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<Vip>,
    /// Of a `MeshService`: whether its proxies accept mesh TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsReadiness>,
    /// What became of each generator that is for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostname_generators: Vec<GeneratorStatus>,
    /// Of a `MeshService`: how many proxies serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_proxies: Option<DataplaneProxies>,
    /// Of a `MeshMultiZoneService`: the services it is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mesh_services: Vec<MatchedService>,
    /// Of a `MeshMultiZoneService`: how it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What a newer control plane said besides.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A host name of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// The host name.
    pub hostname: String,
    /// Who made it: [`ORIGIN_GENERATOR`].
    pub origin: String,
    /// Which one.
    pub hostname_generator_ref: GeneratorRef,
}

/// [`Address::origin`] of what a `HostnameGenerator` made.
pub const ORIGIN_GENERATOR: &str = "HostnameGenerator";

/// A `HostnameGenerator`, by its name here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GeneratorRef {
    /// Its name.
    pub core_name: String,
}

/// A virtual address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vip {
    /// The address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
}

/// Whether mesh TLS is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsReadiness {
    /// [`TLS_READY`], [`TLS_NOT_READY`], or nothing when nobody looked yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// [`TlsReadiness::status`]: all its proxies do.
pub const TLS_READY: &str = "Ready";
/// [`TlsReadiness::status`]: some of them may not.
pub const TLS_NOT_READY: &str = "NotReady";

/// What became of a generator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GeneratorStatus {
    /// Which one.
    pub hostname_generator_ref: GeneratorRef,
    /// How it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A statement about something, in the form Kubernetes gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What is stated.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for programs.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl Condition {
    /// A statement that holds, or does not.
    pub fn new(r#type: &str, holds: bool, reason: &str, message: impl Into<String>) -> Self {
        Self {
            r#type: r#type.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// How many proxies serve a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataplaneProxies {
    /// Those that are connected.
    #[serde(skip_serializing_if = "is_zero")]
    pub connected: usize,
    /// Those whose workload can serve every port.
    #[serde(skip_serializing_if = "is_zero")]
    pub healthy: usize,
    /// All that it selects.
    #[serde(skip_serializing_if = "is_zero")]
    pub total: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A `MeshService` that a `MeshMultiZoneService` is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct MatchedService {
    /// Its name where it was made.
    pub name: String,
    /// Its namespace in Kubernetes.
    pub namespace: String,
    /// The zone that serves it.
    pub zone: String,
    /// Its mesh.
    pub mesh: String,
}

impl ServiceStatus {
    /// The status of `resource`; what nobody wrote or what does not decode is an empty one.
    pub fn of(resource: &Resource) -> Self {
        let status = resource.status.as_deref().unwrap_or(resource.kind().empty_status.as_bytes());
        serde_json::from_slice(status).unwrap_or_default()
    }

    /// The form in which it is stored.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a status holds nothing JSON cannot show")
    }

    /// The virtual addresses by which proxies of this zone call it.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.vips.iter().chain(&self.vip).filter_map(|vip| vip.ip.parse().ok())
    }

    /// The host names by which they do.
    pub fn hostnames(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(|address| address.hostname.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::model::{
        Kind, ResourceKey,
        kinds::{
            destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
            mesh_service,
        },
    };

    fn with_status(kind: &'static Kind, status: &Value) -> Resource {
        let mut resource = Resource::new(ResourceKey::new(kind, "default", "web"), DateTime::UNIX_EPOCH);
        resource.status = Some(status.to_string().into());
        resource
    }

    #[test]
    fn addresses_and_host_names_are_found_in_every_kind_of_service() {
        let check = |kind: &'static Kind, status: &Value| {
            let resource = with_status(kind, status);
            let read = ServiceStatus::of(&resource);
            assert_eq!(read.ips().collect::<Vec<_>>(), ["241.0.0.1".parse::<IpAddr>().unwrap()]);
            assert_eq!(read.hostnames().collect::<Vec<_>>(), ["web.mesh"]);
            let written: Value = serde_json::from_slice(&read.encode()).unwrap();
            assert_eq!(written, *status);
        };
        let address = json!({"hostname": "web.mesh", "origin": "HostnameGenerator",
            "hostnameGeneratorRef": {"coreName": "g"}});
        let many = json!({"addresses": [&address], "vips": [{"ip": "241.0.0.1"}], "tls": {"status": "Ready"},
            "dataplaneProxies": {"total": 1}, "newer": [1]});
        check(&mesh_service::KIND, &many);
        let matched = json!({"name": "web", "namespace": "", "zone": "east", "mesh": "default"});
        let many = json!({"addresses": [&address], "vips": [{"ip": "241.0.0.1"}], "meshServices": [matched]});
        check(&MESH_MULTI_ZONE_SERVICE, &many);
        check(&MESH_EXTERNAL_SERVICE, &json!({"addresses": [&address], "vip": {"ip": "241.0.0.1"}}));
    }

    #[test]
    fn what_nobody_wrote_is_shown_as_before() {
        for kind in [&mesh_service::KIND, &MESH_EXTERNAL_SERVICE, &MESH_MULTI_ZONE_SERVICE] {
            let resource = Resource::new(ResourceKey::new(kind, "default", "web"), DateTime::UNIX_EPOCH);
            assert_eq!(String::from_utf8(ServiceStatus::of(&resource).encode()).unwrap(), kind.empty_status);
        }
    }
}
