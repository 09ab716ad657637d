//! Addresses that were written as host names, resolved here so that everything else stays pure.

mod questions;
mod users;

use std::{net::IpAddr, sync::Arc};

use common::{
    model::{Origin, Resource, kinds::zone_ingress, labels},
    proto::kuma::mesh::v1alpha1 as proto,
    store::index::{Index, IndexReader},
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::questions::{HostQuestions, NameOwner};
pub(super) use self::users::HostUsers;
use crate::{account::Account, mesh::Hosts};

/// Publishes what the host names in use stand for.
pub(super) struct Resolver {
    zone: Arc<str>,
    reader: IndexReader,
    index: Arc<Index>,
    users: HostUsers,
    questions: HostQuestions,
    hosts: watch::Sender<Hosts>,
}

impl Resolver {
    /// Nothing resolved yet.
    pub(super) fn new(zone: Arc<str>, reader: IndexReader) -> Self {
        let index = Arc::new(Index::empty(reader.current().store));
        let (users, questions) = (HostUsers::default(), HostQuestions::default());
        Self { zone, reader, index, users, questions, hosts: watch::Sender::default() }
    }

    /// What is known, now and later.
    pub(super) fn subscribe(&self) -> watch::Receiver<Hosts> {
        self.hosts.subscribe()
    }

    /// Works until `shutdown`.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        self.run_with(look_up, shutdown).await;
    }

    /// The same by `look_up`, which ends by itself: an answer that takes long holds back nobody but those who asked.
    async fn run_with<F: Future<Output = Option<IpAddr>>>(
        mut self,
        look_up: impl Fn(String) -> F,
        shutdown: CancellationToken,
    ) {
        let ask = |name: String| look_up(name.clone()).map(move |found| (name, found));
        let mut asked = FuturesUnordered::new();
        loop {
            self.follow();
            while let Some(name) = self.questions.next(Instant::now()) {
                asked.push(ask(name));
            }
            self.publish();
            let due = self.questions.due();
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                Some((name, found)) = asked.next(), if !asked.is_empty() => {
                    self.take(&name, found);
                    while let Some(Some((name, found))) = asked.next().now_or_never() {
                        self.take(&name, found);
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    fn take(&mut self, name: &str, found: Option<IpAddr>) {
        if self.questions.answered(name, found, Instant::now()) {
            tracing::warn!(name, "a host name is not found; it is asked for again, with growing pauses");
        }
    }

    fn publish(&self) {
        self.hosts.send_if_modified(|known| {
            let differs = known != self.questions.hosts();
            if differs {
                known.clone_from(self.questions.hosts());
            }
            differs
        });
    }

    fn follow(&mut self) {
        let (index, now) = (self.reader.latest(), Instant::now());
        for key in index.changed_since(&self.index) {
            let resource = index.get(&key);
            let Some(names) = self.users.follow(&key, resource).cloned() else { continue };
            let owner = match resource.or_else(|| self.index.get(&key)) {
                Some(resource) => owner_of(resource, &self.zone),
                None => continue,
            };
            if self.questions.set(&key, owner.clone(), names, now) {
                tracing::warn!(resource = %key, ?owner, "more host names than one may have asked for: the rest is not");
            }
        }
        self.index = index;
    }
}

/// On whose account the names of a resource are asked for.
fn owner_of(resource: &Resource, zone: &str) -> NameOwner {
    if matches!(&resource.origin, Origin::Zone(owner) if **owner == *zone) {
        return NameOwner::Proxy(Account::of(resource), resource.key.clone());
    }
    let of_ingress = || {
        let spec = Some(resource).filter(|resource| resource.kind() == &zone_ingress::KIND)?;
        spec.spec::<proto::ZoneIngress>().ok().map(|spec| spec.zone.clone())
    };
    let zone = resource.label(labels::ZONE).map(str::to_owned).or_else(of_ingress);
    NameOwner::Zone(zone.unwrap_or_default().into())
}

/// Asks the resolver of the machine, which gives up after a while of its own. It occupies a thread as long as it takes.
async fn look_up(name: String) -> Option<IpAddr> {
    match tokio::net::lookup_host((name.as_str(), 0)).await {
        // The smallest, so that the order of answers does not matter; IPv4 sorts before IPv6.
        Ok(addresses) => addresses.map(|a| a.ip()).min(),
        Err(error) => {
            tracing::debug!(name, %error, "cannot resolve a host name");
            None
        }
    }
}

#[cfg(test)]
mod tests;
