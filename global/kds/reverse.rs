//! Asks zones about their Envoys, over the streams they opened for that.
//!
//! Who asks waits for one answer and no longer than [`PATIENCE`]; an answer nobody waits for any more is
//! dropped. Zones of Kuma take the end of such a stream for the end of all sync, so a stream outlives
//! whatever is said on it.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use common::{
    envoy_admin::{Ask, AskError, EnvoyAdmin, Undelivered},
    kds::{
        features::HASH_SUFFIX,
        needless::NeedlessWords,
        outbox::Outbox,
        reverse::{Answer, Call},
        serve::Ended,
    },
    model::{Origin, Resource, ResourceKey, labels},
    redact,
    rest::{ZoneHealth, ZoneStatusSource},
};
use futures::{Stream, StreamExt};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};
use tonic::Status;

use super::{
    Kds,
    questions::{OWED, PATIENCE, Question},
    replicas::EXCHANGE,
    session::Session,
};

/// How often a zone may move to another instance while it is asked.
pub(super) const MOVES: usize = 2;

/// Bytes of the reason a zone gives for having no answer.
const REASON: usize = 4096;

/// Asks what comes out of `questions`, and hands out the answers, until either end is gone.
pub(super) async fn ask<Q: From<Call>, A: Into<Answer>>(
    session: &Session,
    mut questions: mpsc::Receiver<Question>,
    mut inbound: impl Stream<Item = Result<A, Status>> + Unpin,
    mut outbox: Outbox<Q>,
) -> Ended {
    let (mut owed, mut needless) = (Owed::default(), NeedlessWords::default());
    loop {
        tokio::select! {
            () = session.stop.cancelled() => return Ended::Stopped,
            question = questions.recv() => {
                // A newer stream of the zone is asked now.
                let Some(question) = question else { return Ended::Stopped };
                if let Some(call) = owed.note(question)
                    && let Err(error) = outbox.push(call.into())
                {
                    return error.into();
                }
            }
            answer = inbound.next() => match answer {
                Some(Ok(answer)) => {
                    session.hear();
                    if !owed.settle(&session.zone, answer.into())
                        && let Err(talkative) = needless.said(Instant::now())
                    {
                        return talkative.into();
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

/// Who waits for what on one stream.
#[derive(Default)]
struct Owed(BTreeMap<String, oneshot::Sender<Result<Bytes, AskError>>>);

impl Owed {
    /// The call to make, unless too many wait already.
    fn note(&mut self, Question { call, reply, .. }: Question) -> Option<Call> {
        self.0.retain(|_, reply| !reply.is_closed());
        if self.0.len() >= OWED {
            let _nobody_waits = reply.send(Err(AskError::Busy(OWED)));
            return None;
        }
        self.0.insert(call.id.clone(), reply);
        Some(call)
    }

    /// Hands out an answer; false for one nobody waits for. It came late or was made up; neither is worth the stream.
    fn settle(&mut self, zone: &str, Answer { id, result }: Answer) -> bool {
        let Some(reply) = self.0.remove(&id) else {
            tracing::debug!(zone, id, "nobody waits for this answer");
            return false;
        };
        let result = result.map_err(|reason| AskError::Zone {
            zone: zone.to_owned(),
            // A zone of another make may quote what its Envoy said.
            reason: redact::words(&reason, REASON),
        });
        let _nobody_waits = reply.send(result);
        true
    }
}

#[async_trait]
impl EnvoyAdmin for Kds {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        let mut progressed = self.inner.progress.subscribe();
        for _ in 0..MOVES {
            let Some(instance) = self.instance_of(proxy) else { break };
            let id = self.inner.env.entropy.uuid();
            match self.inner.mailbox.ask(&instance, proxy, ask, id).await {
                Ok(body) => return Ok(body),
                Err(Undelivered::Answered(error)) => return Err(error),
                // The instances are about to tell each other where it went.
                Err(Undelivered::Moved) => {
                    let _or_asked_anyway = timeout(EXCHANGE * 2, progressed.changed()).await;
                }
            }
        }
        self.ask_here(proxy, ask).await
    }
}

/// Those zones only that are connected to this instance.
pub(super) struct AskHere(pub(super) Kds);

#[async_trait]
impl EnvoyAdmin for AskHere {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        self.0.ask_here(proxy, ask).await
    }
}

impl Kds {
    /// The other instance at which the zone of `proxy` is; `None` when it is here or nowhere.
    fn instance_of(&self, proxy: &ResourceKey) -> Option<String> {
        let index = self.inner.index.current();
        let Origin::Zone(zone) = &index.get(proxy)?.origin else { return None };
        self.instance_with(zone)
    }

    /// The other instance at which `zone` is; `None` when it is here or nowhere.
    pub(super) fn instance_with(&self, zone: &str) -> Option<String> {
        let here = self.inner.sessions.of(zone).is_some_and(|session| session.cause().is_none());
        let is_online = || self.zone_progress(zone).status == ZoneHealth::Online;
        (!here && is_online()).then(|| self.inner.replicas.instance(zone)).flatten()
    }

    /// Asks a zone that is connected to this instance.
    async fn ask_here(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        let index = self.inner.index.current();
        let resource = index.get(proxy).ok_or_else(|| AskError::Unknown(proxy.clone()))?;
        let Origin::Zone(zone) = &resource.origin else {
            let reason = "it was applied on global, where no Envoy runs: apply it in its zone".to_owned();
            return Err(AskError::Closed { proxy: proxy.clone(), reason });
        };
        let away = |reason: String| AskError::ZoneAway { zone: zone.to_string(), reason };
        let session = self.session_of(zone).map_err(away)?;
        let call = Call {
            id: self.inner.env.entropy.uuid().to_string(),
            resource_type: proxy.kind.name.to_owned(),
            mesh: proxy.mesh.to_string(),
            name: name_in_zone(resource, &session),
            ask,
        };
        put(&session, call).await
    }
}

/// Puts a question to the zone of a session, and waits for the answer.
pub(crate) async fn put(session: &Session, call: Call) -> Result<Bytes, AskError> {
    let zone = Arc::clone(&session.zone);
    let away = |reason: &str| AskError::ZoneAway { zone: zone.to_string(), reason: reason.to_owned() };
    let unopened = || away("it has not opened the stream for that: look at the log of the zone");
    let questions = session.questions(call.ask.stream()).ok_or_else(unopened)?;
    let (reply, answer) = oneshot::channel();
    let question = Question { zone: Arc::clone(&zone), call, reply };
    questions.try_send(question).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => AskError::Busy(OWED),
        mpsc::error::TrySendError::Closed(_) => unopened(),
    })?;
    match timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(away("its connection ended while it was asked: ask again")),
        Err(_) => Err(AskError::TooLate(PATIENCE)),
    }
}

impl Kds {
    /// The running session of a zone, or why there is none here.
    pub(super) fn session_of(&self, zone: &str) -> Result<Arc<Session>, String> {
        if let Some(session) = self.inner.sessions.of(zone).filter(|session| session.cause().is_none()) {
            return Ok(session);
        }
        let status = self.zone_progress(zone);
        if status.status == ZoneHealth::Online
            && let Some(instance) = self.inner.replicas.instance(zone)
        {
            return Err(format!("it was connected to instance {instance} of global, and moves: ask again"));
        }
        let since = status.since.map(|since| format!(" since {}", since.to_rfc3339())).unwrap_or_default();
        Err(format!("it is not connected{since}: bring it back, or ask its own control plane"))
    }
}

/// What the zone calls a resource it sent.
fn name_in_zone(resource: &Resource, session: &Session) -> String {
    let name = resource.display_name();
    let prefixed = name.strip_prefix(&*session.zone).and_then(|rest| rest.strip_prefix('.'));
    let name = match prefixed {
        // What a very old zone sends is given its name as a prefix here.
        Some(name) if !session.features().has(HASH_SUFFIX) => name,
        _ => name,
    };
    match resource.label(labels::NAMESPACE) {
        Some(namespace) => format!("{name}.{namespace}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::{
        events::EventBus,
        kds::{features::Features, headers::KdsCaller},
        proto::kuma::mesh::v1alpha1::{StatsRequest, StatsResponse},
        runtime::Env,
        store::Fence,
    };
    use tokio::sync::watch;

    use super::*;
    use crate::kds::{questions, reply::reply};

    #[tokio::test(start_paused = true)]
    async fn who_answers_without_end_what_nobody_asked_is_sent_away() {
        let caller = KdsCaller {
            zone: "zone-1".to_owned(),
            features: Features::ours(),
            session: None,
            token: None,
            version: String::new(),
            issuing_request: None,
        };
        let fence = Fence { name: "kds/zone-1".to_owned(), epoch: 1 };
        let (env, bus, progress) = (Env::system("test"), EventBus::new(8), watch::Sender::new(()));
        let session = Session::new(&caller.into(), DateTime::UNIX_EPOCH, fence, env, bus, progress, false);
        let (_nobody_asks, asked) = questions::channel();
        let (outbox, _reply, _end) = reply::<StatsRequest>();
        let answers = futures::stream::iter((0..5000).map(|_| Ok(StatsResponse::default())));
        let ended = ask(&session, asked, answers, outbox).await;
        assert!(matches!(ended, Ended::Talkative(_)), "{ended}");
    }

    #[tokio::test]
    async fn what_a_zone_gives_as_a_reason_is_shown_without_secrets() {
        let mut owed = Owed::default();
        let (reply, answer) = oneshot::channel();
        let call = Call {
            id: "1".to_owned(),
            resource_type: "Dataplane".to_owned(),
            mesh: "default".to_owned(),
            name: "web-1".to_owned(),
            ask: Ask::ConfigDump { include_eds: false },
        };
        assert!(owed.note(Question { zone: "zone-1".into(), call, reply }).is_some());
        let token = "eyJhbGciOiJub25lIn0.eyJOYW1lIjoid2ViLTEifQ.c2lnbmF0dXJlLW5ldmVyLXdhcw";
        let reason = format!("Envoy says password=hunter2 and {token} {}", "x ".repeat(REASON));
        assert!(owed.settle("zone-1", Answer { id: "1".to_owned(), result: Err(reason) }));
        let Ok(Err(AskError::Zone { reason, .. })) = answer.await else { panic!("a reason was given") };
        assert!(reason.starts_with("Envoy says") && reason.len() <= REASON, "{reason}");
        assert!(!reason.contains("hunter2") && !reason.contains(token), "{reason}");
    }
}
