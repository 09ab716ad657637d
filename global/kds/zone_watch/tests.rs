#![allow(clippy::unwrap_used)]
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use chrono::{DateTime, Utc};
use common::{
    events::{EventBus, StreamKind},
    kds::{features::ZONE_PING_HEALTH, headers::KdsCaller},
    model::{Resource, ResourceKey},
    rest::{ZoneCredential, ZoneProof},
    runtime::{Clock, Entropy},
    store::{Batch, Precondition, Store, Write, feed::Feed, memory::MemoryStore},
};
use tokio::{sync::watch, task::JoinHandle};
use uuid::Uuid;

use super::*;
use crate::kds::auth::{ShownCredentials, ZoneAuthError, ZoneCaller};

const PATIENCE: Patience =
    Patience { unknown_after: Duration::from_secs(10), offline_after: Duration::from_secs(20) };

/// Follows the clock of the runtime.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + self.0.elapsed()
    }
}

/// Lets anyone in, until it is told otherwise. Its answers depend on secrets.
#[derive(Default)]
struct Guard {
    refused: Mutex<Option<ZoneAuthError>>,
    expiry: Option<DateTime<Utc>>,
    asked: AtomicUsize,
}

impl Guard {
    fn refusal(reason: &str) -> ZoneAuthError {
        ZoneAuthError::Invalid { zone: "zone-1".to_owned(), reason: reason.to_owned() }
    }
}

impl ZoneAuthenticator for Guard {
    fn authenticate(&self, _zone: &str, _shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.refused.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn credential(&self, _shown: ShownCredentials<'_>) -> Option<ZoneCredential> {
        let until = Some(self.expiry?);
        Some(ZoneCredential { kind: ZoneProof::Token, id: String::new(), since: None, until })
    }

    fn depends_on(&self, key: &ResourceKey) -> bool {
        key.kind == &kinds::secret::GLOBAL_SECRET
    }
}

struct World {
    store: Arc<dyn Store>,
    index: IndexReader,
    sessions: Arc<Sessions>,
    events: Subscriber,
    guard: Arc<Guard>,
    start: Instant,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl World {
    async fn new(guard: Guard) -> Self {
        Self::with_buffer(guard, 64).await
    }

    /// A watch over a store with one zone, on a bus that buffers this many events.
    async fn with_buffer(guard: Guard, buffer: usize) -> Self {
        let start = Instant::now();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let zone = Resource::new(ResourceKey::global(&kinds::zone::KIND, "zone-1"), DateTime::UNIX_EPOCH);
        store.transact(Batch::of([Write::put(zone)])).await.unwrap();
        let bus = EventBus::new(buffer);
        let feed = Feed::load(Arc::clone(&store)).await.unwrap().telling(bus.clone());
        let index = feed.reader();
        let following = tokio::spawn(async move { feed.run(CancellationToken::new()).await.unwrap() });
        let clock = Arc::new(RuntimeClock(start));
        let env = Env { clock, entropy: Entropy::seeded(1), instance_id: "here".into() };
        let sessions =
            Arc::new(Sessions::new(Arc::clone(&store), env.clone(), bus.clone(), watch::Sender::new(())));
        let guard = Arc::new(guard);
        let watch = ZoneWatch {
            sessions: Arc::clone(&sessions),
            replicas: Arc::new(Replicas::new("here".into(), Arc::clone(&store))),
            authenticator: Arc::clone(&guard) as Arc<dyn ZoneAuthenticator>,
            index: index.clone(),
            env,
            patience: PATIENCE,
        };
        let events = bus.subscribe("test");
        let watching = tokio::spawn(watch.run(bus.subscribe("zone watch"), CancellationToken::new()));
        Self { store, index, sessions, events, guard, start, tasks: vec![following, watching] }
    }

    fn caller(&self) -> ZoneCaller {
        let caller = KdsCaller {
            zone: "zone-1".to_owned(),
            features: [ZONE_PING_HEALTH].into_iter().collect(),
            session: None,
            token: Some("t".to_owned()),
            version: String::new(),
            issuing_request: None,
        };
        let credential = self.guard.credential(ShownCredentials::default());
        ZoneCaller { credential, ..caller.into() }
    }

    async fn open(&mut self) -> Arc<Session> {
        let caller = self.caller();
        let session =
            self.sessions.join(&caller, DateTime::UNIX_EPOCH, StreamKind::GlobalToZone).await.unwrap();
        assert_eq!(self.next().await.0, "ZoneOpenedStream");
        // The paused clock moves only when everyone has done what there is to do.
        tokio::time::sleep(Duration::from_millis(1)).await;
        session
    }

    async fn secret(&self, name: &str) {
        let key = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, name);
        let secret = Resource::new(key, DateTime::UNIX_EPOCH);
        let commit = self.store.transact(Batch::of([Write::put(secret)])).await.unwrap();
        self.index.wait_for(commit.revision).await.unwrap();
    }

    /// The name of the next event, and when it came.
    async fn next(&mut self) -> (String, Duration) {
        let event = self.events.next().await.unwrap();
        let name = format!("{event:?}");
        (name.split([' ', '(']).next().unwrap().to_owned(), self.start.elapsed())
    }

