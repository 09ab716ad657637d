//! Collectors that policies refer to.

use std::{collections::BTreeMap, sync::Arc};

use common::model::{Resource, kinds::mesh_open_telemetry_backend::MeshOpenTelemetryBackend};
use imbl::OrdMap;

use super::Problem;

/// A collector described once for all policies.
#[derive(Clone, Debug)]
pub struct SharedCollector {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: MeshOpenTelemetryBackend,
}

impl SharedCollector {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>) -> Result<Self, Problem> {
        let reason = |error: common::model::SpecError| Problem {
            subject: super::problem::Subject::of(resource),
            reason: error.to_string(),
        };
        Ok(Self { resource: Arc::clone(resource), spec: resource.spec().map_err(reason)? })
    }
}

/// The collectors of a mesh, by name. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct SharedCollectors(OrdMap<Arc<str>, Arc<SharedCollector>>);

impl SharedCollectors {
    /// Puts in or takes out the one of this name.
    pub(super) fn set(&mut self, name: &Arc<str>, collector: Option<SharedCollector>) {
        match collector {
            Some(collector) => self.0.insert(Arc::clone(name), Arc::new(collector)),
            None => self.0.remove(name),
        };
    }

    /// The one of this name, or else the only one whose author called it that.
    pub fn named(&self, name: &str) -> Option<&SharedCollector> {
        if let Some(collector) = self.0.get(name) {
            return Some(collector);
        }
        let mut called = self.0.values().filter(|collector| collector.resource.display_name() == name);
        called.next().filter(|_| called.next().is_none()).map(|collector| &**collector)
    }

    /// Of those with all these labels the oldest.
    pub fn labelled(&self, labels: &BTreeMap<String, String>) -> Option<&SharedCollector> {
        let has = |collector: &&Arc<SharedCollector>| {
            labels.iter().all(|(key, value)| collector.resource.labels.get(key) == Some(value))
        };
        let found = self.0.values().filter(has).min_by_key(|c| (c.resource.created, c.resource.key.clone()));
        found.map(|collector| &**collector)
    }
}
