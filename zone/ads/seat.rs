//! What outsiders see of a stream and of whose it is, and where they ask it for more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::{
    config::ProxyConfig,
    inquiry::{Inquiries, InquiryScope, StreamReport},
    node::Proxy,
    signals::{Signal, StreamSignals},
};

/// One stream of one proxy, unique in this process.
pub type StreamId = u64;

/// What outsiders see of one stream, and where they ask it for more.
#[derive(Default)]
pub struct StreamSeat {
    /// Which stream.
    pub id: StreamId,
    view: Mutex<StreamView>,
    /// What the stream is asked.
    pub inquiries: Inquiries,
    /// What wakes the stream.
    pub signals: Arc<StreamSignals>,
}

/// What one stream has been told, for those who look from outside.
#[derive(Clone, Debug, Default)]
pub struct StreamView {
    /// Which one.
    pub id: StreamId,
    /// Since when it is there.
    pub connected: DateTime<Utc>,
    /// Address of the peer.
    pub peer: String,
    /// Which protocol it speaks.
    pub protocol: &'static str,
    /// Requests that were heard on it.
    pub heard: u64,
    /// State of each type it asked for.
    pub types: BTreeMap<String, TypeView>,
}

/// What one stream has been told about one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeView {
    /// Responses sent.
    pub sent: u64,
    /// Version of the last one, where the protocol has such a thing.
    pub version: String,
    /// Number of the last one, by which it is answered.
    pub nonce: u64,
    /// When that was sent.
    pub sent_at: Option<DateTime<Utc>>,
    /// Number of the last one that was acknowledged; 0 when none was.
    pub acknowledged_nonce: u64,
    /// Whether the last one was acknowledged.
    pub acknowledged: bool,
    /// Why the proxy refuses something, in its words; `None` once it refuses nothing.
    pub last_rejection: Option<String>,
}

/// One proxy as the outside sees it.
#[derive(Clone, Debug)]
pub struct ProxyView {
    /// Which one, with what it said about itself.
    pub proxy: Arc<Proxy>,
    /// What it should have; `None` until that is known.
    pub config: Option<Arc<ProxyConfig>>,
    /// What went wrong when its configuration was last made.
    pub problems: Arc<[String]>,
    /// Its streams.
    pub streams: Vec<StreamView>,
}

/// One proxy, and its streams as they were asked what they told it; the newest is the last.
pub struct AskedProxy {
    /// Which one, with what it said about itself.
    pub proxy: Arc<Proxy>,
    /// What it should have; `None` until that is known.
    pub config: Option<Arc<ProxyConfig>>,
    /// What went wrong when its configuration was last made.
    pub problems: Arc<[String]>,
    /// What is seen of its streams, and what those will answer that do.
    pub streams: Vec<(StreamView, Option<oneshot::Receiver<StreamReport>>)>,
}

impl StreamSeat {
    /// That of a stream which looks like this and is woken by these.
    pub fn new(id: StreamId, view: StreamView, signals: Arc<StreamSignals>) -> Self {
        Self { id, view: Mutex::new(StreamView { id, ..view }), signals, ..Self::default() }
    }

    /// Asks the stream; `None` where it does not answer.
    pub fn ask(&self, scope: InquiryScope) -> Option<oneshot::Receiver<StreamReport>> {
        let asked = self.inquiries.ask(scope)?;
        self.signals.raise(Signal::Asked);
        Some(asked)
    }

    /// As it is now.
    pub fn view(&self) -> StreamView {
        self.lock().clone()
    }

    /// Changes what outsiders see.
    pub fn update(&self, change: impl FnOnce(&mut StreamView)) {
        change(&mut self.lock());
    }

    /// Version of the last response about this type.
    pub fn version(&self, type_url: &str) -> String {
        self.lock().types.get(type_url).map(|seen| seen.version.clone()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, StreamView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
