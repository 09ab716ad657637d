//! Relays: they take what all zones are to have over one stream, serve zones as global does, and carry what
//! these own up, each on a stream of its own.
//!
//! To global a zone below a relay is a zone like any other: with a session, a status, an insight and an epoch
//! of its own. What differs is who tells about it: how far it is stands in the reports of the relay, and
//! questions about its Envoys go to the relay.

mod auth;
mod feed;
mod form;
mod line;
mod parts;
mod report;
mod service;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::kds::{carrier::Carrier, outgoing::SharedOutgoing, signature::KeyOfResources};
use tokio::sync::mpsc;

use self::{form::ForRelays, line::RelayLine};
use super::questions::{self, Question};

pub(super) use self::service::server;

/// The relays that are connected.
pub(crate) struct Relays {
    lines: Mutex<BTreeMap<Arc<str>, Arc<RelayLine>>>,
    /// What all of them hold; made when the first of them comes.
    outgoing: Arc<SharedOutgoing<ForRelays>>,
}

impl Relays {
    /// Relays that are sent no label that begins with one of these, nothing larger than this, and what is for zones with
    /// signatures of this key.
    pub(crate) fn new(
        skip_prefixes: &[String],
        largest: usize,
        signing_key: Option<Arc<KeyOfResources>>,
    ) -> Self {
        let form = ForRelays::new(skip_prefixes, largest).signing(signing_key);
        Self { lines: Mutex::default(), outgoing: Arc::new(SharedOutgoing::new(form)) }
    }

    /// A line to `carrier`, which replaces an older one of that name.
    fn open(&self, carrier: &Carrier) -> (Arc<RelayLine>, mpsc::Receiver<Question>) {
        let (sender, questions) = questions::channel();
        let line = Arc::new(RelayLine::new(carrier, sender));
        if let Some(older) = self.lock().insert(Arc::clone(&line.relay), Arc::clone(&line)) {
            older.stop.cancel();
        }
        show(self.lock().len());
        (line, questions)
    }

    /// The line a call of `carrier` belongs to.
    pub(super) fn line_of(&self, carrier: &Carrier) -> Option<Arc<RelayLine>> {
        let line = self.lock().get(carrier.relay.as_str()).cloned();
        line.filter(|line| line.is_of(carrier) && !line.stop.is_cancelled())
    }

    /// Ends a line.
    fn close(&self, line: &Arc<RelayLine>) {
        line.stop.cancel();
        let mut lines = self.lock();
        if lines.get(&line.relay).is_some_and(|current| Arc::ptr_eq(current, line)) {
            lines.remove(&line.relay);
        }
        show(lines.len());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<RelayLine>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show(relays: usize) {
    metrics::gauge!("kds_relays_connected").set(u32::try_from(relays).unwrap_or(u32::MAX));
}
