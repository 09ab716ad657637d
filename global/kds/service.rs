//! The gRPC services zones call.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use common::{
    events::StreamKind,
    kds::{
        apply::ApplyError,
        carrier::Carrier,
        clock::{self, ClockSkew},
        features::{DIGESTS, Features, RESUME},
        follow::Following,
        headers::{self, KdsCaller, Upstream},
        mapper::DownForm,
        outgoing::SharedOutgoing,
        proxies::ProxyProgress,
        reverse::{Answer, Call},
        serve::Ended,
        watch::Position,
    },
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        google::protobuf::Duration,
        kuma::mesh::v1alpha1::{
            ClustersRequest, ClustersResponse, StatsRequest, StatsResponse, XdsConfigRequest,
            XdsConfigResponse, ZoneHealthCheckRequest, ZoneHealthCheckResponse,
            global_kds_service_server::{GlobalKdsService, GlobalKdsServiceServer},
            kds_sync_service_server::{KdsSyncService, KdsSyncServiceServer},
            multiplex_service_server::MultiplexServiceServer,
        },
        strait::federation::v1::federation_service_server::FederationServiceServer,
    },
    runtime::http::{Client, PeerCertificate},
    store::{StoreError, StoreIdentity, index::Index},
    xds::Delta,
};
use http::Extensions;
use tokio::sync::oneshot;
use tonic::{
    Request, Response, Status, Streaming, codec::CompressionEncoding, metadata::MetadataMap, service::Routes,
};

use super::{
    Kds, KdsInner, admission,
    auth::{self, ZoneCaller},
    ending::EndCause,
    inbound::{self, ZoneMessages},
    questions, relays,
    reply::{Reply, reply},
    reverse,
    session::{Session, Tidings},
    zone_view::Downward,
};

pub(super) fn routes(kds: &Kds) -> Routes {
    let limit = kds.inner.settings.max_message;
    let gzip = CompressionEncoding::Gzip;
    let sync = KdsSyncServiceServer::new(kds.clone())
        .accept_compressed(gzip)
        .send_compressed(gzip)
        .max_encoding_message_size(limit);
    let global = GlobalKdsServiceServer::new(kds.clone())
        .accept_compressed(gzip)
        .send_compressed(gzip)
        .max_encoding_message_size(limit);
    let federation = FederationServiceServer::new(kds.clone())
        .accept_compressed(gzip)
        .send_compressed(gzip)
        .max_encoding_message_size(limit);
    let both = MultiplexServiceServer::new(kds.clone())
        .accept_compressed(gzip)
        .send_compressed(gzip)
        .max_encoding_message_size(limit);
    let routes = Routes::new(sync).add_service(global).add_service(both);
    match kds.inner.onward {
        None => routes.add_service(federation).add_service(relays::server(kds)),
        // One relay behind another has no global, and nobody asks a relay to bring back what was lost.
        Some(_) => routes,
    }
}

#[tonic::async_trait]
impl KdsSyncService for Kds {
    type GlobalToZoneSyncStream = Reply<DeltaDiscoveryResponse>;
    type ZoneToGlobalSyncStream = Reply<DeltaDiscoveryRequest>;

    async fn global_to_zone_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::GlobalToZoneSyncStream>, Status> {
        let caller = admission::zone(&request)?;
        let made = self.inner.ensure_zone(&caller).await?;
        // All that takes long and may fail comes before there is a session: what ends it is the stream, which there is
        // not yet when the zone hangs up here.
        if self.inner.onward.is_none() {
            self.inner.take_request(&caller).await?;
        }
        let session = self.join(&caller, made, StreamKind::GlobalToZone).await?;
        let (outbox, reply, end) = reply();
        let serving = self.inner.serving::<Delta>(&session, outbox);
        let view = self.inner.view_of(&session);
        self.run(session, serving.run(self.messages(request), view), end);
        Ok(Response::new(reply))
    }

    async fn zone_to_global_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryResponse>>,
    ) -> Result<Response<Self::ZoneToGlobalSyncStream>, Status> {
        let caller = admission::zone(&request)?;
        let line = self.line_below(&request, &caller.zone)?;
        let made = self.inner.ensure_zone(&caller).await?;
        if line.is_some() && self.inner.onward.is_none() {
            self.inner.take_request(&caller).await?;
        }
        let session = self.join(&caller, made, StreamKind::ZoneToGlobal).await?;
        let (outbox, reply, end) = reply();
        if let Some(onward) = &self.inner.onward {
            let (onward, passed) = (Arc::clone(onward), Arc::clone(&session));
            let inbound = self.messages(request);
            let passing = async move { onward.pass(&passed, &caller, inbound, outbox).await };
            self.run(session, passing, end);
            return Ok(Response::new(reply));
        }
        if let Some(line) = line {
            line.carry(&session);
        }
        let following = Following {
            resume: session.features().has(RESUME),
            sums_up: session.features().has(DIGESTS),
            ..self.inner.following(&session, outbox)
        };
        self.run(session, following.run(self.messages(request)), end);
        Ok(Response::new(reply))
    }
}

