#![allow(clippy::unwrap_used)]

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::*;
use crate::{
    kds::{features::Features, watch::Watch},
    store::StoreIdentity,
    xds::{Name, Version, Wanted},
};

/// Has nothing of anything.
struct Nothing;

impl Want for Nothing {
    fn revision(&self) -> u64 {
        0
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, _type_url: &str, _visit: &mut dyn FnMut(&Name, Version)) {}

    fn get(&self, _type_url: &str, _name: &str) -> Option<Wanted> {
        None
    }
}

impl View for Nothing {
    fn advance(&mut self, _index: &Arc<Index>) -> ChangedNames {
        ChangedNames::new()
    }
}

struct Unwatched;

impl Watch for Unwatched {
    fn introduced(&self, _peer: &Peer) {}
    fn heard(&self) {}
    fn counted(&self, _type_name: &str, _outcome: Outcome) {}
    fn reached(&self, _position: Position) {}
    fn refused(&self, _type_name: &str, _reason: Option<String>) {}
}

/// How long a peer with these features may keep silent about the answer to its first request.
async fn patience_with(features: Features) -> Duration {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let (_publisher, index) = watch::channel(Arc::new(Index::empty(store)));
    let (wire, _responses) = mpsc::channel(8);
    let (requests, inbound) = mpsc::channel(8);
    let peer = Peer { features, ..Peer::default() };
    let first = DeltaDiscoveryRequest {
        node: Some(peer.node("zone-1")),
        type_url: "Mesh".to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(Ok(first)).await.unwrap();
    let serving = Serving {
        identifier: "global".to_owned(),
        types: vec!["Mesh"],
        index: IndexReader::new(index),
        outbox: Outbox::new(wire, 8),
        watch: Arc::new(Unwatched),
        stop: CancellationToken::new(),
        stall_after: Duration::from_secs(20),
    };
    let started = Instant::now();
    let ended = serving.run(ReceiverStream::new(inbound), |_, _| Nothing).await;
    assert!(matches!(ended, Ended::Stalled(_)), "{ended}");
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_another_make_may_take_its_time() {
    assert_eq!(patience_with(Features::ours()).await, Duration::from_secs(20));
    assert_eq!(patience_with(Features::ours().without(RESUME)).await, FOREIGN_PATIENCE);
}
