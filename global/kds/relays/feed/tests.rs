#![allow(clippy::unwrap_used)]
use std::iter;

use common::{
    proto::strait::relay::v1alpha1::RelayHeld,
    store::{Store, StoreIdentity, index::Index, memory::MemoryStore},
};
use futures::{poll, stream};
use tokio::time::advance;
use uuid::Uuid;

use super::*;

fn feed(room: usize) -> (RelayFeed, mpsc::Receiver<RelayFollowResponse>, watch::Sender<Arc<Index>>) {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let index = watch::Sender::new(Arc::new(Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 })));
    let (wire, queue) = mpsc::channel(room);
    let feed = RelayFeed {
        outgoing: Arc::new(SharedOutgoing::new(ForRelays::new(&[], usize::MAX))),
        index: IndexReader::new(index.subscribe()),
        history: ZoneHistory::of(store as Arc<dyn Store>),
        wire,
        max_message: usize::MAX,
        stop: CancellationToken::new(),
    };
    (feed, queue, index)
}

fn says(name: &str, held_complete: bool) -> Result<RelayFollowRequest, Status> {
    let held = RelayHeld { r#type: "Mesh".to_owned(), name: name.to_owned(), version: Vec::new() };
    Ok(RelayFollowRequest { held: vec![held], held_complete, ..RelayFollowRequest::default() })
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_does_not_come_to_an_end_with_what_it_holds_is_given_up() {
    let (feed, _queue, _index) = feed(4);
    // A word from time to time is no end.
    let words = stream::iter(0..).then(|n: u32| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        says(&n.to_string(), false)
    });
    let started = Instant::now();
    let ended = feed.run(Box::pin(words)).await;
    assert!(matches!(ended, Ended::Stalled(PATIENCE)), "{ended}");
    assert_eq!(started.elapsed(), PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_takes_nothing_is_given_up() {
    let (feed, queue, _index) = feed(1);
    feed.wire.try_send(RelayFollowResponse::default()).unwrap();
    let said = stream::iter(iter::once(says("default", true))).chain(stream::pending());
    let mut running = Box::pin(feed.run(said));
    assert!(poll!(&mut running).is_pending());
    advance(PATIENCE).await;
    let ended = running.await;
    assert!(matches!(ended, Ended::Stalled(PATIENCE)), "{ended}");
    drop(queue);
}
