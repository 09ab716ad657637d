//! Settings of Kuma that have nothing to say here. A file that was written for Kuma may hold them: they are passed
//! over, which is said, instead of stopping the start. None of them changes who may do what or what is encrypted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use figment::{
    Error, Metadata, Profile, Provider,
    error::Kind,
    value::{Dict, Map, Value},
};

use crate::model::text::{self, TextLimits};

/// Paths of settings, or of whole sections, and why they have no effect.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("ipam.allocationInterval", "a service gets its address when it appears"),
    ("meshService.generationInterval", "services are made the moment proxies change"),
    ("runtime.universal.vipRefreshInterval", "addresses follow services without an interval"),
    ("runtime.kubernetes", "this control plane runs outside Kubernetes"),
    ("coreResources.status", "the status of services is written when it differs"),
    ("dpServer.hds.refreshInterval", "proxies are told what to probe when it changes"),
    ("xdsServer.dataplaneConfigurationRefreshInterval", "configurations are sent when they differ"),
    (
        "xdsServer.nackBackoff",
        "what a proxy refused is offered again when it changes, or after a growing pause",
    ),
    ("multizone.zone.kds.refreshInterval", "changes are sent when they happen"),
    ("multizone.zone.kds.nackBackoff", "what was refused is offered again after a growing pause"),
    (
        "multizone.zone.kds.msgSendTimeout",
        "a peer that takes nothing is found by the keepalive of its connection",
    ),
    ("multizone.zone.ingressUpdateInterval", "an ingress announces services when they change"),
    ("multizone.global.kds.refreshInterval", "changes are sent when they happen"),
    ("multizone.global.kds.nackBackoff", "what was refused is offered again after a growing pause"),
    ("multizone.global.kds.responseBackoff", "changes that come meanwhile join the next message"),
    (
        "multizone.global.kds.msgSendTimeout",
        "a peer that takes nothing is found by the keepalive of its connection",
    ),
    ("multizone.global.kds.zoneInsightFlushInterval", "what is known of a zone is written when it changes"),
    ("metrics.mesh", "insights of meshes are written when something changed"),
    ("metrics.controlPlane", "metrics are counted and not collected at intervals"),
    ("store.cache", "everything is read from memory that follows the store"),
    ("store.upsert", "a write that lost a race is made again from what is there now"),
    ("general.dnsCacheTTL", "host names are looked up again when their own time is over"),
    ("eventBus", "an event only wakes, so none has to be kept"),
    ("interCp.catalog", "replicas meet in the store"),
    ("experimental.deltaXds", "a proxy says whether it wants the incremental protocol"),
    ("experimental.kdsEventBasedWatchdog", "changes are sent when they happen"),
    (
        "monitoringAssignmentServer.assignmentRefreshInterval",
        "assignments follow dataplanes and policies as they change",
    ),
    ("reports", "nothing is reported to anybody"),
];

/// A file of settings without those that have no effect, and the paths that were in it.
pub(super) struct Cleaned {
    path: PathBuf,
    known: fn(&str) -> bool,
}

impl Cleaned {
    /// Of the file at `path`; what is `known` has an effect in this process.
    pub(super) fn new(path: &Path, known: fn(&str) -> bool) -> Self {
        Self { path: path.to_owned(), known }
    }

    /// What has no effect, of that which the file says.
    pub(super) fn passed_over(&self) -> Vec<&'static str> {
        let said = self.read().unwrap_or_default();
        self.idle().filter(|path| holds(&said, path)).collect()
    }

    /// All that the file says. A section that stands twice in it is refused: one of the two would hold, and nobody
    /// would be told that the other, perhaps what keeps strangers out, does not.
    fn read(&self) -> Result<Dict, Box<Error>> {
        let text = fs::read_to_string(&self.path).map_err(|error| Error::from(error.to_string()))?;
        let said = text::yaml(&text, TextLimits::BODY).map_err(|error| Error::from(error.to_string()))?;
        match Value::serialize(said)? {
            Value::Dict(_, said) => Ok(said),
            // Comments alone.
            Value::Empty(..) => Ok(Dict::new()),
            other => {
                let kind = Kind::InvalidType(other.to_actual(), "settings by their names".to_owned());
                Err(Box::new(kind.into()))
            }
        }
    }

    fn idle(&self) -> impl Iterator<Item = &'static str> {
        WITHOUT_EFFECT.iter().map(|(path, _)| *path).filter(|path| !(self.known)(path))
    }
}

impl Provider for Cleaned {
    fn metadata(&self) -> Metadata {
        Metadata::from("YAML file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let mut said = self.read().map_err(|error| *error)?;
        for path in self.idle() {
            take_out(&mut said, path);
        }
        Ok(Profile::Default.collect(said))
    }
}

fn holds(dict: &Dict, path: &str) -> bool {
    match path.split_once('.') {
        None => dict.contains_key(path),
        Some((first, rest)) => {
            matches!(dict.get(first), Some(Value::Dict(_, inner)) if holds(inner, rest))
        }
    }
}

fn take_out(dict: &mut Dict, path: &str) {
    match path.split_once('.') {
        None => drop(dict.remove(path)),
        Some((first, rest)) => {
            if let Some(Value::Dict(_, inner)) = dict.get_mut(first) {
                take_out(inner, rest);
                // A section that says nothing else may be one that is not known here at all.
                if inner.is_empty() {
                    dict.remove(first);
                }
            }
        }
    }
}
