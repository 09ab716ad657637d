//! Pings: the zone shows that it is there and how far its way up is; global answers with its own position.

use std::time::Duration;

use common::{
    kds::{
        headers::{KdsCaller, Upstream},
        watch::Position,
    },
    proto::kuma::mesh::v1alpha1::{
        ZoneHealthCheckRequest, global_kds_service_client::GlobalKdsServiceClient,
    },
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};

use super::{
    call::with_headers,
    link::{Link, REPORT},
    settings::ZoneKdsSettings,
};

/// The pings of one connection.
pub(super) struct Pings<'a> {
    pub(super) settings: &'a ZoneKdsSettings,
    pub(super) link: &'a Link,
    pub(super) channel: Channel,
    pub(super) caller: KdsCaller,
}

impl Pings<'_> {
    /// Pings as often as global asks for, and, where global reads it, when the way up has moved; until
    /// one is not answered well.
    pub(super) async fn keep(&self, first: Option<Duration>) -> Status {
        let Some(mut period) = first else { return std::future::pending().await };
        let mut sent = Instant::now();
        let reads_positions = self.link.status().upstream.is_some();
        loop {
            tokio::select! {
                () = sleep(period) => {}
                () = self.link.moved_up(), if reads_positions => sleep(REPORT.saturating_sub(sent.elapsed())).await,
            }
            sent = Instant::now();
            match self.ping().await {
                Ok((Some(next), upstream)) => {
                    period = next;
                    upstream.into_iter().for_each(|upstream| self.link.saw(upstream));
                }
                Ok((None, _)) => return std::future::pending().await,
                Err(status) => return status,
            }
        }
    }

    /// Pings a global that shows `shown` until it shows another history, or does not answer well.
    pub(super) async fn until_another(&self, first: Option<Duration>, shown: Option<Upstream>) {
        let history = |upstream: Option<Upstream>| upstream.map(|at| (at.store_id, at.epoch));
        let Some(mut period) = first else { return std::future::pending().await };
        loop {
            sleep(period).await;
            match self.ping().await {
                Ok((Some(next), upstream)) if history(upstream) == history(shown) => period = next,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// One ping: when the next one is due (`None`: global does not take any), and where global stands.
    pub(super) async fn ping(&self) -> Result<(Option<Duration>, Option<Upstream>), Status> {
        let mut request = with_headers(ZoneHealthCheckRequest {}, &self.caller);
        self.link.status().up.write(request.metadata_mut());
        let mut client = GlobalKdsServiceClient::new(self.channel.clone());
        if self.settings.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let answer = timeout(self.settings.connect_timeout, client.health_check(request)).await;
        match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer to a ping in time"))) {
            Ok(response) => {
                let upstream = Upstream::read(response.metadata());
                if let Some(down) =
                    Position::read(response.metadata()).filter(|_| self.link.status().connected)
                {
                    self.link.is_down_at(down);
                }
                let asked = response.into_inner().interval.and_then(|interval| {
                    let seconds = interval.seconds.try_into().ok()?;
                    Some(Duration::new(seconds, interval.nanos.try_into().ok()?))
                });
                let asked = asked.filter(|period| !period.is_zero());
                Ok((Some(asked.unwrap_or(self.settings.ping_interval)), upstream))
            }
            Err(status) if status.code() == Code::Unimplemented => Ok((None, None)),
            Err(status) => Err(status),
        }
    }
}

/// What it means that a ping was not answered well.
pub(super) fn unanswered(status: &Status) -> String {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
            format!("global does not let this zone in: {}", status.message())
        }
        code => format!("global does not answer pings: {code}: {}", status.message()),
    }
}
