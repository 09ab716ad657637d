//! The state-of-the-world form: a request lists every name of interest, and for some types a response
//! lists everything there is.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost::Message;

use super::{
    Collection, Confirmation, DeltaPart, Dialect, Name, RequestFields, ResponseFields, ResponseParts,
    Subscription, TypeRule, Version, Want, Wanted,
    dialect::{Envelope, Header, Heard, SaidBefore, TTL, has, measure, verdict},
    response::{ENVELOPE, NO_SUCH_RESOURCE, NOT_FOUND},
    subscription::{WILDCARD, find},
    variant,
    xdstp::glob,
};
use crate::proto::{
    envoy::service::discovery::v3::{
        DiscoveryRequest, DiscoveryResponse, Resource, ResourceError, ResourceName,
    },
    google::{protobuf::Any, rpc::Status},
};

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
    /// It has named something, so that no names mean nothing from then on.
    has_named: bool,
    /// Of full-state types: what was sent last, to keep what may not be removed yet.
    sent: Sent,
    /// The newest response: requests that speak about an older one were overtaken by it.
    newest: Option<u64>,
}

/// What clients say that find a resource in an envelope; the second name is in the prose of the protocol.
const ENVELOPES: [&str; 2] = ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"];

/// A set that was sent.
#[derive(Debug, Default)]
struct Sent {
    /// All of these.
    all: Option<Arc<dyn Collection>>,
    /// And these.
    also: BTreeMap<Name, Wanted>,
}

impl Sent {
    fn get(&self, name: &str) -> Option<Wanted> {
        self.also.get(name).cloned().or_else(|| self.all.as_ref()?.get(name))
    }

    fn version(&self, name: &str) -> Option<Version> {
        let also = self.also.get(name).map(|wanted| wanted.version);
        also.or_else(|| self.all.as_ref()?.version(name))
    }

    /// In the order of their names.
    fn list(&self) -> Vec<Wanted> {
        let mut list = Vec::with_capacity(self.also.len() + self.all.as_ref().map_or(0, |all| all.len()));
        if let Some(all) = &self.all {
            all.each(&mut |wanted| {
                if !variant::is_variant(&wanted.name) {
                    list.push(wanted);
                }
            });
        }
        if !self.also.is_empty() {
            list.extend(self.also.values().cloned());
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        list
    }
}

impl Dialect for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    const REQUEST: RequestFields = RequestFields {
        version: Some(1),
        node: 2,
        names: &[3],
        type_url: 4,
        nonce: 5,
        error: 6,
        locators: &[7],
        held: None,
    };
    const RESPONSE: ResponseFields = ResponseFields {
        version: 1,
        resources: 2,
        type_url: 4,
        nonce: 5,
        control_plane: 6,
        removed: None,
        removed_variants: None,
        errors: Some(7),
        named: false,
    };

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

    fn open(rule: &TypeRule, request: &Self::Request, _want: &dyn Want) -> Self {
        Self::begin(rule, request, false)
    }

    fn hear(&mut self, request: &Self::Request) -> Heard {
        if request.response_nonce.is_empty() && !self.subscription.is_in_flight() {
            // It starts over.
            *self = Self { newest: self.newest, ..Self::begin(&self.rule, request, self.has_named) };
            return Heard::default();
        }
        let heard = self.hear_again(&request.response_nonce, request.error_detail.as_ref());
        if heard.stale {
            self.also_watch(request);
        } else {
            self.watch(request);
        }
        heard
    }

    fn listed(request: &Self::Request) -> Option<&[String]> {
        Some(&request.resource_names)
    }

    fn hear_again(&mut self, nonce: &str, error: Option<&Status>) -> Heard {
        let nonce: Option<u64> = nonce.parse().ok();
        if nonce.is_none() || nonce != self.newest {
            return Heard { settled: None, stale: true };
        }
        let settled = nonce.and_then(|nonce| self.subscription.settle(nonce, &verdict(error)));
        Heard { settled, stale: false }
    }

