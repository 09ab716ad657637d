//! Proxies by what the same policies say about what they call.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use common::{
    model::{Kind, labels},
    policy::{legacy::LegacyPolicy, rules::Policy},
};

use super::part::ProfileId;
use crate::{
    mesh::{Dataplane, Gateway, MeshContext},
    policy::{
        self, Caller, Profile, Selections,
        legacy::{CallsKey as LegacyKey, LegacyCalls},
    },
};

/// All profiles somebody has.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    next: ProfileId,
    all: HashMap<ProfileId, Members>,
    by_key: HashMap<ProfileKey, ProfileId>,
    /// By the policies that select their proxies and not everybody, by kind and name.
    by_policy: BTreeMap<(&'static str, Arc<str>), BTreeSet<ProfileId>>,
    /// Those of builtin gateways.
    of_gateways: BTreeSet<ProfileId>,
}

/// A profile and who has it.
#[derive(Debug)]
struct Members {
    key: ProfileKey,
    profile: Arc<Profile>,
    names: BTreeSet<Arc<str>>,
}

/// What tells one profile from another: not policies that select everybody alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProfileKey {
    caller: Caller,
    /// The builtin gateway they run.
    gateway: Option<Arc<Gateway>>,
    /// Nothing selects a proxy that serves nothing.
    selectable: bool,
    /// The policies of each kind, by name.
    selected: Vec<(&'static str, Vec<Arc<str>>)>,
    legacy: LegacyKey,
}

impl Profiles {
    /// The profile with this identity.
    pub(super) fn get(&self, id: ProfileId) -> Option<&Arc<Profile>> {
        self.all.get(&id).map(|members| &members.profile)
    }

    /// The profile with this identity, to be changed.
    pub(super) fn get_mut(&mut self, id: ProfileId) -> Option<&mut Profile> {
        self.all.get_mut(&id).map(|members| Arc::make_mut(&mut members.profile))
    }

    /// Who has the profile with this identity.
    pub(super) fn members(&self, id: ProfileId) -> Vec<Arc<str>> {
        self.all.get(&id).into_iter().flat_map(|members| members.names.iter().cloned()).collect()
    }

    /// Those of builtin gateways.
    pub(super) fn of_gateways(&self) -> impl Iterator<Item = (ProfileId, &Gateway)> {
        let all = self.of_gateways.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        all.filter_map(|(id, members)| Some((id, members.key.gateway.as_deref()?)))
    }

    /// All of them.
    pub(super) fn ids(&self) -> Vec<ProfileId> {
        self.all.keys().copied().collect()
    }

    /// Those to whose proxies `policy` of `kind` applies.
    pub(super) fn selected_by(&self, kind: &Kind, policy: &Policy) -> BTreeSet<ProfileId> {
        if policy.selects_alike() {
            if policy.resource.label(labels::EFFECT) == Some("shadow") {
                return BTreeSet::new();
            }
            let selectable = self.all.iter().filter(|(_, members)| members.key.selectable);
            return selectable.map(|(id, _)| *id).collect();
        }
        let of = (kind.name, Arc::clone(&policy.resource.key.name));
        self.by_policy.get(&of).cloned().unwrap_or_default()
    }

    /// Those to whose proxies this policy of one of the older kinds applies.
    pub(super) fn selected_by_legacy(&self, kind: &Kind, policy: &LegacyPolicy) -> BTreeSet<ProfileId> {
        if policy.selects_alike() {
            let named = self.all.iter().filter(|(_, members)| members.key.legacy.has_service());
            return named.map(|(id, _)| *id).collect();
        }
        self.by_policy.get(&(kind.name, Arc::clone(policy.name()))).cloned().unwrap_or_default()
    }

    /// Makes `name` a member of the profile with this key, which is made if there is none.
    pub(super) fn join(
        &mut self,
        name: &Arc<str>,
        key: ProfileKey,
        make: impl FnOnce() -> Profile,
    ) -> ProfileId {
        if let Some(id) = self.by_key.get(&key) {
            let members = self.all.get_mut(id).expect("profiles are in both maps or in none");
            members.names.insert(Arc::clone(name));
            return *id;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        for policy in key.policies() {
            self.by_policy.entry(policy).or_default().insert(id);
        }
        if key.gateway.is_some() {
            self.of_gateways.insert(id);
        }
        self.by_key.insert(key.clone(), id);
        let names = [Arc::clone(name)].into();
        self.all.insert(id, Members { key, profile: Arc::new(make()), names });
        id
    }

    /// Takes `name` from the members of a profile, which goes with the last one.
    pub(super) fn leave(&mut self, id: ProfileId, name: &Arc<str>) {
        let Some(members) = self.all.get_mut(&id) else { return };
        members.names.remove(name);
        if !members.names.is_empty() {
            return;
        }
        let Some(members) = self.all.remove(&id) else { return };
        self.of_gateways.remove(&id);
        self.by_key.remove(&members.key);
        for policy in members.key.policies() {
            if let Some(ids) = self.by_policy.get_mut(&policy) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_policy.remove(&policy);
                }
            }
        }
    }
}

impl ProfileKey {
    /// The key of the profile of `dataplane`, which calls as `caller`.
    pub(super) fn of(
        caller: Caller,
        legacy: &LegacyCalls,
        dataplane: &Dataplane,
        mesh: &MeshContext,
    ) -> Self {
        let selectable = dataplane.subject.as_ref().is_some_and(|subject| {
            let entrances = subject.gateway.as_ref().is_some_and(|gateway| !gateway.listeners.is_empty());
            !subject.inbounds.is_empty() || subject.delegated_gateway || entrances
        });
        let selections = Selections::particular(mesh, dataplane);
        let selected = policy::kinds().map(|kind| {
            let policies = selections.of(kind).policies.iter();
            (kind.name, policies.map(|policy| Arc::clone(&policy.resource.key.name)).collect())
        });
        Self {
            caller,
            gateway: dataplane.gateway.clone(),
            selectable,
            selected: selected.collect(),
            legacy: legacy.key(),
        }
    }

    fn policies(&self) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        let of_kind = |(kind, names): &(&'static str, Vec<Arc<str>>)| {
            let kind = *kind;
            names.clone().into_iter().map(move |name| (kind, name))
        };
        self.selected.iter().flat_map(of_kind).chain(self.legacy.policies())
    }
}
