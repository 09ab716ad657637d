//! What policies say of a builtin gateway: of each of its ports, and of each listener, which is one host name of a
//! port. A listener is selected by its tags, so those with the same tags are told the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use common::{
    model::Kind,
    policy::rules::{ListenerKey, OutboundRules, Policy, PolicyChange, SelectableProxy, Selection},
};

use crate::mesh::{
    Dataplane, Gateway, MeshContext,
    gateway::{GatewayPort, GatewayTags},
};

/// A place of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GatewayScope<'a> {
    /// Everything that comes in by a port.
    Port(u32),
    /// What comes in by a port for a host name.
    Host(u32, &'a str),
    /// What comes in by a listener with these tags.
    Tagged(&'a GatewayTags),
}

/// A gateway and what policies say of it, the same for all proxies that run it and that the same policies select.
/// Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct GatewayRules {
    /// The gateway.
    pub(crate) gateway: Arc<Gateway>,
    /// One of the proxies.
    subject: Arc<SelectableProxy>,
    kinds: BTreeMap<&'static str, KindRules>,
}

/// What policies of one kind say.
#[derive(Clone, Debug, Default)]
struct KindRules {
    selection: Selection,
    ports: BTreeMap<u32, OutboundRules>,
    hosts: BTreeMap<(u32, String), OutboundRules>,
}

impl GatewayRules {
    /// What is said of the gateway that `dataplane` runs; `None` for one that runs none.
    pub(crate) fn new(dataplane: &Dataplane, mesh: &MeshContext) -> Option<Self> {
        let (gateway, subject) = (dataplane.gateway.clone()?, dataplane.subject.clone()?);
        let mut rules = Self { gateway, subject, kinds: BTreeMap::new() };
        rules.select(mesh);
        Some(rules)
    }

    /// Looks up again what routes ask for that policies are for.
    pub(super) fn follow_routes(&mut self, mesh: &MeshContext) {
        self.select(mesh);
    }

    fn select(&mut self, mesh: &MeshContext) {
        let of = |kind: &'static Kind| {
            let set = mesh.policies(kind).filter(|set| !set.policies.is_empty())?;
            let selection = Selection::of(set, &self.subject, &mesh.destinations, false);
            let mut rules = KindRules { selection, ..KindRules::default() };
            for (key, policies) in &rules.selection.listeners {
                let of_port = rules.ports.entry(key.inbound.port).or_default();
                let of_host = rules.hosts.entry((key.inbound.port, key.hostname.clone())).or_default();
                for policy in policies {
                    of_port.insert(policy, &mesh.destinations);
                    of_host.insert(policy, &mesh.destinations);
                }
            }
            Some((kind.name, rules))
        };
        self.kinds = super::kinds().filter_map(of).collect();
    }

    /// Takes over the change of a policy of `kind`; says whether the gateway may notice.
    pub(super) fn apply(&mut self, kind: &'static Kind, change: &PolicyChange, mesh: &MeshContext) -> bool {
        let Some(set) = mesh.policies(kind) else { return false };
        let rules = self.kinds.entry(kind.name).or_default();
        let before = listeners(&rules.selection, change.before.as_ref());
        rules.selection.apply(change, set, &self.subject, &mesh.destinations, false);
        let after = listeners(&rules.selection, change.after.as_ref());
        let taken = |policy: &Option<Arc<Policy>>, taken: bool| policy.clone().filter(|_| taken);
        for key in &before | &after {
            let change = PolicyChange {
                before: taken(&change.before, before.contains(&key)),
                after: taken(&change.after, after.contains(&key)),
            };
            let port = key.inbound.port;
            rules.hosts.entry((port, key.hostname)).or_default().apply(&change, &mesh.destinations);
        }
        let ports = |keys: &BTreeSet<ListenerKey>| -> BTreeSet<u32> {
            keys.iter().map(|key| key.inbound.port).collect()
        };
        let (before, after) = (ports(&before), ports(&after));
        for port in &before | &after {
            let change = PolicyChange {
                before: taken(&change.before, before.contains(&port)),
                after: taken(&change.after, after.contains(&port)),
            };
            rules.ports.entry(port).or_default().apply(&change, &mesh.destinations);
        }
        !(before.is_empty() && after.is_empty())
    }

    /// What policies of `kind` say of a place.
    pub(super) fn rules(&self, kind: &Kind, place: GatewayScope<'_>) -> &OutboundRules {
        static NONE: LazyLock<OutboundRules> = LazyLock::new(OutboundRules::default);
        let found = self.kinds.get(kind.name).and_then(|rules| match place {
            GatewayScope::Port(port) => rules.ports.get(&port),
            GatewayScope::Host(port, hostname) => rules.hosts.get(&(port, hostname.to_owned())),
            GatewayScope::Tagged(tags) => {
                let (port, hostname) = self.tagged(tags)?;
                rules.hosts.get(&(port, hostname.to_owned()))
            }
        });
        found.unwrap_or(&NONE)
    }

    /// The policies of `kind` that select anything of the gateway.
    pub(super) fn policies(&self, kind: &Kind) -> &[Arc<Policy>] {
        self.kinds.get(kind.name).map_or(&[], |rules| &rules.selection.policies)
    }

    /// A listener with these tags.
    fn tagged(&self, tags: &GatewayTags) -> Option<(u32, &str)> {
        let hosts = |port: &'_ GatewayPort| {
            let host = port.hosts.iter().find(|host| *host.tags == *tags)?;
            Some((port.number, Arc::clone(&host.hostname)))
        };
        let (port, hostname) = self.gateway.ports.values().find_map(hosts)?;
        let (_, host) = self.gateway.host(port, &hostname)?;
        Some((port, &host.hostname))
    }
}

/// The listeners that `policy` selects.
fn listeners(selection: &Selection, policy: Option<&Arc<Policy>>) -> BTreeSet<ListenerKey> {
    let Some(policy) = policy else { return BTreeSet::new() };
    let has = |policies: &[Arc<Policy>]| policies.iter().any(|p| p.resource.key == policy.resource.key);
    selection.listeners.iter().filter(|(_, policies)| has(policies)).map(|(key, _)| key.clone()).collect()
}