    /// The session is ended from this side at this second, for good.
    async fn assert_dismissed(&mut self, session: &Session, second: u64, cause: &EndCause) {
        for expected in ["StreamCancelled", "SessionEnded", "ZoneWentOffline"] {
            let (name, at) = self.next().await;
            assert_eq!((name.as_str(), at.as_secs()), (expected, second));
        }
        assert_eq!(session.cause().as_ref(), Some(cause));
        assert!(session.stop.is_cancelled());
    }
}

/// Lets the paused clock run on: nobody waits, and everything that is due by then has been done.
async fn time_passes(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_session_when_patience_does() {
    let mut world = World::new(Guard::default()).await;
    let session = world.open().await;
    let asked = world.guard.asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        time_passes(15).await;
        session.hear();
    }
    world.assert_dismissed(&session, 65, &EndCause::Silent(PATIENCE.offline_after)).await;
    // It has been gone since it was last heard, and does not come back to life by being found dead.
    let (health, since) = judge(Instant::now(), &session.facts(), PATIENCE);
    assert_eq!((health, since.timestamp()), (ZoneHealth::Offline, 45));
    assert_eq!(world.guard.asked.load(Ordering::Relaxed), asked, "time alone does not make a token worse");
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_lost_its_connection_is_offline_when_it_does_not_come_back() {
    let mut world = World::new(Guard::default()).await;
    let broken = || EndCause::Broken("reset".to_owned());
    let session = world.open().await;
    world.sessions.end(&session, broken());
    assert_eq!(world.next().await.0, "SessionEnded");
    time_passes(19).await;
    let again = world.open().await;
    time_passes(10).await;
    world.sessions.end(&again, broken());
    for (expected, second) in [("SessionEnded", 29), ("ZoneWentOffline", 49)] {
        let (name, at) = world.next().await;
        assert_eq!((name.as_str(), at.as_secs()), (expected, second));
    }
    assert_eq!(world.events.waiting(), None, "it is told once");
}

#[tokio::test(start_paused = true)]
async fn a_credential_is_asked_about_again_when_what_it_depends_on_changes() {
    let mut world = World::new(Guard::default()).await;
    let session = world.open().await;
    world.secret("unrelated").await;
    assert_eq!(world.next().await.0, "ResourcesChanged");
    *world.guard.refused.lock().unwrap() = Some(Guard::refusal("revoked"));
    time_passes(5).await;
    session.hear();
    assert_eq!(session.cause(), None, "nothing has changed yet");
    world.secret("zone-token-revocations").await;
    assert_eq!(world.next().await.0, "ResourcesChanged");
    world.assert_dismissed(&session, 5, &EndCause::Refused(Guard::refusal("revoked"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_changed_while_the_session_was_opened_is_noticed() {
    let guard = Guard { refused: Mutex::new(Some(Guard::refusal("revoked"))), ..Guard::default() };
    let mut world = World::new(guard).await;
    let session = world.open().await;
    world.assert_dismissed(&session, 0, &EndCause::Refused(Guard::refusal("revoked"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_runs_out_ends_the_session_then() {
    let expiry = Some(DateTime::UNIX_EPOCH + Duration::from_secs(12));
    let mut world = World::new(Guard { expiry, ..Guard::default() }).await;
    let session = world.open().await;
    time_passes(1).await;
    *world.guard.refused.lock().unwrap() = Some(Guard::refusal("expired"));
    time_passes(10).await;
    session.hear();
    assert_eq!(session.cause(), None);
    world.assert_dismissed(&session, 12, &EndCause::Refused(Guard::refusal("expired"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_zone_loses_its_session_also_when_it_is_made_again_at_once() {
    let mut world = World::new(Guard::default()).await;
    let session = world.open().await;
    let key = ResourceKey::global(&kinds::zone::KIND, "zone-1");
    let again =
        Resource::new(key.clone(), DateTime::UNIX_EPOCH + Duration::from_secs(1)).with_label("a", "b");
    // Nobody sees the moment at which it is not there.
    let writes = [Write::delete_when(key, Precondition::None), Write::put(again)];
    world.store.transact(Batch::of(writes)).await.unwrap();
    assert_eq!(world.next().await.0, "ResourcesChanged");
    world.assert_dismissed(&session, 0, &EndCause::Deleted).await;
    assert!(world.sessions.of("zone-1").is_none(), "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lost_events_looks_at_everything() {
    let mut world = World::with_buffer(Guard::default(), 1).await;
    let session = world.open().await;
    *world.guard.refused.lock().unwrap() = Some(Guard::refusal("revoked"));
    let secret = |name: &str| {
        let key = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, name);
        Write::put(Resource::new(key, DateTime::UNIX_EPOCH))
    };
    // More than one event holds, so the first of them, with the secret, is gone before anyone reads it.
    let zones = (0..200).map(|n| {
        let key = ResourceKey::global(&kinds::zone::KIND, &format!("zone-{n}"));
        Write::put(Resource::new(key, DateTime::UNIX_EPOCH).with_label("a", "b"))
    });
    world.store.transact(Batch::of([secret("a")].into_iter().chain(zones))).await.unwrap();
    session.stop.cancelled().await;
    assert_eq!(session.cause(), Some(EndCause::Refused(Guard::refusal("revoked"))));
}

#[tokio::test(start_paused = true)]
async fn a_zone_whose_replica_hands_over_is_gone_only_when_nobody_takes_over() {
    let mut world = World::new(Guard::default()).await;
    let session = world.open().await;
    session.hands_over(&world.caller());
    world.sessions.end(&session, EndCause::Goodbye);
    assert_eq!(session.cause(), Some(EndCause::HandedOver));
    assert_eq!(world.next().await.0, "SessionEnded");
    let health = |session: &Session| judge(Instant::now(), &session.facts(), PATIENCE).0;
    assert_eq!(health(&session), ZoneHealth::Online);
    let (name, at) = world.next().await;
    assert_eq!((name.as_str(), at.as_secs()), ("ZoneWentOffline", 20));
    assert_eq!(health(&session), ZoneHealth::Offline);
}
