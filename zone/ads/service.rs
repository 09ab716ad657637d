//! The gRPC face of the streams.

use std::sync::Arc;

use common::{
    proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::AggregatedDiscoveryService,
    },
    runtime::http::{Client, Connection},
    xds::{Delta, Sotw},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use super::stream::{Peer, QUEUE, Streams, Wire};

/// Streams on a connection of which no proxy was let in yet.
const UNKNOWN: usize = 10;

/// Serves ADS in both protocols.
pub(super) struct Service {
    pub(super) streams: Arc<Streams>,
    pub(super) tasks: TaskTracker,
}

type Answers<D> = ReceiverStream<Result<D, Status>>;

impl Service {
    fn open<D: Wire + 'static>(
        &self,
        request: Request<Streaming<D::Request>>,
    ) -> Result<Response<Answers<D::Response>>, Status>
    where
        D::Request: 'static,
        D::Response: 'static,
    {
        let peer = peer(&request);
        let knock = peer.client.knock(UNKNOWN).ok_or_else(|| {
            Status::unavailable("too many streams on a connection that has not shown yet who it is")
        })?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (streams, requests) = (Arc::clone(&self.streams), request.into_inner());
        self.tasks.spawn(async move {
            streams.serve::<D>(peer, requests, sender).await;
            drop(knock);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn peer<T>(request: &Request<T>) -> Peer {
    let address = request.extensions().get::<Connection>().map(|c| c.peer.to_string()).unwrap_or_default();
    let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
    // The bootstrap writes the bare token; other clients like to say what it is.
    let token = token.map(|t| t.strip_prefix("Bearer ").unwrap_or(t).trim().to_owned());
    let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
    Peer { address, token, client }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        self.open::<Sotw>(request)
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        self.open::<Delta>(request)
    }
}
