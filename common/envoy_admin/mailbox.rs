//! Questions about Envoys for another process on this store to ask, because whom they are about is connected there, and
//! what it is to offer zones again.
//!
//! They go through the store, as small documents that never enter the change feed, so that processes need not reach each
//! other, know addresses or believe certificates. A letter lies under the name of its receiver until that takes it. Who
//! gets none stops waiting; what nobody takes is thrown away.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, oneshot},
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{Ask, AskError, EnvoyAdmin};
use crate::{
    model::ResourceKey,
    offers::{NotOffered, OffersAgain, RefusedSelection},
    registry,
    store::{Nudge, Store, StoreError},
};

/// After the documents of sessions, of which there are many: who looks for letters reads none of those.
const MAIL: &str = "mail/envoys/";
/// How long an answer may take: what a zone has for one, and the way there and back.
const PATIENCE: Duration = Duration::from_secs(12);
/// Questions that may wait for answers.
const AT_ONCE: usize = 64;
/// And that are answered at a time: an answer is here three times over before it is in the store.
const ANSWERED: usize = 8;
/// Longest answer, as between zone and global: it lies in the store for a moment.
const LONGEST: usize = 10 << 20;
/// A hint may get lost, so the mail is also looked at so often.
const LOOK: Duration = Duration::from_secs(5);
/// Looks after which a letter that nobody took is thrown away.
const KEPT: u32 = 6;

/// What processes write to each other.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Letter {
    /// Ask that, and answer to that instance.
    Question { from: String, kind: String, mesh: String, name: String, ask: Ask },
    /// What was said, as base64.
    Answer(String),
    /// Offer this zone again what it refused, and answer to that instance.
    Offer { from: String, zone: String, meant: RefusedSelection },
    /// So many resources were.
    Offered(usize),
    /// Why there is no answer.
    Refusal(LetterRefusal),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum LetterRefusal {
    /// Too much is asked at once.
    Busy,
    /// Nobody answered in time.
    TooLate,
    /// Whom it is about is not connected to that process.
    NotHere,
    /// Anything else, in words.
    Other(String),
}

/// Why a letter got no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// Whom it is about is not connected there any more.
    Moved,
    /// What to tell who asked.
    Answered(AskError),
}

/// The mail of this process.
pub struct Mailbox {
    store: Arc<dyn Store>,
    instance: Arc<str>,
    waiting: Mutex<BTreeMap<String, oneshot::Sender<Letter>>>,
    answering: Semaphore,
}

/// Forgets a question however the waiting for its answer ends.
struct AwaitedAnswer<'a>(&'a Mailbox, String);

impl Drop for AwaitedAnswer<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Mailbox {
    /// Over a store that other processes share, under the name of this one.
    pub fn new(store: Arc<dyn Store>, instance: Arc<str>) -> Self {
        Self { store, instance, waiting: Mutex::default(), answering: Semaphore::new(ANSWERED) }
    }

    /// Has another process ask. The `id` is made for this question.
    ///
    /// # Errors
    /// [`Undelivered`].
    pub async fn ask(
        &self,
        instance: &str,
        proxy: &ResourceKey,
        ask: Ask,
        id: Uuid,
    ) -> Result<Bytes, Undelivered> {
        let question = Letter::Question {
            from: self.instance.to_string(),
            kind: proxy.kind.name.to_owned(),
            mesh: proxy.mesh.to_string(),
            name: proxy.name.to_string(),
            ask,
        };
        self.exchange(instance, question, id).await?.into_answer(instance)
    }

    /// Has another process offer a zone again what it refused. The `id` is made for this.
    ///
    /// # Errors
    /// [`Undelivered`].
    pub async fn offer(
        &self,
        instance: &str,
        zone: &str,
        meant: &RefusedSelection,
        id: Uuid,
    ) -> Result<usize, Undelivered> {
        let (from, zone) = (self.instance.to_string(), zone.to_owned());
        let offer = Letter::Offer { from, zone, meant: meant.clone() };
        match self.exchange(instance, offer, id).await? {
            Letter::Offered(count) => Ok(count),
            other => match other.into_answer(instance) {
                Err(undelivered) => Err(undelivered),
                Ok(_) => Err(elsewhere(instance, "it answered something else: it is older".to_owned())),
            },
        }
    }

