//! Which `MeshService`s the tags of proxies ask for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use chrono::{DateTime, Duration, SecondsFormat, Utc};
use common::model::{
    Labels, Origin, Resource, ResourceKey, Spec,
    kinds::{
        mesh,
        mesh_service::{self, MeshService, Port, Selector},
    },
    labels, names,
};
use sha2::{Digest, Sha256};

use super::population::ServingProxy;
use crate::mesh::Protocol;

/// What is to become of the service of a tag.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServiceOutcome {
    /// Nothing: it is somebody's own, or it does not exist and need not.
    Leave,
    /// It has to look so.
    Keep(Box<Resource>),
    /// Nobody serves it for so long that it goes.
    Delete,
}

/// A tag, and what is known of it.
pub(super) struct ServiceTag<'a> {
    /// The zone.
    pub(super) zone: &'a str,
    /// The mesh.
    pub(super) mesh: &'a str,
    /// The value of the service tag.
    pub(super) service: &'a str,
    /// Who has it, the oldest first.
    pub(super) proxies: &'a [&'a ServingProxy],
    /// The service that has its name.
    pub(super) existing: Option<&'a Resource>,
}

impl ServiceTag<'_> {
    /// What is to become of its service, which stays for `grace` after its last proxy.
    pub(super) fn outcome(&self, now: DateTime<Utc>, grace: Duration) -> ServiceOutcome {
        if self.existing.is_some_and(|existing| !is_generated(existing)) {
            return ServiceOutcome::Leave;
        }
        let known = self.existing.and_then(|existing| existing.spec::<MeshService>().ok());
        match (self.existing, self.ports(known.as_ref())) {
            (None, None) => ServiceOutcome::Leave,
            (None, Some(ports)) => {
                ServiceOutcome::Keep(Box::new(self.labelled(self.fresh(now), ports, None)))
            }
            (Some(existing), Some(ports)) => {
                let mut kept = self.labelled(existing.clone(), ports, known);
                kept.labels.remove(labels::DELETION_GRACE_PERIOD_STARTED_AT);
                ServiceOutcome::Keep(Box::new(kept))
            }
            (Some(existing), None) => match going_since(existing) {
                Some(since) if since.checked_add_signed(grace).is_some_and(|end| end <= now) => {
                    ServiceOutcome::Delete
                }
                Some(_) => ServiceOutcome::Keep(Box::new(existing.clone())),
                None => {
                    let since = now.to_rfc3339_opts(SecondsFormat::AutoSi, true);
                    let going = existing.clone().with_label(labels::DELETION_GRACE_PERIOD_STARTED_AT, &since);
                    ServiceOutcome::Keep(Box::new(going))
                }
            },
        }
    }

    /// The ports that have to be there. Where proxies disagree, those it has stay for as long as one of them has
    /// them too; else the oldest decides.
    fn ports(&self, known: Option<&MeshService>) -> Option<Vec<Port>> {
        let mut wanted = self.proxies.iter().map(|proxy| ports_of(proxy, self.service));
        // What comes from global is called by a hash: a tag of that form would be in the way of a service of another zone.
        let may_be_called_so =
            labels::dns_1035_problem(self.service).is_none() && !names::is_hashed(self.service);
        let first = wanted.next().filter(|_| may_be_called_so)?;
        let stays = |known: &&MeshService| known.ports == first || wanted.any(|ports| ports == known.ports);
        Some(known.filter(stays).map_or_else(|| first.clone(), |known| known.ports.clone()))
    }

    fn fresh(&self, now: DateTime<Utc>) -> Resource {
        let mut fresh = Resource::new(ResourceKey::new(&mesh_service::KIND, self.mesh, self.service), now);
        fresh.origin = Origin::Zone(self.zone.into());
        fresh.owner = Some(ResourceKey::global(&mesh::KIND, self.mesh));
        for (key, value) in [
            (labels::MESH, self.mesh),
            (labels::DISPLAY_NAME, self.service),
            (labels::MANAGED_BY, labels::MANAGED_BY_SERVICE_GENERATOR),
            (labels::ENV, labels::ENV_UNIVERSAL),
            (labels::ZONE, self.zone),
            (labels::ORIGIN, labels::ORIGIN_ZONE),
        ] {
            fresh.labels.insert(key, value);
        }
        fresh
    }

    fn labelled(&self, mut service: Resource, ports: Vec<Port>, known: Option<MeshService>) -> Resource {
        let tags = BTreeMap::from([(labels::TAG_SERVICE.to_owned(), self.service.to_owned())]);
        let selector = Some(Selector { dataplane_tags: tags, ..Selector::default() });
        let spec = MeshService { selector, ports, ..known.unwrap_or_default() };
        service.spec = spec.encode().into();
        propagate(&mut service.labels, common_labels(self.proxies));
        service
    }
}

