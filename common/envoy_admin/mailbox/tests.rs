#![allow(clippy::unwrap_used)]
use async_trait::async_trait;

use super::*;
use crate::{envoy_admin::AdminFormat, model::kinds, store::memory::MemoryStore};

const STATS: Ask = Ask::Stats { format: AdminFormat::Text, used_only: true };

fn proxy(name: &str) -> ResourceKey {
    ResourceKey::new(&kinds::dataplane::KIND, "default", name)
}

/// Says how it goes by the name of the proxy.
struct Says;

#[async_trait]
impl EnvoyAdmin for Says {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        match &*proxy.name {
            "busy" => Err(AskError::Busy(1)),
            "late" => Err(AskError::TooLate(Duration::from_secs(1))),
            "moved" => Err(AskError::NotConnected(proxy.clone())),
            "closed" => Err(AskError::Closed { proxy: proxy.clone(), reason: "no door".to_owned() }),
            "wordy" => Ok(vec![0; LONGEST + 1].into()),
            "stuck" => std::future::pending().await,
            _ => Ok(format!("{proxy}{}", ask.path()).into()),
        }
    }
}

struct Post {
    store: Arc<MemoryStore>,
    here: Arc<Mailbox>,
}

impl Post {
    /// Two processes, the other of which answers.
    fn new() -> Self {
        let post = Self::silent();
        let there = Arc::new(Mailbox::new(Arc::clone(&post.store) as Arc<dyn Store>, "there".into()));
        tokio::spawn(there.run(Arc::new(Says), CancellationToken::new()));
        post
    }

    /// Where nobody answers.
    fn silent() -> Self {
        let store = Arc::new(MemoryStore::new(Uuid::nil()));
        let here = Arc::new(Mailbox::new(Arc::clone(&store) as Arc<dyn Store>, "here".into()));
        tokio::spawn(Arc::clone(&here).run(Arc::new(Says), CancellationToken::new()));
        Self { store, here }
    }

    async fn ask(&self, name: &str, id: u128) -> Result<Bytes, Undelivered> {
        self.here.ask("there", &proxy(name), STATS, Uuid::from_u128(id)).await
    }

    async fn lying(&self) -> usize {
        self.store.sessions(MAIL).await.unwrap().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_elsewhere_and_its_outcome_comes_back() {
    let post = Post::new();
    assert_eq!(post.ask("web-1", 1).await.unwrap(), "Dataplane default/web-1/stats?usedonly");
    let answered = |error| Err(Undelivered::Answered(error));
    assert_eq!(post.ask("busy", 2).await, answered(AskError::Busy(AT_ONCE)));
    assert_eq!(post.ask("late", 3).await, answered(AskError::TooLate(PATIENCE)));
    assert_eq!(post.ask("moved", 4).await, Err(Undelivered::Moved));
    for (name, part) in [("closed", "no door"), ("wordy", "fit in a message")] {
        let Err(Undelivered::Answered(AskError::Elsewhere { instance, reason })) = post.ask(name, 5).await
        else {
            panic!("{name} has no answer");
        };
        assert!(instance == "there" && reason.contains(part), "{reason}");
    }
    assert_eq!(post.lying().await, 0, "every letter was taken");
}

/// Has a zone called "east" here, and knows of one below a relay.
#[async_trait]
impl OffersAgain for Says {
    async fn offer_again(&self, zone: &str, meant: &RefusedSelection) -> Result<usize, NotOffered> {
        let (zone, reason) = (zone.to_owned(), "gone".to_owned());
        match zone.as_str() {
            "east" => Ok(meant.name.len()),
            "below" => Err(NotOffered::BelowRelay { zone, relay: "r".to_owned() }),
            _ => Err(NotOffered::Away { zone, reason }),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_done_elsewhere() {
    let post = Post::silent();
    let there = Arc::new(Mailbox::new(Arc::clone(&post.store) as Arc<dyn Store>, "there".into()));
    let offers = Some(Arc::new(Says) as Arc<dyn OffersAgain>);
    tokio::spawn(there.run_offering(Arc::new(Says), offers, CancellationToken::new()));
    let meant = RefusedSelection::parse("MeshTimeout", "default", "four").unwrap();
    let offer = async |zone: &str, id| post.here.offer("there", zone, &meant, Uuid::from_u128(id)).await;
    assert_eq!(offer("east", 1).await, Ok(4));
    assert_eq!(offer("west", 2).await, Err(Undelivered::Moved));
    let Err(Undelivered::Answered(AskError::Elsewhere { reason, .. })) = offer("below", 3).await else {
        panic!("a relay stands between");
    };
    assert!(reason.contains("below relay r"), "{reason}");
    assert_eq!(post.lying().await, 0, "every letter was taken");
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_answer_stops_waiting_and_leaves_nothing() {
    let post = Post::silent();
    let late = Err(Undelivered::Answered(AskError::TooLate(PATIENCE)));
    assert_eq!(post.ask("web-1", 1).await, late);
    assert_eq!(post.lying().await, 0);
    assert!(post.here.lock().is_empty());
    // Taken and never answered.
    let post = Post::new();
    assert_eq!(post.ask("stuck", 2).await, late);
    assert_eq!(post.lying().await, 0);
}

#[tokio::test(start_paused = true)]
async fn few_wait_at_a_time() {
    let post = Post::silent();
    let many = (0..=AT_ONCE as u128).map(|id| post.ask("web-1", id));
    let outcomes = futures::future::join_all(many).await;
    let busy = |outcome: &&Result<Bytes, Undelivered>| {
        **outcome == Err(Undelivered::Answered(AskError::Busy(AT_ONCE)))
    };
    assert_eq!(outcomes.iter().filter(busy).count(), 1, "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_nobody_takes_is_thrown_away_and_one_of_nonsense_ends_nothing() {
    let post = Post::new();
    let rows = [("gone/1", "{}"), ("there/2", "not a letter"), ("here/3", r#"{"Answer":"%%%"}"#)];
    let rows = rows.map(|(key, text)| (format!("{MAIL}{key}"), Some(text.to_owned())));
    post.store.put_sessions(rows.into()).await.unwrap();
    for _ in 0..=KEPT {
        tokio::time::advance(LOOK).await;
        tokio::task::yield_now().await;
    }
    while post.lying().await > 0 {
        tokio::task::yield_now().await;
    }
    assert!(post.ask("web-1", 4).await.is_ok());
}
