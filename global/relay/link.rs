//! The connection of a relay to its global and its life: connect, follow and attend, break, wait, again.

use std::{sync::Arc, time::Duration};

use common::{
    envoy_admin::AskError,
    events::StreamKind,
    kds::{
        carrier::Carrier,
        dial::{self, Dial, DialError},
        headers::KdsCaller,
        reverse::{Answer, Call},
        size::largest_sent,
    },
    proto::{
        kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
        strait::relay::v1alpha1::{
            RelayFollowRequest, RelayFollowResponse, RelayHeld, RelayQuestion, RelayReport,
            relay_service_client::RelayServiceClient,
        },
    },
    redact,
    rest::ZoneHealth,
    runtime::Env,
    xds::Backoff,
};
use futures::{StreamExt, stream::FuturesUnordered};
use prost::Message;
use thiserror::Error;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, Streaming, codec::CompressionEncoding, transport::Channel};

use super::{
    mirror::{Mirror, MirrorError, PartialState},
    report::{HeardSession, RelayReporter, in_parts},
    settings::{RelaySettings, RelayTokenError},
};
use crate::kds::{Kds, Session, judge, put};

/// Messages between a task and the connection.
const QUEUE: usize = 16;
/// Resources named in one message of what is held.
const HELD: usize = 2000;
/// What stands around each of them there, in bytes.
const FRAMING: usize = 8;
/// Shortest time between two reports, so that zones which move together are told of together.
const PACE: Duration = Duration::from_millis(50);
/// Shortest time between two beats, whatever the settings say: a clock that ticks without a pause is none.
const LEAST_BEAT: Duration = Duration::from_millis(100);
/// Questions of global that are answered at a time.
const AT_ONCE: usize = 64;
/// Bytes of the reason a connection ended for; global may have said it.
const LONGEST_REASON: usize = 4096;

/// The link. It goes on for ever, with or without global.
pub(super) struct RelayLink {
    pub(super) settings: RelaySettings,
    pub(super) mirror: Arc<Mirror>,
    pub(super) env: Env,
    pub(super) dial: Arc<dyn Dial>,
    /// The connection there is.
    pub(super) line: watch::Sender<Option<Uplink>>,
}

/// A connection to global that stands.
#[derive(Clone)]
pub(super) struct Uplink {
    channel: Channel,
    carrier: Carrier,
}