/// Whether nobody wrote `service` but this.
pub(super) fn is_generated(service: &Resource) -> bool {
    service.label(labels::MANAGED_BY) == Some(labels::MANAGED_BY_SERVICE_GENERATOR)
}

/// Since when nobody serves it; `None` while somebody does, or when the label says nothing of use.
fn going_since(service: &Resource) -> Option<DateTime<Utc>> {
    let since = service.label(labels::DELETION_GRACE_PERIOD_STARTED_AT)?;
    DateTime::parse_from_rfc3339(since).ok().map(|since| since.with_timezone(&Utc))
}

/// When `service` goes, if nobody serves it until then.
pub(super) fn goes_at(service: &Resource, grace: Duration) -> Option<DateTime<Utc>> {
    going_since(service).filter(|_| is_generated(service))?.checked_add_signed(grace)
}

fn ports_of(proxy: &ServingProxy, service: &str) -> Vec<Port> {
    let inbounds = proxy.inbounds.iter();
    let serving = inbounds.filter(|i| i.tags.get(labels::TAG_SERVICE).is_some_and(|name| name == service));
    let port = |inbound: &super::population::WorkloadPort| Port {
        name: Some(if inbound.name.is_empty() { inbound.port.to_string() } else { inbound.name.clone() }),
        port: inbound.port,
        target_port: Some(inbound.port.into()),
        app_protocol: match inbound.protocol {
            Protocol::Unknown => Protocol::Tcp.to_string(),
            known => known.to_string(),
        },
    };
    serving.map(port).collect()
}

/// The labels that the proxies of a service have, in the form most of them have.
fn common_labels(proxies: &[&ServingProxy]) -> BTreeMap<String, String> {
    let mut votes: BTreeMap<&str, BTreeMap<&str, (usize, DateTime<Utc>)>> = BTreeMap::new();
    for proxy in proxies {
        for (key, value) in proxy.resource.labels.iter().filter(|(key, value)| may_spread(key, value)) {
            let (count, newest) = votes.entry(key).or_default().entry(value).or_default();
            *count += 1;
            *newest = (*newest).max(proxy.resource.created);
        }
    }
    let elected = votes.into_iter().filter_map(|(key, values)| {
        let best = values.into_iter().max_by_key(|(value, votes)| (*votes, Reverse(*value)))?.0;
        Some((key.to_owned(), best.to_owned()))
    });
    elected.collect()
}

/// What control planes say about a proxy says nothing about its service.
fn may_spread(key: &str, value: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let reserved = ["kuma.io", "strait.io"].iter().any(|ours| {
        prefix.strip_suffix(ours).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    });
    !reserved && labels::key_problems(key).is_empty() && labels::value_problem(value).is_none()
}

/// Gives a service the labels of its proxies in place of those they had before. What somebody else wrote stays.
fn propagate(own: &mut Labels, wanted: BTreeMap<String, String>) {
    let mark = |key: &str| {
        let digest = Sha256::digest(key.as_bytes());
        let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}{hex}", labels::PROPAGATED_PREFIX)
    };
    let before: BTreeSet<String> =
        own.keys().filter(|key| key.starts_with(labels::PROPAGATED_PREFIX)).map(str::to_owned).collect();
    own.retain(|key, _| !before.contains(key) && !before.contains(&mark(key)));
    for (key, value) in wanted {
        if !own.contains_key(&key) {
            own.insert(mark(&key), "");
            own.insert(key, value);
        }
    }
}
