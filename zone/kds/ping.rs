//! Pings: the zone shows that it is there and how far its way up is; global answers with its own position.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use common::{
    kds::{
        clock::{self, ClockSkew},
        headers::{KdsCaller, Upstream, announced, write_handover},
        proxies::ProxyProgress,
        watch::Position,
    },
    proto::{
        google::protobuf,
        kuma::mesh::v1alpha1::{ZoneHealthCheckRequest, global_kds_service_client::GlobalKdsServiceClient},
    },
    rest::ProxyProgressSource,
    store::{Revision, index::IndexReader},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};

use super::{
    call::with_headers,
    coverage::Coverage,
    link::{Link, REPORT},
    settings::ZoneKdsSettings,
};

/// Acknowledgements go first: global is not asked how it sees them before they are likely to be there.
const LATER: Duration = Duration::from_millis(250);
/// How often global may have a zone ping. It asks for any time it likes: for one that no clock can add to now, or for
/// none between two pings.
const MOST_OFTEN: Duration = Duration::from_millis(100);
const LEAST_OFTEN: Duration = Duration::from_secs(3600);
/// How long a goodbye may take.
const HANDOVER: Duration = Duration::from_secs(1);

/// The pings of one connection.
pub(super) struct Pings<'a> {
    pub(super) settings: &'a ZoneKdsSettings,
    pub(super) link: &'a Link,
    pub(super) channel: Channel,
    pub(super) caller: KdsCaller,
    /// How far global was followed before this connection.
    pub(super) followed: Option<Upstream>,
    pub(super) index: &'a IndexReader,
    /// What the pings tell about the proxies.
    pub(super) proxies: Option<ProxyReports>,
}

/// How far the proxies here are, told in revisions of global.
pub(super) struct ProxyReports {
    source: Arc<dyn ProxyProgressSource>,
    state: Mutex<ReportState>,
}

#[derive(Default)]
struct ReportState {
    coverage: Coverage,
    /// What global was told last.
    told: ProxyProgress,
}

impl ProxyReports {
    /// Nothing is told yet.
    pub(super) fn new(source: Arc<dyn ProxyProgressSource>) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// All that global wrote up to `global` is stored here, up to revision `here`.
    fn covers(&self, here: Revision, global: Revision) {
        self.lock().coverage.covers(here, global);
    }

    fn now(&self, state: &mut ReportState) -> ProxyProgress {
        let progress = self.source.proxy_progress();
        ProxyProgress { acked: state.coverage.reached(progress.acked), ..progress }
    }

    /// What there is to tell; it counts as told.
    fn take(&self) -> ProxyProgress {
        let mut state = self.lock();
        let now = self.now(&mut state);
        state.told.clone_from(&now);
        now
    }

    /// Whether who waits for the proxies would like to hear it.
    fn has_news(&self) -> bool {
        let mut state = self.lock();
        let (now, told) = (self.now(&mut state), &state.told);
        (now.acked, now.refusing, &now.refusals) != (told.acked, told.refusing, &told.refusals)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ReportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pings<'_> {
    /// Pings as often as global asks for, and, where global reads it, when the way up has moved or the proxies came
    /// further with what came down; until one is not answered well.
    pub(super) async fn keep(&self, first: Option<Duration>) -> Status {
        let Some(mut period) = first else { return std::future::pending().await };
        let mut sent = Instant::now();
        let reads_positions = self.link.status().upstream.is_some();
        let proxies = self.proxies.as_ref().filter(|_| reads_positions);
        let mut converged = proxies.map(|proxies| proxies.source.progressed());
        loop {
            let awaits_word = proxies.is_some() && self.link.awaits_word();
            let due = sent + if awaits_word { period.min(REPORT) } else { period };
            let pause = REPORT.saturating_sub(sent.elapsed());
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.link.moved_up(), if reads_positions => sleep(pause).await,
                () = self.link.took_more(), if proxies.is_some() => sleep(pause.max(LATER)).await,
                () = changed(&mut converged) => {
                    if !proxies.is_some_and(ProxyReports::has_news) {
                        continue;
                    }
                    sleep(pause).await;
                }
            }
            sent = Instant::now();
            match self.ping().await {
                Ok((Some(next), upstream)) => {
                    period = next;
                    if upstream.is_some_and(|upstream| self.link.saw(upstream)) {
                        return Status::aborted("global shows another history");
                    }
                }
                Ok((None, _)) => return std::future::pending().await,
                Err(status) => return status,
            }
        }
    }

