//! Endpoints alone. They change most often, so they are replaced in a finished configuration, without
//! generating anything else.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use common::model::labels;

use super::{
    draft::EndpointsDraft,
    interner::Interner,
    resource_set::{ResourceSet, type_url},
};
use crate::mesh::{Topology, topology::Difference};

/// On which services a configuration depends, and where the endpoints of each of its clusters come from.
#[derive(Clone, Debug, Default)]
pub struct Assignments {
    clusters: BTreeMap<Arc<str>, Members>,
    /// Services that decided something although no cluster leads there.
    consulted: BTreeSet<String>,
}

/// Whose endpoints a cluster has.
#[derive(Clone, Debug)]
enum Members {
    /// Those of the service of its name.
    Service,
    /// Those of the service that is a resource and gave it its name.
    Destination,
    /// Those of a service that have these tags.
    Subset(BTreeMap<String, String>),
}

impl Assignments {
    /// Adds a cluster whose endpoints have these tags; none for those of a service that is a resource.
    pub(super) fn add(&mut self, cluster: &Arc<str>, tags: &BTreeMap<String, String>) {
        let members = match tags.len() {
            0 => Members::Destination,
            1 => Members::Service,
            _ => Members::Subset(tags.clone()),
        };
        self.clusters.insert(Arc::clone(cluster), members);
    }

    /// Adds what was consulted, once all clusters are known.
    pub(super) fn consulted(&mut self, services: BTreeSet<String>) {
        let others = services.into_iter().filter(|service| self.of(service).next().is_none());
        self.consulted = others.collect();
    }

    /// What of these differences the configuration depends on; `None` for nothing.
    pub fn effect(&self, differences: &BTreeMap<String, Difference>) -> Option<Difference> {
        let visible = differences.iter().filter(|(service, difference)| {
            self.of(service).next().is_some()
                || (**difference == Difference::Character && self.consulted.contains(*service))
        });
        visible.map(|(_, difference)| *difference).max()
    }

    /// `set` with the endpoints that services that differ have in `topology`; `None` when it has them.
    pub fn renewed(
        &self,
        set: &ResourceSet,
        differences: &BTreeMap<String, Difference>,
        topology: &Topology,
        interner: &Interner,
    ) -> Option<ResourceSet> {
        let mut renewed: Option<ResourceSet> = None;
        for service in differences.keys() {
            for (cluster, members) in self.of(service) {
                let endpoints = members.endpoints(service, topology).encoded(cluster, interner);
                let known = set.get(type_url::ENDPOINT, cluster);
                if known.is_none_or(|known| known.version != endpoints.version) {
                    renewed.get_or_insert_with(|| set.clone()).insert(endpoints);
                }
            }
        }
        renewed
    }

    /// The clusters with endpoints of `service`. A subset of them has a cluster named after the service and
    /// a digest.
    fn of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a Members)> {
        let subsets = format!("{service}-");
        let own = self.clusters.get_key_value(service);
        let after = self.clusters.range::<str, _>((Bound::Included(&*subsets), Bound::Unbounded));
        let named = move |(cluster, _): &(&Arc<str>, &Members)| cluster.starts_with(&subsets);
        let of_service = move |(_, members): &(&Arc<str>, &Members)| match members {
            Members::Subset(tags) => tags.get(labels::TAG_SERVICE).is_some_and(|name| name == service),
            Members::Service | Members::Destination => false,
        };
        own.into_iter().chain(after.take_while(named).filter(of_service))
    }
}

impl Members {
    fn endpoints(&self, service: &str, topology: &Topology) -> EndpointsDraft {
        let of = |name: &str| [(labels::TAG_SERVICE.to_owned(), name.to_owned())].into();
        match self {
            Self::Service => {
                EndpointsDraft::Selected { service: topology.service(service), tags: of(service) }
            }
            Self::Destination => {
                EndpointsDraft::Selected { service: topology.destination(service), tags: BTreeMap::new() }
            }
            Self::Subset(tags) => {
                EndpointsDraft::Selected { service: topology.service(service), tags: tags.clone() }
            }
        }
    }
}
