//! Rules for destinations that are resources.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Destinations, Policy, PolicyItem, RuleOrigin, TargetResource, decode_conf, distinct,
    merge::{Layers, Strategy},
    order,
    tag::{TagItem, by_matches},
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
    pub origins: Vec<RuleOrigin>,
    /// For HTTP routes: which policy contributed the rule with these matches, by their hash.
    pub origin_by_matches: BTreeMap<String, RuleOrigin>,
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
    item: TagItem<'a>,
    destination: &'a TargetResource,
    section: String,
}

impl ResourceRules {
    /// The rules that `to` lists of `policies` of one kind have for `destinations`. Only destinations
    /// that some item points at get a rule of their own.
    pub fn build(policies: &[Arc<Policy>], destinations: &Destinations) -> Self {
        let mut items: Vec<(TagItem<'_>, &PolicyItem)> =
            policies.iter().flat_map(|policy| TagItem::all(policy, &policy.to)).collect();
        items.sort_by(|(a, x), (b, y)| {
            order::by_attributes(a.policy, b.policy)
                .then_with(|| order::by_destination(&x.target, &y.target))
                .then_with(|| order::by_name(a.policy, b.policy))
        });
        let resolved: Vec<Resolved<'_>> = items
            .iter()
            .flat_map(|(item, at)| {
                let found = destinations.resolve(&item.policy.resource, &at.target);
                found.into_iter().map(move |(destination, section)| Resolved {
                    item: *item,
                    destination,
                    section,
                })
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
                let items: Vec<TagItem<'_>> = relevant.iter().map(|i| resolved[*i].item).collect();
                rule(target.destination, &target.section, &items, leading, &layers)
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
pub(super) fn mesh_of(kri: &Kri) -> Kri {
    Kri {
        short: "m",
        mesh: String::new(),
        zone: String::new(),
        namespace: String::new(),
        name: kri.mesh.clone(),
        section: String::new(),
    }
}

pub(super) fn is_mesh(destination: &TargetResource) -> bool {
    destination.resource.kind().name == TargetKind::Mesh.name()
}

/// Whether an item for a destination applies to a section of it.
fn applies(resolved: &Resolved<'_>, section: &str) -> bool {
    resolved.section.is_empty() || resolved.section == section
}

/// The rule of a destination from all `items` that apply, of which `shared` are the first for the mesh.
pub(super) fn rule(
    destination: &TargetResource,
    section: &str,
    items: &[TagItem<'_>],
    shared: usize,
    layers: &Layers,
) -> ResourceRule {
    let confs: Vec<&Value> = items.iter().map(|i| i.conf).collect();
    let strategy = items.first().map_or(Strategy::Patch, |i| i.policy.strategy());
    ResourceRule {
        resource: Arc::clone(&destination.resource),
        section: section.to_owned(),
        confs: layers.merge(strategy, shared, &confs),
        origins: distinct(items.iter().map(TagItem::origin), true),
        origin_by_matches: by_matches(strategy, items),
    }
}
