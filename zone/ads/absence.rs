//! Proxies that have been away for so long that nobody expects them back: what is stored of them goes. So it does when
//! nobody saw them leave, because this control plane was not there.
//!
//! ```text
//!   open at another process, and silent for the idle time ──► its subscriptions end
//!   every subscription ended, and the age has passed      ──► the proxy is deleted
//! ```
//!
//! Who brought its resource along is usually deleted soon after it leaves, by the process it leaves. Where that process ended
//! first, it is not expected back for longer than proxies take that lost their control plane, counted from when somebody leads
//! again. One of which nobody ever wrote an insight, because the process ended that let it in, has been away since its
//! resource was written.
//!
//! What is due follows from what is stored, and for who brought something along from when this replica began to lead; so
//! whoever begins anew comes to the same, or gives those more time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    model::{Origin, Resource, ResourceKey},
    proto::kuma::mesh::v1alpha1::DiscoverySubscription,
    runtime::Env,
    store::{
        Batch, Fence, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    insight::{subscriptions, with_all_ended},
    node::{ProxyId, ProxyKind},
    proxies::Proxies,
    resource::is_registered,
};
use crate::leader::Work;

/// Pause after the store refused, or after somebody was due who is here.
const RETRY: Duration = Duration::from_secs(60);
/// What is written together.
const BATCH: usize = 64;
const KINDS: [ProxyKind; 3] = [ProxyKind::Dataplane, ProxyKind::Ingress, ProxyKind::Egress];

/// After how long what is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbsenceTimeouts {
    /// An offline dataplane is deleted.
    pub dataplane: Duration,
    /// An offline zone ingress or zone egress is deleted.
    pub zone_proxy: Duration,
    /// One is deleted that brought its resource along, if that is sooner.
    pub brought: Duration,
    /// The same of one of which no stream was ever noted; `None`: as if somebody had applied it. Another process that
    /// shares the store may know it.
    pub unseen: Option<Duration>,
    /// A proxy of another process, of which that process says nothing any more, is offline.
    pub idle: Duration,
}

impl Default for AbsenceTimeouts {
    fn default() -> Self {
        let three_days = Duration::from_secs(3 * 24 * 60 * 60);
        let five_minutes = Duration::from_secs(5 * 60);
        Self {
            dataplane: three_days,
            zone_proxy: three_days,
            brought: five_minutes,
            unseen: Some(five_minutes),
            idle: five_minutes,
        }
    }
}

/// What is due for one proxy, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AbsenceDeadline {
    /// Whoever had it said nothing for too long.
    Silent,
    /// It has been away for too long.
    Gone,
}

/// Deletes proxies that stay away, on the replica that leads the zone.
pub(crate) struct Absence {
    zone: Arc<str>,
    patience: AbsenceTimeouts,
    store: Arc<dyn Store>,
    index: IndexReader,
    proxies: Arc<Proxies>,
    env: Env,
}

impl Absence {
    /// For the proxies of a zone, of which `proxies` are connected to this process.
    pub(crate) fn new(
        zone: Arc<str>,
        patience: AbsenceTimeouts,
        store: Arc<dyn Store>,
        index: IndexReader,
        proxies: Arc<Proxies>,
        env: Env,
    ) -> Self {
        Self { zone, patience, store, index, proxies, env }
    }

    /// Does what is due now; what could not be done is due again later.
    async fn act(&self, index: &Index, calendar: &mut Calendar, fence: &Fence) {
        let now = self.env.now();
        let due = calendar.take(now);
        let mut work = Vec::new();
        for (insight, due) in due {
            let Some((proxy, writes)) = self.writes(&insight, due, index, now) else { continue };
            let is_seen = index.get(&insight).is_some();
            if self.proxies.is_connected(&proxy) || (!is_seen && self.proxies.is_expected(&proxy)) {
                // It came back, and that is about to be written; or it comes and goes without a stream.
                calendar.set(insight, now + delta(RETRY), due);
                continue;
            }
            work.push((insight, due, proxy, writes));
        }
        for together in work.chunks(BATCH) {
            let writes = together.iter().flat_map(|(.., writes)| writes.iter().cloned());
            match self.store.transact(Batch::of(writes).fenced(fence.clone())).await {
                Ok(_) => together.iter().for_each(|(_, due, proxy, _)| self.tell(*due, proxy)),
                Err(error) => {
                    match error {
                        StoreError::Conflict { .. } | StoreError::NotFound { .. } => {
                            tracing::debug!(%error, "a proxy that was due came back");
                        }
                        error => tracing::warn!(%error, "cannot delete proxies that stay away"),
                    }
                    for (insight, due, ..) in together {
                        calendar.set(insight.clone(), now + delta(RETRY), *due);
                    }
                }
            }
        }
    }

