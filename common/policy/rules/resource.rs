//! Rules for destinations that are resources.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Destination, Destinations, Origin, Policy, decode_conf, distinct,
    merge::Layers,
    order,
    tag::{Item, by_matches},
};
use crate::{
    model::{Resource, SpecError, kri::Kri},
    policy::TargetKind,
};

/// One destination with its configuration. More general rules (of the service without the section, of
/// the mesh) are merged in already.
#[derive(Clone, Debug)]
pub struct ResourceRule {
    /// The destination.
    pub resource: Arc<Resource>,
    /// The port that is meant, empty for all.
    pub section: String,
    /// The merged configuration: one, or one per host name for HTTP routes of gateways.
    pub confs: Vec<Value>,
    /// Which items it came from, from least to most specific.
    pub origins: Vec<Origin>,
    /// For HTTP routes: which policy contributed the rule with these matches, by their hash.
    pub origin_by_matches: BTreeMap<String, Origin>,
}

impl ResourceRule {
    /// The (first) configuration in the type of its kind.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn conf<C: DeserializeOwned>(&self) -> Result<Option<C>, SpecError> {
        self.confs.first().map(decode_conf).transpose()
    }
}

/// Rules by identifier of the destination.
#[derive(Clone, Debug, Default)]
pub struct ResourceRules(pub BTreeMap<Kri, ResourceRule>);

/// An item with one of the destinations it points at.
struct Resolved<'a> {
    item: &'a Item<'a>,
    destination: &'a Destination,
    section: String,
}

impl ResourceRules {
    /// The rules that `to` lists of `policies` of one kind have for `destinations`. Only destinations
    /// that some item points at get a rule of their own.
    pub fn build(policies: &[Arc<Policy>], destinations: &Destinations) -> Self {
        let mut items: Vec<Item<'_>> = policies.iter().flat_map(items_of).collect();
        items.sort_by(|a, b| {
            order::by_attributes(a.policy, b.policy)
                .then_with(|| order::by_destination(&a.target, &b.target))
                .then_with(|| order::by_name(a.policy, b.policy))
        });
        let resolved: Vec<Resolved<'_>> = items
            .iter()
            .flat_map(|item| {
                let found = destinations.resolve(&item.policy.resource, &item.target);
                found.into_iter().map(move |(destination, section)| Resolved { item, destination, section })
            })
            .collect();
        let mut by_destination: HashMap<&Kri, Vec<usize>> = HashMap::new();
        for (i, r) in resolved.iter().enumerate() {
            by_destination.entry(&r.destination.kri).or_default().push(i);
        }
        let mesh: Vec<usize> = (0..resolved.len()).filter(|i| is_mesh(resolved[*i].destination)).collect();

        let Some(strategy) = policies.first().map(|p| p.strategy()) else { return Self::default() };
        let shared: Vec<&Value> = mesh.iter().map(|i| resolved[*i].item.conf).collect();
        let layers = Layers::new(strategy, &shared);

        let mut rules = BTreeMap::new();
        for target in &resolved {
            let key = target.destination.kri.clone().with_section(&target.section);
            rules.entry(key).or_insert_with(|| {
                let own = by_destination.get(&target.destination.kri).map_or(&[][..], Vec::as_slice);
                let mut relevant: Vec<usize> =
                    own.iter().copied().filter(|i| applies(&resolved[*i], &target.section)).collect();
                if !is_mesh(target.destination) {
                    relevant.extend(&mesh);
                }
                relevant.sort_unstable();
                let leading = relevant.iter().zip(&mesh).take_while(|(a, b)| a == b).count();
                let items: Vec<&Item<'_>> = relevant.iter().map(|i| resolved[*i].item).collect();
                rule(target, &items, leading, &layers)
            });
        }
        Self(rules)
    }

    /// The rule for a destination: that of its section, else of the whole, else of its mesh.
    pub fn lookup(&self, kri: &Kri) -> Option<&ResourceRule> {
        self.0
            .get(kri)
            .or_else(|| self.0.get(&kri.clone().with_section("")))
            .or_else(|| self.0.get(&mesh_of(kri)))
    }
}

/// The identifier of the mesh a destination is in.
fn mesh_of(kri: &Kri) -> Kri {
    Kri {
        short: "m",
        mesh: String::new(),
        zone: String::new(),
        namespace: String::new(),
        name: kri.mesh.clone(),
        section: String::new(),
    }
}

fn is_mesh(destination: &Destination) -> bool {
    destination.resource.kind().name == TargetKind::Mesh.name()
}

/// Whether an item for a destination applies to a section of it.
fn applies(resolved: &Resolved<'_>, section: &str) -> bool {
    resolved.section.is_empty() || resolved.section == section
}

fn items_of(policy: &Arc<Policy>) -> impl Iterator<Item = Item<'_>> {
    policy.to.iter().enumerate().map(move |(index, item)| Item {
        policy,
        index,
        target: item.target.clone(),
        conf: &item.conf,
    })
}

/// The rule of `target` from all `items` that apply, of which `shared` are the first for the mesh.
fn rule(target: &Resolved<'_>, items: &[&Item<'_>], shared: usize, layers: &Layers) -> ResourceRule {
    let confs: Vec<&Value> = items.iter().map(|i| i.conf).collect();
    ResourceRule {
        resource: Arc::clone(&target.destination.resource),
        section: target.section.clone(),
        confs: layers.merge(shared, &confs),
        origins: distinct(items.iter().map(|i| i.origin()), true),
        origin_by_matches: by_matches(target.item.policy.strategy(), items),
    }
}
