//! Names a peer asks for that are not simply those of resources: some stand for several, some are written otherwise.
//!
//! A **group** is a name that stands for others: a glob, or in VHDS a route configuration or one of its hosts. What it
//! stands for becomes its members, which the peer is told like what it asks for by name; that it stands for nothing is
//! told under its own name. A **form** is a name of the `xdstp` scheme that is written otherwise than here: its parameters
//! stand in another order, or it is a plain name behind an authority. The peer is told the resource under the name it
//! asked for. A name with dynamic parameters is a group as well: it stands for one variant, at one time for this and at
//! another for that.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use super::{Holding, Name, Offer, Subscription, Version, Want, Wanted};
use crate::xds::{variant, virtual_host, xdstp};

/// What is asked for in other ways than by names of resources.
#[derive(Clone, Debug, Default)]
pub(super) struct WideNames {
    /// What each group stands for.
    groups: BTreeMap<Name, BTreeSet<Name>>,
    /// In which groups each of these is.
    members: BTreeMap<Name, BTreeSet<Name>>,
    /// Names as they are here, and how the peer writes them.
    forms: BTreeMap<Name, BTreeSet<Name>>,
}

impl WideNames {
    /// Whether `name` is one of those a group stands for.
    pub(super) fn covers(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// All groups, and what each stands for.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Name, &BTreeSet<Name>)> {
        self.groups.iter()
    }

    /// How many groups stand for `name`.
    pub(super) fn groups_of(&self, name: &str) -> usize {
        self.members.get(name).map_or(0, BTreeSet::len)
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.forms.is_empty()
    }

    /// The groups that may stand for `name`.
    fn groups_about<'a>(&'a self, type_url: &str, name: &'a str) -> impl Iterator<Item = &'a Name> {
        let route = virtual_host::prefix_of(type_url, name);
        self.all_about(type_url, name).chain(route.into_iter().flat_map(|route| self.hosts_below(route)))
    }

    /// Those of them that stand for all of something, and not for one host.
    fn all_about(&self, type_url: &str, name: &str) -> impl Iterator<Item = &Name> {
        let (groups, forms) = (&self.groups, &self.forms);
        let exact = [xdstp::glob_of(name), virtual_host::route_of(type_url, name).map(str::to_owned)];
        let exact = exact.into_iter().flatten();
        let exact = exact.flat_map(move |group| {
            let written =
                forms.get(&*group).into_iter().flatten().filter(move |form| groups.contains_key(*form));
            groups.get_key_value(&*group).map(|(group, _)| group).into_iter().chain(written)
        });
        let locators = variant::locators_of(name);
        let after = (Bound::Included(locators.as_str()), Bound::Unbounded);
        let located = groups.range::<str, _>(after).map(|(group, _)| group);
        let located: Vec<&Name> = located.take_while(|group| group.starts_with(&locators)).collect();
        exact.chain(located)
    }

    /// The hosts of a route configuration that are asked for.
    fn hosts_below<'a>(&'a self, route: &'a str) -> impl Iterator<Item = &'a Name> {
        let after = (Bound::Included(route), Bound::Unbounded);
        let hosts = self.groups.range::<str, _>(after).map(|(group, _)| group);
        hosts.take_while(move |group| group.starts_with(route))
    }

    fn add(&mut self, group: &Name, member: &Name) -> bool {
        let is_new = self.groups.get_mut(group).is_some_and(|members| members.insert(Name::clone(member)));
        if is_new {
            self.members.entry(Name::clone(member)).or_default().insert(Name::clone(group));
        }
        is_new
    }

    fn take(&mut self, group: &str, member: &Name) {
        if self.groups.get_mut(group).is_some_and(|members| members.remove(member)) {
            self.leave(group, member);
        }
    }

    fn leave(&mut self, group: &str, member: &Name) {
        if let Some(groups) = self.members.get_mut(member) {
            groups.remove(group);
            if groups.is_empty() {
                self.members.remove(member);
            }
        }
    }
}

/// Whether there is more to `name` than that it is the name of a resource.
pub(super) fn is_wide(type_url: &str, name: &str) -> bool {
    is_group(type_url, name) || forms_of(type_url, name).next().is_some()
}

/// How else what is asked for as `name` may be written here.
fn forms_of<'a>(type_url: &str, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    let canonical = Some(xdstp::canonical(name)).filter(|canonical| **canonical != *name);
    canonical.into_iter().chain(xdstp::plain(type_url, name))
}

/// Whether `name` stands for others.
fn is_group(type_url: &str, name: &str) -> bool {
    xdstp::glob(name).is_some() || variant::is_locator(name) || virtual_host::is_asked_by_host(type_url)
}

