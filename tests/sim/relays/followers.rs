//! A relay opens a stream for each of its zones; and whoever has its token more than it needs.

use common::{
    kds::{carrier::Carrier, dial, features::Features, headers::KdsCaller},
    proto::{
        envoy::service::discovery::v3::DeltaDiscoveryResponse,
        kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
        strait::relay::v1alpha1::{
            RelayFollowRequest, RelayFollowResponse, RelayReport, relay_service_client::RelayServiceClient,
        },
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming, transport::Channel};

use super::*;

/// A relay in a test's hands.
struct Puppet {
    client: RelayServiceClient<Channel>,
    carrier: Carrier,
}

impl Puppet {
    fn request<T>(&self, queue: mpsc::Receiver<T>) -> Request<ReceiverStream<T>> {
        let mut request = Request::new(ReceiverStream::new(queue));
        self.carrier.write(request.metadata_mut());
        request
    }

    async fn follow(&mut self) -> (mpsc::Sender<RelayFollowRequest>, Streaming<RelayFollowResponse>) {
        let (requests, queue) = mpsc::channel(4);
        let request = self.request(queue);
        (requests, self.client.follow(request).await.unwrap().into_inner())
    }
}

#[tokio::test]
async fn one_stream_follows_on_the_line_of_a_relay_however_many_it_opens() {
    let global = global().await;
    let channel = global.dial.dial(dial::endpoint(PATIENCE, "test")).await.unwrap();
    let carrier = Carrier { relay: "relay-1".to_owned(), session: "s".to_owned(), token: None };
    let mut puppet = Puppet { client: RelayServiceClient::new(channel), carrier };
    let (_reports, queue) = mpsc::channel::<RelayReport>(1);
    let request = puppet.request(queue);
    let mut questions = puppet.client.attend(request).await.unwrap().into_inner();
    let mut earlier = Vec::new();
    for _ in 0..20 {
        earlier.push(puppet.follow().await);
    }
    let (requests, mut states) = puppet.follow().await;
    for (_, states) in &mut earlier {
        let ended = timeout(PATIENCE, states.message()).await.expect("an end");
        assert!(!matches!(ended, Ok(Some(_))), "it follows as well");
    }
    requests.send(RelayFollowRequest { held_complete: true, ..RelayFollowRequest::default() }).await.unwrap();
    let state = timeout(PATIENCE, states.message()).await.unwrap().unwrap().unwrap();
    assert!(state.complete && state.resources.iter().any(|one| one.r#type == "Mesh"));
    assert!(timeout(Duration::from_millis(10), questions.message()).await.is_err(), "its line is as it was");
}

#[tokio::test]
async fn one_connection_carries_the_streams_of_hundreds_of_zones() {
    let global = global().await;
    let channel = global.dial.dial(dial::endpoint(PATIENCE, "test")).await.unwrap();
    let mut open = Vec::new();
    for n in 0..300 {
        let caller = KdsCaller {
            zone: format!("zone-{n}"),
            features: Features::ours(),
            session: Some("s".to_owned()),
            token: None,
            version: String::new(),
            issuing_request: None,
        };
        let (answers, queue) = mpsc::channel::<DeltaDiscoveryResponse>(1);
        let mut request = Request::new(ReceiverStream::new(queue));
        caller.write(request.metadata_mut());
        let mut client = KdsSyncServiceClient::new(channel.clone());
        let opened = timeout(PATIENCE, client.zone_to_global_sync(request)).await;
        let asked = opened.unwrap_or_else(|_| panic!("no room for the stream of zone {n}")).unwrap();
        open.push((answers, asked.into_inner()));
    }
}
