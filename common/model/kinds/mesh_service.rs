//! A service of one zone: which dataplanes serve it, and on which ports.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{address::check_port, tags};
use crate::model::{FieldPath, Kind, PortsIn, Referent, Spec, SpecError, Violations, decode};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshService", "meshservices")
    .flow(44)
    .named("meshservice", "msvc")
    .with_status()
    .empty_status(r#"{"tls":{},"dataplaneProxies":{}}"#)
    .referent(Referent::Ports)
    .service(PortsIn::Ports)
    .caveat(|spec| {
        let service = MeshService::decode(spec).ok()?;
        let mut protocols = service.ports.iter().map(|port| port.app_protocol.as_str());
        protocols.any(|protocol| !protocol.is_empty() && !tags::is_protocol(protocol)).then_some(
            "an appProtocol in spec.ports is none of grpc, http, http2, kafka and tcp, so nothing is known of what is spoken there",
        )
    })
    .typed::<MeshService>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshService {
    /// Whether anything serves it; kept by the control plane.
    pub state: ServiceState,
    /// Who serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Where it listens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// How its dataplanes identify themselves; kept by the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<ServiceIdentity>,
}

/// Whether a service has a healthy dataplane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceState {
    /// At least one.
    Available,
    /// None.
    #[default]
    Unavailable,
}

/// Which dataplanes serve a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Those with an inbound that has these tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dataplane_tags: BTreeMap<String, String>,
    /// Those with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_labels: Option<Value>,
    /// This one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_ref: Option<DataplaneRef>,
}

/// One dataplane by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataplaneRef {
    /// Its name.
    pub name: String,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name; the number when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What clients connect to.
    pub port: u32,
    /// Number or name of the inbound behind it; the port when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<Value>,
    /// What is spoken.
    #[serde(default = "tcp")]
    pub app_protocol: String,
}

fn tcp() -> String {
    "tcp".to_owned()
}

/// One way the dataplanes of a service identify themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceIdentity {
    /// `ServiceTag` or `SpiffeID`.
    pub r#type: String,
    /// The identity.
    pub value: String,
}

impl MeshService {
    /// The encoded `spec` that somebody writes, with what the control plane has said in the one it replaces: state
    /// and identities follow from proxies, and without them other zones would not know whom to trust meanwhile.
    pub fn keeping(spec: &[u8], replaced: &[u8]) -> Vec<u8> {
        match (Self::decode(spec), Self::decode(replaced)) {
            (Ok(new), Ok(old)) => Self { state: old.state, identities: old.identities, ..new }.encode(),
            _ => spec.to_vec(),
        }
    }
}

impl Spec for MeshService {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a spec holds nothing JSON cannot show")
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("spec");
        if let Some(selector) = &self.selector {
            let Selector { dataplane_tags, dataplane_labels, dataplane_ref } = selector;
            let said = [!dataplane_tags.is_empty(), dataplane_labels.is_some(), dataplane_ref.is_some()];
            violations.check(
                said.into_iter().filter(|said| *said).count() > 1,
                path.field("selector"),
                "must specify only one of: dataplaneTags, dataplaneRef, or dataplaneLabels",
            );
        }
        let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (i, port) in self.ports.iter().enumerate() {
            let path = path.field("ports").index(i);
            check_port(port.port, path.field("port"), &mut violations);
            violations.check(!numbers.insert(port.port), path.field("port"), "duplicate port");
            let name = port.name.clone().unwrap_or_else(|| port.port.to_string());
            violations.check(!names.insert(name), path.field("name"), "duplicate name");
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn proxies_are_selected_in_one_way() {
        let check = |selector: Value, wrong: &[&str]| {
            let spec = json!({"selector": selector, "ports": [{"port": 80}]});
            let violations = MeshService::decode(spec.to_string().as_bytes()).unwrap().validate();
            assert_eq!(violations.iter().map(|v| v.field.as_str()).collect::<Vec<_>>(), wrong, "{spec}");
        };
        check(json!({}), &[]);
        check(json!({"dataplaneTags": {"a": "b"}}), &[]);
        check(json!({"dataplaneTags": {"a": "b"}, "dataplaneRef": {"name": "c"}}), &["spec.selector"]);
    }

    #[test]
    fn a_protocol_nobody_knows_is_told() {
        let is_told = |protocol: &str| {
            let spec = json!({"ports": [{"port": 80, "appProtocol": protocol}]});
            (KIND.caveat)(spec.to_string().as_bytes()).is_some()
        };
        assert_eq!(["tcp", "grpc", "", "smtp"].map(is_told), [false, false, false, true]);
    }

    #[test]
    fn what_follows_from_proxies_is_kept() {
        let told =
            br#"{"state":"Available","ports":[{"port":1}],"identities":[{"type":"ServiceTag","value":"a"}]}"#;
        let kept = MeshService::keeping(br#"{"ports":[{"port":2}],"identities":[]}"#, told);
        let kept = MeshService::decode(&kept).unwrap();
        assert_eq!((kept.state, kept.ports[0].port), (ServiceState::Available, 2));
        assert_eq!(kept.identities[0].value, "a");
    }
}