/// A resource under the name the peer asks for.
pub(in crate::xds) fn find(want: &dyn Want, type_url: &str, name: &str) -> Option<Wanted> {
    want.get(type_url, name).or_else(|| {
        let canonical = Some(xdstp::canonical(name)).filter(|canonical| **canonical != *name);
        let equal = canonical.and_then(|canonical| want.get(type_url, &canonical));
        let equal = equal.map(|wanted| Wanted { name: name.into(), ..wanted });
        equal.or_else(|| Some(want.get(type_url, &xdstp::plain(type_url, name)?)?.renamed(name)))
    })
}

impl Subscription {
    /// What a group stands for at the moment.
    fn members_now(&mut self, want: &dyn Want, group: &str) -> Vec<Name> {
        if variant::is_locator(group) {
            return variant::resolved(want, self.type_url, group).into_iter().collect();
        }
        let written = xdstp::canonical(group);
        let Some(parts) = xdstp::glob(&written) else {
            return self.hosts.resolved(want, self.type_url, group);
        };
        let mut members = Vec::new();
        want.under(self.type_url, parts.0, &mut |wanted| {
            if xdstp::is_member(parts, &wanted.name) {
                members.push(wanted.name);
            }
        });
        members
    }

    /// Whether every name that is asked for is that of a resource.
    pub(super) fn is_plain(&self) -> bool {
        self.interest.wide.is_none()
    }

    /// Notes what is special about a name that is asked for. What the peer says it holds and a group may stand for
    /// belongs to the group until it is known better.
    pub(super) fn note_asked(&mut self, name: &str) {
        if !is_wide(self.type_url, name) {
            return;
        }
        let wide = self.interest.wide.get_or_insert_default();
        for form in forms_of(self.type_url, name) {
            wide.forms.entry(Name::from(&*form)).or_default().insert(name.into());
        }
        if is_group(self.type_url, name) {
            wide.groups.entry(name.into()).or_default();
        }
    }

    /// Counts what the peer says it holds among the members of the groups that it asks for.
    pub(super) fn claim_members(&mut self) {
        let Some(wide) = &mut self.interest.wide else { return };
        for name in self.held.claims() {
            // One that may be wrong is enough for it to be looked at.
            let group = wide.groups_about(self.type_url, name).find(|group| ***group != **name).cloned();
            if let Some(group) = group {
                wide.add(&group, name);
            }
        }
    }

    /// A name is asked for no more; says whether a group still stands for it.
    pub(super) fn note_dropped(&mut self, name: &str) -> bool {
        let Some(wide) = &mut self.interest.wide else { return false };
        for form in forms_of(self.type_url, name) {
            if let Some(forms) = wide.forms.get_mut(&*form) {
                forms.remove(name);
                if forms.is_empty() {
                    wide.forms.remove(&*form);
                }
            }
        }
        let left = wide.groups.remove(name).unwrap_or_default();
        left.iter().for_each(|member| wide.leave(name, member));
        if wide.is_empty() {
            self.interest.wide = None;
        }
        for member in left.iter().filter(|member| ***member != *name) {
            if !self.interest.covers(member) {
                self.forget(member);
            } else if variant::is_locator(name) {
                // It drops what it no longer asks for by these parameters, and has it for another reason.
                self.doubt(Name::clone(member));
            }
        }
        self.interest.wide.as_ref().is_some_and(|wide| wide.covers(name))
    }

    /// What else may have to be told when this changed.
    pub(super) fn touch_wide(&mut self, names: &[Name]) {
        let Some(wide) = &self.interest.wide else { return };
        let mut routes = BTreeSet::new();
        for name in names {
            self.dirty.extend(wide.forms.get(name).into_iter().flatten().cloned());
            self.dirty.extend(wide.all_about(self.type_url, name).cloned());
            routes.extend(virtual_host::prefix_of(self.type_url, name));
        }
        // Each host is looked at once, however many virtual hosts of its route configuration changed.
        for route in routes {
            self.dirty.extend(wide.hosts_below(route).cloned());
        }
    }

    /// All that groups stand for has to be looked at.
    pub(super) fn scan_wide(&mut self) {
        if let Some(wide) = &self.interest.wide {
            let forms = wide.forms.values().flatten();
            self.dirty.extend(wide.members.keys().chain(wide.groups.keys()).chain(forms).cloned());
        }
    }

    /// Tells again what the groups about a route configuration stand for.
    pub(super) fn renew_wide(&mut self, name: &str) {
        let Some(wide) = &self.interest.wide else { return };
        let Some(prefix) = virtual_host::prefix_below(self.type_url, name) else { return };
        let about = wide.groups_about(self.type_url, &prefix);
        let members: BTreeSet<Name> = about.flat_map(|group| &wide.groups[group]).cloned().collect();
        // Who was told anew where they belong has dropped them.
        members.into_iter().for_each(|member| self.doubt(member));
    }

