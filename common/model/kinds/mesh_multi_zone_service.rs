//! One service made of the services of several zones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{address::check_port, mesh_service::Port};
use crate::model::{FieldPath, Resource, Spec, SpecError, Violations, decode};

/// What a port may speak.
const PROTOCOLS: [&str; 5] = ["grpc", "http", "http2", "kafka", "tcp"];

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeshMultiZoneService {
    /// Of which services it is made.
    pub selector: MeshServiceSelector,
    /// The ports of them by which it is called.
    #[serde(default, deserialize_with = "decode::list")]
    pub ports: Vec<Port>,
}

/// Services of zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceSelector {
    /// By their labels.
    pub mesh_service: MeshServiceLabels,
}

/// Labels to be had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceLabels {
    /// All of these.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub match_labels: BTreeMap<String, String>,
}

impl MeshMultiZoneService {
    /// The labels of the services it is made of.
    pub fn wanted(&self) -> &BTreeMap<String, String> {
        &self.selector.mesh_service.match_labels
    }

    /// Whether `service`, a `MeshService` of its mesh, is one of them. Without any label none is.
    pub fn selects(&self, service: &Resource) -> bool {
        let has = |(key, value): (&String, &String)| service.labels.get(key) == Some(value);
        !self.wanted().is_empty() && self.wanted().iter().all(has)
    }
}

impl Spec for MeshMultiZoneService {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("spec");
        let labels = path.field("selector").field("meshService").field("matchLabels");
        violations.check(self.wanted().is_empty(), labels, "cannot be empty");
        violations.check(self.ports.is_empty(), path.field("ports"), "cannot be empty");
        for (i, port) in self.ports.iter().enumerate() {
            let path = path.field("ports").index(i);
            violations.check(port.name.as_deref() == Some(""), path.field("name"), "must not be empty");
            check_port(port.port, path.field("port"), &mut violations);
            let known = PROTOCOLS.contains(&port.app_protocol.as_str());
            let reason = || format!("appProtocol must be one of: {}", PROTOCOLS.join(", "));
            violations.check(!known, path.field("appProtocol"), reason());
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> MeshMultiZoneService {
        MeshMultiZoneService::decode(spec.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn services_and_ports_have_to_be_named() {
        let check = |spec: &Value, wrong: &[&str]| {
            let violations = read(spec).validate();
            assert_eq!(violations.iter().map(|v| v.field.as_str()).collect::<Vec<_>>(), wrong, "{spec}");
        };
        let selector = json!({"meshService": {"matchLabels": {"kuma.io/display-name": "web"}}});
        check(&json!({"selector": selector, "ports": [{"port": 80, "appProtocol": "http"}]}), &[]);
        check(
            &json!({"selector": {"meshService": {}}, "ports": []}),
            &["spec.selector.meshService.matchLabels", "spec.ports"],
        );
        check(
            &json!({"selector": selector, "ports": [{"name": "", "port": 70000, "appProtocol": "udp"}]}),
            &["spec.ports[0].name", "spec.ports[0].port", "spec.ports[0].appProtocol"],
        );
    }

    #[test]
    fn a_port_speaks_bytes_unless_it_says_otherwise() {
        let spec =
            read(&json!({"selector": {"meshService": {"matchLabels": {"a": "b"}}}, "ports": [{"port": 80}]}));
        let stored: Value = serde_json::from_slice(&spec.encode()).unwrap();
        assert_eq!(stored["ports"], json!([{"port": 80, "appProtocol": "tcp"}]));
    }
}
