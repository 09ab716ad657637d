//! Answers what global asks about the Envoys of this zone, over three streams beside the sync streams.
//!
//! They end, fail and are opened again without the sync streams noticing: not every global knows them, and
//! a dump that cannot be had is no reason to sync everything again.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    envoy_admin::{AskError, EnvoyAdmin},
    kds::{
        headers::KdsCaller,
        outbox::{self, Outbox, WireQueue},
        reverse::{AT_ONCE, Answer, Call},
        serve::Ended,
    },
    proto::kuma::mesh::v1alpha1::global_kds_service_client::GlobalKdsServiceClient,
    runtime::Env,
    xds::Backoff,
};
use futures::{Stream, StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Response, Status, Streaming, codec::CompressionEncoding, transport::Channel};

use super::{
    call::{opened, with_headers},
    settings::ZoneKdsSettings,
};

/// Answers before the wire.
const QUEUE: usize = 1;
/// Answers and refusals that may wait before that queue; a global that lets more pile up does not read.
const OUTBOX: usize = 64;
/// What a message holds besides the answer itself.
const ENVELOPE: usize = 1024;

/// Where global may ask.
pub(super) struct ReverseCalls<'a> {
    pub(super) settings: &'a ZoneKdsSettings,
    pub(super) env: &'a Env,
    pub(super) envoys: &'a Arc<dyn EnvoyAdmin>,
}

impl ReverseCalls<'_> {
    /// Keeps the three streams open for as long as it is polled.
    pub(super) async fn attend(&self, channel: &Channel, caller: &KdsCaller) {
        let client = self.client(channel);
        let dumps = self.keep("StreamXDSConfigs", |answers| {
            let (mut client, request) = (client.clone(), with_headers(answers, caller));
            async move { client.stream_xds_configs(request).await }
        });
        let stats = self.keep("StreamStats", |answers| {
            let (mut client, request) = (client.clone(), with_headers(answers, caller));
            async move { client.stream_stats(request).await }
        });
        let clusters = self.keep("StreamClusters", |answers| {
            let (mut client, request) = (client.clone(), with_headers(answers, caller));
            async move { client.stream_clusters(request).await }
        });
        tokio::join!(dumps, stats, clusters);
    }

    fn client(&self, channel: &Channel) -> GlobalKdsServiceClient<Channel> {
        let client = GlobalKdsServiceClient::new(channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if !self.settings.gzip {
            return client;
        }
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    }

    /// Opens a stream, again whenever it ends, until global turns out not to know it.
    async fn keep<Q, A, F>(&self, method: &'static str, open: impl Fn(WireQueue<A>) -> F)
    where
        Q: Into<Call>,
        A: From<Answer>,
        F: Future<Output = Result<Response<Streaming<Q>>, Status>>,
    {
        let (min, max) = self.settings.backoff;
        let mut backoff = Backoff::new(min, max, self.settings.healthy_after);
        loop {
            let started = Instant::now();
            let (wire, answers) = outbox::wire(QUEUE);
            let inbound = opened(open(answers));
            let ended = self.answer(std::pin::pin!(inbound), Outbox::new(wire, OUTBOX)).await;
            if let Ended::Broken(status) = &ended
                && status.code() == Code::Unimplemented
            {
                tracing::debug!(method, "global does not ask about Envoys");
                return;
            }
            backoff.ended(started.elapsed());
            let pause = self.env.entropy.with(|rng| backoff.next(rng));
            tracing::debug!(method, %ended, ?pause, "a stream of reverse calls ended and is opened again");
            sleep(pause).await;
        }
    }

    /// Answers every call on one stream, each exactly once.
    async fn answer<Q: Into<Call>, A: From<Answer>>(
        &self,
        mut inbound: impl Stream<Item = Result<Q, Status>> + Unpin,
        mut outbox: Outbox<A>,
    ) -> Ended {
        let mut open = BTreeSet::new();
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                call = inbound.next() => {
                    let call: Call = match call {
                        Some(Ok(request)) => request.into(),
                        Some(Err(status)) => return Ended::Broken(status),
                        None => return Ended::ByPeer,
                    };
                    // One that is asked again while it is answered gets that answer.
                    if open.contains(&call.id) {
                        continue;
                    }
                    if answers.len() + outbox.len() < AT_ONCE {
                        open.insert(call.id.clone());
                        answers.push(self.find_out(call));
                    } else if let Err(error) = outbox.push(refusal(call.id, &AskError::Busy(AT_ONCE)).into()) {
                        return error.into();
                    }
                }
                Some(answer) = answers.next() => {
                    open.remove(&answer.id);
                    if let Err(error) = outbox.push(answer.into()) {
                        return error.into();
                    }
                }
                drained = outbox.drain_one(), if !outbox.is_empty() => {
                    if let Err(error) = drained {
                        return error.into();
                    }
                }
            }
        }
    }

    async fn find_out(&self, call: Call) -> Answer {
        let Some(proxy) = call.proxy() else {
            let reason = format!("a {:?} has no Envoy", call.resource_type);
            return Answer { id: call.id, result: Err(reason) };
        };
        let within = self.settings.answer_within;
        let answer = timeout(within, self.envoys.ask(&proxy, call.ask)).await;
        let limit = self.settings.max_message.saturating_sub(ENVELOPE);
        match answer.unwrap_or(Err(AskError::TooLate(within))) {
            Ok(body) if body.len() > limit => {
                refusal(call.id, &AskError::TooLong { bytes: body.len(), limit })
            }
            Ok(body) => Answer { id: call.id, result: Ok(body) },
            Err(error) => refusal(call.id, &error),
        }
    }
}

fn refusal(id: String, error: &AskError) -> Answer {
    Answer { id, result: Err(error.to_string()) }
}
