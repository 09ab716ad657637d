//! KDS v1 towards global: both directions of the sync over one stream, for a global older than the incremental
//! protocol. Only where the settings say so.

use common::{
    kds::{
        apply::Applier,
        follow::Following,
        headers::KdsCaller,
        multiplex::{self, Multiplexer},
        order, outbox,
        serve::Ended,
    },
    proto::kuma::mesh::v1alpha1::multiplex_service_client::MultiplexServiceClient,
    xds::Sotw,
};
use tokio_util::sync::CancellationToken;
use tonic::{codec::CompressionEncoding, transport::Channel};

use super::{
    call::{opened, with_headers},
    connect::{Connector, QUEUE},
};

impl Connector {
    /// Both ways, until the first of them ends.
    pub(super) async fn multiplexed(
        &self,
        channel: &Channel,
        caller: &KdsCaller,
        shows_history: bool,
        applier: Applier,
        stop: &CancellationToken,
    ) -> Ended {
        let (wire, queue) = outbox::wire(QUEUE);
        let mut client = MultiplexServiceClient::new(channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if self.settings.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let request = with_headers(queue, caller);
        let inbound = opened(async move { client.stream_message(request).await });
        let (multiplexer, halves) = Multiplexer::new(order::requested_by_zone());
        let serving = self.serving::<Sotw>(halves.answers, stop);
        let serving = serving.run(halves.requests, self.own_view(false));
        let following = self.following(shows_history, applier, halves.questions, stop);
        let ours = multiplex::introduction(following.ours);
        let following = Following { ours, ..following }.run(halves.responses);
        multiplexer.carry(std::pin::pin!(inbound), wire, serving, following).await
    }
}