/// Why a connection ended.
#[derive(Debug, Error)]
enum LinkError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Token(#[from] RelayTokenError),
    #[error("no connection in time")]
    Late,
    #[error("{}", told(.0))]
    Status(Status),
    #[error("global closed the stream")]
    Closed,
    #[error(transparent)]
    Mirror(#[from] MirrorError),
}

/// What it means that global answers so.
fn told(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => {
            "what is there serves no relays: a relay follows a global, and never another relay".into()
        }
        Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
            format!("global does not let this relay in: {}", status.message())
        }
        code => format!("the connection broke: {code}: {}", status.message()),
    }
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl RelayLink {
    /// Follows until `shutdown`. A global that is away, refuses or breaks is tried again for ever.
    pub(super) async fn run(&self, kds: Kds, shutdown: CancellationToken) {
        let (min, max) = self.settings.backoff;
        let mut backoff = Backoff::new(min, max, self.settings.healthy_after);
        loop {
            let started = Instant::now();
            let ended = tokio::select! {
                () = shutdown.cancelled() => return drop(self.line.send_replace(None)),
                ended = self.connection(&kds) => ended,
            };
            self.line.send_replace(None);
            metrics::gauge!("relay_connected").set(0);
            if let Err(error) = ended {
                let reason = redact::words(&error.to_string(), LONGEST_REASON);
                tracing::warn!(reason, "the connection to global ended, this relay goes on with what it has");
            }
            backoff.ended(started.elapsed());
            let pause = self.env.entropy.with(|rng| backoff.next(rng));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// One connection.
    async fn connection(&self, kds: &Kds) -> Result<(), LinkError> {
        let carrier = Carrier {
            relay: self.settings.name.to_string(),
            session: self.env.entropy.uuid().to_string(),
            token: self.settings.token.read()?,
        };
        let agent = format!("strait-relay/{}", self.settings.version);
        let endpoint = dial::endpoint(self.settings.connect_timeout, &agent);
        let dialled = timeout(self.settings.connect_timeout, self.dial.dial(endpoint)).await;
        let channel = dialled.map_err(|_| LinkError::Late)??;
        let uplink = Uplink { channel, carrier };
        let mut client = self.client(&uplink);
        let (reports, queue) = mpsc::channel(QUEUE);
        let questions = client.attend(uplink.request(ReceiverStream::new(queue))).await?.into_inner();
        let (requests, queue) = mpsc::channel(QUEUE);
        let states = client.follow(uplink.request(ReceiverStream::new(queue))).await?.into_inner();
        self.line.send_replace(Some(uplink));
        metrics::gauge!("relay_connected").set(1);
        tracing::info!("connected to global");
        tokio::select! {
            ended = self.follow(requests, states) => ended,
            ended = self.attend(kds, reports, questions) => ended,
        }
    }

    pub(super) fn client(&self, uplink: &Uplink) -> RelayServiceClient<Channel> {
        let client = RelayServiceClient::new(uplink.channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if !self.settings.gzip {
            return client;
        }
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    }

    pub(super) fn sync_client(&self, uplink: &Uplink) -> KdsSyncServiceClient<Channel> {
        let client = KdsSyncServiceClient::new(uplink.channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if !self.settings.gzip {
            return client;
        }
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    }

    async fn follow(
        &self,
        requests: mpsc::Sender<RelayFollowRequest>,
        mut states: Streaming<RelayFollowResponse>,
    ) -> Result<(), LinkError> {
        let mut held = self.mirror.held();
        let max_message = self.settings.max_message as u64;
        loop {
            let rest = held.split_off(part_of(&held, largest_sent(self.settings.max_message)));
            let held_complete = rest.is_empty();
            let part =
                RelayFollowRequest { held, held_complete, max_message, ..RelayFollowRequest::default() };
            requests.send(part).await.map_err(|_| LinkError::Closed)?;
            held = rest;
            if held_complete {
                break;
            }
        }
        let mut partial = PartialState::default();
        loop {
            let message = states.message().await?.ok_or(LinkError::Closed)?;
            if let Some(at) = self.mirror.take(&mut partial, message).await? {
                let reached = RelayFollowRequest { reached: at.to_text(), ..RelayFollowRequest::default() };
                requests.send(reached).await.map_err(|_| LinkError::Closed)?;
            }
        }
    }

    /// Tells how far the zones are, and answers what is asked about their Envoys.
    async fn attend(
        &self,
        kds: &Kds,
        reports: mpsc::Sender<RelayReport>,
        mut questions: Streaming<RelayQuestion>,
    ) -> Result<(), LinkError> {
        let mut reporter = RelayReporter::default();
        let mut answers = FuturesUnordered::new();
        let mut progress = kds.inner.progress.subscribe();
        let mut beat = interval(self.settings.beat.max(LEAST_BEAT));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = None;
        loop {
            let report = tokio::select! {
                _ = beat.tick() => reporter.report(zones_of(kds), true),
                Ok(()) = progress.changed(), if due.is_none() => {
                    due = Some(Instant::now() + PACE);
                    continue;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    progress.mark_unchanged();
                    reporter.report(zones_of(kds), false)
                }
                asked = questions.message() => {
                    let asked = asked?.ok_or(LinkError::Closed)?;
                    if let Some((zone, call)) = call(asked) {
                        let is_full = answers.len() >= AT_ONCE;
                        answers.push(answer(kds, zone, call, is_full, self.settings.max_message));
                    }
                    continue;
                }
                Some(answer) = answers.next() => answer,
            };
            for part in in_parts(report, largest_sent(self.settings.max_message)) {
                reports.send(part).await.map_err(|_| LinkError::Closed)?;
            }
        }
    }

    /// The connection there is, or the next one.
    pub(super) async fn uplink(&self) -> Option<Uplink> {
        let mut line = self.line.subscribe();
        let uplink = line.wait_for(Option::is_some).await.ok()?;
        uplink.clone()
    }
}

impl Uplink {
    /// A call of this relay.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.carrier.write(request.metadata_mut());
        request
    }

    /// A call in the name of a zone.
    pub(super) fn request_of<T>(&self, caller: &KdsCaller, message: T) -> Request<T> {
        let mut request = self.request(message);
        caller.write(request.metadata_mut());
        request
    }
}

/// How many of `held` are named in one message of so many bytes.
fn part_of(held: &[RelayHeld], largest: usize) -> usize {
    let mut bytes = 0;
    let fits = |one: &&RelayHeld| {
        bytes += one.encoded_len() + FRAMING;
        bytes <= largest
    };
    // One at least, or it would come to no end.
    held.iter().take(HELD).take_while(fits).count().max(held.len().min(1))
}

/// The zones whose sessions reach global, and whether they keep this relay waiting.
fn zones_of(kds: &Kds) -> Vec<HeardSession> {
    let (now, patience) = (Instant::now(), kds.patience());
    let sessions = kds.inner.sessions.all();
    let seen = |session: &Arc<Session>| {
        let silent = judge(now, &session.facts(), patience).0 != ZoneHealth::Online;
        Some((session.seen()?, silent))
    };
    sessions.iter().filter_map(seen).collect()
}

/// What is asked, of which zone.
fn call(question: RelayQuestion) -> Option<(String, Call)> {
    let RelayQuestion { zone, config, stats, clusters } = question;
    let call = config.map(Call::from).or(stats.map(Call::from)).or(clusters.map(Call::from))?;
    Some((zone, call))
}

/// Has the zone answer, in a message of at most `limit` bytes: one that is longer would end the connection for all zones.
async fn answer(kds: &Kds, zone: String, call: Call, is_full: bool, limit: usize) -> RelayReport {
    let (id, stream) = (call.id.clone(), call.ask.stream());
    let session = kds.inner.sessions.of(&zone).filter(|session| session.cause().is_none());
    let result = match session {
        _ if is_full => Err(AskError::Busy(AT_ONCE)),
        Some(session) => put(&session, call).await,
        None => {
            Err(AskError::ZoneAway { zone, reason: "it left its relay at this moment: ask again".to_owned() })
        }
    };
    let told =
        report_of(stream, Answer { id: id.clone(), result: result.map_err(|error| error.to_string()) });
    let bytes = told.encoded_len();
    if bytes <= limit {
        return told;
    }
    report_of(stream, Answer { id, result: Err(AskError::TooLong { bytes, limit }.to_string()) })
}

/// A report that brings this answer.
fn report_of(stream: StreamKind, answer: Answer) -> RelayReport {
    let report = RelayReport::default();
    match stream {
        StreamKind::Stats => RelayReport { stats: Some(answer.into()), ..report },
        StreamKind::Clusters => RelayReport { clusters: Some(answer.into()), ..report },
        StreamKind::ConfigDump
        | StreamKind::Holdings
        | StreamKind::GlobalToZone
        | StreamKind::ZoneToGlobal => RelayReport { config: Some(answer.into()), ..report },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_named_in_messages_that_fit() {
        let one = |bytes: usize| RelayHeld { name: "x".repeat(bytes), ..RelayHeld::default() };
        let check = |held: Vec<RelayHeld>, largest, part| assert_eq!(part_of(&held, largest), part);
        check(Vec::new(), 100, 0);
        check(vec![one(1); HELD + 1], usize::MAX, HELD);
        check(vec![one(100); 10], 350, 3);
        check(vec![one(100); 10], 10, 1);
    }
}
