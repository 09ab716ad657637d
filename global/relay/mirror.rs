//! What a relay holds of global: stored here under numbers of its own, shown under those of global.

use std::sync::{Arc, Mutex, PoisonError};

use common::{
    events::{Event, EventBus, ResourceChange},
    kds::{codec, headers::Upstream, names::candidates},
    model::{Origin, Resource, ResourceKey},
    proto::strait::relay::v1alpha1::{RelayFollowResponse, RelayHeld, RelayResource},
    registry,
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, StoreIdentity, Write,
        index::{Index, IndexReader},
    },
};
use thiserror::Error;
use tokio::sync::watch;
use uuid::Uuid;

/// Under this key the store remembers how far global was followed.
const FOLLOWED: &str = "relay/followed";
/// Writes of one batch.
const WRITES: usize = 500;

/// Changes told with one event.
const TOLD: usize = 64;

/// The mirror. What it has taken survives a lost global, and a restart.
pub(super) struct Mirror {
    store: Arc<dyn Store>,
    /// As it is stored here.
    local: IndexReader,
    /// The same as global numbers it.
    shown: watch::Sender<Arc<Index>>,
    bus: EventBus,
    env: Env,
    followed: Mutex<Option<Upstream>>,
}

/// Why what global sent is not shown.
#[derive(Debug, Error)]
pub(super) enum MirrorError {
    /// The store refused or failed.
    #[error("store what global sent: {0}")]
    Store(#[from] StoreError),
    /// The process stops.
    #[error("the process is stopping")]
    Stopping,
    /// Global does not say where it stands.
    #[error("global does not say where it stands: {0:?}")]
    Position(String),
    /// A history does not run backwards.
    #[error(
        "global went back from epoch {} revision {} to epoch {} revision {}: it was restored from a backup without a \
         new epoch; this relay and its zones keep what they have until that is raised",
        .known.epoch, .known.revision, .shown.epoch, .shown.revision
    )]
    WentBack {
        /// Where it was.
        known: Upstream,
        /// Where it is now.
        shown: Upstream,
    },
}

/// What has arrived of a state that is not complete yet.
#[derive(Default)]
pub(super) struct PartialState {
    put: Vec<Resource>,
    gone: Vec<ResourceKey>,
}

impl Mirror {
    /// The mirror in `store`, which `local` shows, at the position it was left at. What changes is told on `bus`.
    pub(super) async fn open(
        store: Arc<dyn Store>,
        local: IndexReader,
        bus: EventBus,
        env: Env,
    ) -> Result<Self, StoreError> {
        let known = store.sessions(FOLLOWED).await?;
        let known = known.iter().find(|(key, _)| key == FOLLOWED);
        let followed = known.and_then(|(_, text)| Upstream::parse(text));
        let shown = match followed {
            Some(at) => renumbered(&local.current(), at),
            None => Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 0 }),
        };
        let shown = watch::Sender::new(Arc::new(shown));
        Ok(Self { store, local, shown, bus, env, followed: Mutex::new(followed) })
    }

    /// What is shown.
    pub(super) fn reader(&self) -> IndexReader {
        IndexReader::new(self.shown.subscribe())
    }

    /// How far global was followed.
    pub(super) fn followed(&self) -> Option<Upstream> {
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is held, as global knows it.
    pub(super) fn held(&self) -> Vec<RelayHeld> {
        let encode = |resource: &Arc<Resource>| {
            let wanted = codec::encode(resource);
            let (name, version) = (wanted.name.to_string(), wanted.version.as_bytes().to_vec());
            RelayHeld { r#type: resource.kind().name.to_owned(), name, version }
        };
        self.local.current().iter().map(encode).collect()
    }

    /// Takes a message; where global stands, once a state is complete and shown.
    pub(super) async fn take(
        &self,
        partial: &mut PartialState,
        message: RelayFollowResponse,
    ) -> Result<Option<Upstream>, MirrorError> {
        let at = Upstream::parse(&message.position).ok_or(MirrorError::Position(message.position))?;
        if let Some(known) = self.followed()
            && known.store_id == at.store_id
            && (at.epoch, at.revision) < (known.epoch, known.revision)
        {
            return Err(MirrorError::WentBack { known, shown: at });
        }
        partial.put.extend(message.resources.into_iter().filter_map(|item| self.resource(item)));
        let local = self.local.current();
        partial.gone.extend(message.removed.iter().filter_map(|name| stored(&local, name)));
        if !message.complete {
            return Ok(None);
        }
        self.commit(std::mem::take(partial), at).await?;
        Ok(Some(at))
    }

    /// What cannot be read is left out: the zones of this relay could not read it either.
    fn resource(&self, item: RelayResource) -> Option<Resource> {
        let kind = registry::by_name(&item.r#type)?;
        let decoded = match codec::decode(kind, &item.resource.unwrap_or_default()) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::warn!(type_name = kind.name, %error, "left out a resource of global that cannot be read");
                return None;
            }
        };
        let now = self.env.now();
        // A zone that is made anew is another zone; one that only changed is not.
        let created = self.local.current().get(&decoded.key).map_or(now, |stored| stored.created);
        Some(Resource {
            labels: decoded.labels,
            status: decoded.status,
            origin: Origin::from_column(&item.zone),
            created,
            ..Resource::new(decoded.key, now).with_spec(decoded.spec)
        })
    }

    async fn commit(&self, state: PartialState, at: Upstream) -> Result<(), MirrorError> {
        let gone = state.gone.into_iter().map(|key| Write::delete_when(key, Precondition::None));
        let writes: Vec<Write> = gone.chain(state.put.into_iter().map(Write::put)).collect();
        let mut changed: Vec<ResourceKey> = Vec::new();
        let mut revision = self.local.current().revision;
        for part in writes.chunks(WRITES) {
            let commit = self.store.transact(Batch::of(part.iter().cloned())).await?;
            revision = revision.max(commit.revision);
            changed.extend(commit.changed);
        }
        // After what it says: a position that is too old is made up for, one that is too new never.
        self.store.put_sessions(vec![(FOLLOWED.to_owned(), Some(at.to_text()))]).await?;
        let local = self.local.wait_for(revision).await.ok_or(MirrorError::Stopping)?;
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        self.shown.send_replace(Arc::new(renumbered(&local, at)));
        let told: Vec<ResourceChange> = changed
            .into_iter()
            .map(|key| ResourceChange { revision: at.revision, deleted: local.get(&key).is_none(), key })
            .collect();
        for part in told.chunks(TOLD) {
            self.bus.publish(Event::ResourcesChanged(part.into()));
        }
        Ok(())
    }
}

/// What is stored under a name on the wire.
fn stored(local: &Index, name: &RelayHeld) -> Option<ResourceKey> {
    let kind = registry::by_name(&name.r#type)?;
    let held = |(mesh, name)| Some(local.find(kind, mesh, name)?.key.clone());
    candidates(kind, &name.name).find_map(held)
}

/// The same resources at a position of global.
fn renumbered(local: &Index, at: Upstream) -> Index {
    let mut index = local.clone();
    index.store = StoreIdentity { store_id: at.store_id, epoch: at.epoch };
    index.revision = at.revision;
    index
}

#[cfg(test)]
mod tests;