    fn next(
        &mut self,
        want: &dyn Want,
        part: DeltaPart,
        _limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<ResponseParts> {
        let promised = self.subscription.is_owed() && part != DeltaPart::Removals;
        let offer = self.subscription.next(want, part, None, header.nonce)?;
        let missing = self.missing(&offer.removed);
        let updated = if self.rule.full_state {
            self.full_set(want, &offer.removed)
        } else {
            let missing = offer.removed.iter().filter(|name| !self.subscription.surely_holds(name));
            // A collection with nothing in it is no resource, and in place of a variant there is another one.
            let vacant = missing.filter(|name| glob(name).is_none() && !variant::is_variant(name));
            let vacant: BTreeSet<&str> = vacant.map(|name| variant::plain_name(name)).collect();
            let vacant = vacant.into_iter().filter_map(|name| Some(self.rule.vacant?(name)));
            offer.updated.into_iter().chain(vacant).collect()
        };
        if !self.rule.full_state && updated.is_empty() && missing.is_empty() && !promised {
            // That a resource is gone cannot be said; the peer finds out from what refers to it.
            self.subscription.settle(header.nonce, &Confirmation::Accepted);
            return None;
        }
        self.newest = Some(header.nonce);
        let given = if self.rule.by_content { None } else { own_version(&updated) };
        let version = given.unwrap_or_else(|| fingerprint(&updated));
        Some(ResponseParts {
            version,
            updated,
            missing,
            ..ResponseParts::headed(self.subscription.type_url(), header)
        })
    }

    fn keeps_time(features: &[String]) -> bool {
        has(features, &[TTL]) && has(features, &ENVELOPES)
    }

    fn still_good(
        &mut self,
        want: &dyn Want,
        told: SaidBefore<'_>,
        header: &Header<'_>,
    ) -> Option<(ResponseParts, Option<Name>)> {
        // Here a client knows one version of all there is: the last one it accepted, which also is that of what it
        // kept when it refused a newer one.
        let version = Some(told.version.to_owned()).filter(|version| !version.is_empty())?;
        let told = self.subscription.still_good(want, true, told.after, told.limit, header.nonce)?;
        self.newest = Some(header.nonce);
        let alive = told.names.into_iter().map(|(name, _)| (name, version.clone())).collect();
        let type_url = self.subscription.type_url();
        let parts = ResponseParts { version, alive, ..ResponseParts::headed(type_url, header) };
        Some((parts, told.until))
    }

    fn nothing(type_url: String, header: &Header<'_>) -> ResponseParts {
        ResponseParts { version: fingerprint(&[]), ..ResponseParts::headed(type_url, header) }
    }

    fn message(parts: &ResponseParts) -> Self::Response {
        DiscoveryResponse {
            version_info: parts.version.clone(),
            resources: match parts.ttl {
                Some(_) => parts.envelopes().map(|resource| packed(&resource)).collect(),
                None => parts.updated.iter().map(plain_or_packed).collect(),
            },
            type_url: parts.type_url.clone().into_owned(),
            nonce: parts.nonce.to_string(),
            control_plane: parts.control_plane(),
            resource_errors: parts.missing.iter().map(not_found).collect(),
            ..DiscoveryResponse::default()
        }
    }

    fn burden(&self) -> usize {
        let whole = self.rule.full_state && !self.subscription.is_drained();
        if whole { usize::MAX } else { self.subscription.burden() }
    }

    fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.subscription
    }
}

/// All names a request lists.
fn names(request: &DiscoveryRequest) -> BTreeSet<Cow<'_, str>> {
    let located = request.resource_locators.iter().map(variant::located);
    request.resource_names.iter().map(|name| Cow::from(name.as_str())).chain(located).collect()
}

impl Sotw {
    /// The state after a request that nothing before it explains.
    fn begin(rule: &TypeRule, request: &DiscoveryRequest, has_named: bool) -> Self {
        let names = names(request);
        let has_named = has_named || !names.is_empty();
        let implied_wildcard = !has_named && rule.implied_wildcard;
        let names = names.iter().map(|name| &**name).chain(implied_wildcard.then_some(WILDCARD));
        let mut subscription = Subscription::open(rule.type_url, names, []);
        subscription.note_unnamed(!request.version_info.is_empty());
        Self { rule: *rule, subscription, implied_wildcard, has_named, sent: Sent::default(), newest: None }
    }

    /// Takes in the names of a request that a response has overtaken. They may not be told again, so what is
    /// new counts; what is missing may only have been asked for later.
    fn also_watch(&mut self, request: &DiscoveryRequest) {
        let names = names(request);
        if !names.is_empty() {
            (self.has_named, self.implied_wildcard) = (true, false);
        }
        let known = self.subscription.interest().names();
        let new: Vec<&str> = names.iter().map(|name| &**name).filter(|name| !known.contains(name)).collect();
        self.subscription.subscribe(new);
    }

