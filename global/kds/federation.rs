//! The gRPC service that only our own zones call.

use std::sync::Arc;

use common::{
    events::StreamKind,
    proto::strait::federation::v1::{
        HoldingsPage, HoldingsRequest, federation_service_server::FederationService,
    },
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    Kds, admission, holdings,
    reply::{Reply, reply},
    service::status,
};

#[tonic::async_trait]
impl FederationService for Kds {
    type StreamHoldingsStream = Reply<HoldingsRequest>;

    /// A stream on which this side asks. Its end is not the end of the session.
    async fn stream_holdings(
        &self,
        request: Request<Streaming<HoldingsPage>>,
    ) -> Result<Response<Self::StreamHoldingsStream>, Status> {
        let caller = admission::zone(&request)?;
        let session = self.open_stream(&caller, StreamKind::Holdings).await?;
        // A zone that does not follow this global opens nothing else, and what was signed for it stays only while it asks.
        self.inner.take_request(&caller).await?;
        let (outbox, reply, end) = reply();
        let (inner, pages) = (Arc::clone(&self.inner), self.messages(request));
        self.inner.streams.spawn(async move {
            let ended = tokio::select! {
                ended = holdings::ask(&session, &inner.env, pages, outbox) => Some(ended),
                () = inner.shutdown.cancelled() => None,
            };
            let _peer_is_gone = end.send(status(ended, &session));
        });
        Ok(Response::new(reply))
    }
}
