//! What a change of the mesh asks for.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    model::{
        Kind,
        kinds::{destinations::MESH_MULTI_ZONE_SERVICE, mesh_external_service, mesh_service},
    },
    policy::rules::{Concern, PointedAt, Policy, PolicyChange, PolicySet, Reach},
};

use super::{
    compiler::{Compiler, ProxyState},
    part::{Part, ProfileId},
};
use crate::{
    generator::XdsClient,
    mesh::{Dataplane, Destination, Gateway, MeshChange, MeshContext, topology::Difference},
    policy,
};

impl Compiler {
    /// The mesh became `mesh`, which differs as `change` says.
    pub(crate) fn follow(&mut self, mesh: Arc<MeshContext>, change: &MeshChange) {
        let told = policy::tells_tags(&self.mesh);
        let routed = self.mesh.routes_by_older();
        self.mesh = mesh;
        for (service, difference) in &change.services {
            self.endpoints.extend(self.parts.assignments_of(service).cloned());
            if let Destination::Service(service) = service {
                self.located.calling_directly(service).iter().for_each(|name| self.queue_own(name));
            }
            if *difference == Difference::Character {
                let followers: Vec<Part> = self.parts.followers_of(service).cloned().collect();
                self.queue_parts(followers);
            }
        }
        for name in &change.dataplanes {
            if !self.mesh.dataplanes.contains_key(name) {
                self.left_with.remove(name);
            }
            if let Some(proxy) = self.proxies.get_mut(name) {
                proxy.dataplane = self.mesh.dataplanes.get(name).cloned();
                self.relocate(name, true);
                self.queue_own(name);
            }
        }
        if told != policy::tells_tags(&self.mesh) {
            self.everybody().iter().for_each(|name| self.relocate(name, false));
            let ways_out: Vec<Arc<str>> = self.located.ways_out().cloned().collect();
            ways_out.iter().for_each(|name| self.queue_own(name));
        }
        if change.virtual_outbounds || change.everything {
            self.follow_virtual_outbounds();
        }
        self.follow_references(&change.references);
        for (kind, change) in &change.policies {
            self.follow_policy(kind, change);
        }
        self.follow_ways_out(change);
        for (kind, change) in &change.legacy {
            self.follow_legacy(kind, change);
        }
        if routed != self.mesh.routes_by_older() {
            let calls: Vec<Part> =
                self.parts.iter().filter(|part| part.profile().is_some()).cloned().collect();
            self.queue_parts(calls);
        }
        self.follow_gateways(change);
        if change.everything {
            self.follow_everything();
        }
        if change.collectors {
            self.follow_collectors();
        }
        if change.zones || change.trust || change.roots {
            // Who may call is told by zone, and who is believed stands with what is its own.
            self.everybody().iter().for_each(|name| self.queue_own(name));
        }
    }

    /// What is let out of the mesh belongs to those who do, with all that policies say of it.
    fn follow_ways_out(&mut self, change: &MeshChange) {
        let outside = |destination: &Destination| matches!(destination, Destination::External(_));
        let moved = change.services.iter().any(|(destination, _)| outside(destination));
        let versions = change.policies.iter().flat_map(|(_, change)| [&change.before, &change.after]);
        let policies: Vec<&Arc<Policy>> = versions.flatten().collect();
        let meant = |name: &&Arc<str>| {
            let dataplane = self.proxies.get(*name).and_then(|proxy| proxy.dataplane.as_ref());
            let subject = dataplane.and_then(|dataplane| dataplane.subject.as_ref());
            moved || subject.is_some_and(|subject| policies.iter().any(|policy| policy.may_select(subject)))
        };
        let concerned: Vec<Arc<str>> = self.located.ways_out().filter(meant).cloned().collect();
        concerned.iter().for_each(|name| self.queue_own(name));
    }

    /// Routes of gateways may be others, and the certificates they show.
    fn follow_gateways(&mut self, change: &MeshChange) {
        let shown: Vec<Part> = self.parts.holding(&change.secrets).cloned().collect();
        self.queue_parts(shown);
        if change.gateway_routes.is_empty() {
            return;
        }
        let concerned = |gateway: &Gateway| {
            let mut hosts = gateway.ports.values().flat_map(|port| &port.hosts);
            hosts.any(|host| change.gateway_routes.iter().any(|route| route.concerns(&host.tags)))
        };
        let profiles: Vec<ProfileId> =
            self.profiles.of_gateways().filter(|(_, gateway)| concerned(gateway)).map(|(id, _)| id).collect();
        for id in profiles {
            self.queue_concerned(id, &Concern::All);
        }
    }

