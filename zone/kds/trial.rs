//! Looks at another global without following it: takes what it would send into a place of its own, and compares.
//!
//! Nothing goes up meanwhile: what this zone owns belongs to the global it follows.

use std::{sync::Arc, time::Duration};

use common::{
    kds::{
        apply::{Applier, Follower},
        dial,
        features::{ATTRIBUTION, DIGESTS, HASH_SUFFIX, RESUME, ZONE_PING_HEALTH},
        follow::{BatchReport, Following},
        fuse::Fuse,
        headers::KdsCaller,
        insight::Outcome,
        metadata::Peer,
        outbox::{self, Outbox},
        signature::TrustedFile,
        watch::{Position, Watch},
    },
    proto::kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
    redact,
    runtime::Env,
    store::{
        Changes, Store, StoreError,
        index::{Index, IndexReader},
        memory::MemoryStore,
    },
    xds::Refusals,
};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{codec::CompressionEncoding, transport::Channel};

use super::{
    call::{opened, with_headers},
    link::Link,
    moving::{MoveDifference, MoveTarget, Moves},
    ping::{Pings, unanswered},
    settings::ZoneKdsSettings,
};

/// Pause after a look that failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How often what is held and what is offered are compared.
const COMPARE: Duration = Duration::from_secs(1);
/// Messages before and behind the wire.
const QUEUE: usize = 64;
const OUTBOX: usize = 128;
/// Bytes of why a look failed; the other global may have said it.
const LONGEST_REASON: usize = 1024;

/// Looks at the global an operator wants to move to.
pub(super) struct Trial<'a> {
    pub(super) settings: &'a ZoneKdsSettings,
    pub(super) index: &'a IndexReader,
    pub(super) env: &'a Env,
    pub(super) ours: Peer,
    pub(super) moves: &'a Moves,
}

