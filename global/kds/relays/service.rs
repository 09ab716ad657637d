//! The gRPC service relays call.

use std::sync::Arc;

use common::{
    events::{Event, Lost, Subscriber},
    kds::{carrier::Carrier, needless::NeedlessWords, outbox::Outbox, serve::Ended},
    proto::strait::relay::v1alpha1::{
        RelayFollowRequest, RelayFollowResponse, RelayIntroductionRequest, RelayIntroductionResponse,
        RelayQuestion, RelayReport,
        relay_service_server::{RelayService, RelayServiceServer},
    },
    runtime::http::Client,
};
use futures::{Stream, StreamExt};
use http::Extensions;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, codec::CompressionEncoding, metadata::MetadataMap};

use super::{
    auth,
    feed::RelayFeed,
    line::{OwedByRelay, RelayLine, RelayQuestions},
    report::HeardReport,
};
use crate::kds::{
    Kds, ShownCredentials, admission,
    relay_auth::KnownRelay,
    reply::{Reply, reply},
};

/// States on their way to a relay, before the wire.
const QUEUE: usize = 4;

/// The service, for relays of this `kds`.
pub(in crate::kds) fn server(kds: &Kds) -> RelayServiceServer<Kds> {
    let limit = kds.inner.settings.max_message;
    let gzip = CompressionEncoding::Gzip;
    RelayServiceServer::new(kds.clone())
        .accept_compressed(gzip)
        .send_compressed(gzip)
        .max_encoding_message_size(limit)
}

#[tonic::async_trait]
impl RelayService for Kds {
    type FollowStream = Reply<RelayFollowResponse>;
    type AttendStream = Reply<RelayQuestion>;

    async fn follow(
        &self,
        request: Request<Streaming<RelayFollowRequest>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let relay = admission::relay(&request)?;
        let line = self.line_of(&relay)?;
        let (wire, queue) = mpsc::channel(QUEUE);
        // What a relay says it holds and has not taken yet lies here once for each line, however many streams it opens.
        let stop = line.follow();
        let feed = RelayFeed {
            outgoing: Arc::clone(&self.inner.relays.outgoing),
            index: self.inner.index.clone(),
            history: self.inner.history.clone(),
            wire,
            max_message: self.inner.settings.max_message,
            stop: stop.clone(),
        };
        let (shutdown, said) = (self.inner.shutdown.clone(), self.messages(request));
        self.inner.streams.spawn(async move {
            let ended = tokio::select! {
                () = stop.cancelled() => Ended::Stopped,
                ended = line.alone(feed.run(said)) => ended,
                () = shutdown.cancelled() => Ended::Stopped,
            };
            if stop.is_cancelled() {
                // The line is over, or somebody else's who follows.
                return;
            }
            tracing::info!(relay = &*line.relay, %ended, "a relay follows no more");
            line.stop.cancel();
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(queue).map(Ok))))
    }

    async fn attend(
        &self,
        request: Request<Streaming<RelayReport>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let carrier = admission::relay(&request)?.carrier.clone();
        let events = self.inner.bus.subscribe("relay");
        let (line, questions) = self.inner.relays.open(&carrier);
        tracing::info!(relay = &*line.relay, "a relay connected");
        let (outbox, reply, end) = reply();
        let attendance = Attendance { kds: self.clone(), line, questions, outbox, events, carrier };
        let reports = self.messages_as(request, HeardReport::decode);
        self.inner.streams.spawn(async move {
            let status = attendance.run(reports).await;
            let _peer_is_gone = end.send(status);
        });
        Ok(Response::new(reply))
    }

    async fn introduce(
        &self,
        request: Request<RelayIntroductionRequest>,
    ) -> Result<Response<RelayIntroductionResponse>, Status> {
        let (relay, caller) = (admission::relay(&request)?, admission::zone(&request)?);
        let line = self.line_of(&relay)?;
        relay.zones.check(&line.relay, &caller.zone).inspect_err(auth::note)?;
        self.inner.ensure_zone(&caller).await?;
        let revision = self.inner.index.current().revision;
        Ok(Response::new(RelayIntroductionResponse { revision }))
    }
}

