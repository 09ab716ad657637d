//! The state-of-the-world form: a request lists every name of interest, and for some types a response
//! lists everything there is.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Dialect, Name, Part, Subscription, TypeRule, Verdict, Version, Want, Wanted,
    dialect::{Envelope, Header, Heard, measure, verdict},
    subscription::WILDCARD,
};
use crate::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

#[cfg(test)]
mod tests;

/// State of the world, told from the same bookkeeping as the incremental form.
///
/// Types of [full state](TypeRule::full_state) (clusters, listeners) are sent whole when anything in them
/// changes, since what is missing is gone. Of the others only what changed is sent, since what is missing
/// stays.
#[derive(Debug)]
pub struct Sotw {
    rule: TypeRule,
    subscription: Subscription,
    /// The peer never named anything, so it means all.
    implied_wildcard: bool,
    /// Of full-state types: what was sent last, to keep what may not be removed yet.
    sent: BTreeMap<Name, Wanted>,
    /// The newest response: requests that speak about an older one were overtaken by it.
    newest: Option<u64>,
}

impl Dialect for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn envelope(request: &Self::Request) -> Envelope<'_> {
        let (bytes, longest) = measure(request.resource_names.iter());
        Envelope {
            bytes,
            longest,
            node: request.node.as_ref(),
            type_url: &request.type_url,
            is_first: request.response_nonce.is_empty(),
            names: request.resource_names.len(),
            held: 0,
            error: request.error_detail.as_ref(),
        }
    }

    fn open(rule: &TypeRule, request: &Self::Request) -> Self {
        let implied_wildcard = request.resource_names.is_empty() && rule.implied_wildcard;
        let names = request.resource_names.iter().map(String::as_str);
        let names = names.chain(implied_wildcard.then_some(WILDCARD));
        Self {
            rule: *rule,
            subscription: Subscription::open(rule.type_url, names, []),
            implied_wildcard,
            sent: BTreeMap::new(),
            newest: None,
        }
    }

    fn hear(&mut self, request: &Self::Request) -> Heard {
        let nonce: Option<u64> = request.response_nonce.parse().ok();
        if request.response_nonce.is_empty() && self.subscription.in_flight().is_none() {
            // It starts over.
            *self = Self { newest: self.newest, ..Self::open(&self.rule, request) };
            return Heard::default();
        }
        if nonce.is_none() || nonce != self.newest {
            return Heard { settled: None, stale: true };
        }
        let verdict = verdict(request.error_detail.as_ref());
        let settled = nonce.and_then(|nonce| self.subscription.settle(nonce, &verdict));
        self.watch(&request.resource_names);
        Heard { settled, stale: false }
    }

    fn next(
        &mut self,
        want: &dyn Want,
        part: Part,
        _limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<Self::Response> {
        let promised = self.subscription.is_owed() && part != Part::Removals;
        let offer = self.subscription.next(want, part, None, header.nonce)?;
        let resources = if self.rule.full_state {
            self.full_set(want, &offer.removed)
        } else {
            let missing = offer.removed.iter().filter(|name| !self.subscription.surely_holds(name));
            let vacant = missing.filter_map(|name| Some(self.rule.vacant?(name)));
            offer.updated.into_iter().chain(vacant).collect()
        };
        if !self.rule.full_state && resources.is_empty() && !promised {
            // That a resource is gone cannot be said; the peer finds out from what refers to it.
            self.subscription.settle(header.nonce, &Verdict::Accepted);
            return None;
        }
        self.newest = Some(header.nonce);
        Some(DiscoveryResponse {
            version_info: fingerprint(&resources),
            resources: resources.iter().map(Wanted::to_any).collect(),
            ..Self::nothing(self.subscription.type_url(), header)
        })
    }

    fn nothing(type_url: &str, header: &Header<'_>) -> Self::Response {
        DiscoveryResponse {
            version_info: fingerprint(&[]),
            type_url: type_url.to_owned(),
            nonce: header.nonce.to_string(),
            control_plane: header.control_plane(),
            ..DiscoveryResponse::default()
        }
    }

    fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.subscription
    }
}

impl Sotw {
    /// Moves the interest to exactly these names.
    fn watch(&mut self, names: &[String]) {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        if names.is_empty() && self.implied_wildcard {
            return;
        }
        self.implied_wildcard = false;
        let interest = self.subscription.interest();
        let dropped: Vec<Name> =
            interest.names().iter().filter(|name| !names.contains(&***name)).cloned().collect();
        let added =
            names.iter().copied().filter(|name| *name != WILDCARD && !interest.names().contains(*name));
        let added: Vec<&str> = added.collect();
        if interest.wildcard && !names.contains(WILDCARD) {
            self.subscription.unsubscribe([WILDCARD]);
        } else if names.contains(WILDCARD) {
            self.subscription.subscribe([WILDCARD]);
        }
        self.subscription.unsubscribe(dropped.iter().map(|name| &**name));
        self.subscription.subscribe(added);
    }

    /// Everything of interest, and what the peer still holds of the rest unless it is removed now.
    fn full_set(&mut self, want: &dyn Want, removed: &[Name]) -> Vec<Wanted> {
        let type_url = self.subscription.type_url();
        let mut set = BTreeMap::new();
        let mut add = |name: &str| {
            if let Some(wanted) = want.get(type_url, name) {
                set.insert(Name::clone(&wanted.name), wanted);
            }
        };
        let interest = self.subscription.interest();
        interest.names().iter().for_each(|name| add(name));
        if interest.wildcard {
            want.each(type_url, &mut |name, _| add(name));
        }
        let removed: BTreeSet<&Name> = removed.iter().collect();
        for (name, kept) in std::mem::take(&mut self.sent) {
            if !set.contains_key(&name) && !removed.contains(&name) && self.subscription.may_hold(&name) {
                set.insert(name, kept);
            }
        }
        self.subscription.sent_whole(&set);
        self.sent = set;
        self.sent.values().cloned().collect()
    }
}

/// Equal sets have equal versions, whoever sends them.
fn fingerprint(resources: &[Wanted]) -> String {
    let parts = resources.iter().flat_map(|wanted| [wanted.name.as_bytes(), &wanted.version.as_bytes()[..]]);
    Version::of_parts(parts).to_string()
}