    async fn exchange(&self, instance: &str, question: Letter, id: Uuid) -> Result<Letter, Undelivered> {
        let (sender, answer) = oneshot::channel();
        let id = id.to_string();
        {
            let mut waiting = self.lock();
            if waiting.len() >= AT_ONCE {
                return Err(Undelivered::Answered(AskError::Busy(AT_ONCE)));
            }
            waiting.insert(id.clone(), sender);
        }
        let waiting = AwaitedAnswer(self, id);
        let failed = |error: StoreError| {
            tracing::warn!(%error, instance, "cannot hand a question to another process");
            elsewhere(instance, "the store through which it is asked cannot be written".to_owned())
        };
        self.send(instance, &waiting.1, &question).await.map_err(failed)?;
        let answered = timeout(PATIENCE, answer).await;
        let Ok(Ok(letter)) = answered else {
            self.take_back(instance, &waiting.1).await;
            return Err(Undelivered::Answered(AskError::TooLate(PATIENCE)));
        };
        Ok(letter)
    }

    async fn send(&self, to: &str, id: &str, letter: &Letter) -> Result<(), StoreError> {
        let text = serde_json::to_string(letter).map_err(|error| StoreError::Backend {
            doing: "write a letter".to_owned(),
            source: error.into(),
        })?;
        self.store.put_sessions(vec![(format!("{MAIL}{to}/{id}"), Some(text))]).await?;
        self.store.nudge(Nudge::Mail).await
    }

    /// Nobody took it, or it was answered too late.
    async fn take_back(&self, to: &str, id: &str) {
        if let Err(error) = self.store.put_sessions(vec![(format!("{MAIL}{to}/{id}"), None)]).await {
            tracing::debug!(%error, "a question to another process stays until it is thrown away");
        }
    }

    /// Takes the letters of this instance out of the store.
    async fn collect(&self) -> Result<Vec<(String, Letter)>, StoreError> {
        let own = format!("{MAIL}{}/", self.instance);
        let read = self.store.sessions(&own).await?;
        if read.is_empty() {
            return Ok(Vec::new());
        }
        self.store.put_sessions(read.iter().map(|(key, _)| (key.clone(), None)).collect()).await?;
        let letters = read.into_iter().filter_map(|(key, text)| {
            Some((key.strip_prefix(&own)?.to_owned(), serde_json::from_str(&text).ok()?))
        });
        Ok(letters.collect())
    }

