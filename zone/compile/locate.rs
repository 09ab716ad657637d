//! Finds out which profile and which set a proxy has.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    compiler::Compiler,
    front, grpc,
    outbound::{self, OutboundCall},
    part::{ProfileId, SetId},
    profiles::ProfileKey,
};
use crate::{
    generator::{Particulars, ProxyMetadata, XdsClient},
    mesh::{Dataplane, Problem},
    policy::{Caller, Profile, Selections, legacy::LegacyCalls},
};

/// What is called, in order.
type OutboundCalls = Arc<[Arc<OutboundCall>]>;

/// Looked for before it is looked whether something more urgent came.
const BATCH: usize = 16;

impl Compiler {
    /// Profile and set of a proxy may be others; `calls` says that what it calls may be something else too.
    pub(super) fn relocate(&mut self, name: &Arc<str>, calls: bool) {
        if self.proxies.contains_key(name) {
            *self.located.unknown.entry(Arc::clone(name)).or_default() |= calls;
        }
    }

    /// Finds the places of some proxies; `false` when all are known.
    pub(super) fn locate_some(&mut self) -> bool {
        for done in 0..BATCH {
            let Some((name, calls)) = self.located.unknown.pop_first() else { return done > 0 };
            self.locate(&name, calls);
        }
        true
    }

    fn locate(&mut self, name: &Arc<str>, calls: bool) {
        let Some(proxy) = self.proxies.get(name) else { return };
        let Some(dataplane) = proxy.dataplane.clone() else {
            self.displace(name);
            return;
        };
        let before = proxy.place.now;
        let proxy_fronts = front::fronts(&dataplane, &proxy.metadata);
        let mesh = &self.mesh;
        let legacy = LegacyCalls::of(mesh, &dataplane);
        let shown = proxy.shown().filter(|_| mesh.wants_certificate(&dataplane));
        let caller = Caller::of(mesh, &dataplane, &proxy.metadata, shown, legacy.tells());
        let (caller, particulars) = caller.abstracted();
        let key = ProfileKey::of(caller.clone(), &legacy, &dataplane, mesh);
        let selections = || Selections::of_dataplane(mesh, &dataplane);
        let make = || Profile::new(caller, &selections(), legacy, mesh).with_gateway(&dataplane, mesh);
        let profile = self.profiles.join(name, key, make);
        let affinity = self.profiles.get(profile).map(|p| p.affinity_of(&dataplane)).unwrap_or_default();
        let as_before = |(known, set)| {
            known == profile && self.sets.get(set).is_some_and(|set| *set.affinity == affinity)
        };
        if !calls && before.is_some_and(as_before) {
            self.particularise(name, particulars);
            return;
        }
        let (calls, problems) = match before.and_then(|(_, set)| self.sets.get(set)).filter(|_| !calls) {
            Some(set) => (Arc::clone(&set.calls), None),
            None => {
                let (calls, problems) = self.calls(&dataplane, &proxy.metadata.clone());
                (calls, Some(problems))
            }
        };
        let fronts = proxy_fronts.into();
        let (set, new) = self.sets.join(name, profile, calls, fronts, affinity.into(), &mut self.parts);
        self.queue_new(new);
        self.particularise(name, particulars);
        self.refile(name, &dataplane);
        if let Some(proxy) = self.proxies.get_mut(name)
            && let Some(problems) = problems
        {
            proxy.place.problems = problems;
        }
        self.move_to(name, (profile, set));
    }

    /// Notes what there is to be told about a proxy in what it shares with others.
    fn particularise(&mut self, name: &Arc<str>, particulars: Particulars) {
        if let Some(proxy) = self.proxies.get_mut(name)
            && *proxy.place.particulars != particulars
        {
            proxy.place.particulars = Arc::new(particulars);
            self.outdated.insert(Arc::clone(name));
        }
    }

    /// What `dataplane` calls, and what of that leads nowhere. Those who call everything share a list.
    fn calls(
        &mut self,
        dataplane: &Dataplane,
        metadata: &ProxyMetadata,
    ) -> (OutboundCalls, BTreeSet<Problem>) {
        let mesh = &self.mesh;
        let mut problems = BTreeSet::new();
        let calls = match metadata.client() {
            XdsClient::Envoy if outbound::calls_everything(mesh, dataplane, metadata) => {
                Arc::clone(self.everything.get_or_insert_with(|| outbound::everything(mesh).into()))
            }
            XdsClient::Envoy => outbound::calls(mesh, dataplane, metadata, &mut problems).into(),
            XdsClient::Grpc if mesh.reaches_everything(dataplane) => {
                let everything = self.everything_by_name.get_or_insert_with(|| grpc::everything(mesh).into());
                match grpc::shares_everything(mesh, dataplane, everything, &mut problems) {
                    true => Arc::clone(everything),
                    false => grpc::calls(mesh, dataplane, &mut problems).into(),
                }
            }
            XdsClient::Grpc => grpc::calls(mesh, dataplane, &mut problems).into(),
        };
        (calls, problems)
    }

    /// It is in both the place it has and the one it gets, until it is sure what becomes of the former.
    fn move_to(&mut self, name: &Arc<str>, place: (ProfileId, SetId)) {
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        let before = proxy.place.now.replace(place);
        if before == Some(place) {
            return;
        }
        self.outdated.insert(Arc::clone(name));
        // One of the calls may be on the port of its admin endpoint.
        self.queue_own(name);
        let Some(before) = before else { return };
        let published = self.sets.get(before.1).is_some_and(|set| set.published.is_some());
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        let gone = if published { proxy.place.former.replace(before) } else { Some(before) };
        if let Some(gone) = gone {
            self.depart(name, gone);
        }
        self.settle(name);
    }

    /// What a proxy gets now was made, so it is done with what it had before.
    pub(super) fn settle(&mut self, name: &Arc<str>) {
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        let set = proxy.place.set().and_then(|id| self.sets.get(id));
        if set.is_none_or(|set| set.published.is_none()) {
            return;
        }
        if let Some(former) = proxy.place.former.take() {
            self.depart(name, former);
        }
    }

    /// Takes a proxy out of a profile and a set, unless it has them in another place.
    fn depart(&mut self, name: &Arc<str>, (profile, set): (ProfileId, SetId)) {
        let Some(proxy) = self.proxies.get(name) else { return };
        let places = [proxy.place.now, proxy.place.former];
        let kept = |wanted: &dyn Fn((ProfileId, SetId)) -> bool| places.into_iter().flatten().any(wanted);
        let (keeps_set, keeps_profile) = (kept(&|(_, s)| s == set), kept(&|(p, _)| p == profile));
        if !keeps_set {
            self.sets.leave(set, name, &mut self.parts);
        }
        if !keeps_profile {
            self.profiles.leave(profile, name);
        }
    }

    /// Notes by what others find it now.
    fn refile(&mut self, name: &Arc<str>, dataplane: &Arc<Dataplane>) {
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        let known = proxy.place.filed.replace(Arc::clone(dataplane));
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, dataplane)) {
            return;
        }
        if let Some(known) = known {
            self.located.unfile(name, &known);
        }
        self.located.file(name, dataplane);
    }

    /// Takes a proxy out of its places.
    pub(super) fn displace(&mut self, name: &Arc<str>) {
        self.located.unknown.remove(name);
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        let place = std::mem::take(&mut proxy.place);
        if let Some(known) = place.filed {
            self.located.unfile(name, &known);
        }
        let mut places = [place.now, place.former].into_iter().flatten();
        let (first, second) = (places.next(), places.next());
        for at in [first, second].into_iter().flatten() {
            self.depart(name, at);
        }
    }
}
