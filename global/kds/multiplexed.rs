//! KDS v1 for zones: both directions of the sync over one stream, for zones older than the incremental protocol. Only
//! where the settings allow it.

use std::sync::Arc;

use common::{
    events::StreamKind,
    kds::{
        follow::Following,
        multiplex::{self, Multiplexer},
        order,
    },
    proto::kuma::mesh::v1alpha1::{Message, multiplex_service_server::MultiplexService},
    xds::Sotw,
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    Kds, admission,
    reply::{Reply, wire},
};

#[tonic::async_trait]
impl MultiplexService for Kds {
    type StreamMessageStream = Reply<Message>;

    async fn stream_message(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Self::StreamMessageStream>, Status> {
        if !self.inner.settings.v1 || self.inner.onward.is_some() {
            return Err(Status::unimplemented(
                "KDS v1 is not spoken here: sync by KDS v2 (KDSSyncService), or let global serve v1 as well \
                 (multizone.global.kds.v1.enabled)",
            ));
        }
        let caller = admission::zone(&request)?;
        let made = self.inner.ensure_zone(&caller).await?;
        self.inner.take_request(&caller).await?;
        let session = self.join(&caller, made, StreamKind::GlobalToZone).await?;
        let whole = self.join(&caller, made, StreamKind::ZoneToGlobal).await?;
        if !Arc::ptr_eq(&session, &whole) {
            // The newer one has ended the other; what this call was to be is neither.
            return Err(Status::aborted("the zone opened another stream meanwhile"));
        }
        session.is_multiplexed();
        let (wire, reply, end) = wire();
        let (multiplexer, halves) = Multiplexer::new(order::requested_by_global());
        let serving = self.inner.serving::<Sotw>(&session, halves.answers);
        let serving = serving.run(halves.requests, self.inner.view_of(&session));
        let following = self.inner.following(&session, halves.questions);
        let ours = multiplex::introduction(following.ours);
        let following = Following { ours, ..following }.run(halves.responses);
        let stream = multiplexer.carry(self.messages(request), wire, serving, following);
        self.run(session, stream, end);
        Ok(Response::new(reply))
    }
}