    /// Throws away what was seen too often.
    async fn tidy(&self, seen: &mut BTreeMap<String, u32>) -> Result<(), StoreError> {
        let read = self.store.sessions(MAIL).await?;
        let now: BTreeMap<_, _> = read
            .into_iter()
            .map(|(key, _)| {
                let times = seen.get(&key).map_or(1, |times| times + 1);
                (key, times)
            })
            .collect();
        let (old, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            now.into_iter().partition(|(_, times)| *times > KEPT);
        *seen = kept;
        if old.is_empty() {
            return Ok(());
        }
        self.store.put_sessions(old.into_keys().map(|key| (key, None)).collect()).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<Letter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Letter {
    fn of(result: Result<Bytes, AskError>) -> Self {
        match result {
            Ok(body) if body.len() > LONGEST => {
                let too_long = AskError::TooLong { bytes: body.len(), limit: LONGEST };
                Self::Refusal(LetterRefusal::Other(too_long.to_string()))
            }
            Ok(body) => Self::Answer(BASE64_STANDARD.encode(body)),
            Err(AskError::Busy(_)) => Self::Refusal(LetterRefusal::Busy),
            Err(AskError::TooLate(_)) => Self::Refusal(LetterRefusal::TooLate),
            Err(AskError::ZoneAway { .. } | AskError::NotConnected(_)) => {
                Self::Refusal(LetterRefusal::NotHere)
            }
            Err(other) => Self::Refusal(LetterRefusal::Other(other.to_string())),
        }
    }

    fn offered(result: Result<usize, NotOffered>) -> Self {
        match result {
            Ok(count) => Self::Offered(count),
            Err(NotOffered::Away { .. }) => Self::Refusal(LetterRefusal::NotHere),
            Err(other) => Self::Refusal(LetterRefusal::Other(other.to_string())),
        }
    }

    fn into_answer(self, instance: &str) -> Result<Bytes, Undelivered> {
        let other = |reason: String| elsewhere(instance, reason);
        match self {
            Self::Answer(body) => match BASE64_STANDARD.decode(body) {
                Ok(body) => Ok(body.into()),
                Err(error) => Err(other(format!("its answer cannot be read: {error}"))),
            },
            Self::Refusal(LetterRefusal::Busy) => Err(Undelivered::Answered(AskError::Busy(AT_ONCE))),
            Self::Refusal(LetterRefusal::TooLate) => Err(Undelivered::Answered(AskError::TooLate(PATIENCE))),
            Self::Refusal(LetterRefusal::NotHere) => Err(Undelivered::Moved),
            Self::Refusal(LetterRefusal::Other(reason)) => Err(other(reason)),
            Self::Offered(_) => Err(other("it answered something else".to_owned())),
            Self::Question { .. } | Self::Offer { .. } => Err(other("it asked back".to_owned())),
        }
    }
}

/// What that instance says in place of an answer.
fn elsewhere(instance: &str, reason: String) -> Undelivered {
    Undelivered::Answered(AskError::Elsewhere { instance: instance.to_owned(), reason })
}

impl Mailbox {
    /// Hands out answers, and asks `local` what others want to know, until `shutdown`.
    pub async fn run(self: Arc<Self>, local: Arc<dyn EnvoyAdmin>, shutdown: CancellationToken) {
        self.run_offering(local, None, shutdown).await;
    }

    /// The same, and has `offers` offer zones again what others want to be offered.
    pub async fn run_offering(
        self: Arc<Self>,
        local: Arc<dyn EnvoyAdmin>,
        offers: Option<Arc<dyn OffersAgain>>,
        shutdown: CancellationToken,
    ) {
        let mut nudged = self.store.nudged();
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen, asking) = (BTreeMap::new(), TaskTracker::new());
        loop {
            let heard = nudged.borrow_and_update().mail;
            self.look(&local, offers.as_ref(), &asking).await;
            let mut due = false;
            while !due && nudged.borrow_and_update().mail == heard {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = tick.tick() => due = true,
                    changed = nudged.changed() => if changed.is_err() {
                        // No other process can be on this store.
                        return shutdown.cancelled().await;
                    },
                }
            }
            if due && let Err(error) = self.tidy(&mut seen).await {
                tracing::debug!(%error, "cannot throw away letters that nobody took");
            }
        }
    }

    async fn look(
        self: &Arc<Self>,
        local: &Arc<dyn EnvoyAdmin>,
        offers: Option<&Arc<dyn OffersAgain>>,
        asking: &TaskTracker,
    ) {
        let letters = match self.collect().await {
            Ok(letters) => letters,
            Err(error) => return tracing::debug!(%error, "cannot look at the letters of other processes"),
        };
        for (id, letter) in letters {
            if let Letter::Question { from, kind, mesh, name, ask } = letter {
                let (mailbox, local) = (Arc::clone(self), Arc::clone(local));
                let is_too_much = asking.len() >= AT_ONCE;
                asking.spawn(async move {
                    let _place = match is_too_much {
                        true => None,
                        false => mailbox.answering.acquire().await.ok(),
                    };
                    let proxy = registry::by_name(&kind).map(|kind| ResourceKey::new(kind, &mesh, &name));
                    let answer = match proxy {
                        _ if is_too_much => Letter::Refusal(LetterRefusal::Busy),
                        Some(proxy) => Letter::of(local.ask(&proxy, ask).await),
                        None => {
                            let reason = format!("it does not know the kind {kind:?}: it is older");
                            Letter::Refusal(LetterRefusal::Other(reason))
                        }
                    };
                    if let Err(error) = mailbox.send(&from, &id, &answer).await {
                        tracing::warn!(%error, from, "cannot answer another process");
                    }
                });
            } else if let Letter::Offer { from, zone, meant } = letter {
                let (mailbox, offers) = (Arc::clone(self), offers.cloned());
                let is_too_much = asking.len() >= AT_ONCE;
                asking.spawn(async move {
                    let answer = match offers {
                        _ if is_too_much => Letter::Refusal(LetterRefusal::Busy),
                        Some(offers) => Letter::offered(offers.offer_again(&zone, &meant).await),
                        None => Letter::Refusal(LetterRefusal::Other("it has no zones".to_owned())),
                    };
                    if let Err(error) = mailbox.send(&from, &id, &answer).await {
                        tracing::warn!(%error, from, "cannot answer another process");
                    }
                });
            } else if let Some(waiting) = self.lock().remove(&id) {
                let _nobody_waits = waiting.send(letter);
            }
        }
    }
}

#[cfg(test)]
mod tests;
