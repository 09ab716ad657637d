//! Zones that connect for the first time, and what they ask for with it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use common::{
    issuing,
    kds::headers::KdsCaller,
    model::{Resource, ResourceKey, kinds},
    proto::{google::protobuf::BoolValue, kuma::system::v1alpha1::Zone},
    store::{Batch, Precondition, Revision, StoreError, Write},
    token,
};
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::{KdsInner, sessions::JoinError};

/// How long what was just written may take to be shown here.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

impl KdsInner {
    /// Creates the zone when it connects for the first time; says when it was made.
    pub(super) async fn ensure_zone(&self, caller: &KdsCaller) -> Result<DateTime<Utc>, Status> {
        let zone = &*caller.zone;
        let key = ResourceKey::global(&kinds::zone::KIND, zone);
        if let Some(known) = self.index.current().get(&key) {
            return Ok(known.created);
        }
        self.sessions.require_pace(zone)?;
        if let Some(onward) = &self.onward {
            let revision = onward.introduce(caller).await?;
            return self.shown(&key, revision).await;
        }
        if !self.settings.auto_register {
            let text = format!("zone {zone} is not known here; create it first: `type: Zone, name: {zone}`");
            return Err(Status::permission_denied(text));
        }
        let spec = Zone { enabled: Some(BoolValue { value: true }) }.encode_to_vec();
        let resource = Resource::new(key.clone(), self.env.now()).with_spec(spec);
        let write = Write::put_when(resource, Precondition::Absent);
        let revision = match self.store.transact(Batch::of([write])).await {
            Ok(commit) => {
                tracing::info!(zone, "zone registered");
                commit.revision
            }
            Err(StoreError::AlreadyExists { .. }) => *self.store.watch_head().borrow(),
            Err(error) => return Err(unavailable("register the zone", &error)),
        };
        self.shown(&key, revision).await
    }

    /// When the zone that is known at `revision` was made.
    async fn shown(&self, zone: &ResourceKey, revision: Revision) -> Result<DateTime<Utc>, Status> {
        let shown = timeout(SHOWN_WITHIN, self.index.wait_for(revision)).await;
        let late = |_| Status::unavailable(format!("revision {revision} of global has not come here yet"));
        let shown = shown.map_err(late)?;
        let shown = shown.ok_or_else(|| Status::unavailable("global is shutting down"))?;
        let known = shown.get(zone).map(|known| known.created);
        let gone =
            || Status::unavailable(format!("zone {} was deleted at this moment; try again", zone.name));
        known.ok_or_else(gone)
    }

    /// Keeps the request of a zone for a certificate to sign with, for whoever signs.
    pub(super) async fn take_request(&self, caller: &KdsCaller) -> Result<(), Status> {
        let Some(request) = caller.issuing_request.as_deref() else { return Ok(()) };
        let index = self.index.current();
        let key = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, &issuing::request_secret(&caller.zone));
        let known = index.get(&key);
        let kept = known.and_then(|known| token::data_of(known));
        if kept.as_deref() == Some(request.as_bytes()) {
            return Ok(());
        }
        self.sessions.require_pace(&caller.zone)?;
        let wanted = issuing::requested_key(request);
        let wanted = wanted.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let kept = kept.and_then(|kept| issuing::requested_key(std::str::from_utf8(&kept).ok()?).ok());
        if kept == Some(wanted) {
            return Ok(());
        }
        self.issuing_keys.begin(&caller.zone, Instant::now()).map_err(|wait| {
            let (zone, wait) = (&caller.zone, wait.as_secs() + 1);
            Status::unavailable(format!(
                "zone {zone} has asked to sign with too many keys in a short time: try again in {wait}s"
            ))
        })?;
        // It has no owner: when the zone is deleted, nobody gets by its name what was kept from it.
        let secret = Resource::new(key, self.env.now()).with_spec(token::secret_spec(request));
        let when = known.map_or(Precondition::Absent, |known| Precondition::At(known.revision));
        match self.store.transact(Batch::of([Write::put_when(secret, when)])).await {
            Ok(commit) => {
                tracing::info!(zone = caller.zone, "the zone asks to sign with a key of its own");
                self.index.wait_long_for(commit.revision).await;
                Ok(())
            }
            // It connects twice at this moment, and the other connection was quicker.
            Err(StoreError::AlreadyExists { .. } | StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(unavailable("keep the request of the zone", &error)),
        }
    }
}

impl From<JoinError> for Status {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Store(error) => unavailable("open a session", &error),
            too_often @ JoinError::TooOften { .. } => Self::unavailable(too_often.to_string()),
        }
    }
}

/// What a zone is told about a store that refused or failed.
pub(super) fn unavailable(doing: &str, error: &StoreError) -> Status {
    tracing::warn!(doing, %error, "the store refused or failed");
    // The zone shows this much; what is wrong with the store is for who looks after it.
    let why = match error {
        StoreError::Unwritable(_) | StoreError::Backend { .. } | StoreError::Damaged(_) => {
            ": the store of global cannot be written"
        }
        _ => "",
    };
    Status::unavailable(format!("global cannot {doing} now{why}"))
}
