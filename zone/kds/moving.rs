//! A zone on its way to another global: where to, how far it is, and which global it follows in the end.
//!
//! Until an operator commits, the zone follows the global it followed, and takes from the other one what that would send
//! into a place of its own, to be compared. What was decided is in the store, so that a restart or
//! another replica goes on with it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{
    kds::{
        dial::{Dial, DialError, Trusted},
        headers::Upstream,
        order,
    },
    model::{Origin, Resource, kinds::config, labels},
    store::{Store, StoreError, index::Index},
    tls::Trust,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::settings::TokenSource;

/// Under this key the store remembers it.
const MOVE: &str = "kds/move";
/// Names of one list that are shown.
const SHOWN: usize = 100;
/// Between two attempts to read what was decided.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Longest address, token and certificates that are taken, in bytes.
const LONGEST: usize = 64 * 1024;

/// Another global, and how to be let in there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveTarget {
    /// Address, as in `multizone.zone.globalAddress`.
    pub to: String,
    /// Credential to show there.
    #[serde(default)]
    pub token: Option<String>,
    /// Authority of its certificate, as PEM; the roots of the machine when absent.
    #[serde(default)]
    pub ca_cert: Option<String>,
    /// Trust any certificate.
    #[serde(default)]
    pub skip_verify: bool,
}

impl std::fmt::Debug for MoveTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MoveTarget({})", self.to)
    }
}

impl MoveTarget {
    /// What it is shown there.
    pub(super) fn token(&self) -> TokenSource {
        self.token.clone().map_or(TokenSource::None, TokenSource::Inline)
    }

    /// Whether somebody vouches for who is at the other end.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.to.starts_with("grpcs://") && !self.skip_verify
    }
}

/// Makes the way to another global.
pub trait Dials: Send + Sync + 'static {
    /// How to reach `target`.
    ///
    /// # Errors
    /// [`DialError`] when the address or the trust cannot be used.
    fn to(&self, target: &MoveTarget) -> Result<Arc<dyn Dial>, DialError>;
}

/// Globals at addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustedDials;

impl Dials for TrustedDials {
    fn to(&self, target: &MoveTarget) -> Result<Arc<dyn Dial>, DialError> {
        let trust = match (&target.ca_cert, target.skip_verify) {
            (_, true) => Trust::Anyone,
            (Some(pem), false) => Trust::Roots(pem.clone()),
            (None, false) => Trust::System,
        };
        Ok(Arc::new(Trusted::new(&target.to, &trust)?))
    }
}

/// What is remembered of a move.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MoveDocument {
    /// The address in the settings. With another one there, the settings are right.
    instead_of: String,
    pub(super) target: MoveTarget,
    /// The store of the other global, once committed.
    committed: Option<Uuid>,
    /// The global that is followed until then, where an earlier move led to it.
    #[serde(default)]
    follows: Option<FollowedGlobal>,
}

/// A global that is followed in place of that in the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FollowedGlobal {
    target: MoveTarget,
    store: Uuid,
}

/// A move at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveStatus {
    /// Where to.
    pub to: String,
    /// The zone follows the other global, and no more the one in the settings.
    pub committed: bool,
    /// The other global answers.
    pub connected: bool,
    /// Everything the other global has for this zone has arrived, and nothing is missing of what the zone holds.
    pub complete: bool,
    /// How many resources the other global has for this zone.
    pub offered: usize,
    /// What would differ.
    #[serde(flatten)]
    pub difference: MoveDifference,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// What a zone holds, compared with what another global would send it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveDifference {
    /// What the zone holds and the other global does not have: it would be gone.
    pub missing: NamesInShort,
    /// What the other global has in another content.
    pub changed: NamesInShort,
    /// What would be new.
    pub added: NamesInShort,
}

/// How many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamesInShort {
    /// All.
    pub total: usize,
    /// The first.
    pub names: Vec<String>,
}

impl NamesInShort {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.total += 1;
        if self.names.len() < SHOWN {
            self.names.push(name());
        }
    }
}

