//! What a change of one of the older policies asks for.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    model::{Kind, labels},
    policy::{
        legacy::{LegacyChange, LegacyPolicy, LegacyRole, choice, traffic_log, traffic_permission},
        rules::{Concern, PointedAt},
    },
    proto::kuma::mesh::v1alpha1::MetricsBackend,
};

use super::{
    compiler::{Compiler, ProxyState},
    part::ProfileId,
};
use crate::mesh::OfferedMetrics;

impl Compiler {
    /// A policy of one of the older kinds came, went or changed.
    pub(super) fn follow_legacy(&mut self, kind: &'static Kind, change: &LegacyChange) {
        match LegacyRole::of(kind) {
            LegacyRole::Inbound | LegacyRole::Inbounds => {
                let mut meant = self.meant_by(change);
                if kind == &traffic_permission::KIND {
                    meant.extend(self.asked_for_metrics(change));
                }
                for name in meant {
                    self.queue_own(&name);
                }
            }
            LegacyRole::Call => {
                self.change_calls(kind, change, &concern(change));
                // An edit that leaves alone what decides is for whom it was for. Who calls is told in logs.
                let alike = change.versions().all(|policy| policy.selects_alike());
                if !change.keeps_choice() && (!alike || kind == &traffic_log::KIND) {
                    for name in self.meant_by(change) {
                        self.relocate(&name, false);
                    }
                }
            }
            LegacyRole::Proxy => {
                self.change_calls(kind, change, &Concern::All);
                for name in self.meant_by(change) {
                    self.queue_own(&name);
                    self.relocate(&name, false);
                }
            }
        }
    }

    /// Takes the change over into the profiles to whose proxies the policy applies.
    fn change_calls(&mut self, kind: &'static Kind, change: &LegacyChange, concern: &Concern) {
        let ids = |policy: &Option<Arc<LegacyPolicy>>| -> BTreeSet<ProfileId> {
            let of = |policy: &Arc<LegacyPolicy>| self.profiles.selected_by_legacy(kind, policy);
            policy.as_ref().map(of).unwrap_or_default()
        };
        let (before, after) = (ids(&change.before), ids(&change.after));
        for id in &before | &after {
            let change = LegacyChange {
                before: change.before.clone().filter(|_| before.contains(&id)),
                after: change.after.clone().filter(|_| after.contains(&id)),
            };
            if let Some(profile) = self.profiles.get_mut(id) {
                profile.apply_legacy(kind, &change);
                self.queue_concerned(id, concern);
            }
        }
    }

    /// The proxies of which a version of the policy may say who asks them for metrics.
    fn asked_for_metrics(&self, change: &LegacyChange) -> Vec<Arc<str>> {
        if self.mesh.spec.metrics.is_none() {
            return Vec::new();
        }
        let is_spoken_of = |own: Option<&MetricsBackend>| {
            let offered = OfferedMetrics::of(&self.mesh.spec, own);
            offered.is_some_and(|offered| choice::for_inbound(change.versions(), &offered.tags).is_some())
        };
        // Those who say nothing of their own offer what their mesh says, all in the same way.
        let by_mesh = is_spoken_of(None);
        let spoken_of = |proxy: &ProxyState| {
            let own = proxy.dataplane.as_ref().and_then(|dataplane| dataplane.metrics.as_deref());
            own.map_or(by_mesh, |own| is_spoken_of(Some(own)))
        };
        self.proxies.iter().filter(|(_, proxy)| spoken_of(proxy)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The proxies for which a version of the policy may be.
    fn meant_by(&self, change: &LegacyChange) -> BTreeSet<Arc<str>> {
        let mut meant = BTreeSet::new();
        for policy in change.versions() {
            for reach in policy.reaches() {
                let selected = self.located.at(&reach).filter(|name| {
                    let dataplane = self.proxies.get(*name).and_then(|proxy| proxy.dataplane.as_ref());
                    let subject = dataplane.and_then(|dataplane| dataplane.subject.as_ref());
                    subject.is_some_and(|subject| policy.may_select(subject))
                });
                meant.extend(selected.cloned());
            }
        }
        meant
    }
}

/// The services of which a version of the policy speaks.
fn concern(change: &LegacyChange) -> Concern {
    let destinations = change.versions().flat_map(|policy| &policy.destinations);
    let service = |selector: &common::proto::kuma::mesh::v1alpha1::Selector| {
        let name = selector.r#match.get(labels::TAG_SERVICE).filter(|name| *name != "*")?;
        Some(PointedAt::Service(name.clone()))
    };
    let services: Option<BTreeSet<PointedAt>> = destinations.map(service).collect();
    services.map_or(Concern::All, Concern::Some)
}
