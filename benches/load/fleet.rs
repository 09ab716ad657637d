//! All proxies together.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use thiserror::Error;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    AdsProtocol, Observer, PlayError, ResourceType, Trusting,
    observer::ChangeCursor,
    proxy::PlayedProxy,
    references::ReferenceCache,
    tls::{self, TrustError},
};

/// First pause of a proxy whose stream ended.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether everybody is ready.
const GLANCE: Duration = Duration::from_millis(10);

/// Proxies that read slowly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowness {
    /// Every so many-th proxy is one of them.
    pub every: usize,
    /// Bytes such a proxy reads in a second.
    pub bytes_per_second: u32,
}

/// What a fleet is made of.
pub struct FleetOptions<'a> {
    /// Where the proxies connect to: `https://host:port`, or `http://` without TLS.
    pub url: &'a str,
    /// Whom they trust, with TLS.
    pub trusting: Trusting<'a>,
    /// Their mesh.
    pub mesh: &'a str,
    /// Their names and tokens.
    pub proxies: Vec<(String, Option<String>)>,
    /// What they speak.
    pub protocol: AdsProtocol,
    /// Who reads slowly.
    pub slowness: Option<Slowness>,
    /// Handshakes at once.
    pub connecting: usize,
    /// Whether the first proxy keeps what it gets.
    pub record: bool,
}

/// Why there is no fleet.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The URL names no server.
    #[error("{0:?} is not the URL of a server of proxies: expected https://host:port")]
    Url(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The system allows too few connections.
    #[error("{wanted} proxies need more open files than the {allowed} this process may have (ulimit -n)")]
    OpenFiles {
        /// Files needed.
        wanted: u64,
        /// Files allowed.
        allowed: u64,
    },
    /// Not all came so far.
    #[error("{ready} of {all} proxies have their configuration after {after:?}; {reasons}")]
    NotReady {
        /// Proxies that have it.
        ready: usize,
        /// All.
        all: usize,
        /// How long was waited.
        after: Duration,
        /// Why streams ended, the most frequent first.
        reasons: String,
    },
}

/// What the first proxy got, message by message.
#[derive(Default)]
pub struct Recording(Mutex<Vec<(ResourceType, Bytes)>>);

impl Recording {
    pub(crate) fn push(&self, kind: ResourceType, message: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((kind, message));
    }

    /// Takes what came since the last time.
    pub fn take(&self) -> Vec<(ResourceType, Bytes)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What all proxies of a fleet share.
pub(crate) struct FleetContext {
    pub(crate) address: SocketAddr,
    pub(crate) host: String,
    pub(crate) authority: String,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) mesh: String,
    pub(crate) observer: Observer,
    pub(crate) references: ReferenceCache,
    pub(crate) recording: Option<Recording>,
    /// Handshakes at once: a listener displaces strangers when too many come.
    pub(crate) connecting: Semaphore,
    ended: AtomicUsize,
    reasons: Mutex<BTreeMap<String, usize>>,
}

/// Connected proxies; they leave when it is dropped.
pub struct Fleet {
    shared: Arc<FleetContext>,
    size: usize,
    begun: Instant,
    _tasks: JoinSet<()>,
}

impl Fleet {
    /// Starts all proxies; they connect, and connect again whenever a stream ends.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(options: FleetOptions<'_>) -> Result<Self, FleetError> {
        let wrong = || FleetError::Url(options.url.to_owned());
        let uri: Uri = options.url.parse().map_err(|_| wrong())?;
        let secure = uri.scheme_str() == Some("https");
        let (host, authority) = uri.host().zip(uri.authority()).ok_or_else(wrong)?;
        let port = uri.port_u16().unwrap_or(5678);
        let mut addresses = (host, port).to_socket_addrs().map_err(|_| wrong())?;
        let size = options.proxies.len();
        allow_open_files(size as u64 + 64)?;
        let shared = Arc::new(FleetContext {
            address: addresses.find(SocketAddr::is_ipv4).ok_or_else(wrong)?,
            host: host.to_owned(),
            authority: authority.to_string(),
            tls: if secure { Some(tls::client(&options.trusting)?) } else { None },
            mesh: options.mesh.to_owned(),
            observer: Observer::new(),
            references: ReferenceCache::default(),
            recording: options.record.then(Recording::default),
            connecting: Semaphore::new(options.connecting.max(1)),
            ended: AtomicUsize::new(0),
            reasons: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for (number, (name, token)) in options.proxies.into_iter().enumerate() {
            let slow = options.slowness.filter(|slow| number % slow.every.max(1) == slow.every.max(1) - 1);
            let proxy = PlayedProxy {
                number,
                name,
                token,
                protocol: options.protocol,
                pace: slow.map(|slow| slow.bytes_per_second.max(1)),
                counted: ChangeCursor::default(),
                ready: false,
            };
            tasks.spawn(keep_playing(proxy, Arc::clone(&shared)));
        }
        Ok(Self { shared, size, begun: Instant::now(), _tasks: tasks })
    }

    /// What all proxies have seen.
    pub fn observer(&self) -> &Observer {
        &self.shared.observer
    }

    /// What the first proxy got, when it was to keep it.
    pub fn recorded(&self) -> Vec<(ResourceType, Bytes)> {
        self.shared.recording.as_ref().map(Recording::take).unwrap_or_default()
    }

    /// Waits until every proxy has all it asked for; the time from the start to the last one.
    ///
    /// # Errors
    /// [`FleetError::NotReady`].
    pub async fn ready(&self, patience: Duration) -> Result<Duration, FleetError> {
        while self.shared.observer.ready() < self.size {
            if self.begun.elapsed() > patience {
                return Err(FleetError::NotReady {
                    ready: self.shared.observer.ready(),
                    all: self.size,
                    after: patience,
                    reasons: self.reasons(),
                });
            }
            sleep(GLANCE).await;
        }
        Ok(self.shared.observer.last_ready())
    }

    /// Streams that ended so far.
    pub fn ended(&self) -> usize {
        self.shared.ended.load(Relaxed)
    }

    /// Why streams ended, the most frequent first.
    pub fn reasons(&self) -> String {
        let reasons = self.shared.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reasons: Vec<_> = reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown: Vec<_> =
            reasons.iter().take(3).map(|(why, count)| format!("{count} times {why}")).collect();
        if shown.is_empty() { "no stream ended".to_owned() } else { shown.join("; ") }
    }
}

async fn keep_playing(mut proxy: PlayedProxy, shared: Arc<FleetContext>) {
    let mut pause = PAUSE;
    loop {
        let begun = Instant::now();
        let played = proxy.play(&shared).await;
        shared.ended.fetch_add(1, Relaxed);
        let why = played
            .err()
            .map_or_else(|| "the server ended the stream".to_owned(), |e: PlayError| e.to_string());
        {
            let mut reasons = shared.reasons.lock().unwrap_or_else(PoisonError::into_inner);
            if reasons.len() < 1000 {
                *reasons.entry(why).or_default() += 1;
            }
        }
        pause = if begun.elapsed() > LONGEST_PAUSE { PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        sleep(pause).await;
    }
}

/// Raises the limit of open files as far as the system allows.
fn allow_open_files(wanted: u64) -> Result<(), FleetError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let raised = getrlimit(Resource::Nofile).current.or(current).unwrap_or(u64::MAX);
    if raised < wanted { Err(FleetError::OpenFiles { wanted, allowed: raised }) } else { Ok(()) }
}