impl Kds {
    /// The relay that calls with these headers, if it is let in.
    pub(in crate::kds) fn judge_relay(
        &self,
        headers: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<KnownRelay, Status> {
        if self.inner.shutdown.is_cancelled() {
            return Err(Status::unavailable("global is shutting down"));
        }
        if self.inner.running.is_some() {
            // A relay does not know where meshes run, and would have the secrets of all of them.
            return Err(Status::permission_denied(
                "secrets go only where their mesh runs here (multizone.global.kds.secretsTo is running), and a relay \
                 is where no mesh does",
            ));
        }
        let (carrier, zones) = auth::admit(Carrier::read(headers), &*self.inner.authenticator)?;
        if let Some(client) = extensions.get::<Client>() {
            client.vouch(&carrier.relay, None);
        }
        Ok(KnownRelay { carrier, zones })
    }

    /// The line a call of `relay` belongs to.
    fn line_of(&self, relay: &KnownRelay) -> Result<Arc<RelayLine>, Status> {
        let carrier = &relay.carrier;
        self.inner.relays.line_of(carrier).ok_or_else(|| closed(&carrier.relay))
    }

    /// The line by which `zone` comes, when it does not come by itself.
    ///
    /// # Errors
    /// When the relay is not let in, has no line, or may not speak for that zone.
    pub(in crate::kds) fn line_below<T>(
        &self,
        request: &Request<T>,
        zone: &str,
    ) -> Result<Option<Arc<RelayLine>>, Status> {
        if Carrier::read(request.metadata()).is_none() {
            return Ok(None);
        }
        let relay = self.judge_relay(request.metadata(), request.extensions())?;
        let line = self.line_of(&relay)?;
        relay.zones.check(&line.relay, zone).inspect_err(auth::note)?;
        Ok(Some(line))
    }
}

fn closed(relay: &str) -> Status {
    Status::unavailable(format!("relay {relay} is not connected, or connected again meanwhile"))
}

/// One relay, as long as it is connected.
struct Attendance {
    kds: Kds,
    line: Arc<RelayLine>,
    questions: RelayQuestions,
    outbox: Outbox<RelayQuestion>,
    events: Subscriber,
    carrier: Carrier,
}

impl Attendance {
    /// How the stream ends.
    async fn run(mut self, mut reports: impl Stream<Item = Result<HeardReport, Status>> + Unpin) -> Status {
        let shutdown = self.kds.inner.shutdown.clone();
        let status = tokio::select! {
            status = self.attend(&mut reports) => status,
            () = shutdown.cancelled() => Status::unavailable("global is shutting down"),
        };
        let relay = &*self.line.relay;
        tracing::info!(relay, reason = status.message(), "a relay is gone");
        self.kds.inner.relays.close(&self.line);
        self.line.end_sessions(&self.kds.inner.sessions);
        status
    }

    async fn attend(
        &mut self,
        reports: &mut (impl Stream<Item = Result<HeardReport, Status>> + Unpin),
    ) -> Status {
        let settings = &self.kds.inner.settings;
        let (version, patience) = (settings.version.clone(), settings.offline_after);
        let stop = self.line.stop.clone();
        let (mut owed, mut needless) = (OwedByRelay::default(), NeedlessWords::default());
        let mut heard = Instant::now();
        loop {
            let until = self.good_until();
            tokio::select! {
                () = stop.cancelled() => return closed(&self.carrier.relay),
                event = self.events.next() => if let Some(status) = self.objection(&event) {
                    return status;
                },
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    if let Some(status) = self.refusal() {
                        return status;
                    }
                }
                question = self.questions.recv() => {
                    let Some(question) = question else { return closed(&self.carrier.relay) };
                    if let Some(question) = owed.note(question)
                        && let Err(error) = self.outbox.push(question)
                    {
                        return Status::internal(error.to_string());
                    }
                }
                report = reports.next() => match report {
                    Some(Ok(mut report)) => {
                        heard = Instant::now();
                        let mut is_answer = false;
                        report.answers().for_each(|answer| is_answer |= owed.settle(answer));
                        if !is_answer && let Err(talkative) = needless.said(heard) {
                            return Status::resource_exhausted(talkative.to_string());
                        }
                        self.line.heed(&report, &version);
                    }
                    Some(Err(status)) => return status,
                    None => return Status::cancelled("the relay closed the stream"),
                },
                () = sleep_until(heard + patience) => return Status::cancelled("the relay was silent"),
                drained = self.outbox.drain_one(), if !self.outbox.is_empty() => {
                    if let Err(error) = drained {
                        return Status::internal(error.to_string());
                    }
                }
            }
        }
    }

    /// Why the relay may not go on after what happened.
    fn objection(&self, event: &Result<Event, Lost>) -> Option<Status> {
        let authenticator = &self.kds.inner.authenticator;
        let concerns = match event {
            Ok(Event::ResourcesChanged(changes)) => {
                changes.iter().any(|change| authenticator.depends_on(&change.key))
            }
            Ok(Event::IndexReplaced { .. }) | Err(_) => true,
            Ok(_) => false,
        };
        concerns.then(|| self.refusal()).flatten()
    }

    fn refusal(&self) -> Option<Status> {
        let authenticator = &self.kds.inner.authenticator;
        let (relay, token) = (&self.carrier.relay, self.carrier.token.as_deref());
        authenticator.authenticate_relay(relay, token).err().map(Status::from)
    }

    /// When the credential of the relay runs out.
    fn good_until(&self) -> Option<Instant> {
        let inner = &self.kds.inner;
        let shown = ShownCredentials { token: self.carrier.token.as_deref(), certificate: None };
        let until = inner.authenticator.credential(shown)?.until?;
        Instant::now().checked_add((until - inner.env.now()).to_std().unwrap_or_default())
    }
}