    fn tell(&self, due: AbsenceDeadline, proxy: &ProxyId) {
        match due {
            AbsenceDeadline::Silent => {
                tracing::info!(%proxy, "nobody says anything of the proxy any more: it is offline")
            }
            AbsenceDeadline::Gone => {
                tracing::info!(%proxy, "the proxy has been offline for too long, it is deleted");
            }
        }
    }

    /// What is to be written, under the precondition that the proxy was not heard of meanwhile.
    fn writes(
        &self,
        insight: &ResourceKey,
        due: AbsenceDeadline,
        index: &Index,
        now: DateTime<Utc>,
    ) -> Option<(ProxyId, Vec<Write>)> {
        let kind = kind_of(insight)?;
        let proxy = ProxyId::new(kind, &insight.mesh, &insight.name);
        let Some(stored) = index.get(insight) else {
            let unseen = index.get(&proxy.key()).filter(|resource| is_registered(resource))?;
            let delete = Write::delete_when(proxy.key(), Precondition::At(unseen.revision));
            return Some((proxy, vec![delete]));
        };
        let when = Precondition::At(stored.revision);
        let writes = match due {
            AbsenceDeadline::Silent => {
                let mut ended = Resource::clone(stored).with_spec(with_all_ended(stored, now)?);
                ended.modified = now;
                vec![Write::put_when(ended, when)]
            }
            AbsenceDeadline::Gone => {
                let resource = index.get(&proxy.key())?;
                let of_proxy = Precondition::At(resource.revision);
                vec![Write::delete_when(insight.clone(), when), Write::delete_when(proxy.key(), of_proxy)]
            }
        };
        Some((proxy, writes))
    }
}