impl MoveDifference {
    /// Compares what a zone holds of a global with what another one offered. Pure.
    pub(super) fn between(held: &Index, offered: &Index) -> Self {
        let mut difference = Self::default();
        for kind in order::requested_by_zone().into_iter().filter(|kind| *kind != &config::KIND) {
            let of_global = |index: &Index| {
                let all = index.list(kind).filter(|resource| resource.origin == Origin::Global);
                all.cloned().collect::<Vec<_>>()
            };
            for resource in of_global(held) {
                let name = || match resource.label(labels::ZONE) {
                    Some(zone) => format!("{} of zone {zone}", resource.key),
                    None => resource.key.to_string(),
                };
                match offered.get(&resource.key) {
                    None => difference.missing.add(name),
                    Some(other) if other.spec != resource.spec || !have_equal_labels(other, &resource) => {
                        difference.changed.add(name);
                    }
                    Some(_) => {}
                }
            }
            for resource in of_global(offered).iter().filter(|resource| held.get(&resource.key).is_none()) {
                difference.added.add(|| resource.key.to_string());
            }
        }
        difference
    }
}

/// Whether two resources say the same in their labels, whoever signed them.
fn have_equal_labels(one: &Resource, other: &Resource) -> bool {
    let said = |resource: &Resource| {
        let mut labels = resource.labels.clone();
        labels.remove(labels::SIGNATURE);
        labels
    };
    one.labels == other.labels || said(one) == said(other)
}

/// Why an operator's word about a move was not taken.
#[derive(Debug, Error)]
pub enum MoveError {
    /// Nothing moves.
    #[error("this zone is not on its way to another global")]
    None,
    /// It is over.
    #[error("the move to {0} was committed; to go back, move to the former global")]
    Committed(String),
    /// Something is too long.
    #[error("{0} has more than {LONGEST} bytes")]
    TooLong(&'static str),
    /// The other global cannot be dialled.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The other global has not shown everything yet.
    #[error("the other global has not sent everything yet{0}")]
    Incomplete(String),
    /// Something would be gone.
    #[error(
        "{0} resources this zone holds are not on the other global and would be gone, such as {1}: bring them there \
         first, or accept that"
    )]
    Missing(usize, String),
    /// The store failed.
    #[error("remember the move: {0}")]
    Store(#[from] StoreError),
}

/// The move of this zone, if there is one. Cheap to clone.
#[derive(Clone)]
pub struct Moves(Arc<MovesInner>);

struct MovesInner {
    store: Arc<dyn Store>,
    /// The address in the settings.
    configured: String,
    dials: Arc<dyn Dials>,
    state: Mutex<MovesState>,
    /// Woken when there is another decision.
    decided: Notify,
    /// Woken when the zone is to follow another global.
    switched: Notify,
}

#[derive(Default)]
struct MovesState {
    document: Option<MoveDocument>,
    status: MoveStatus,
    /// The history the other global showed.
    shown: Option<Upstream>,
}

impl Moves {
    pub(super) fn new(store: Arc<dyn Store>, configured: String, dials: Arc<dyn Dials>) -> Self {
        let (decided, switched) = (Notify::new(), Notify::new());
        Self(Arc::new(MovesInner { store, configured, dials, state: Mutex::default(), decided, switched }))
    }

    /// Goes on with what was decided before. Who does not know it would follow the wrong global, and waits.
    pub(super) async fn load(&self) {
        let rows = loop {
            match self.0.store.sessions(MOVE).await {
                Ok(rows) => break rows,
                Err(error) => {
                    tracing::warn!(%error, "cannot read whether this zone moves to another global");
                    sleep(READ_AGAIN).await;
                }
            }
        };
        let text = rows.into_iter().find(|(key, _)| key == MOVE).map(|(_, text)| text);
        let document = text.and_then(|text| serde_json::from_str::<MoveDocument>(&text).ok());
        let document = document.filter(|document| {
            let holds = document.instead_of == self.0.configured;
            if !holds {
                tracing::info!(
                    address = self.0.configured,
                    "the settings name another global than when this zone moved"
                );
            }
            holds
        });
        self.take(document);
    }

    /// How the move stands; `None` when there is none.
    pub fn status(&self) -> Option<MoveStatus> {
        let state = self.lock();
        state.document.as_ref().map(|_| state.status.clone())
    }

    /// Begins to look at another global.
    ///
    /// # Errors
    /// [`MoveError`]; nothing changes then.
    pub async fn begin(&self, target: MoveTarget) -> Result<(), MoveError> {
        let texts =
            [("to", Some(&target.to)), ("token", target.token.as_ref()), ("caCert", target.ca_cert.as_ref())];
        if let Some((field, _)) =
            texts.into_iter().find(|(_, text)| text.is_some_and(|text| text.len() > LONGEST))
        {
            return Err(MoveError::TooLong(field));
        }
        self.0.dials.to(&target)?;
        let instead_of = self.0.configured.clone();
        let follows = self.followed().map(|(target, store)| FollowedGlobal { target, store });
        self.decide(Some(MoveDocument { instead_of, target, committed: None, follows })).await
    }

