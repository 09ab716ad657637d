//! Asks zones for what they hold, over the stream they opened for that. Also a zone that does not follow this global
//! opens it, and says on it why.

use std::{sync::Arc, time::Duration};

use common::{
    kds::{
        headers::Upstream,
        holdings::{self, HeldResource},
        needless::NeedlessWords,
        outbox::Outbox,
        serve::Ended,
    },
    model::kinds,
    proto::strait::federation::v1::{HoldingsPage, HoldingsRequest},
    redact,
    runtime::Env,
    store::{Revision, StoreError, StoreIdentity},
};
use futures::{Stream, StreamExt};
use thiserror::Error;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tonic::Status;

use super::{
    Kds,
    door::{LONGEST_REASON, PageQuestion},
    session::Session,
};

/// How long a zone may take for one page.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all its answers together may take.
const WHOLE: Duration = Duration::from_secs(300);
/// What is taken of one zone: resources, pages, and bytes of them on the wire.
const MOST_RESOURCES: usize = 200_000;
const MOST_PAGES: usize = 10_000;
const MOST_BYTES: usize = 256 * 1024 * 1024;
/// What is shown of what a zone holds and nobody can read.
const UNREADABLE: usize = 20;

/// A zone says unasked why it holds back, and when that changes: so often at once, and then after each pause.
const UNASKED: u32 = 20;
const UNASKED_PAUSE: Duration = Duration::from_secs(10);

/// Asks what comes in at the door of `session`, one question at a time, until either end is gone.
pub(super) async fn ask(
    session: &Session,
    env: &Env,
    mut inbound: impl Stream<Item = Result<HoldingsPage, Status>> + Unpin,
    mut outbox: Outbox<HoldingsRequest>,
) -> Ended {
    let mut questions = session.holdings.open();
    let mut owed: Option<(String, oneshot::Sender<HoldingsPage>)> = None;
    let mut unasked = NeedlessWords::at_most(UNASKED, UNASKED_PAUSE);
    loop {
        tokio::select! {
            () = session.stop.cancelled() => return Ended::Stopped,
            question = questions.recv(), if owed.is_none() => {
                // A newer stream of the zone is asked now.
                let Some(PageQuestion { after, reply }) = question else { return Ended::Stopped };
                let request_id = env.entropy.uuid().to_string();
                if let Err(error) = outbox.push(HoldingsRequest { request_id: request_id.clone(), after }) {
                    return error.into();
                }
                owed = Some((request_id, reply));
            }
            page = next_page(session, &mut inbound) => match page {
                Some(Ok(page)) => {
                    session.hear();
                    session.holdings.hears(&page);
                    match owed.take_if(|(asked, _)| *asked == page.request_id) {
                        Some((_, reply)) => {
                            let _nobody_waits = reply.send(page);
                        }
                        None => {
                            session.holdings.heard_unasked();
                            if let Err(talkative) = unasked.said(Instant::now()) {
                                return talkative.into();
                            }
                        }
                    }
                }
                Some(Err(status)) => return Ended::Broken(status),
                None => return Ended::ByPeer,
            },
            drained = outbox.drain_one(), if !outbox.is_empty() => {
                if let Err(error) = drained {
                    return error.into();
                }
            }
        }
    }
}

/// The next page, once the zone is heard again. Until then what it sends stays on its way.
async fn next_page(
    session: &Session,
    inbound: &mut (impl Stream<Item = Result<HoldingsPage, Status>> + Unpin),
) -> Option<Result<HoldingsPage, Status>> {
    session.holdings.rest().await;
    inbound.next().await
}

/// What one zone holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneHoldings {
    /// The zone.
    pub(crate) zone: Arc<str>,
    /// Which history it followed, and how far it took that.
    pub(crate) taken: Option<Upstream>,
    /// Why it does not follow this global.
    pub(crate) held_back: Option<String>,
    /// Secrets it did not hand out.
    pub(crate) secrets_kept: u64,
    /// Everything else.
    pub(crate) held: Vec<HeldResource>,
    /// What could not be read: how many, and some of the reasons.
    pub(crate) unreadable: (usize, Vec<String>),
}

