//! Addresses that were written as host names, resolved here so that everything else stays pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use common::{
    model::{
        Resource, ResourceKey,
        kinds::{dataplane, dataplane_networking, mesh_zone_address, zone_egress, zone_ingress},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    store::index::{Index, IndexReader},
};
use futures::{StreamExt, stream};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::mesh::Hosts;

/// How often names are asked for again.
const REFRESH: Duration = Duration::from_secs(30);
/// How long the resolver of the machine may take for one.
const ANSWER: Duration = Duration::from_secs(5);
/// Names asked for at once.
const CONCURRENT: usize = 16;

/// Publishes what the host names in use stand for.
pub(super) struct Resolver {
    reader: IndexReader,
    index: Arc<Index>,
    names: BTreeMap<ResourceKey, BTreeSet<String>>,
    hosts: watch::Sender<Hosts>,
}

impl Resolver {
    /// Nothing resolved yet.
    pub(super) fn new(reader: IndexReader) -> Self {
        let index = Arc::new(Index::empty(reader.current().store));
        Self { reader, index, names: BTreeMap::new(), hosts: watch::Sender::default() }
    }

    /// What is known, now and later.
    pub(super) fn subscribe(&self) -> watch::Receiver<Hosts> {
        self.hosts.subscribe()
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut refresh = Instant::now();
        loop {
            self.follow();
            let wanted: BTreeSet<&String> = self.names.values().flatten().collect();
            let due = refresh <= Instant::now();
            let known = self.hosts.borrow().clone();
            let ask = wanted.iter().filter(|name| due || !known.0.contains_key(**name));
            let resolved = resolve(ask.map(|name| (*name).clone()).collect()).await;
            if due {
                refresh = Instant::now() + REFRESH;
            }
            // A name that cannot be resolved just now keeps its address.
            let mut hosts = known.clone();
            hosts.0.extend(resolved);
            hosts.0.retain(|name, _| wanted.contains(name));
            let nobody_asks = wanted.is_empty();
            if hosts != known {
                self.hosts.send_replace(hosts);
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                () = sleep_until(refresh), if !nobody_asks => {}
            }
        }
    }

    fn follow(&mut self) {
        let index = self.reader.latest();
        for key in index.changed_since(&self.index) {
            let names = index.get(&key).map(names).unwrap_or_default();
            if names.is_empty() {
                self.names.remove(&key);
            } else {
                self.names.insert(key, names);
            }
        }
        self.index = index;
    }
}

/// The host names a resource has in places where an address belongs.
fn names(resource: &Arc<Resource>) -> BTreeSet<String> {
    let mut addresses = Vec::new();
    if resource.kind() == &dataplane::KIND
        && let Ok(networking) = dataplane_networking::networking(&resource.spec)
    {
        addresses.extend([networking.address, networking.advertised_address]);
        for inbound in networking.inbound {
            addresses.extend([inbound.address, inbound.service_address]);
        }
        addresses.extend(networking.listeners.into_iter().map(|listener| listener.address));
    } else if resource.kind() == &mesh_zone_address::KIND
        && let Ok(spec) = resource.spec::<mesh_zone_address::MeshZoneAddress>()
    {
        addresses.push(spec.address.clone());
    } else if resource.kind() == &zone_ingress::KIND
        && let Ok(spec) = resource.spec::<proto::ZoneIngress>()
        && let Some(networking) = spec.networking
    {
        addresses.extend([networking.address, networking.advertised_address]);
    } else if resource.kind() == &zone_egress::KIND
        && let Ok(spec) = resource.spec::<proto::ZoneEgress>()
        && let Some(networking) = spec.networking
    {
        addresses.push(networking.address);
    }
    addresses.into_iter().filter(|a| !a.is_empty() && a.parse::<IpAddr>().is_err()).collect()
}

async fn resolve(names: Vec<String>) -> Vec<(String, IpAddr)> {
    let ask = |name: String| async move {
        let found = match timeout(ANSWER, tokio::net::lookup_host((name.as_str(), 0))).await {
            // The smallest, so that the order of answers does not matter; IPv4 sorts before IPv6.
            Ok(Ok(addresses)) => addresses.map(|a| a.ip()).min(),
            Ok(Err(error)) => {
                tracing::warn!(name, %error, "cannot resolve a host name");
                None
            }
            Err(_) => {
                tracing::warn!(name, "resolving a host name takes too long");
                None
            }
        };
        found.map(|address| (name, address))
    };
    stream::iter(names)
        .map(ask)
        .buffer_unordered(CONCURRENT)
        .filter_map(|found| async { found })
        .collect()
        .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::document::Document;

    use super::*;

    #[test]
    fn only_what_is_no_address_is_a_name() {
        let check = |yaml: &str, expected: &[&str]| {
            let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
            let resource = Arc::new(document.into_resource(chrono::DateTime::UNIX_EPOCH));
            assert_eq!(names(&resource).into_iter().collect::<Vec<_>>(), expected);
        };
        check(
            "{type: Dataplane, name: a, networking: {address: web.local, advertisedAddress: '::1', \
             inbound: [{port: 1, address: 127.0.0.1, serviceAddress: app.local}]}}",
            &["app.local", "web.local"],
        );
        check(
            "{type: ZoneIngress, name: a, networking: {address: 10.0.0.1, advertisedAddress: edge}}",
            &["edge"],
        );
        check("{type: ZoneEgress, name: a, networking: {address: out.local, port: 1}}", &["out.local"]);
        check("{type: Mesh, name: a}", &[]);
    }
}