impl Work for Absence {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        let mut calendar = Calendar { began: self.env.now(), ..Calendar::default() };
        let mut reader = self.index.clone();
        let mut known = Arc::new(Index::empty(self.store.identity()));
        loop {
            let index = reader.latest();
            let now = self.env.now();
            for key in index.changed_since(&known) {
                let own = &*self.env.instance_id;
                calendar.follow(&key, &index, (&self.zone, own), &self.patience, now);
            }
            known = index;
            self.act(&known, &mut calendar, &fence).await;
            let pause = calendar.next().map(|at| (at - self.env.now()).to_std().unwrap_or_default());
            tokio::select! {
                () = stop.cancelled() => return,
                open = reader.changed() => if !open { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn stand_by(&self) {}
}

impl AbsenceTimeouts {
    fn of(&self, kind: ProxyKind) -> Duration {
        match kind {
            ProxyKind::Dataplane => self.dataplane,
            ProxyKind::Ingress | ProxyKind::Egress => self.zone_proxy,
        }
    }

    /// When a proxy of this kind is deleted that left then and that somebody applied.
    fn applied_goes(&self, kind: ProxyKind, left: DateTime<Utc>) -> Option<DateTime<Utc>> {
        left.checked_add_signed(delta(self.of(kind)))
    }

    /// The same of one that brought its resource along, where this replica has led since `began`.
    fn brought_goes(
        &self,
        kind: ProxyKind,
        left: DateTime<Utc>,
        is_seen: bool,
        began: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let (most, brought) = (self.of(kind), Some(self.brought));
        let age = if is_seen { brought } else { self.unseen }.unwrap_or(most).min(most);
        // Those who lost their control plane have to find it again.
        let earliest = began.checked_add_signed(delta(self.brought.min(most)))?;
        Some(left.checked_add_signed(delta(age))?.max(earliest))
    }

    /// What is due for a proxy of which this was written, and when; `None` while `own` process has it. `goes` says when it is
    /// deleted if it left then.
    fn due(
        &self,
        subscriptions: &[DiscoverySubscription],
        own: &str,
        now: DateTime<Utc>,
        goes: impl Fn(DateTime<Utc>) -> Option<DateTime<Utc>>,
    ) -> Option<(DateTime<Utc>, AbsenceDeadline)> {
        let mut open = subscriptions.iter().filter(|s| s.disconnect_time.is_none()).peekable();
        if open.peek().is_some() {
            let elsewhere = open.all(|s| s.control_plane_instance_id != own);
            let silent = now.checked_add_signed(delta(self.idle)).filter(|_| elsewhere);
            return silent.map(|at| (at, AbsenceDeadline::Silent));
        }
        let left = subscriptions.last()?.disconnect_time.as_ref()?;
        let left = DateTime::from_timestamp(left.seconds, left.nanos.try_into().ok()?)?;
        Some((goes(left)?, AbsenceDeadline::Gone))
    }
}

/// What is due when, by insight.
#[derive(Debug, Default)]
struct Calendar {
    /// Since when this replica leads.
    began: DateTime<Utc>,
    by_time: BTreeSet<(DateTime<Utc>, ResourceKey, AbsenceDeadline)>,
    by_insight: BTreeMap<ResourceKey, (DateTime<Utc>, AbsenceDeadline)>,
}

impl Calendar {
    /// Takes in that a resource is another one.
    fn follow(
        &mut self,
        key: &ResourceKey,
        index: &Index,
        (zone, own): (&Arc<str>, &str),
        patience: &AbsenceTimeouts,
        now: DateTime<Utc>,
    ) {
        let is_ours = |resource: &&Arc<Resource>| resource.origin == Origin::Zone(Arc::clone(zone));
        let (kind, insight) = match (kind_of(key), KINDS.into_iter().find(|kind| kind.resource() == key.kind))
        {
            (Some(kind), _) => (kind, key.clone()),
            (None, Some(kind)) => (kind, ProxyId::new(kind, &key.mesh, &key.name).insight_key()),
            (None, None) => return,
        };
        let seen = index.get(&insight);
        let is_going = matches!(self.by_insight.get(&insight), Some((_, AbsenceDeadline::Gone)));
        if seen.is_some() && insight != *key && !is_going {
            // What is said of it decides, and has not changed.
            return;
        }
        self.remove(&insight);
        let proxy = ProxyId::new(kind, &insight.mesh, &insight.name);
        let brought = index.get(&proxy.key()).filter(is_ours).filter(|resource| is_registered(resource));
        let goes = |left| match brought {
            Some(_) => patience.brought_goes(kind, left, seen.is_some(), self.began),
            None => patience.applied_goes(kind, left),
        };
        let due = match seen {
            Some(seen) => Some(seen)
                .filter(is_ours)
                .and_then(|insight| patience.due(&subscriptions(insight), own, now, goes)),
            None => brought.and_then(|unseen| Some((goes(unseen.modified)?, AbsenceDeadline::Gone))),
        };
        if let Some((at, due)) = due {
            self.set(insight, at, due);
        }
    }

    fn set(&mut self, insight: ResourceKey, at: DateTime<Utc>, due: AbsenceDeadline) {
        self.remove(&insight);
        self.by_time.insert((at, insight.clone(), due));
        self.by_insight.insert(insight, (at, due));
    }

    fn remove(&mut self, insight: &ResourceKey) {
        if let Some((at, due)) = self.by_insight.remove(insight) {
            self.by_time.remove(&(at, insight.clone(), due));
        }
    }

    /// What is due by now.
    fn take(&mut self, now: DateTime<Utc>) -> Vec<(ResourceKey, AbsenceDeadline)> {
        let mut taken = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, insight, due)) = self.by_time.pop_first() else { break };
            self.by_insight.remove(&insight);
            taken.push((insight, due));
        }
        taken
    }

    fn next(&self) -> Option<DateTime<Utc>> {
        self.by_time.first().map(|(at, ..)| *at)
    }
}

/// The kind of proxy this would be an insight of.
fn kind_of(key: &ResourceKey) -> Option<ProxyKind> {
    KINDS.into_iter().find(|kind| kind.insight() == key.kind)
}

/// Lengths of time in settings are shorter than that.
fn delta(length: Duration) -> TimeDelta {
    TimeDelta::from_std(length).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests;