    /// Moves the interest to exactly the names of `request`.
    fn watch(&mut self, request: &DiscoveryRequest) {
        let names = names(request);
        if names.is_empty() && self.implied_wildcard {
            return;
        }
        self.implied_wildcard = false;
        self.has_named = true;
        let interest = self.subscription.interest();
        let dropped = interest.names().iter().filter(|name| !names.contains(*name));
        let dropped: Vec<String> = dropped.map(str::to_owned).collect();
        let added = names
            .iter()
            .map(|name| &**name)
            .filter(|name| *name != WILDCARD && !interest.names().contains(name));
        let added: Vec<&str> = added.collect();
        if interest.wildcard && !names.contains(WILDCARD) {
            self.subscription.unsubscribe([WILDCARD]);
        } else if names.contains(WILDCARD) {
            self.subscription.subscribe([WILDCARD]);
        }
        self.subscription.unsubscribe(dropped.iter().map(String::as_str));
        self.subscription.subscribe(added);
    }

    /// Of the names that do not exist those the peer asked for and never had, unless there is a resource that stands
    /// for nothing. It would wait for them, and is told once.
    fn missing(&self, removed: &[Name]) -> Vec<Name> {
        let asked = removed.iter().filter(|name| {
            let is_named = self.subscription.interest().names().contains(name);
            let has_no_word = !self.rule.stays && (self.rule.vacant.is_none() || glob(name).is_some());
            has_no_word && is_named && !self.subscription.surely_holds(name)
        });
        let mut asked: Vec<Name> = asked.cloned().collect();
        asked.dedup_by(|one, other| variant::plain_name(one) == variant::plain_name(other));
        asked
    }

    /// Everything of interest, and what the peer still holds of the rest unless it is removed now.
    fn full_set(&mut self, want: &dyn Want, removed: &[Name]) -> Vec<Wanted> {
        let type_url = self.subscription.type_url();
        let interest = self.subscription.interest();
        let mut set = Sent::default();
        if interest.wildcard {
            set.all = want.collection(type_url);
        }
        let has_all = set.all.is_some();
        let mut add = |name: &str| {
            if let Some(wanted) = find(want, type_url, name) {
                set.also.insert(Name::clone(&wanted.name), wanted);
            }
        };
        // That there is everything of a type says nothing about variants, which are for who asks for them.
        let members = self.subscription.members().filter(|name| !has_all || variant::is_variant(name));
        members.for_each(|name| add(name));
        if !has_all {
            interest.names().iter().for_each(&mut add);
            if interest.wildcard {
                want.each(type_url, &mut |name, _| {
                    if interest.covers(name) {
                        add(name);
                    }
                });
            }
        }
        let removed: BTreeSet<&str> = removed.iter().map(|name| &**name).collect();
        let mut kept = Vec::new();
        for name in self.subscription.unsettled() {
            let stays = self.subscription.may_hold(name) && !removed.contains(name);
            if stays && set.version(name).is_none() {
                kept.extend(self.sent.get(name));
            }
        }
        set.also.extend(kept.into_iter().map(|wanted| (Name::clone(&wanted.name), wanted)));
        self.subscription.sent_whole(|name| set.version(name));
        let list = set.list();
        self.sent = set;
        list
    }
}

fn not_found(name: &Name) -> ResourceError {
    let name = variant::plain_name(name).to_owned();
    let resource_name = ResourceName { name, ..ResourceName::default() };
    let message = NO_SUCH_RESOURCE.to_owned();
    let code = i32::try_from(NOT_FOUND).unwrap_or_default();
    let error_detail = Status { code, message, ..Status::default() };
    ResourceError { resource_name: Some(resource_name), error_detail: Some(error_detail) }
}

/// Who asks by parameters reads envelopes, and finds in them what a variant is for.
fn plain_or_packed(wanted: &Wanted) -> Any {
    if variant::is_variant(&wanted.name) { packed(&wanted.to_resource(None)) } else { wanted.to_any() }
}

fn packed(resource: &Resource) -> Any {
    Any { type_url: ENVELOPE.to_owned(), value: resource.encode_to_vec() }
}

/// What stands for all of them if each has a version that its author gave it: the one that was given last.
fn own_version(resources: &[Wanted]) -> Option<String> {
    let all: Option<Vec<_>> = resources.iter().map(|wanted| wanted.own_version.as_ref()).collect();
    all?.into_iter().max_by_key(|own| own.given).map(|own| own.text.to_string())
}

/// Equal sets have equal versions, whoever sends them.
fn fingerprint(resources: &[Wanted]) -> String {
    let parts = resources.iter().flat_map(|wanted| [wanted.name.as_bytes(), &wanted.version.as_bytes()[..]]);
    Version::of_parts(parts).to_string()
}