/// Why it is not known what a zone holds.
#[derive(Debug, Error)]
pub(crate) enum UnaskedZone {
    /// Another replica of global has its session.
    #[error("it is connected to instance {0} of global: run this there, or with one instance")]
    Elsewhere(String),
    /// A relay stands between, and does not ask for that.
    #[error(
        "it is below relay {0}, which does not ask zones what they hold: connect it to global itself for that"
    )]
    BelowRelay(Arc<str>),
    /// It has no session.
    #[error("it is not connected")]
    Away,
    /// It is of another make, or older.
    #[error("it does not say what it holds: it is of another make or an older version")]
    Mute,
    /// It did not answer, or its connection ended.
    #[error("it did not answer in time")]
    Silent,
    /// It holds more than is taken.
    #[error("it holds more than {MOST_RESOURCES} resources or {} MiB", MOST_BYTES >> 20)]
    TooMuch,
}

impl Kds {
    /// What `zone` holds, as far as it has a session here.
    ///
    /// # Errors
    /// [`UnaskedZone`].
    pub(crate) async fn holdings_of(&self, zone: &str) -> Result<ZoneHoldings, UnaskedZone> {
        let here = self.inner.sessions.of(zone).filter(|session| session.cause().is_none());
        let elsewhere = self.inner.replicas.epoch(zone);
        let newest = here.filter(|session| elsewhere.is_none_or(|epoch| session.epoch() >= epoch));
        let Some(session) = newest else {
            let instance = self.inner.replicas.instance(zone);
            return Err(instance.map_or(UnaskedZone::Away, UnaskedZone::Elsewhere));
        };
        // One that answers each question as late as it may would keep everybody waiting for a day.
        timeout(WHOLE, collect(&session)).await.unwrap_or(Err(UnaskedZone::Silent))
    }

    /// Which history `zone` followed, and how far, as far as it has a session here.
    pub(crate) fn taken_by(&self, zone: &str) -> Option<Upstream> {
        self.inner.sessions.of(zone).filter(|session| session.cause().is_none())?.holdings.taken()
    }

    /// Every zone there is, by name.
    pub(crate) fn known_zones(&self) -> Vec<String> {
        let index = self.inner.index.current();
        index.list(&kinds::zone::KIND).map(|zone| zone.name().to_owned()).collect()
    }

    /// The history zones are shown.
    pub(crate) fn shown(&self) -> StoreIdentity {
        self.inner.history.shown()
    }

    /// Shows zones `next` from `revision` on. They come back to judge it.
    ///
    /// # Errors
    /// When it cannot be written down; nothing changes then.
    pub(crate) async fn go_on_as(&self, next: StoreIdentity, revision: Revision) -> Result<(), StoreError> {
        self.inner.history.go_on(next, revision).await?;
        tracing::warn!(store = %next.store_id, epoch = next.epoch, revision, "zones are shown another history");
        self.inner.sessions.renew();
        Ok(())
    }
}

async fn collect(session: &Session) -> Result<ZoneHoldings, UnaskedZone> {
    let unasked = || session.facts().relay.map_or(UnaskedZone::Mute, UnaskedZone::BelowRelay);
    let questions = session.holdings.questions().ok_or_else(unasked)?;
    let mut all = ZoneHoldings { zone: Arc::clone(&session.zone), ..ZoneHoldings::default() };
    let (mut after, mut bytes) = (String::new(), 0);
    for _ in 0..MOST_PAGES {
        let (reply, answer) = oneshot::channel();
        let asked = questions.try_send(PageQuestion { after: after.clone(), reply });
        asked.map_err(|_| UnaskedZone::Silent)?;
        let page = timeout(PATIENCE, answer).await.ok().and_then(Result::ok).ok_or(UnaskedZone::Silent)?;
        bytes += page.holdings.iter().map(holdings::weight).sum::<usize>();
        if all.held.len() + page.holdings.len() > MOST_RESOURCES || bytes > MOST_BYTES {
            return Err(UnaskedZone::TooMuch);
        }
        all.taken = Upstream::parse(&page.taken);
        all.secrets_kept = all.secrets_kept.saturating_add(page.secrets_kept);
        for holding in page.holdings {
            match holdings::read(holding) {
                Ok(held) => all.held.push(held),
                Err(reason) => {
                    all.unreadable.0 += 1;
                    if all.unreadable.1.len() < UNREADABLE {
                        all.unreadable.1.push(redact::words(&reason, LONGEST_REASON));
                    }
                }
            }
        }
        if page.next.is_empty() {
            all.held_back = session.holdings.held_back();
            return Ok(all);
        }
        after = page.next;
    }
    // It never comes to an end.
    Err(UnaskedZone::TooMuch)
}