    fn everybody(&self) -> Vec<Arc<str>> {
        self.proxies.keys().cloned().collect()
    }

    /// Those who call at virtual addresses call others, or by other names.
    fn follow_virtual_outbounds(&mut self) {
        (self.everything, self.everything_by_name) = (None, None);
        let calls_virtually = |proxy: &ProxyState| {
            let by_name = proxy.metadata.client() == XdsClient::Grpc;
            let calls = |dataplane: &Arc<Dataplane>| by_name || proxy.metadata.calls_virtually(dataplane);
            proxy.dataplane.as_ref().is_some_and(calls)
        };
        let concerned = self.proxies.iter().filter(|(_, proxy)| calls_virtually(proxy));
        let concerned: Vec<Arc<str>> = concerned.map(|(name, _)| Arc::clone(name)).collect();
        for name in concerned {
            self.relocate(&name, true);
            self.queue_own(&name);
        }
    }

    /// References to services with these names may lead elsewhere, and with them what policies say.
    fn follow_references(&mut self, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        for name in self.located.referring(names) {
            self.relocate(&name, true);
            // Names that are its own may be for something else now.
            if self.proxies.get(&name).is_some_and(|proxy| proxy.metadata.client() == XdsClient::Grpc) {
                self.queue_own(&name);
            }
        }
        let looked_up: Vec<Part> = self.parts.referring(names).cloned().collect();
        self.queue_parts(looked_up);
    }

    /// Collectors that policies refer to may be others.
    fn follow_collectors(&mut self) {
        if !policy::refer_to_collectors(&self.mesh) {
            return;
        }
        self.everybody().iter().for_each(|name| self.queue_own(name));
        for id in self.profiles.ids() {
            let Some(profile) = self.profiles.get_mut(id).filter(|profile| profile.refers_to_collectors())
            else {
                continue;
            };
            profile.follow_collectors(&self.mesh);
            self.queue_concerned(id, &Concern::All);
        }
    }

    fn follow_everything(&mut self) {
        for id in self.profiles.ids() {
            if let Some(profile) = self.profiles.get_mut(id) {
                profile.follow_collectors(&self.mesh);
            }
        }
        for name in self.everybody() {
            self.relocate(&name, true);
            self.queue_own(&name);
        }
        let parts: Vec<Part> = self.parts.iter().cloned().collect();
        for part in parts {
            match part {
                Part::Assignment(assigned) => {
                    self.endpoints.insert(assigned);
                }
                part => self.queue_parts([part]),
            }
        }
    }

    /// A policy came, went or changed.
    fn follow_policy(&mut self, kind: &'static Kind, change: &PolicyChange) {
        let versions = || [&change.before, &change.after].into_iter().flatten();
        self.change_profiles(kind, change);
        let of_inbounds = versions().any(|policy| policy.speaks_of_inbounds());
        // An edit that leaves alone what decides selects whom it selected.
        let same_choice = match (&change.before, &change.after) {
            (Some(before), Some(after)) => {
                before.top == after.top && before.resource.labels == after.resource.labels
            }
            _ => false,
        };
        let tells = |policy: &Option<Arc<Policy>>| {
            policy.as_ref().map(|policy| policy::tells(kind, policy)).unwrap_or_default()
        };
        let by_choice = (!same_choice && !versions().all(|policy| policy.selects_alike()))
            || tells(&change.before) != tells(&change.after);
        if of_inbounds || by_choice {
            let meant: BTreeSet<Arc<str>> =
                versions().flat_map(|policy| self.selectable_by(policy)).collect();
            for name in meant {
                // What comes in by a gateway is told by its profile.
                if by_choice || (of_inbounds && self.runs_gateway(&name)) {
                    self.relocate(&name, false);
                }
                if of_inbounds || versions().any(|policy| policy.reach() == Reach::Route) {
                    self.queue_own(&name);
                }
            }
        }
        if policy::is_route(kind) {
            self.follow_route();
        }
    }

