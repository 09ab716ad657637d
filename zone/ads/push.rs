//! From a change in the store to new configuration for those it concerns.
//!
//! ```text
//!  change ──► touched meshes ──► what follows from it ──► parts compiled on all cores ──► streams
//!                                                 └──► certificates, signed elsewhere ──┘
//! ```
//!
//! What has to be compiled is worked off in slices. Between two of them whatever changed meanwhile is taken
//! in, so that an endpoint waits for a slice and never for the rest of the work. What cannot be compiled
//! leaves the last good configuration in place.

mod edge;
mod meshes;
mod signing;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{runtime::Env, store::index::IndexReader};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    meshes::{Configured, Meshes},
    signing::Signing,
};
use super::{
    admin_authority::AdminAuthority,
    config::ProxyConfig,
    convergence::MadeFor,
    insight::ProxyInsights,
    kept::{KeptArchive, KeptBefore},
    metrics,
    node::ProxyId,
    proxies::Proxies,
    push_status::PushStatus,
};
use crate::{
    deadlines::Deadlines,
    mesh::{Hosts, Surroundings},
};

/// Pause before a certificate that could not be signed is tried again.
const SIGN_AGAIN: Duration = Duration::from_secs(30);
/// The longest sleep when no certificate is near its renewal: a clock may have been set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// How long compiling goes on before it is looked for something more urgent.
const SLICE: Duration = Duration::from_millis(5);

/// The push loop.
pub(super) struct Push {
    env: Env,
    proxies: Arc<Proxies>,
    insights: Arc<ProxyInsights>,
    status: Arc<PushStatus>,
    /// Where it is noted what proxies keep.
    archive: Option<Arc<KeptArchive>>,
    reader: IndexReader,
    hosts: watch::Receiver<Hosts>,
    meshes: Meshes,
    signing: Signing,
    /// When to try again what could not be signed.
    again: Deadlines<ProxyId, DateTime<Utc>>,
}

impl Push {
    /// Nothing done yet. `around` is what is known before anything is read.
    pub(super) fn new(
        around: Surroundings,
        env: Env,
        reader: IndexReader,
        hosts: watch::Receiver<Hosts>,
        proxies: Arc<Proxies>,
        insights: Arc<ProxyInsights>,
        admin: Option<AdminAuthority>,
    ) -> Self {
        let around = Surroundings { hosts: hosts.borrow().clone(), ..around };
        let meshes = Meshes::new(around, reader.current());
        let signing = Signing::new(admin);
        let (status, again) = (Arc::default(), Deadlines::default());
        Self { env, proxies, insights, status, archive: None, reader, hosts, meshes, signing, again }
    }

    /// Notes there what is wrong with what is sent.
    pub(super) fn with_status(self, status: Arc<PushStatus>) -> Self {
        Self { status, ..self }
    }

    /// Notes there what proxies keep, and begins with what was noted there.
    pub(super) fn with_archive(self, archive: Arc<KeptArchive>) -> Self {
        Self { archive: Some(archive), ..self }
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        if let Some(archive) = &self.archive {
            let kept = archive.load(&self.reader.current()).await;
            self.meshes.remember(kept);
        }
        let proxies = Arc::clone(&self.proxies);
        loop {
            if self.meshes.is_idle() && self.signing.is_idle() {
                proxies.convergence().mark(MadeFor::Meshes, self.meshes.revision());
            }
            let due = self.next_due();
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = std::future::ready(()), if !self.meshes.is_idle() => {}
                open = self.reader.changed() => if !open { return },
                () = proxies.movement() => {}
                changed = self.hosts.changed() => if changed.is_err() { return },
                signed = self.signing.done() => {
                    let again = self.env.now() + SIGN_AGAIN;
                    // Once is enough, however often it was asked for.
                    self.meshes.signed(signed, |id| self.again.set(id, again));
                }
                () = tokio::time::sleep_until(due) => {}
            }
            self.round().await;
        }
    }

    /// Takes in what happened and works for a slice.
    async fn round(&mut self) {
        let now = self.env.now();
        let (index, hosts) = (self.reader.latest(), self.hosts.borrow_and_update().clone());
        let movement = self.proxies.take_movement();
        self.again.take(now).iter().for_each(|id| self.meshes.retry(id));
        movement.left.iter().for_each(|id| self.status.note(id, Arc::default()));
        let kept = match &self.archive {
            Some(archive) => archive.load_for(&movement.arrived, &index).await,
            None => KeptBefore::new(),
        };
        let start = Instant::now();
        let mut meshes = std::mem::take(&mut self.meshes);
        // Compiling takes a while and would hold up whoever shares the thread.
        let worked = tokio::task::spawn_blocking(move || {
            meshes.follow(&index, hosts);
            meshes.renew(now);
            movement.left.iter().for_each(|id| meshes.leave(id));
            meshes.remember(kept);
            movement.arrived.iter().for_each(|proxy| meshes.arrive(proxy));
            meshes.work(now, || start.elapsed() >= SLICE);
            let configured = meshes.configured(now);
            (meshes, configured)
        });
        let (meshes, configured) = worked.await.expect("compiling does not panic");
        self.meshes = meshes;
        self.signing.ask(self.meshes.unsigned(now), now);
        for one in configured {
            self.publish(one, start.elapsed());
        }
    }

    fn publish(&self, configured: Configured, took: Duration) {
        let Configured { id, revision, set, certificate, problems, of_envoy, lacks, kept, failed } =
            configured;
        let result = match &set {
            _ if failed => "error",
            Some(_) => "changed",
            None => "skip",
        };
        metrics::generated(id.kind, result, took);
        if let Some(set) = &set {
            metrics::regenerated(&id, set);
        }
        if let Some(certificate) = certificate {
            self.insights.certificate(&id, certificate);
        }
        let number = || self.proxies.convergence().number();
        let config = set.map(|set| Arc::new(ProxyConfig::new(revision, set).numbered(number())));
        self.status.note(&id, of_envoy);
        if let Some((archive, kept)) = self.archive.as_ref().zip(kept) {
            archive.note(&id, &kept);
        }
        let Some(new) = self.proxies.publish(&id, config, Arc::clone(&problems), lacks) else { return };
        self.insights.problems(&id, problems);
        for problem in new {
            tracing::warn!(proxy = %id, problem, "left out of the configuration");
        }
    }

    /// When the next certificate is to be replaced or tried again.
    fn next_due(&self) -> Instant {
        let next = self.again.next().into_iter().chain(self.meshes.next_renewal()).min();
        let wait = next.map_or(LONGEST_SLEEP, |at| (at - self.env.now()).to_std().unwrap_or_default());
        Instant::now() + wait.min(LONGEST_SLEEP)
    }
}
