//! Hands out what this zone holds to a global that is rebuilt from its zones, and tells a global it does not follow
//! why.

use std::sync::Arc;

use common::{
    kds::{
        headers::{KdsCaller, Upstream},
        holdings,
        outbox::{self, Outbox, OutboxError},
    },
    proto::strait::federation::v1::{
        HoldingsPage, HoldingsRequest, federation_service_client::FederationServiceClient,
    },
    redact,
    store::{Store, StoreError, index::IndexReader},
};
use futures::{Stream, StreamExt};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};

use super::{
    call::{opened, with_headers},
    settings::ZoneKdsSettings,
};

/// Under this key the store remembers how far global's history was taken.
pub(super) const TAKEN: &str = "kds/taken";
/// And under this one which history was followed.
pub(super) const UPSTREAM: &str = "kds/upstream";
/// Pages before the wire.
const QUEUE: usize = 1;
/// Pages that may wait before that queue: global asks for one at a time.
const OUTBOX: usize = 4;
/// Bytes of why this zone does not follow.
const LONGEST_REASON: usize = 4096;

/// Where global may ask for what this zone holds.
pub(super) struct HoldingsDesk<'a> {
    pub(super) settings: &'a ZoneKdsSettings,
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) index: &'a IndexReader,
    /// How far global was followed, which may not have been written down yet.
    pub(super) seen: Option<Upstream>,
    /// Its secrets too: somebody vouches for who is at the other end.
    pub(super) gives_secrets: bool,
}

impl HoldingsDesk<'_> {
    /// Opens the stream and answers on it until it ends; `held_back` is why this zone does not follow this global.
    pub(super) async fn attend(&self, channel: &Channel, caller: &KdsCaller, held_back: Option<&str>) {
        let (wire, pages) = outbox::wire(QUEUE);
        let request = with_headers(pages, caller);
        let mut client = self.client(channel);
        let inbound = opened(async move { client.stream_holdings(request).await });
        let outbox = Outbox::new(wire, OUTBOX);
        match self.answer(std::pin::pin!(inbound), outbox, held_back).await {
            Ok(()) => {}
            Err(status) if status.code() == Code::Unimplemented => {
                tracing::debug!("global does not ask zones for what they hold");
            }
            Err(status) => {
                tracing::debug!(%status, "the stream on which global asks for what zones hold ended")
            }
        }
    }

    fn client(&self, channel: &Channel) -> FederationServiceClient<Channel> {
        let client = FederationServiceClient::new(channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if !self.settings.gzip {
            return client;
        }
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    }

    async fn answer(
        &self,
        mut inbound: impl Stream<Item = Result<HoldingsRequest, Status>> + Unpin,
        mut outbox: Outbox<HoldingsPage>,
        held_back: Option<&str>,
    ) -> Result<(), Status> {
        let gone = |error: OutboxError| Status::cancelled(error.to_string());
        let taken = self.taken().await.map(Upstream::to_text).unwrap_or_default();
        let held_back = held_back.map(|reason| redact::words(reason, LONGEST_REASON)).unwrap_or_default();
        outbox
            .push(HoldingsPage { taken, held_back: held_back.clone(), ..HoldingsPage::default() })
            .map_err(gone)?;
        loop {
            tokio::select! {
                request = inbound.next() => {
                    let Some(request) = request.transpose()? else { return Ok(()) };
                    let page = HoldingsPage { held_back: held_back.clone(), ..self.page(request).await };
                    outbox.push(page).map_err(gone)?;
                }
                drained = outbox.drain_one(), if !outbox.is_empty() => drained.map_err(gone)?,
            }
        }
    }

    async fn page(&self, asked: HoldingsRequest) -> HoldingsPage {
        let index = self.index.current();
        let (zone, gives) = (&self.settings.zone, self.gives_secrets);
        let page = holdings::page(&index, zone, &asked.after, gives);
        HoldingsPage {
            request_id: asked.request_id,
            taken: self.taken().await.map(Upstream::to_text).unwrap_or_default(),
            held_back: String::new(),
            secrets_kept: page.secrets_kept,
            holdings: page.holdings,
            next: page.next,
        }
    }

    /// Which history of a global was followed, and how far it was taken.
    async fn taken(&self) -> Option<Upstream> {
        match read_taken(self.store).await {
            Ok(taken) => taken.map(|taken| in_epoch_of(taken, self.seen)),
            Err(error) => {
                tracing::warn!(%error, "cannot read how far global's history was taken");
                None
            }
        }
    }
}

/// Which history of a global was followed, and how far it was taken.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn read_taken(store: &Arc<dyn Store>) -> Result<Option<Upstream>, StoreError> {
    let taken = read(store, TAKEN).await?;
    let followed = read(store, UPSTREAM).await?;
    Ok(taken.map(|taken| in_epoch_of(taken, followed)))
}

async fn read(store: &Arc<dyn Store>, key: &str) -> Result<Option<Upstream>, StoreError> {
    let rows = store.sessions(key).await?;
    Ok(rows.iter().find(|(known, _)| known == key).and_then(|(_, text)| Upstream::parse(text)))
}

/// How far a history was taken, in the epoch in which it was `followed`. That counts even if nothing of it has been settled
/// or written down yet: whoever raises the epoch must come after.
fn in_epoch_of(taken: Upstream, followed: Option<Upstream>) -> Upstream {
    let later = followed.filter(|at| at.store_id == taken.store_id && at.epoch > taken.epoch);
    later.map_or(taken, |at| Upstream { revision: taken.revision, ..at })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_epoch_that_was_followed_counts_before_it_is_written_down() {
        let at =
            |store: u128, epoch, revision| Upstream { store_id: Uuid::from_u128(store), epoch, revision };
        for (followed, expected) in [
            (None, at(1, 1, 14)),
            (Some(at(1, 2, 11)), at(1, 2, 14)),
            (Some(at(1, 1, 20)), at(1, 1, 14)),
            (Some(at(2, 7, 11)), at(1, 1, 14)),
        ] {
            assert_eq!(in_epoch_of(at(1, 1, 14), followed), expected, "{followed:?}");
        }
    }
}