    /// Looks at what a name stands for; `None` for one that stands for itself alone.
    pub(super) fn expand(&mut self, want: &dyn Want, group: &Name) -> Option<()> {
        self.interest.wide.as_ref()?.groups.get(group)?;
        let found = self.members_now(want, group);
        let is_asked = self.asked.contains(group);
        for member in found.iter().filter(|member| ***member != **group) {
            let was_covered = self.interest.covers(member);
            let is_new = self.interest.wide.as_mut().is_some_and(|wide| wide.add(group, member));
            if !was_covered {
                // What it was sent before it asked for this did not reach it.
                self.held.set(Name::clone(member), Holding::Nothing, &self.interest);
            }
            if is_asked && was_covered {
                // It waits for word of what it asked for, also when it has that.
                self.doubt(Name::clone(member));
            } else if is_new {
                self.dirty.insert(Name::clone(member));
            }
        }
        if let Some(wide) = self.interest.wide.as_mut().filter(|_| found.contains(group)) {
            wide.add(group, group);
        }
        self.let_members_go(group, &found);
        if !found.is_empty() {
            self.asked.remove(group);
            if found.iter().all(|member| **member != **group) {
                self.held.set(Name::clone(group), Holding::At(Version::of(&[])), &self.interest);
            }
        } else if self.may_hold(group) {
            self.gone.insert(Name::clone(group));
        }
        Some(())
    }

    /// Forgets members that went and of which the peer knows that.
    fn let_members_go(&mut self, group: &Name, found: &[Name]) {
        let found: BTreeSet<&Name> = found.iter().collect();
        let known = self.interest.wide.as_ref().and_then(|wide| wide.groups.get(group));
        let gone: Vec<Name> =
            known.into_iter().flatten().filter(|one| !found.contains(one)).cloned().collect();
        for member in gone {
            if variant::is_locator(group) {
                self.let_variant_go(group, member);
                continue;
            }
            let is_told = self.flight.as_ref().is_none_or(|flight| !flight.is_about(&member));
            if is_told && !self.may_hold(&member) {
                if let Some(wide) = &mut self.interest.wide {
                    wide.take(group, &member);
                }
                if !self.interest.covers(&member) {
                    self.forget(&member);
                }
            } else {
                self.dirty.insert(member);
            }
        }
    }

    /// The peer is to have another variant in place of this one, which may well go on to exist.
    fn let_variant_go(&mut self, group: &Name, variant: Name) {
        let may_hold =
            self.may_hold(&variant) || self.flight.as_ref().is_some_and(|flight| flight.is_about(&variant));
        if let Some(wide) = &mut self.interest.wide {
            wide.take(group, &variant);
        }
        if self.interest.covers(&variant) {
            return;
        }
        self.forget(&variant);
        if may_hold {
            self.held.set(Name::clone(&variant), Holding::Something, &self.interest);
            // It goes together with what comes in its place, and nothing can refer to one and not to the other.
            self.asked.insert(Name::clone(&variant));
            self.gone.insert(variant);
        }
    }

    /// Whether there is nothing under a name that the peer is to have, nor anything it stands for.
    pub(super) fn is_vacant(&mut self, want: &dyn Want, name: &str) -> bool {
        if !self.interest.covers(name) {
            return true;
        }
        let is_group = self.interest.wide.as_ref().is_some_and(|wide| wide.groups.contains_key(name));
        match is_group {
            true => self.members_now(want, name).is_empty(),
            false => find(want, self.type_url, name).is_none(),
        }
    }

    /// Whether the peer asked for a host for which there is nothing, and is to be told so by that name.
    pub(in crate::xds) fn is_unresolved(&self, name: &str) -> bool {
        let is_asked = virtual_host::is_asked_by_host(self.type_url) && self.interest.names.contains(name);
        is_asked && !variant::is_locator(name) && !self.surely_holds(name)
    }

    /// What there is under names that are written otherwise than here.
    pub(super) fn forms(&self, want: &dyn Want) -> impl Iterator<Item = (Name, Version)> {
        let forms = self.interest.wide.iter().flat_map(|wide| wide.forms.values().flatten());
        forms.filter_map(move |name| Some((Name::clone(name), find(want, self.type_url, name)?.version)))
    }

    /// The names that groups stand for.
    pub(in crate::xds) fn members(&self) -> impl Iterator<Item = &Name> {
        self.interest.wide.iter().flat_map(|wide| wide.members.keys())
    }

    /// The hosts that are asked for and answered by what is offered: the other names of each resource.
    pub(in crate::xds) fn aliases(&self, offer: &Offer) -> BTreeMap<Name, Vec<Name>> {
        let mut aliases = BTreeMap::new();
        let Some(wide) =
            self.interest.wide.as_ref().filter(|_| virtual_host::is_asked_by_host(self.type_url))
        else {
            return aliases;
        };
        for wanted in &offer.updated {
            let groups = wide.members.get(&wanted.name).into_iter().flatten();
            let named = groups.filter(|group| virtual_host::is_alias(self.type_url, group, &wanted.name));
            let named: Vec<Name> = named.cloned().collect();
            if !named.is_empty() {
                aliases.insert(Name::clone(&wanted.name), named);
            }
        }
        aliases
    }
}