impl Trial<'_> {
    /// Looks, again whenever a look ends, for as long as there is something to look at.
    pub(super) async fn run(&self) -> std::convert::Infallible {
        loop {
            let Some(target) = self.moves.looked_at() else {
                self.moves.decision().await;
                continue;
            };
            let failed = tokio::select! {
                failed = self.look(&target) => failed,
                () = self.moves.decision() => continue,
            };
            let reason = redact::words(&failed, LONGEST_REASON);
            tracing::info!(to = target.to, reason, "a look at another global ended");
            self.moves.note(&target, |status, shown| {
                (status.connected, status.complete) = (false, false);
                (status.last_error, *shown) = (Some(reason), None);
            });
            self.moves.decision_within(PAUSE).await;
        }
    }

    /// One look; why it ended.
    async fn look(&self, target: &MoveTarget) -> String {
        let caller = KdsCaller {
            zone: self.settings.zone.to_string(),
            features: [ZONE_PING_HEALTH, HASH_SUFFIX, RESUME, DIGESTS, ATTRIBUTION].into_iter().collect(),
            session: Some(self.env.entropy.uuid().to_string()),
            token: target.token.as_deref().map(|token| token.trim().to_owned()),
            version: self.settings.version.clone(),
            issuing_request: self.settings.issuing_request.clone(),
        };
        let trusted = match self.settings.trusted() {
            Ok(trusted) => trusted,
            Err(error) => return error.to_string(),
        };
        let dial = match self.moves.dial(target) {
            Ok(dial) => dial,
            Err(error) => return error.to_string(),
        };
        let endpoint = dial::endpoint(self.settings.connect_timeout, &self.settings.agent());
        let channel = match timeout(self.settings.connect_timeout, dial.dial(endpoint)).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "no connection in time".to_owned(),
        };
        let link = Link::new(self.env.clone());
        let pings = Pings {
            settings: self.settings,
            link: &link,
            channel: channel.clone(),
            caller: caller.clone(),
            followed: None,
            index: self.index,
            proxies: None,
        };
        let (period, shown) = match pings.ping().await {
            Ok((period, Some(shown))) => (period, shown),
            Ok((_, None)) => return "it shows no history to follow: it is of another make".to_owned(),
            Err(status) => return unanswered(&status),
        };
        link.connected(Some(shown), false);
        self.moves.note(target, |status, seen| {
            (status.connected, status.last_error, *seen) = (true, None, Some(shown));
        });
        let offered = Offered::new(self.env.entropy.uuid());
        let stop = CancellationToken::new();
        let _ends_with_the_look = stop.clone().drop_guard();
        tokio::select! {
            ended = self.take(&channel, &caller, (&offered, trusted), &link, stop) => ended,
            status = pings.keep(period) => unanswered(&status),
            failed = offered.show() => format!("keep what it sends: {failed}"),
            () = self.compare(target, &offered, &link) => "the process is stopping".to_owned(),
        }
    }

    async fn take(
        &self,
        channel: &Channel,
        caller: &KdsCaller,
        (offered, trusted): (&Offered, Option<Arc<TrustedFile>>),
        link: &Link,
        stop: CancellationToken,
    ) -> String {
        let (wire, queue) = outbox::wire(QUEUE);
        let mut client = KdsSyncServiceClient::new(channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if self.settings.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let request = with_headers(queue, caller);
        let inbound = opened(async move { client.global_to_zone_sync(request).await });
        let link = link.clone();
        let following = Following {
            zone: Arc::clone(&self.settings.zone),
            ours: self.ours.clone(),
            resume: true,
            sums_up: link.takes_digests(),
            besides: Vec::new(),
            remind_every: None,
            guard_first: false,
            applier: Applier {
                store: Arc::clone(&offered.store) as Arc<dyn Store>,
                index: IndexReader::new(offered.index.subscribe()),
                env: self.env.clone(),
                follower: Follower::Zone,
                fence: None,
                fuse: Fuse::OPEN,
                trusted,
            },
            outbox: Outbox::new(wire, OUTBOX),
            watch: Arc::new(Unwatched),
            refusals: Refusals::default(),
            on_batch: Some(Box::new(move |report: &BatchReport| {
                if report.settled {
                    link.settled();
                }
            })),
            stop,
        };
        following.run(std::pin::pin!(inbound)).await.to_string()
    }

    /// Compares what this zone holds with what is offered, whenever either may have changed.
    async fn compare(&self, target: &MoveTarget, offered: &Offered, link: &Link) {
        let mut tick = interval(COMPARE);
        let mut last = None;
        loop {
            tick.tick().await;
            let (held, there) = (self.index.current(), Arc::clone(&offered.index.borrow()));
            let now = (held.revision, there.revision, link.followed().is_some());
            if last.replace(now) == Some(now) {
                continue;
            }
            let difference = MoveDifference::between(&held, &there);
            self.moves.note(target, |status, _| {
                status.complete = now.2 && difference.missing.total == 0;
                status.offered = if now.2 { there.iter().count() } else { 0 };
                status.difference = difference;
            });
        }
    }
}

/// What the other global sends, beside what this zone holds.
struct Offered {
    store: Arc<MemoryStore>,
    index: watch::Sender<Arc<Index>>,
}

impl Offered {
    fn new(id: uuid::Uuid) -> Self {
        let store = Arc::new(MemoryStore::new(id));
        let index = watch::Sender::new(Arc::new(Index::empty(store.identity())));
        Self { store, index }
    }

    /// Keeps the index equal to the store; why it could not.
    async fn show(&self) -> StoreError {
        let mut head = self.store.watch_head();
        loop {
            let current = Arc::clone(&self.index.borrow());
            // All at once: what stands between two pages was never so.
            let read = match self.store.changes_since(current.point(), usize::MAX).await {
                Ok(Changes::Since { changes, upto, .. }) if upto.revision > current.revision => {
                    let mut next = Index::clone(&current);
                    changes.iter().for_each(|change| next.apply(change));
                    next.reach(upto);
                    Some(next)
                }
                Ok(Changes::Since { .. }) => None,
                Ok(Changes::Resync | Changes::Parted) => match self.store.snapshot().await {
                    Ok(snapshot) => Some(Index::of(self.store.identity(), snapshot)),
                    Err(error) => return error,
                },
                Err(error) => return error,
            };
            match read {
                Some(next) => drop(self.index.send_replace(Arc::new(next))),
                None if head.changed().await.is_ok() => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Nobody keeps track of how a look goes but for its outcome.
struct Unwatched;

impl Watch for Unwatched {
    fn introduced(&self, _peer: &Peer) {}
    fn heard(&self) {}
    fn counted(&self, _type_name: &str, _outcome: Outcome) {}
    fn reached(&self, _position: Position) {}
    fn refused(&self, _type_name: &str, _refusals: &Refusals) {}
    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
}
