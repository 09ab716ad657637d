//! From a change in the store to new configuration for those it concerns.
//!
//! ```text
//!  change ──► touched meshes ──► a new context each ──► proxies that can tell ──► what differs ──► streams
//! ```
//!
//! Who serves what changes most often. It concerns only those who use the service, and they get its
//! endpoints and keep everything else; only what can change more than that has a configuration generated
//! again. One task does it all. While it works, further changes pile up in the index and are taken together
//! in the next round. What cannot be generated leaves the last good configuration in place.

mod affected;
mod round;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    runtime::Env,
    store::index::{Index, IndexReader},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use self::affected::Affected;
use super::{
    admin_authority::AdminAuthority, config::Config, insight::Insights, node::ProxyId, proxies::Proxies,
};
use crate::{
    generator::{AdminIdentity, Assignments, Interner},
    mesh::{Hosts, MeshContext, WorkloadCertificate},
};

/// Pause before a certificate that could not be signed is tried again.
const SIGN_AGAIN: Duration = Duration::from_secs(30);
/// The longest sleep when no certificate is near its renewal: a clock may have been set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// Unused resources are forgotten after so many configurations per proxy.
const SWEEP_EVERY: usize = 8;
/// Proxies looked at before others on this thread get a turn.
const SLICE: usize = 8;

/// The push loop.
pub(super) struct Push {
    zone: Arc<str>,
    env: Env,
    proxies: Arc<Proxies>,
    insights: Arc<Insights>,
    admin: Option<AdminAuthority>,
    reader: IndexReader,
    hosts: watch::Receiver<Hosts>,
    /// What the last round worked on.
    index: Arc<Index>,
    meshes: BTreeMap<Arc<str>, Arc<MeshContext>>,
    /// Meshes without a usable context, and why.
    broken: BTreeMap<Arc<str>, String>,
    held: BTreeMap<ProxyId, Held>,
    interner: Interner,
    /// Configurations made since unused resources were last forgotten.
    configured: usize,
}

/// What a connected proxy has.
#[derive(Default)]
struct Held {
    config: Option<Arc<Config>>,
    certificate: Option<Arc<WorkloadCertificate>>,
    admin: Option<Arc<AdminIdentity>>,
    /// When to generate again without any change.
    again: Option<DateTime<Utc>>,
    /// Whose endpoints it depends on; `None` when that is not known.
    uses: Option<Assignments>,
    /// What was last said about it in the log.
    problems: Vec<String>,
}

impl Push {
    /// Nothing done yet.
    pub(super) fn new(
        zone: Arc<str>,
        env: Env,
        reader: IndexReader,
        hosts: watch::Receiver<Hosts>,
        proxies: Arc<Proxies>,
        insights: Arc<Insights>,
        admin: Option<AdminAuthority>,
    ) -> Self {
        let index = reader.current();
        Self {
            zone,
            env,
            proxies,
            insights,
            admin,
            reader,
            hosts,
            index,
            meshes: BTreeMap::new(),
            broken: BTreeMap::new(),
            held: BTreeMap::new(),
            interner: Interner::default(),
            configured: 0,
        }
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let proxies = Arc::clone(&self.proxies);
        loop {
            let due = self.next_due();
            let mut affected = Affected::default();
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                () = proxies.arrival() => {}
                changed = self.hosts.changed() => match changed {
                    Ok(()) => affected = Affected::everybody(),
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(due) => {}
            }
            self.round(affected).await;
        }
    }

    /// When the next certificate is to be renewed.
    fn next_due(&self) -> Instant {
        let now = self.env.now();
        let next = self.held.values().filter_map(|held| held.again).min();
        let wait = next.map_or(LONGEST_SLEEP, |at| (at - now).to_std().unwrap_or_default());
        Instant::now() + wait.min(LONGEST_SLEEP)
    }
}
