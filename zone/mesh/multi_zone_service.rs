//! A service made of those of several zones, as the generator sees it.

use std::{collections::BTreeMap, sync::Arc};

use common::model::{
    Resource,
    kinds::{mesh_multi_zone_service as kind, mesh_service::Port},
    kri::Kri,
};

use super::{
    Destination, MeshServices, ZoneService,
    problem::{Problem, Subject},
    referable::{Referable, Referables},
};
use crate::share::{IdentitySize, PartsShare};

/// A service of several zones.
#[derive(Clone, Debug)]
pub struct MultiZoneService {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: kind::MeshMultiZoneService,
    /// Its identifier, without section.
    pub kri: Kri,
}

/// The services of several zones in a mesh.
pub type MultiZoneServices = Referables<MultiZoneService>;

impl MultiZoneService {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let spec =
            resource.spec::<kind::MeshMultiZoneService>().map_err(|error| problem(error.to_string()))?;
        let kri = Kri::of(resource).ok_or_else(|| problem("the kind has no identifier".to_owned()))?;
        Ok(Self { resource: Arc::clone(resource), spec, kri })
    }

    /// Whether `other`, a later version of it, differs in nothing but what zones say of it.
    pub(super) fn means_the_same(&self, other: &Self) -> bool {
        let meaning = |s: &Self| (s.kri.clone(), s.spec.clone(), s.resource.labels.clone());
        meaning(self) == meaning(other)
    }

    /// The services it is made of, by name: all of this zone, and so many of each other one, with so many identities.
    pub fn parts<'a>(&'a self, among: &'a MeshServices) -> impl Iterator<Item = &'a Arc<ZoneService>> {
        let mut of_zones: BTreeMap<&str, PartsShare> = BTreeMap::new();
        among.labelled(self.spec.wanted()).filter(move |part: &&'a Arc<ZoneService>| {
            let Some(zone) = &part.remote_zone else { return true };
            of_zones.entry(zone).or_default().takes(IdentitySize::of(&part.spec))
        })
    }

    /// What is called by one port.
    pub fn callee(&self, port: &Port) -> Destination {
        Destination::MultiZone(Arc::clone(&self.resource.key.name), port.port)
    }

    /// What is called by its ports.
    pub(super) fn callees(&self) -> impl Iterator<Item = Destination> {
        self.spec.ports.iter().map(|port| self.callee(port))
    }

    /// The name of the cluster of one port.
    pub fn destination(&self, port: &Port) -> String {
        let Kri { mesh, zone, namespace, name, short, .. } = &self.kri;
        format!("{mesh}_{name}_{namespace}_{zone}_{short}_{}", port.port)
    }

    /// The port of this number.
    pub fn numbered(&self, number: u32) -> Option<&Port> {
        self.spec.ports.iter().find(|port| port.port == number)
    }
}

impl Referable for MultiZoneService {
    fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    fn authored_name(&self) -> &str {
        &self.kri.name
    }

    fn is_elsewhere(&self) -> bool {
        false
    }

    fn ports(&self) -> &[Port] {
        &self.spec.ports
    }
}
