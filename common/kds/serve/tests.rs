#![allow(clippy::unwrap_used)]

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::*;
use crate::kds::outbox;
use crate::{
    kds::{MAX_MESSAGE, features::Features, watch::Watch},
    offers::{OffersDoor, RefusedSelection},
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    store::{Snapshot, StoreIdentity},
    xds::{Name, Refusals, Version, Wanted},
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
    fn key_of(&self, _: &str, _: &str) -> Option<ResourceKey> {
        None
    }

    fn advance(&mut self, _index: &Arc<Index>) -> ChangedNames {
        ChangedNames::new()
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
}

/// Has one resource.
struct One(crate::xds::WantSnapshot);

impl Want for One {
    fn revision(&self) -> u64 {
        self.0.revision()
    }

    fn ready(&self, type_url: &str) -> bool {
        self.0.ready(type_url)
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.0.each(type_url, visit);
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.0.get(type_url, name)
    }
}

impl View for One {
    fn key_of(&self, _: &str, name: &str) -> Option<ResourceKey> {
        Some(ResourceKey::global(&crate::model::kinds::mesh::KIND, name.trim_end_matches('.')))
    }

    fn advance(&mut self, _index: &Arc<Index>) -> ChangedNames {
        ChangedNames::new()
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
}

/// Remembers what was refused, in which words.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Watch for Told {
    fn introduced(&self, _peer: &Peer) {}
    fn heard(&self) {}
    fn counted(&self, _type_name: &str, _outcome: Outcome) {}
    fn reached(&self, _position: Position) {}
    fn refused(&self, type_name: &str, refusals: &Refusals) {
        self.0.lock().unwrap().extend(refusals.text(type_name));
    }
    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
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
    fn refused(&self, _type_name: &str, _refusals: &Refusals) {}
    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
}

fn nothing_changes() -> (watch::Sender<Arc<Index>>, watch::Receiver<Arc<Index>>) {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    watch::channel(Arc::new(Index::empty(store)))
}

fn serving(
    index: watch::Receiver<Arc<Index>>,
    wire: mpsc::Sender<Box<DeltaDiscoveryResponse>>,
    watch: Arc<dyn Watch>,
) -> Serving {
    wished(index, wire, watch, OffersDoor::default().open())
}

fn wished(
    index: watch::Receiver<Arc<Index>>,
    wire: mpsc::Sender<Box<DeltaDiscoveryResponse>>,
    watch: Arc<dyn Watch>,
    wishes: OfferWishes,
) -> Serving {
    Serving {
        wishes,
        identifier: "global".to_owned(),
        types: vec!["Mesh"],
        index: IndexReader::new(index),
        outbox: Outbox::new(wire, 8),
        watch,
        stop: CancellationToken::new(),
        stall_after: Duration::from_secs(20),
        refusals: Refusals::default(),
        max_message: MAX_MESSAGE,
    }
}

/// Serves a peer with these features that asks for `types` and never answers; how long until that ends,
/// what was sent, and what was counted.
async fn serve_silent(features: Features, types: &[&str]) -> (Duration, Vec<String>, Vec<String>) {
    let (_publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
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
    let serving = serving(index, wire, Arc::clone(&counted) as Arc<dyn Watch>);
    let started = Instant::now();
    let ended = serving.run(ReceiverStream::new(inbound), |_, _| Nothing).await;
    assert!(matches!(ended, Ended::Stalled(_)), "{ended}");
    let mut sent = Vec::new();
    while let Some(response) = responses.next().await {
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

/// A peer that answers for so many of these types, each after a pause; how that ends, and when.
async fn serve_slow(types: &[&'static str], answers: usize, pause: Duration) -> (Ended, Duration) {
    let (_publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
    let (requests, inbound) = mpsc::channel(8);
    let serving = Serving { types: types.to_vec(), ..serving(index, wire, Arc::new(Told::default())) };
    let request = |type_url: &str, nonce: String| {
        Ok(DeltaDiscoveryRequest {
            node: Some(Peer { features: Features::ours(), ..Peer::default() }.node("zone-1")),
            type_url: type_url.to_owned(),
            response_nonce: nonce,
            ..DeltaDiscoveryRequest::default()
        })
    };
    let started = Instant::now();
    let peer = async {
        let mut owed = Vec::new();
        for type_url in types {
            requests.send(request(type_url, String::new())).await.unwrap();
            owed.push(responses.next().await.unwrap());
        }
        for response in owed.into_iter().take(answers) {
            tokio::time::sleep(pause).await;
            requests.send(request(&response.type_url, response.nonce)).await.unwrap();
        }
        // It goes once it has said everything.
        if answers == types.len() {
            drop(requests);
            return None;
        }
        Some(requests)
    };
    let served = serving.run(ReceiverStream::new(inbound), |_, _| Nothing);
    let (ended, _stays) = tokio::join!(served, peer);
    (ended, started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_slow_line_may_take_its_time_as_long_as_answers_come() {
    let (types, pause) = (["Mesh", "MeshTimeout", "MeshRetry", "MeshAccessLog"], Duration::from_secs(15));
    let (ended, after) = serve_slow(&types, 4, pause).await;
    assert!(matches!(ended, Ended::ByPeer), "{ended}");
    assert_eq!(after.as_secs(), 60);
    let (ended, after) = serve_slow(&types, 3, pause).await;
    assert!(matches!(ended, Ended::Stalled(_)), "{ended}");
    assert_eq!(after.as_secs(), 65, "one is missing");
}

#[tokio::test(start_paused = true)]
async fn who_never_answers_for_one_type_is_not_waited_for_for_ever() {
    let (_publisher, index) = nothing_changes();
    let (wire, _responses) = outbox::wire(8);
    let serving = serving(index, wire, Arc::new(Told::default()));
    let since = Instant::now();
    let at = |seconds| since + Duration::from_secs(seconds);
    for (last_answer, until) in [(None, at(20)), (Some(at(100)), at(120)), (Some(at(299)), at(300))] {
        assert_eq!(serving.patience(since, last_answer), until);
    }
    assert_eq!(serving.patience(at(50), Some(since)), at(70), "what came before says nothing");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_serves_is_answered_and_not_counted() {
    let (_, mut sent, counted) = serve_silent(Features::ours(), &["Mesh", "MadeUp", "MadeUp2"]).await;
    sent.sort();
    assert_eq!(sent, ["MadeUp", "MadeUp2", "Mesh"]);
    assert_eq!(counted, ["Mesh"]);
}

#[tokio::test(start_paused = true)]
async fn who_acknowledges_without_end_what_nobody_sent_is_sent_away() {
    let (_publisher, index) = nothing_changes();
    let (wire, _responses) = outbox::wire(8);
    let serving = serving(index, wire, Arc::new(Told::default()));
    let node = Peer { features: Features::ours(), ..Peer::default() }.node("zone-1");
    let said = (0..5000).map(move |n| {
        Ok(DeltaDiscoveryRequest {
            node: Some(node.clone()),
            type_url: "Mesh".to_owned(),
            response_nonce: if n == 0 { String::new() } else { "made up".to_owned() },
            ..DeltaDiscoveryRequest::default()
        })
    });
    let ended = serving.run(futures::stream::iter(said), |_, _| Nothing).await;
    assert!(matches!(ended, Ended::Talkative(_)), "{ended}");
}

/// A peer that refuses in these words what it is offered, until it is offered it again; in which words that is
/// shown.
async fn refused(words: &str) -> Vec<String> {
    let (_publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
    let (requests, inbound) = mpsc::channel(8);
    let told = Arc::new(Told::default());
    let serving = serving(index, wire, Arc::clone(&told) as Arc<dyn Watch>);
    let mut offered = crate::xds::WantSnapshot::new(1);
    offered.put(Wanted::new("default.", "Mesh", "1"));
    let subscribe = DeltaDiscoveryRequest {
        node: Some(Peer { features: Features::ours(), ..Peer::default() }.node("zone-1")),
        type_url: "Mesh".to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(Ok(subscribe)).await.unwrap();
    let peer = async {
        let first = responses.next().await.unwrap();
        let refusal = DeltaDiscoveryRequest {
            type_url: "Mesh".to_owned(),
            response_nonce: first.nonce,
            error_detail: Some(crate::proto::google::rpc::Status {
                code: 3,
                message: words.to_owned(),
                details: Vec::new(),
            }),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(Ok(refusal)).await.unwrap();
        responses.next().await.unwrap();
        drop(requests);
    };
    let (ended, ()) = tokio::join!(serving.run(ReceiverStream::new(inbound), move |_, _| One(offered)), peer);
    assert!(matches!(ended, Ended::ByPeer), "{ended}");
    told.0.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_quotes_in_a_refusal_is_shown_without_secrets() {
    let token = "eyJhbGciOiJub25lIn0.eyJOYW1lIjoid2ViLTEifQ.c2lnbmF0dXJlLW5ldmVyLXdhcw";
    let words = format!("default.: cannot read password=hunter2 in {token}");
    let told = refused(&words).await;
    assert!(told.iter().any(|told| told.starts_with("default.: cannot read")), "{told:?}");
    assert!(told.iter().all(|told| !told.contains("hunter2") && !told.contains(token)), "{told:?}");
}

/// An operator need not wait for the pause, and need not touch the resource.
#[tokio::test(start_paused = true)]
async fn what_an_operator_wishes_is_offered_again_at_once() {
    let (_publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
    let (requests, inbound) = mpsc::channel(8);
    let door = OffersDoor::default();
    let serving = wished(index, wire, Arc::new(Told::default()), door.open());
    let mut offered = crate::xds::WantSnapshot::new(1);
    offered.put(Wanted::new("default.", "Mesh", "1"));
    let request = |nonce: &str, refused: bool| DeltaDiscoveryRequest {
        node: Some(Peer { features: Features::ours(), ..Peer::default() }.node("zone-1")),
        type_url: "Mesh".to_owned(),
        resource_names_subscribe: if nonce.is_empty() { vec!["*".to_owned()] } else { Vec::new() },
        response_nonce: nonce.to_owned(),
        error_detail: refused.then(|| crate::proto::google::rpc::Status {
            code: 3,
            message: "default.: no".to_owned(),
            details: Vec::new(),
        }),
        ..DeltaDiscoveryRequest::default()
    };
    let mesh = |name: &str| RefusedSelection::parse("Mesh", "", name).unwrap();
    let peer = async {
        requests.send(Ok(request("", false))).await.unwrap();
        let started = Instant::now();
        let mut nonces = vec![responses.next().await.unwrap().nonce];
        assert_eq!(door.ask(mesh("default")).await, Some(0), "nothing is refused yet");
        for _ in 0..3 {
            requests.send(Ok(request(nonces.last().unwrap(), true))).await.unwrap();
            assert_eq!(door.ask(mesh("another")).await, Some(0));
            while door.ask(mesh("default")).await != Some(1) {
                tokio::task::yield_now().await;
            }
            nonces.push(responses.next().await.unwrap().nonce);
        }
        requests.send(Ok(request(nonces.last().unwrap(), false))).await.unwrap();
        assert!(nonces.is_sorted_by(|a, b| a < b), "{nonces:?}");
        assert_eq!(started.elapsed(), Duration::ZERO, "no pause was waited for");
        drop(requests);
    };
    let (ended, ()) = tokio::join!(serving.run(ReceiverStream::new(inbound), move |_, _| One(offered)), peer);
    assert!(matches!(ended, Ended::ByPeer), "{ended}");
}

/// A zone of Kuma takes a batch whole or refuses it whole, and says in words of its own what it is about. What was right
/// in it arrives once, and what was not is offered again alone, after pauses that grow.
#[tokio::test(start_paused = true)]
async fn a_batch_that_a_zone_of_kuma_refused_is_not_sent_again_as_it_was() {
    const ALL: usize = 20;
    let (_publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
    let (requests, inbound) = mpsc::channel(8);
    let serving = serving(index, wire, Arc::new(Told::default()));
    let mut offered = crate::xds::WantSnapshot::new(1);
    for n in 0..ALL {
        offered.put(Wanted::new(format!("m{n}."), "Mesh", n.to_string()));
    }
    let first = DeltaDiscoveryRequest {
        node: Some(Peer { features: Features::ours().without(RESUME), ..Peer::default() }.node("zone-1")),
        type_url: "Mesh".to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(Ok(first.clone())).await.unwrap();
    let peer = async {
        let (mut taken, mut alone, started) = (Vec::new(), Vec::new(), Instant::now());
        while started.elapsed() < Duration::from_secs(120) {
            let Ok(response) = tokio::time::timeout(Duration::from_secs(60), responses.next()).await else {
                break;
            };
            let response = response.unwrap();
            let names: Vec<String> = response.resources.into_iter().map(|item| item.name).collect();
            let is_bad = names.iter().any(|name| name == "m7.");
            match names.as_slice() {
                [bad] if bad == "m7." => alone.push(started.elapsed().as_secs()),
                _ if is_bad => {}
                _ => taken.extend(names),
            }
            let words = "user error\nnot stored".to_owned();
            let error = crate::proto::google::rpc::Status { message: words, ..Default::default() };
            let answer = DeltaDiscoveryRequest {
                response_nonce: response.nonce,
                error_detail: is_bad.then_some(error),
                // It asks for everything once more beside a refusal, and never beside the rest.
                resource_names_subscribe: is_bad.then(|| "*".to_owned()).into_iter().collect(),
                ..first.clone()
            };
            requests.send(Ok(answer)).await.unwrap();
        }
        drop(requests);
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), ALL - 1, "{taken:?}");
        assert!(alone.windows(2).skip(1).all(|pair| pair[1] - pair[0] >= 9), "{alone:?}");
        assert!(alone.len() >= 2, "it is offered again: {alone:?}");
    };
    let (ended, ()) = tokio::join!(serving.run(ReceiverStream::new(inbound), move |_, _| One(offered)), peer);
    assert!(matches!(ended, Ended::ByPeer), "{ended}");
}

/// Has one resource that changes when the index gets to an even revision, and counts how often it is looked at.
struct Even {
    revision: u64,
    looked: Arc<AtomicUsize>,
}

impl Want for Even {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn ready(&self, _type_url: &str) -> bool {
        self.looked.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        let wanted = self.get(type_url, "default.").unwrap();
        visit(&wanted.name, wanted.version);
    }

    fn get(&self, _type_url: &str, name: &str) -> Option<Wanted> {
        (name == "default.").then(|| Wanted::new(name, "Mesh", (self.revision / 2).to_string()))
    }
}

impl View for Even {
    fn key_of(&self, _: &str, _: &str) -> Option<ResourceKey> {
        None
    }

    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        self.revision = index.revision;
        let is_even = self.revision.is_multiple_of(2);
        is_even.then(|| ("Mesh", vec!["default.".into()])).into_iter().collect()
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
}

/// Remembers how far the peer is.
struct Reached(watch::Sender<Position>);

impl Watch for Reached {
    fn introduced(&self, _peer: &Peer) {}
    fn heard(&self) {}
    fn counted(&self, _type_name: &str, _outcome: Outcome) {}
    fn reached(&self, position: Position) {
        self.0.send_replace(position);
    }
    fn refused(&self, _type_name: &str, _refusals: &Refusals) {}
    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
}

/// Thousands of streams hear of each change, most of which are of insights that go to nobody.
#[tokio::test(start_paused = true)]
async fn what_changes_for_others_is_acknowledged_and_not_looked_through() {
    let (publisher, index) = nothing_changes();
    let (wire, mut responses) = outbox::wire(8);
    let (requests, inbound) = mpsc::channel(8);
    let (reached, mut position) = watch::channel(Position::default());
    let serving = serving(index, wire, Arc::new(Reached(reached)));
    let request = |nonce: &str| DeltaDiscoveryRequest {
        node: Some(Peer { features: Features::ours(), ..Peer::default() }.node("zone-1")),
        type_url: "Mesh".to_owned(),
        resource_names_subscribe: nonce.is_empty().then(|| "*".to_owned()).into_iter().collect(),
        response_nonce: nonce.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    let looked = Arc::<AtomicUsize>::default();
    let view = Even { revision: 0, looked: Arc::clone(&looked) };
    let store = publisher.borrow().store;
    let publish = |revision| {
        publisher.send_replace(Arc::new(Index::of(
            store,
            Snapshot { revision, commit: None, resources: Vec::new() },
        )));
    };
    let peer = async {
        requests.send(Ok(request(""))).await.unwrap();
        let first = responses.next().await.unwrap();
        requests.send(Ok(request(&first.nonce))).await.unwrap();
        publish(2);
        let second = responses.next().await.unwrap();
        requests.send(Ok(request(&second.nonce))).await.unwrap();
        position.wait_for(|position| position.acked == 2).await.unwrap();
        let before = looked.load(Ordering::Relaxed);
        for revision in [3, 5, 7] {
            publish(revision);
            let told = position.wait_for(|position| position.head == revision).await.unwrap();
            assert_eq!((told.acked, told.lag), (revision, 0));
        }
        assert_eq!(looked.load(Ordering::Relaxed), before);
        publish(8);
        assert_eq!(responses.next().await.unwrap().resources.len(), 1);
        assert!(looked.load(Ordering::Relaxed) > before);
        drop(requests);
    };
    let (ended, ()) = tokio::join!(serving.run(ReceiverStream::new(inbound), move |_, _| view), peer);
    assert!(matches!(ended, Ended::ByPeer), "{ended}");
}