#[tonic::async_trait]
impl GlobalKdsService for Kds {
    type StreamXDSConfigsStream = Reply<XdsConfigRequest>;
    type StreamStatsStream = Reply<StatsRequest>;
    type StreamClustersStream = Reply<ClustersRequest>;

    async fn stream_xds_configs(
        &self,
        request: Request<Streaming<XdsConfigResponse>>,
    ) -> Result<Response<Self::StreamXDSConfigsStream>, Status> {
        self.reverse(request, StreamKind::ConfigDump).await
    }

    async fn stream_stats(
        &self,
        request: Request<Streaming<StatsResponse>>,
    ) -> Result<Response<Self::StreamStatsStream>, Status> {
        self.reverse(request, StreamKind::Stats).await
    }

    async fn stream_clusters(
        &self,
        request: Request<Streaming<ClustersResponse>>,
    ) -> Result<Response<Self::StreamClustersStream>, Status> {
        self.reverse(request, StreamKind::Clusters).await
    }

    async fn health_check(
        &self,
        request: Request<ZoneHealthCheckRequest>,
    ) -> Result<Response<ZoneHealthCheckResponse>, Status> {
        let caller = admission::zone(&request)?;
        if let Some(followed) = Upstream::read_followed(request.metadata()) {
            self.inner.catch_up_with(followed).await?;
        }
        let session = self.inner.sessions.of(&caller.zone);
        if let Some(session) = session.as_ref().filter(|_| headers::is_handover(request.metadata())) {
            session.hands_over(&caller);
        }
        let told = request.metadata();
        let tidings = Tidings {
            up: Position::read(told),
            proxies: ProxyProgress::read(told),
            clock: ClockSkew::read(told),
        };
        let down = session.and_then(|session| session.ping(&caller, tidings));
        let interval = self.inner.settings.poll_interval;
        let interval = Duration {
            seconds: interval.as_secs().try_into().unwrap_or(i64::MAX),
            nanos: interval.subsec_nanos().try_into().unwrap_or(0),
        };
        let mut response = Response::new(ZoneHealthCheckResponse { interval: Some(interval) });
        let index = self.inner.index.current();
        Upstream::new(self.inner.shown_by(&index), index.revision).write(response.metadata_mut());
        if let Some(down) = down {
            down.write(response.metadata_mut());
        }
        clock::write_time(self.inner.env.now(), response.metadata_mut());
        Ok(response)
    }
}

impl Kds {
    /// The zone that calls with these headers, if it is let in.
    pub(super) fn judge_zone(
        &self,
        headers: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<ZoneCaller, Status> {
        if self.inner.shutdown.is_cancelled() {
            return Err(Status::unavailable("global is shutting down"));
        }
        if self.inner.onward.is_some() && self.inner.index.current().revision == 0 {
            return Err(Status::unavailable("this relay has nothing of global yet"));
        }
        // The connection of a relay proves nothing about the zone it speaks for.
        let certificate = match Carrier::read(headers) {
            Some(_) => None,
            None => extensions.get::<Arc<PeerCertificate>>().cloned(),
        };
        let says = KdsCaller::read(headers);
        let caller = auth::admit(says, certificate, &*self.inner.authenticator)?;
        if let Some(client) = extensions.get::<Client>() {
            client.vouch(&caller.zone, None);
        }
        Ok(caller)
    }

    /// The messages of a stream.
    pub(super) fn messages<T: prost::Message + Default + 'static>(
        &self,
        request: Request<Streaming<T>>,
    ) -> ZoneMessages<T> {
        inbound::messages(request, self.inner.settings.max_message, &self.inner.incoming)
    }

