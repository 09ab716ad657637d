//! A zone egress as the generator sees it.

use std::{net::IpAddr, sync::Arc};

use common::{
    model::{Origin, Resource},
    proto::kuma::mesh::v1alpha1 as proto,
};

use super::{
    Hosts,
    problem::{Problem, Subject, decode},
};

/// The proxy through which a zone reaches other zones and what is outside the mesh.
#[derive(Clone, Debug)]
pub struct ZoneEgress {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Where it listens, and its clients connect to, when its address is resolved.
    pub listen: Option<IpAddr>,
    /// On which port.
    pub port: u32,
    /// The zone its spec names.
    zone: String,
    /// What was left out.
    pub problems: Vec<Problem>,
}

impl ZoneEgress {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Self, Problem> {
        let spec = decode::<proto::ZoneEgress>(resource)?;
        let networking = spec.networking.unwrap_or_default();
        let mut problems = Vec::new();
        let listen = hosts.resolve(&networking.address).map_err(|host| {
            let reason = format!("the address {host:?} to listen on is not resolved");
            problems.push(Problem { subject: Subject::of(resource), reason });
        });
        Ok(Self {
            resource: Arc::clone(resource),
            listen: listen.ok(),
            port: networking.port,
            zone: spec.zone,
            problems,
        })
    }

    /// Core name.
    pub fn name(&self) -> &str {
        self.resource.name()
    }

    /// The zone it serves: its owner, or for one that was synced the one its spec names.
    pub fn zone(&self) -> Option<&str> {
        match (&self.resource.origin, self.zone.as_str()) {
            (Origin::Zone(owner), _) => Some(owner),
            (Origin::Global, "") => None,
            (Origin::Global, named) => Some(named),
        }
    }

    /// Whether it serves another zone than `zone`.
    pub fn is_remote(&self, zone: &str) -> bool {
        self.zone().is_some_and(|own| own != zone)
    }

    /// Where proxies of its zone connect to.
    pub fn door(&self) -> Option<(IpAddr, u32)> {
        self.listen.map(|address| (address, self.port))
    }
}