    /// Tells global that another replica of this zone takes over, so that it does not take the end of this
    /// connection for the end of the zone. One that hears nothing of it waits as for any that was lost.
    pub(super) async fn hand_over(&self) {
        let mut request = with_headers(ZoneHealthCheckRequest {}, &self.caller);
        write_handover(request.metadata_mut());
        let mut client = GlobalKdsServiceClient::new(self.channel.clone());
        match timeout(HANDOVER, client.health_check(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot tell global of the handover"),
            Err(_) => tracing::debug!("global does not hear of the handover"),
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
        let link = self.link.status();
        link.up.write(request.metadata_mut());
        if let Some(proxies) = self.proxies.as_ref().filter(|_| link.upstream.is_some()) {
            proxies.take().write(request.metadata_mut());
        }
        if let Some(followed) = self.followed {
            followed.write_followed(request.metadata_mut());
        }
        if let Some(clock) = link.clock {
            clock.write(request.metadata_mut());
        }
        let mut client = GlobalKdsServiceClient::new(self.channel.clone());
        if self.settings.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let (sent, shown) = (Instant::now(), self.link.time());
        let answer = timeout(self.settings.connect_timeout, client.health_check(request)).await;
        match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer to a ping in time"))) {
            Ok(response) => {
                let upstream = Upstream::read(response.metadata());
                self.link.note_features(announced(response.metadata()));
                if let Some(answered) = clock::read_time(response.metadata()) {
                    self.link.is_ahead(ClockSkew::measured(shown, sent.elapsed(), answered));
                }
                if let Some(down) =
                    Position::read(response.metadata()).filter(|_| self.link.status().connected)
                {
                    self.link.is_down_at(down);
                    if let Some(proxies) = &self.proxies {
                        proxies.covers(self.index.current().revision, down.acked);
                    }
                }
                let asked = response.into_inner().interval.as_ref().and_then(period);
                Ok((Some(asked.unwrap_or(self.settings.ping_interval)), upstream))
            }
            Err(status) if status.code() == Code::Unimplemented => Ok((None, None)),
            Err(status) => Err(status),
        }
    }
}

/// How often global asks for pings; `None` where it leaves that to the zone, as one of Kuma does with a zero.
fn period(asked: &protobuf::Duration) -> Option<Duration> {
    let seconds = Duration::from_secs(asked.seconds.try_into().ok()?);
    let nanos = Duration::from_nanos(asked.nanos.try_into().ok()?);
    let period = Some(seconds.saturating_add(nanos)).filter(|period| !period.is_zero());
    period.map(|period| period.clamp(MOST_OFTEN, LEAST_OFTEN))
}

/// Waits for the next change; for ever where there is none to come.
async fn changed(receiver: &mut Option<watch::Receiver<()>>) {
    match receiver {
        Some(changes) => {
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
        None => std::future::pending().await,
    }
}

/// What it means that the first ping of a connection was not. A certificate is refused after the handshake seems over, and
/// then the connection just ends.
pub(super) fn unheard(status: &Status) -> String {
    let text = unanswered(status);
    if !matches!(status.code(), Code::Unknown | Code::Cancelled) {
        return text;
    }
    format!(
        "{text}; where this zone shows a certificate (multizone.zone.kds.clientCertFile), global may not take it: it ran \
         out, or is of an authority that global does not know"
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_global_asks_for_there_is_a_next_ping_and_a_pause_before_it() {
        let check = |seconds, nanos, expected: Option<Duration>| {
            let asked = protobuf::Duration { seconds, nanos };
            assert_eq!(period(&asked), expected, "{asked:?}");
        };
        check(0, 500_000_000, Some(Duration::from_millis(500)));
        check(5, 0, Some(Duration::from_secs(5)));
        for endless in [3601, 1 << 40, i64::MAX] {
            check(endless, 0, Some(LEAST_OFTEN));
            check(endless, i32::MAX, Some(LEAST_OFTEN));
        }
        check(0, 1, Some(MOST_OFTEN));
        // What is no time at all leaves it to the zone.
        for (seconds, nanos) in [(0, 0), (-1, 0), (0, -1), (i64::MIN, i32::MIN), (1, -1)] {
            check(seconds, nanos, None);
        }
    }
}
