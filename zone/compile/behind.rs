//! What is behind the doors of the edges of a zone, the same for all of them: clusters and their endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::admission;
use crate::{
    generator::{Encoded, ResourceCollection, egress, envoy::endpoint::grouped, ingress, type_url},
    mesh::{Destination, Problem, topology::Endpoint},
};

/// In which direction an edge is passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Side {
    /// From other zones.
    #[default]
    Ingress,
    /// To other zones.
    Egress,
}

impl Side {
    fn origin(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Who is to be reached by a cluster, in the order in which they have its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterClaim {
    /// It is called as its service is, which is up to who serves it. The name of a part follows from the service and the
    /// tags, and somebody may call a service so.
    pub(super) at_will: bool,
    /// The mesh.
    pub(super) mesh: Arc<str>,
    /// What is called there.
    pub(super) destination: Destination,
    /// By which server name.
    pub(super) server_name: String,
}

/// Who wants a cluster name, with the endpoints of each.
#[derive(Debug, Default)]
struct Claimed {
    all: BTreeMap<ClusterClaim, Arc<Encoded>>,
    /// Whose are shared.
    holder: Option<ClusterClaim>,
}

impl Claimed {
    /// Whether others than one service want it. One may by several server names, which all lead to the same.
    fn is_contested(&self) -> bool {
        let Some(first) = self.all.keys().next() else { return false };
        let is_same = |claim: &ClusterClaim| {
            first.at_will && (&claim.mesh, &claim.destination) == (&first.mesh, &first.destination)
        };
        self.all.len() > 1 && !self.all.keys().all(is_same)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Behind {
    side: Side,
    shared: ResourceCollection,
    claimed: BTreeMap<String, Claimed>,
    /// What is not shared because Envoys would refuse it, by cluster.
    refused: BTreeMap<String, BTreeSet<Problem>>,
    /// Counts how often something else was refused, or became of a name that several want.
    generation: u64,
}

impl Behind {
    /// Nothing yet, in this direction.
    pub(super) fn of(side: Side) -> Self {
        Self { side, ..Self::default() }
    }

    /// In which direction that is.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Clusters and endpoints.
    pub(super) fn shared(&self) -> &ResourceCollection {
        &self.shared
    }

    /// What is not shared because Envoys would refuse it. Who had an earlier one keeps that.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Problem> {
        self.refused.values().flatten()
    }

    /// Counts how often proxies have to be told something else about it than endpoints.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// These are the endpoints of who wants to be reached by `cluster`; says whether that makes a difference, be it only to
    /// what is told.
    pub(super) fn put(&mut self, cluster: &str, claim: ClusterClaim, endpoints: &[Endpoint]) -> bool {
        let message = grouped(cluster, endpoints);
        let encoded = Arc::new(Encoded::new(cluster, type_url::ENDPOINT, self.side.origin(), &message));
        let claimed = self.claimed.entry(cluster.to_owned()).or_default();
        let before = claimed.all.insert(claim, Arc::clone(&encoded));
        let differs = before.is_none_or(|before| before.version != encoded.version);
        let is_contested = differs && claimed.is_contested();
        self.generation += u64::from(is_contested);
        self.settle(cluster) | is_contested
    }

    /// It is not to be reached any more.
    pub(super) fn take_out(&mut self, cluster: &str, claim: &ClusterClaim) {
        let Some(claimed) = self.claimed.get_mut(cluster) else { return };
        self.generation += u64::from(claimed.is_contested());
        claimed.all.remove(claim);
        if !claimed.all.is_empty() {
            self.settle(cluster);
            return;
        }
        self.claimed.remove(cluster);
        self.shared.remove(type_url::CLUSTER, cluster);
        self.shared.remove(type_url::ENDPOINT, cluster);
        self.refused.remove(cluster);
    }

    /// Whether who calls by `cluster` gets to those who `claim` it.
    pub(super) fn leads_to(&self, cluster: &str, claim: impl FnOnce() -> ClusterClaim) -> bool {
        let Some(claimed) = self.claimed.get(cluster) else { return false };
        if claimed.all.len() == 1 {
            return true;
        }
        let first = claimed.all.values().next();
        first.zip(claimed.all.get(&claim())).is_some_and(|(first, own)| first.version == own.version)
    }

    /// Shares what the first of those has who want a name, as far as Envoys take it; says whether that makes a difference.
    fn settle(&mut self, cluster: &str) -> bool {
        let Some(claimed) = self.claimed.get_mut(cluster) else { return false };
        let Some((first, encoded)) = claimed.all.first_key_value() else { return false };
        let encoded = Arc::clone(encoded);
        if claimed.holder.as_ref() != Some(first) {
            // An earlier one of its own stays where a new one is refused, and none of another's.
            self.shared.remove(type_url::ENDPOINT, cluster);
            claimed.holder = Some(first.clone());
        }
        let (mut differs, mut refused) = (false, BTreeSet::new());
        if self.shared.get(type_url::CLUSTER, cluster).is_none() {
            let made = match self.side {
                Side::Ingress => ingress::cluster(cluster),
                Side::Egress => egress::cluster(cluster),
            };
            if let Some(made) = admission::admitted(made.encode(), &mut refused) {
                self.shared.insert(made);
            }
        }
        let known = self.shared.get(type_url::ENDPOINT, cluster);
        if known.is_none_or(|known| known.version != encoded.version)
            && let Some(encoded) = admission::admitted(encoded, &mut refused)
        {
            self.shared.insert(encoded);
            differs = true;
        }
        let before = match refused.is_empty() {
            true => self.refused.remove(cluster).unwrap_or_default(),
            false => self.refused.insert(cluster.to_owned(), refused.clone()).unwrap_or_default(),
        };
        if before != refused {
            // Each proxy tells it.
            self.generation += 1;
            differs = true;
        }
        differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(at_will: bool, service: &str) -> ClusterClaim {
        let destination = Destination::Service(service.into());
        ClusterClaim {
            at_will,
            mesh: "demo".into(),
            destination,
            server_name: format!("{service}{{mesh=demo}}"),
        }
    }

    fn endpoint(address: u8) -> Endpoint {
        Endpoint {
            address: [10, 0, 0, address].into(),
            port: 80,
            weight: 1,
            tags: BTreeMap::new(),
            labels: common::model::Labels::new(),
            locality: crate::mesh::topology::Locality::default(),
            remote: true,
            by_identifier: false,
        }
    }

    fn shared(behind: &Behind) -> Option<Vec<u8>> {
        behind.shared().get(type_url::ENDPOINT, "c").map(|endpoints| endpoints.value.to_vec())
    }

    #[test]
    fn a_part_has_its_cluster_whoever_is_called_so_and_goes() {
        let (part, thief) = (claim(false, "web"), claim(true, "c"));
        let mut alone = Behind::of(Side::Egress);
        alone.put("c", part.clone(), &[endpoint(1)]);
        let expected = shared(&alone);
        for part_first in [true, false] {
            let mut behind = Behind::of(Side::Egress);
            let mut all = [(&part, endpoint(1)), (&thief, endpoint(2))];
            if !part_first {
                all.reverse();
            }
            for (claim, endpoint) in all {
                behind.put("c", claim.clone(), &[endpoint]);
            }
            assert_eq!(shared(&behind), expected);
            assert!(behind.leads_to("c", || part.clone()) && !behind.leads_to("c", || thief.clone()));
            // Neither by another address nor by going does it change anything.
            let generation = behind.generation();
            behind.put("c", thief.clone(), &[endpoint(3)]);
            assert_eq!(shared(&behind), expected);
            assert!(behind.generation() > generation, "what is told of it may differ");
            behind.take_out("c", &thief);
            assert_eq!(shared(&behind), expected);
            behind.put("c", thief.clone(), &[endpoint(2)]);
            behind.take_out("c", &part);
            assert!(shared(&behind).is_some() && shared(&behind) != expected);
            assert!(behind.leads_to("c", || thief.clone()));
            behind.take_out("c", &thief);
            assert_eq!(shared(&behind), None);
        }
    }
}
