//! Where a relay turns for what global alone decides. A global has nobody to turn to.

use async_trait::async_trait;
use common::{
    kds::{headers::KdsCaller, outbox::Outbox, serve::Ended},
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    store::Revision,
};
use tonic::Status;

use super::{inbound::ZoneMessages, session::Session};

/// The way from a relay to its global.
#[async_trait]
pub(crate) trait Onward: Send + Sync + 'static {
    /// Makes a zone known that nobody here knows; the revision that shows it.
    ///
    /// # Errors
    /// What to tell the zone when global does not let it in, or cannot be asked.
    async fn introduce(&self, caller: &KdsCaller) -> Result<Revision, Status>;

    /// Carries the way up of `session` to global and back, until either end is gone. While global is away,
    /// nothing is asked of the zone.
    async fn pass(
        &self,
        session: &Session,
        caller: &KdsCaller,
        inbound: ZoneMessages<DeltaDiscoveryResponse>,
        outbox: Outbox<DeltaDiscoveryRequest>,
    ) -> Ended;
}
