//! Where the ingress of this mesh in another zone is reached.

use std::{net::IpAddr, sync::Arc};

use common::model::{Resource, kinds::mesh_zone_address::MeshZoneAddress, labels};

use super::{
    Hosts,
    problem::{Problem, Subject},
};

/// An address at which other zones reach the services that this mesh has in one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneAddress {
    /// The zone.
    pub zone: String,
    /// Address and port.
    pub door: (IpAddr, u32),
}

impl ZoneAddress {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode, no zone is named, or the host name is not resolved: others then
    /// have to do with what else is known of the zone.
    pub fn read(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let spec = resource.spec::<MeshZoneAddress>().map_err(|error| problem(error.to_string()))?;
        let zone = resource.label(labels::ZONE).filter(|zone| !zone.is_empty());
        let zone = zone.ok_or_else(|| problem(format!("it names no zone in the label {}", labels::ZONE)))?;
        let unresolved = |host| problem(format!("the host name {host:?} is not resolved"));
        let address = hosts.resolve(&spec.address).map_err(unresolved)?;
        Ok(Self { zone: zone.to_owned(), door: (address, spec.port) })
    }
}
