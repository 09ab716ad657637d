//! Server names by which the ports of a service resource are reached across zones.

use serde::Deserialize;
use serde_json::Value;

use super::{PortsIn, Resource, labels};

/// The server name of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName {
    /// The port.
    pub port: u32,
    /// `sni.<short>.<mesh>[.<zone>[.<namespace>]].<name>.<section>`.
    pub sni: String,
}

#[derive(Deserialize)]
struct SniPorts {
    #[serde(default)]
    ports: Vec<SniPort>,
    #[serde(rename = "match")]
    external: Option<SniPort>,
}

#[derive(Deserialize)]
struct SniPort {
    port: u32,
    #[serde(default)]
    name: Value,
}

/// The server names of a service; none for other kinds.
pub fn of(resource: &Resource) -> Vec<PortName> {
    let kind = resource.kind();
    let Some(place) = kind.service else { return Vec::new() };
    let Ok(spec) = serde_json::from_slice::<SniPorts>(&resource.spec) else { return Vec::new() };
    let ports = match place {
        PortsIn::Ports => spec.ports,
        PortsIn::Match => Vec::from_iter(spec.external),
    };
    let zone = resource.label(labels::ZONE);
    let namespace = resource.label(labels::NAMESPACE).filter(|_| zone.is_some());
    let names = ports.into_iter().map(|port| {
        let number = port.port.to_string();
        let section = port.name.as_str().filter(|n| !n.is_empty()).unwrap_or(&number);
        let mut parts = vec!["sni", kind.short, resource.mesh()];
        parts.extend(zone);
        parts.extend(namespace);
        parts.extend([resource.display_name(), section]);
        PortName { port: port.port, sni: parts.join(".") }
    });
    names.collect()
}
