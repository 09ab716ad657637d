//! Watches over the sessions: ends those that may not go on, and tells when a zone is offline.
//!
//! It looks at one session when something happened to it, and at all of them when the first could have been
//! silent for too long. It never waits for the store, so that a store that hangs keeps nobody in.

use std::{sync::Arc, time::Duration};

use common::{
    events::{Event, ResourceChange, Subscriber},
    metering,
    model::kinds,
    rest::ZoneHealth,
    runtime::Env,
    store::index::IndexReader,
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    auth::ZoneAuthenticator,
    ending::EndCause,
    health::{Patience, judge, offline_at},
    replicas::Replicas,
    session::{Facts, Session},
    sessions::Sessions,
};

/// The watch.
pub(crate) struct ZoneWatch {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) authenticator: Arc<dyn ZoneAuthenticator>,
    pub(crate) index: IndexReader,
    pub(crate) env: Env,
    pub(crate) patience: Patience,
}

/// Whether a look includes the credential: checking a signature is dear, and its answer changes only when
/// keys, revocations or the hour do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CredentialCheck {
    Ask,
    Trust,
}

impl ZoneWatch {
    /// Watches until `shutdown`.
    pub(crate) async fn run(self, mut events: Subscriber, shutdown: CancellationToken) {
        let mut next = self.look_at_all(CredentialCheck::Ask).await;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                heard = events.next() => {
                    next = match heard {
                        Ok(event) => earliest(next, self.take(&event).await),
                        Err(_lost) => self.look_at_all(CredentialCheck::Ask).await,
                    };
                }
                // Signs of life only move this into the future, so it is never too late.
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    next = self.look_at_all(CredentialCheck::Trust).await;
                }
            }
        }
    }

    /// Heeds an event; when to look again because of it.
    async fn take(&self, event: &Event) -> Option<Instant> {
        match event {
            // Asked again, because the answer may have changed while the session was being opened.
            Event::ZoneOpenedStream { zone, .. } => self.look_at_zone(zone, CredentialCheck::Ask),
            Event::SessionEnded { zone, .. } => self.look_at_zone(zone, CredentialCheck::Trust),
            Event::ResourcesChanged(changes) => self.heed(changes).await,
            Event::IndexReplaced { .. } => self.look_at_all(CredentialCheck::Ask).await,
            Event::ZoneIntroduced { .. } | Event::StreamCancelled { .. } | Event::ZoneWentOffline { .. } => {
                None
            }
        }
    }

    async fn heed(&self, changes: &[ResourceChange]) -> Option<Instant> {
        let mut next = None;
        for change in changes.iter().filter(|change| change.key.kind == &kinds::zone::KIND) {
            match self.sessions.of(&change.key.name) {
                Some(session) if change.deleted => self.dismiss(&session, EndCause::Deleted),
                // One that was made again at once may look as if it had changed only.
                Some(session) => next = earliest(next, self.look_at(&session, CredentialCheck::Trust)),
                None => {}
            }
        }
        if changes.iter().any(|change| self.authenticator.depends_on(&change.key)) {
            return self.look_at_all(CredentialCheck::Ask).await;
        }
        next
    }

    async fn look_at_all(&self, credential: CredentialCheck) -> Option<Instant> {
        let (began, mut next) = (Instant::now(), None);
        for session in self.sessions.all() {
            next = earliest(next, self.look_at(&session, credential));
            yield_now().await;
        }
        metrics::histogram!("component_zone_watch").record(metering::millis(began.elapsed()));
        next
    }

    fn look_at_zone(&self, zone: &str, credential: CredentialCheck) -> Option<Instant> {
        self.look_at(&self.sessions.of(zone)?, credential)
    }

    /// Ends a session that may not go on; when to look at it again.
    fn look_at(&self, session: &Arc<Session>, credential: CredentialCheck) -> Option<Instant> {
        let now = Instant::now();
        let facts = session.facts();
        if facts.ended.is_none() {
            if let Some(cause) = self.objection(session, &facts, now, credential) {
                self.dismiss(session, cause);
                return None;
            }
            let due = earliest(offline_at(&facts, self.patience), self.expiry(session, now));
            return earliest(due, self.warn_of_expiry(session, now));
        }
        if judge(now, &facts, self.patience).0 == ZoneHealth::Offline {
            self.announce(session);
            return None;
        }
        offline_at(&facts, self.patience)
    }

    /// Why a session may not go on.
    fn objection(
        &self,
        session: &Session,
        facts: &Facts,
        now: Instant,
        credential: CredentialCheck,
    ) -> Option<EndCause> {
        let zone = &*session.zone;
        let made = self.index.current().find(&kinds::zone::KIND, "", zone).map(|zone| zone.created);
        if made != Some(session.made) {
            // Also when it was made again: what it had sent is gone, and it must send it again.
            return Some(EndCause::Deleted);
        }
        if judge(now, facts, self.patience).0 == ZoneHealth::Offline {
            return Some(EndCause::Silent(self.patience.offline_after));
        }
        let is_due = self.good_for(session).is_some_and(|left| left.is_zero());
        if credential == CredentialCheck::Trust && !is_due {
            return None;
        }
        self.authenticator.authenticate(zone, session.shown()).err().map(EndCause::Refused)
    }

    /// When the credential of a session runs out.
    fn expiry(&self, session: &Session, now: Instant) -> Option<Instant> {
        let left = self.good_for(session).filter(|left| !left.is_zero())?;
        now.checked_add(left)
    }

    /// Warns in time that the credential of a session runs out; when to look at that for the first time.
    fn warn_of_expiry(&self, session: &Session, now: Instant) -> Option<Instant> {
        let credential = session.credential()?;
        let (from, until) = (credential.warns_from()?, credential.until?);
        let early = (from - self.env.now()).to_std().unwrap_or_default();
        if !early.is_zero() {
            return now.checked_add(early);
        }
        if session.warns(now) {
            let until = until.to_rfc3339();
            tracing::warn!(zone = &*session.zone, until, "what the zone proves itself by runs out");
        }
        None
    }

    fn good_for(&self, session: &Session) -> Option<Duration> {
        let until = session.credential()?.until?;
        Some((until - self.env.now()).to_std().unwrap_or_default())
    }

    /// Ends a session for good: its zone is offline until it is let in again.
    fn dismiss(&self, session: &Arc<Session>, cause: EndCause) {
        let is_deleted = cause == EndCause::Deleted;
        self.sessions.end(session, cause);
        self.announce(session);
        if is_deleted {
            self.sessions.forget(session);
        }
    }

    /// Tells that a zone is offline, unless it is with another instance.
    fn announce(&self, session: &Session) {
        if !self.replicas.has_newer(&session.zone, session.epoch()) {
            self.sessions.announce_offline(session);
        }
    }
}

/// The earlier of two points in time that may not come.
fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests;
