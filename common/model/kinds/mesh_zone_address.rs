//! Where the ingress of one mesh in one zone is reached from other zones.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use super::address;
use crate::model::{
    FieldPath, Kind, Spec, SpecError, Violations, decode,
    shape::{
        Member,
        Shape::{self, Object, Text},
    },
};

static SHAPE: Shape =
    Object(&[Member::required("address", &Text), Member::required("port", &Shape::Integer)]);

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshZoneAddress", "meshzoneaddresses")
    .flow(44)
    .named("meshzoneaddress", "mza")
    .shaped(&SHAPE)
    .typed::<MeshZoneAddress>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshZoneAddress {
    /// IP address or host name.
    #[serde(default)]
    pub address: String,
    /// Port; 0 for what is none.
    #[serde(default, deserialize_with = "port")]
    pub port: u32,
}

/// A number that is no port, whatever number it is, is said to be none together with what else is wrong.
fn port<'de, D: Deserializer<'de>>(number: D) -> Result<u32, D::Error> {
    Ok(u32::try_from(i64::deserialize(number)?).unwrap_or_default())
}

impl Spec for MeshZoneAddress {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("spec");
        let at = path.field("address");
        if self.address.is_empty() {
            violations.add(at, "must not be empty");
        } else if self.address.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
            violations.add(at, "must not be 0.0.0.0 or ::");
        } else if !address::is_host_or_ip(&self.address) {
            violations.add(at, "must be a valid IP address or domain name");
        }
        let port = (1..=65535).contains(&self.port);
        violations.check(!port, path.field("port"), "port must be a valid (1-65535)");
        violations
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_address_and_a_port_have_to_be_there() {
        let check = |spec: Value, wrong: &[&str]| {
            let read = MeshZoneAddress::decode(spec.to_string().as_bytes()).unwrap();
            let violations = read.validate();
            assert_eq!(
                violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect::<Vec<_>>(),
                wrong,
                "{spec}"
            );
        };
        check(json!({"address": "edge.example.com", "port": 10001}), &[]);
        check(json!({"address": "fd00::1", "port": 65535}), &[]);
        let port = "spec.port: port must be a valid (1-65535)";
        check(json!({"address": "", "port": 0}), &["spec.address: must not be empty", port]);
        check(json!({}), &["spec.address: must not be empty", port]);
        check(json!({"address": "edge", "port": 70000}), &[port]);
        check(json!({"address": "edge", "port": -1}), &[port]);
        check(json!({"address": "::", "port": -1}), &["spec.address: must not be 0.0.0.0 or ::", port]);
        let no_host = "spec.address: must be a valid IP address or domain name";
        check(json!({"address": "http://10.0.0.1:10001", "port": 10001}), &[no_host]);
    }
}
