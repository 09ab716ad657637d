//! All `EnvoyConfig`s there are, read once each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use common::{
    envoy_config::{EnvoyConfig, KIND, NodeSelector},
    envoy_rules::BrokenRule,
    model::Resource,
    store::index::Index,
    xds::{OwnVersion, canonical, variant_name},
};
use imbl::OrdMap;

use super::NodeTraits;
use crate::generator::Encoded;

/// What made a resource that somebody wrote.
const ORIGIN: &str = "EnvoyConfig";

/// One `EnvoyConfig`.
#[derive(Debug)]
pub(crate) struct RawConfig {
    resource: Arc<Resource>,
    /// Decoded when somebody asks first, since it takes a while: never where streams are served.
    nodes: OnceLock<Vec<NodeSelector>>,
    read: OnceLock<ReadConfig>,
}

/// What is read of the same stored resource is the same.
impl PartialEq for RawConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.resource, &other.resource)
    }
}

/// A resource by type and name.
pub(crate) type RawName = (&'static str, Arc<str>);

#[derive(Debug, Default)]
struct ReadConfig {
    resources: BTreeMap<RawName, Arc<Encoded>>,
    problems: Vec<String>,
}

impl ReadConfig {
    fn leave_out(&mut self, resource: &Resource, member: &str, index: usize, reason: &str) {
        let place = format!("EnvoyConfig {}: {member}[{index}]", resource.name());
        self.problems.push(format!("{place} is left out: {reason}"));
    }
}

impl RawConfig {
    /// What is stored as `resource`.
    pub(crate) fn new(resource: &Arc<Resource>) -> Self {
        Self { resource: Arc::clone(resource), nodes: OnceLock::new(), read: OnceLock::new() }
    }

    /// Whether it is for `node`. Takes a while the first time; what does not decode is for nobody.
    pub(crate) fn selects(&self, node: &NodeTraits) -> bool {
        let nodes = self.nodes.get_or_init(|| match self.resource.spec::<EnvoyConfig>() {
            Ok(spec) => spec.nodes,
            Err(error) => {
                let name = self.resource.name();
                tracing::warn!(name, %error, "an EnvoyConfig cannot be read and is for nobody");
                Vec::new()
            }
        });
        node.is_selected(nodes)
    }

    /// Whether it is known to be for `node`, without a look at what nobody looked at before.
    pub(crate) fn surely_selects(&self, node: &NodeTraits) -> bool {
        self.nodes.get().is_some_and(|nodes| node.is_selected(nodes))
    }

    /// Whether somebody looked at whom it is for.
    pub(crate) fn is_known(&self) -> bool {
        self.nodes.get().is_some()
    }

    /// Its resources. Encoding them takes a while the first time.
    pub(crate) fn resources(&self) -> &BTreeMap<RawName, Arc<Encoded>> {
        &self.read().resources
    }

    /// What of it cannot be sent.
    pub(crate) fn problems(&self) -> &[String] {
        &self.read().problems
    }

    fn read(&self) -> &ReadConfig {
        self.read.get_or_init(|| {
            let mut read = ReadConfig::default();
            let Ok(spec) = self.resource.spec::<EnvoyConfig>() else { return read };
            let text = spec.version.as_deref().map(Arc::from);
            let own = text.map(|text| Arc::new(OwnVersion { text, given: self.resource.revision }));
            for of_type in spec.by_type() {
                for (i, resource) in of_type.resources.iter().enumerate() {
                    match of_type.message(resource) {
                        Ok((name, message)) => {
                            let name = canonical(&name);
                            let name = variant_name(&name, &spec.parameters);
                            let encoded = Encoded::dynamic(&name, of_type.type_url, ORIGIN, &message);
                            if let Some(broken) = encoded.broken_rules().first() {
                                let BrokenRule { field, reason } = broken;
                                read.leave_out(
                                    &self.resource,
                                    of_type.member,
                                    i,
                                    &format!("{field} {reason}"),
                                );
                                continue;
                            }
                            let encoded = match &own {
                                Some(own) => encoded.with_own_version(own),
                                None => encoded,
                            };
                            let encoded = encoded.on_demand(spec.on_demand);
                            let place = (of_type.type_url, Arc::clone(&encoded.name));
                            read.resources.insert(place, Arc::new(encoded));
                        }
                        // What was applied was valid, but another version of this program may have judged that.
                        Err(error) => {
                            read.leave_out(&self.resource, of_type.member, i, &error.to_string());
                        }
                    }
                }
            }
            read
        })
    }
}

/// All of them by name, as of one moment. Cloning shares.
pub(crate) type RawConfigSet = OrdMap<Arc<str>, Arc<RawConfig>>;

/// Follows the index for whoever wants to know what is there.
#[derive(Default)]
pub(crate) struct RawConfigs(Mutex<FollowedConfigs>);

#[derive(Default)]
struct FollowedConfigs {
    seen: Option<Arc<Index>>,
    configs: RawConfigSet,
}

impl RawConfigs {
    /// Those in `index`, or in a newer one that somebody has shown before. Nothing of them is decoded here, where
    /// others wait.
    pub(crate) fn at(&self, index: &Arc<Index>) -> RawConfigSet {
        // A reader that panics leaves at worst what was there before.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let FollowedConfigs { seen, configs } = &mut *state;
        match seen {
            Some(seen) if seen.revision >= index.revision => {}
            Some(seen) => {
                for key in index.changed_since(seen).iter().filter(|key| *key.kind == KIND) {
                    match index.get(key) {
                        Some(resource) => {
                            configs.insert(Arc::clone(&key.name), Arc::new(RawConfig::new(resource)));
                        }
                        None => {
                            configs.remove(&key.name);
                        }
                    }
                }
            }
            None => {
                let all = index.list(&KIND);
                *configs = all.map(|r| (Arc::clone(&r.key.name), Arc::new(RawConfig::new(r)))).collect();
            }
        }
        if seen.as_ref().is_none_or(|seen| seen.revision < index.revision) {
            *seen = Some(Arc::clone(index));
        }
        configs.clone()
    }
}