    /// Takes the change over into the profiles to whose proxies the policy applies.
    fn change_profiles(&mut self, kind: &'static Kind, change: &PolicyChange) {
        let ids = |policy: &Option<Arc<Policy>>| {
            policy.as_ref().map(|policy| self.profiles.selected_by(kind, policy)).unwrap_or_default()
        };
        let (before, after) = (ids(&change.before), ids(&change.after));
        for id in &before | &after {
            let change = PolicyChange {
                before: change.before.clone().filter(|_| before.contains(&id)),
                after: change.after.clone().filter(|_| after.contains(&id)),
            };
            let Some(profile) = self.profiles.get_mut(id) else { continue };
            let affinity = profile.affinity_keys().clone();
            let concern = profile.apply(kind, &change, &self.mesh);
            if *profile.affinity_keys() != affinity {
                // By which tags its proxies see what is near.
                for name in self.profiles.members(id) {
                    self.relocate(&name, false);
                }
            }
            self.queue_concerned(id, &concern);
        }
    }

    /// The proxies that `policy` may select.
    fn selectable_by(&self, policy: &Policy) -> Vec<Arc<str>> {
        let may_be = |name: &&Arc<str>| {
            let dataplane = self.proxies.get(*name).and_then(|proxy| proxy.dataplane.as_ref());
            dataplane.and_then(|d| d.subject.as_ref()).is_some_and(|subject| policy.may_select(subject))
        };
        self.located.within_reach(policy).filter(may_be).cloned().collect()
    }

    fn runs_gateway(&self, name: &Arc<str>) -> bool {
        let dataplane = self.proxies.get(name).and_then(|proxy| proxy.dataplane.as_ref());
        dataplane.is_some_and(|dataplane| dataplane.gateway.is_some())
    }

    /// Policies may be for requests that follow a route, and for the proxies it is for.
    fn follow_route(&mut self) {
        let for_routes = |kind| {
            let set: Option<&PolicySet> = self.mesh.policies(kind);
            set.is_some_and(|set| set.policies.reaching(&Reach::Route).next().is_some())
        };
        if !policy::kinds().any(for_routes) {
            return;
        }
        for name in self.everybody() {
            self.relocate(&name, false);
            self.queue_own(&name);
        }
        for id in self.profiles.ids() {
            let profile = self.profiles.get_mut(id);
            if profile.is_some_and(|profile| profile.follow_routes(&self.mesh)) {
                self.queue_concerned(id, &Concern::All);
            }
        }
    }

    /// Compiles again what is called under a profile and `concern` is about.
    pub(super) fn queue_concerned(&mut self, profile: ProfileId, concern: &Concern) {
        let services = match concern {
            Concern::All => None,
            Concern::Some(these) => these.iter().map(|one| self.called_by(one)).collect::<Option<Vec<_>>>(),
        };
        let concerned: Vec<Part> = match services {
            None => self.parts.of_profile(profile).cloned().collect(),
            Some(services) => {
                let services: BTreeSet<Destination> = services.into_iter().flatten().collect();
                let followers = services.iter().flat_map(|service| self.parts.followers_of(service));
                let concerned = followers.filter(|part| part.profile() == Some(profile));
                let about = |part: &&Part| part.destination().is_none_or(|d| services.contains(&d.whole()));
                concerned.filter(about).cloned().collect()
            }
        };
        self.queue_parts(concerned);
    }

    /// The destinations an item points at; `None` when that may be any.
    fn called_by(&self, one: &PointedAt) -> Option<Vec<Destination>> {
        match one {
            PointedAt::Service(name) => Some(vec![Destination::Service(name.as_str().into())]),
            PointedAt::Resource(kri) => {
                // Requests that match a route may be for whatever it is for.
                let target = self.mesh.destinations.get(kri)?;
                let (kind, name) = (target.resource.kind(), target.resource.name());
                if kind == &mesh_service::KIND {
                    let service = self.mesh.mesh_services.get(name).into_iter();
                    Some(service.flat_map(|s| s.spec.ports.iter().map(|port| s.callee(port))).collect())
                } else if kind == &MESH_MULTI_ZONE_SERVICE {
                    let service = self.mesh.multi_zone_services.get(name).into_iter();
                    Some(service.flat_map(|s| s.spec.ports.iter().map(|port| s.callee(port))).collect())
                } else if kind == &mesh_external_service::KIND {
                    Some(vec![Destination::External(Arc::clone(&target.resource.key.name))])
                } else {
                    None
                }
            }
        }
    }
}