    /// Follows the other global from now on; what it does not have goes only if `losses` are accepted.
    ///
    /// # Errors
    /// [`MoveError`]; nothing changes then.
    pub async fn commit(&self, losses: bool) -> Result<(), MoveError> {
        let document = {
            let state = self.lock();
            let document = state.document.clone().ok_or(MoveError::None)?;
            if document.committed.is_some() {
                return Err(MoveError::Committed(document.target.to));
            }
            let status = &state.status;
            let because = status.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            let shown = state.shown.filter(|_| status.offered > 0 && status.connected);
            let shown = shown.ok_or_else(|| MoveError::Incomplete(because.clone()))?;
            let missing = &status.difference.missing;
            if missing.total > 0 && !losses {
                let first = missing.names.first().cloned().unwrap_or_default();
                return Err(MoveError::Missing(missing.total, first));
            }
            if !status.complete && missing.total == 0 {
                return Err(MoveError::Incomplete(because));
            }
            MoveDocument { committed: Some(shown.store_id), follows: None, ..document }
        };
        self.decide(Some(document)).await?;
        self.0.switched.notify_one();
        Ok(())
    }

    /// Stays with the global this zone follows.
    ///
    /// # Errors
    /// [`MoveError`]; nothing changes then.
    pub async fn back(&self) -> Result<(), MoveError> {
        let document = self.lock().document.clone().ok_or(MoveError::None)?;
        if document.committed.is_some() {
            return Err(MoveError::Committed(document.target.to));
        }
        let MoveDocument { instead_of, follows, .. } = document;
        let before = follows.map(|FollowedGlobal { target, store }| MoveDocument {
            instead_of,
            target,
            committed: Some(store),
            follows: None,
        });
        self.decide(before).await
    }

    async fn decide(&self, document: Option<MoveDocument>) -> Result<(), MoveError> {
        let text = document.as_ref().and_then(|document| serde_json::to_string(document).ok());
        self.0.store.put_sessions(vec![(MOVE.to_owned(), text)]).await?;
        self.take(document);
        Ok(())
    }

    fn take(&self, document: Option<MoveDocument>) {
        let mut state = self.lock();
        let of = document.as_ref();
        let committed = of.is_some_and(|document| document.committed.is_some());
        let to = of.map(|document| document.target.to.clone()).unwrap_or_default();
        state.status = MoveStatus { to, committed, ..MoveStatus::default() };
        (state.document, state.shown) = (document, None);
        self.0.decided.notify_one();
    }

    /// The global to follow in place of that in the settings, and the store it is known by.
    pub(super) fn followed(&self) -> Option<(MoveTarget, Uuid)> {
        let state = self.lock();
        let document = state.document.as_ref()?;
        let before = || document.follows.as_ref().map(|global| (global.target.clone(), global.store));
        document.committed.map(|store| (document.target.clone(), store)).or_else(before)
    }

    /// The global to look at.
    pub(super) fn looked_at(&self) -> Option<MoveTarget> {
        let state = self.lock();
        let document = state.document.as_ref().filter(|document| document.committed.is_none())?;
        Some(document.target.clone())
    }

    pub(super) fn dial(&self, target: &MoveTarget) -> Result<Arc<dyn Dial>, DialError> {
        self.0.dials.to(target)
    }

    /// Resolves when there is another decision.
    pub(super) async fn decision(&self) {
        self.0.decided.notified().await;
    }

    /// The same, or when `patience` is over.
    pub(super) async fn decision_within(&self, patience: Duration) {
        let _either_way = timeout(patience, self.decision()).await;
    }

    /// Resolves when the zone is to follow another global.
    pub(super) async fn switch(&self) {
        self.0.switched.notified().await;
    }

    /// Notes how a look at `target` went, unless there is another decision meanwhile.
    pub(super) fn note(
        &self,
        target: &MoveTarget,
        note: impl FnOnce(&mut MoveStatus, &mut Option<Upstream>),
    ) {
        let mut state = self.lock();
        let current = state.document.as_ref().filter(|document| document.committed.is_none());
        if current.is_some_and(|document| document.target == *target) {
            let state = &mut *state;
            note(&mut state.status, &mut state.shown);
        }
    }

    fn lock(&self) -> MutexGuard<'_, MovesState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