    /// The same, and of each is made what `decode` makes of it.
    pub(super) fn messages_as<T, U: Send + 'static>(
        &self,
        request: Request<Streaming<T>>,
        decode: fn(Bytes) -> Result<U, Status>,
    ) -> ZoneMessages<U> {
        inbound::messages_as(request, self.inner.settings.max_message, &self.inner.incoming, decode)
    }

    pub(super) async fn open_stream(
        &self,
        caller: &ZoneCaller,
        stream: StreamKind,
    ) -> Result<Arc<Session>, Status> {
        let made = self.inner.ensure_zone(caller).await?;
        self.join(caller, made, stream).await
    }

    /// The session of a zone that is known since `made`. Whoever has it has a stream run with it before anything else.
    pub(super) async fn join(
        &self,
        caller: &ZoneCaller,
        made: DateTime<Utc>,
        stream: StreamKind,
    ) -> Result<Arc<Session>, Status> {
        self.inner.sessions.join(caller, made, stream).await.map_err(Status::from)
    }

    /// Runs a stream of the sync, one half of a session or both; the session ends with it.
    pub(super) fn run(
        &self,
        session: Arc<Session>,
        stream: impl Future<Output = Ended> + Send + 'static,
        end: oneshot::Sender<Status>,
    ) {
        let inner = Arc::clone(&self.inner);
        self.inner.streams.spawn(async move {
            let ended = tokio::select! {
                ended = stream => Some(ended),
                () = inner.shutdown.cancelled() => None,
            };
            // Whatever breaks while this side stops, breaks because of that.
            let stops = inner.shutdown.is_cancelled();
            let cause = if stops { EndCause::Stopping } else { EndCause::of_stream(ended.as_ref()) };
            inner.sessions.end(&session, cause);
            let _peer_is_gone = end.send(status(ended, &session));
        });
    }

    /// A stream on which this side asks. Its end is not the end of the session.
    async fn reverse<Q, A>(
        &self,
        request: Request<Streaming<A>>,
        kind: StreamKind,
    ) -> Result<Response<Reply<Q>>, Status>
    where
        Q: From<Call> + Send + 'static,
        A: Into<Answer> + prost::Message + Default + 'static,
    {
        let caller = admission::zone(&request)?;
        let session = self.open_stream(&caller, kind).await?;
        let (outbox, reply, end) = reply();
        let (sender, questions) = questions::channel();
        // While this task held the sender, it would not see that a newer stream took its place.
        let former = sender.downgrade();
        session.connect(kind, sender);
        let (inner, answers) = (Arc::clone(&self.inner), self.messages(request));
        self.inner.streams.spawn(async move {
            let ended = tokio::select! {
                ended = reverse::ask(&session, questions, answers, outbox) => Some(ended),
                () = inner.shutdown.cancelled() => None,
            };
            inner.sessions.leave(&session, kind, &former);
            let _peer_is_gone = end.send(status(ended, &session));
        });
        Ok(Response::new(reply))
    }
}

impl KdsInner {
    /// The history zones are shown: a relay shows that of its global, as it stands in `index`.
    pub(super) fn shown_by(&self, index: &Index) -> StoreIdentity {
        match self.onward {
            None => self.history.shown(),
            Some(_) => index.store,
        }
    }

    /// What leaves in the form for a receiver; all but very old zones share one, and those another.
    pub(super) fn outgoing_for(&self, features: &Features) -> &Arc<SharedOutgoing<Downward>> {
        match DownForm::of(features, &[]).hashes_names {
            true => &self.outgoing,
            false => &self.outgoing_unhashed,
        }
    }
}

/// How a stream ends; `None` at shutdown.
pub(super) fn status(ended: Option<Ended>, session: &Session) -> Status {
    match ended {
        None => Status::unavailable("global is shutting down"),
        Some(Ended::Stopped) => session.cause().unwrap_or(EndCause::Stopping).into(),
        Some(ended @ (Ended::ByPeer | Ended::Broken(_))) => Status::cancelled(ended.to_string()),
        Some(Ended::Malformed(excess)) if excess.is_excess() => {
            Status::resource_exhausted(excess.to_string())
        }
        Some(ended @ Ended::Talkative(_)) => Status::resource_exhausted(ended.to_string()),
        Some(ended @ (Ended::Malformed(_) | Ended::Protocol(_))) => {
            Status::invalid_argument(ended.to_string())
        }
        Some(ended @ (Ended::Outbox(_) | Ended::Stalled(_))) => Status::internal(ended.to_string()),
        Some(Ended::Apply(ApplyError::Store(StoreError::Unwritable(_)))) => EndCause::Unwritable.into(),
        Some(Ended::Apply(ApplyError::LostEnd)) => EndCause::Renewed.into(),
        // What is wrong with the store is none of the zone's business.
        Some(Ended::Apply(_)) => Status::internal("stream failed"),
    }
}
