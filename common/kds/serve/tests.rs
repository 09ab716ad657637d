#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::*;
use crate::{
    kds::{MAX_MESSAGE, features::Features, watch::Watch},
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

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
}

/// Remembers which types were counted.
#[derive(Default)]
struct Counted(Mutex<Vec<String>>);

impl Watch for Counted {
    fn introduced(&self, _peer: &Peer) {}
    fn heard(&self) {}
    fn counted(&self, type_name: &str, _outcome: Outcome) {
        self.0.lock().unwrap().push(type_name.to_owned());
    }
    fn reached(&self, _position: Position) {}
    fn refused(&self, _type_name: &str, _reason: Option<String>) {}
    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
}

/// Serves a peer with these features that asks for `types` and never answers; how long until that ends,
/// what was sent, and what was counted.
async fn serve_silent(features: Features, types: &[&str]) -> (Duration, Vec<String>, Vec<String>) {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let (_publisher, index) = watch::channel(Arc::new(Index::empty(store)));
    let (wire, mut responses) = mpsc::channel(8);
    let (requests, inbound) = mpsc::channel(8);
    let peer = Peer { features, ..Peer::default() };
    for type_url in types {
        let first = DeltaDiscoveryRequest {
            node: Some(peer.node("zone-1")),
            type_url: (*type_url).to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(Ok(first)).await.unwrap();
    }
    let counted = Arc::new(Counted::default());
    let serving = Serving {
        identifier: "global".to_owned(),
        types: vec!["Mesh"],
        index: IndexReader::new(index),
        outbox: Outbox::new(wire, 8),
        watch: Arc::clone(&counted) as Arc<dyn Watch>,
        stop: CancellationToken::new(),
        stall_after: Duration::from_secs(20),
        refusals: Refusals::default(),
        max_message: MAX_MESSAGE,
    };
    let started = Instant::now();
    let ended = serving.run(ReceiverStream::new(inbound), |_, _| Nothing).await;
    assert!(matches!(ended, Ended::Stalled(_)), "{ended}");
    let mut sent = Vec::new();
    while let Some(response) = responses.recv().await {
        sent.push(response.type_url);
    }
    let counted = counted.0.lock().unwrap().clone();
    (started.elapsed(), sent, counted)
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_another_make_may_take_its_time() {
    let ours = Features::ours();
    assert_eq!(serve_silent(ours.clone(), &["Mesh"]).await.0, Duration::from_secs(20));
    assert_eq!(serve_silent(ours.without(RESUME), &["Mesh"]).await.0, FOREIGN_PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_serves_is_answered_and_not_counted() {
    let (_, mut sent, counted) = serve_silent(Features::ours(), &["Mesh", "MadeUp", "MadeUp2"]).await;
    sent.sort();
    assert_eq!(sent, ["MadeUp", "MadeUp2", "Mesh"]);
    assert_eq!(counted, ["Mesh"]);
}
