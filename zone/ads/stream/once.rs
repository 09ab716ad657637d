//! One answer instead of a stream.

use std::{sync::Arc, time::Duration};

use common::{
    frames::Frames,
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    xds::{Dialect, Input, ResponseParts, Sotw, Source},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    EnvoyPeer, Responses, Streams, dismissed, end, first_request, stopping,
    wire::{malformed, read_whole},
};
use crate::ads::{config::ProxyConfig, metrics, places::StreamPlace, proxies::StreamView, signals::Signal};

/// How long the first configuration of a proxy may take.
const FIRST: Duration = Duration::from_secs(10);

impl Streams {
    /// Answers one call with what there is of one type at the moment.
    pub(in crate::ads) async fn call(
        &self,
        only: &'static str,
        peer: EnvoyPeer,
        mut requests: Frames,
        responses: Responses,
    ) {
        let ended = tokio::select! {
            () = self.shutdown.cancelled() => Err(stopping()),
            ended = self.answer_call(only, &peer, &mut requests, &responses) => ended,
        };
        end(&peer, ended, responses);
    }

    async fn answer_call(
        &self,
        only: &'static str,
        peer: &EnvoyPeer,
        requests: &mut Frames,
        responses: &Responses,
    ) -> Result<(), Status> {
        self.screen(peer).await?;
        let mut place = self.place(peer)?;
        let message = first_request(&mut place, requests).await?;
        let message = message.ok_or_else(|| Status::invalid_argument("the call has no request"))?;
        let source = Source::<Sotw>::new(self.settings(Some(only)));
        // A call has no word for "the one you have", so whoever has it is told again.
        let asked = DiscoveryRequest { version_info: String::new(), ..read_whole(&source, &message)? };
        let at_once = (Duration::ZERO, &CancellationToken::new());
        let parts = self.fetch(only, (peer, &mut place), asked, "fetch", at_once).await?;
        let parts = parts.ok_or_else(|| Status::internal("a first request is always answered"))?;
        let response = Sotw::encode(parts);
        metrics::sent(only, response.length());
        responses.put(response);
        Ok(())
    }

    /// What there is of one type for who asks in this protocol, once it differs from the version it names; `None` when it does not
    /// within `wait`, nor before the client `left`. To be called where nobody drops it, but at the end of the process: a
    /// proxy that was registered has to join and leave.
    pub(in crate::ads) async fn fetch(
        &self,
        only: &'static str,
        (peer, place): (&EnvoyPeer, &mut StreamPlace),
        mut asked: DiscoveryRequest,
        protocol: &'static str,
        (wait, left): (Duration, &CancellationToken),
    ) -> Result<Option<ResponseParts>, Status> {
        metrics::received(only, !asked.response_nonce.is_empty(), asked.error_detail.is_some());
        let (proxy, resource) = self.recognise(asked.node.clone(), peer).await?;
        let (grant, is_registered) = self.admit(&proxy.id, resource, peer, place).await?;
        self.vouch(&proxy, peer);
        let proxy = Arc::new(proxy);
        let (address, connected) = (peer.address.clone(), self.env.now());
        let view = StreamView { peer: address, protocol, connected, ..StreamView::default() };
        let mut session = self.join(&proxy, is_registered, view, Arc::default());
        let held = std::mem::take(&mut asked.version_info);
        let begun = Instant::now();
        loop {
            let config = session.config.borrow_and_update().clone();
            let mut is_known = false;
            if let Some(config) = config {
                // Meanwhile the token may have been revoked.
                if !self.authenticator.upholds(&grant, &self.index.current()) {
                    self.grant(&proxy.id, peer).await?;
                }
                let response = self.answer(only, &asked, &config)?;
                if response.version != held {
                    return Ok(Some(response));
                }
                is_known = true;
            }
            let end = begun + if is_known { wait } else { wait.max(FIRST) };
            tokio::select! {
                () = self.shutdown.cancelled() => return Err(stopping()),
                () = left.cancelled() => return Err(Status::cancelled("the client left")),
                raised = session.seat.signals.raised() => {
                    if raised.has(Signal::Dismissed) {
                        return Err(dismissed());
                    }
                }
                () = sleep_until(end) => {
                    let unknown = || Status::unavailable("what this proxy should have is not known yet");
                    return if is_known { Ok(None) } else { Err(unknown()) };
                }
            }
        }
    }

    /// All that is asked for.
    fn answer(
        &self,
        only: &'static str,
        asked: &DiscoveryRequest,
        config: &ProxyConfig,
    ) -> Result<ResponseParts, Status> {
        let mut source = Source::<Sotw>::new(self.settings(Some(only)).polled());
        source.handle(Input::Request(asked), config).map_err(malformed)?;
        let first = source.next_parts(Instant::now(), config);
        first.ok_or_else(|| Status::internal("a first request is always answered"))
    }
}
