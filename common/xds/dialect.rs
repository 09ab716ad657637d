//! The two forms a stream can take: incremental, and state of the world.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use prost::{Message, Name as _};

use super::{
    Confirmation, DeltaPart, Encoding, Name, RequestFields, ResponseFields, ResponseParts, Settled,
    Subscription, TypeRule, Want, subscription::WILDCARD, summary::Summary, variant, virtual_host::vacancy,
    want::bare,
};
use crate::proto::{
    envoy::{
        config::core::v3::{ControlPlane, Node},
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource, ResourceError},
    },
    google::rpc::Status,
};

/// One type on one stream in server role, in the words of one protocol variant.
pub trait Dialect: Sized {
    /// What the peer sends.
    type Request;
    /// What it gets.
    type Response;

    /// Where requests have what.
    const REQUEST: RequestFields;
    /// Where responses have what.
    const RESPONSE: ResponseFields;

    /// The parts of a request that both variants have.
    fn envelope(request: &Self::Request) -> Envelope<'_>;

    /// The state after the first request of a type. Its nonce, if any, belongs to an earlier stream.
    fn open(rule: &TypeRule, request: &Self::Request, want: &dyn Want) -> Self;

    /// Takes a later request.
    fn hear(&mut self, request: &Self::Request) -> Heard;

    /// Takes a request that is a page of what the peer holds, if that was asked for: how many names it has listed by
    /// now.
    fn take_page(&mut self, _rule: &TypeRule, _request: &Self::Request, _want: &dyn Want) -> Option<usize> {
        None
    }

    /// Bytes of the names the peer made this side remember.
    fn bytes(&self) -> usize {
        self.subscription().bytes()
    }

    /// All names the peer is interested in, where a request lists them all.
    fn listed(request: &Self::Request) -> Option<&[String]>;

    /// Takes a later answer whose list of names is that of the last request that was not stale.
    fn hear_again(&mut self, nonce: &str, error: Option<&Status>) -> Heard;

    /// The next response, as [`Subscription::next`].
    fn next(
        &mut self,
        want: &dyn Want,
        part: DeltaPart,
        limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<ResponseParts>;

    /// Whether a peer with these features is told how long it may keep something.
    fn keeps_time(features: &[String]) -> bool;

    /// Says of what the peer holds that it is still good, as [`Subscription::still_good`]; with the name after which
    /// there is more to say.
    fn still_good(
        &mut self,
        want: &dyn Want,
        told: SaidBefore<'_>,
        header: &Header<'_>,
    ) -> Option<(ResponseParts, Option<Name>)>;

    /// The answer for a type this side does not have.
    fn nothing(type_url: String, header: &Header<'_>) -> ResponseParts;

    /// The message these parts make.
    fn message(parts: &ResponseParts) -> Self::Response;

    /// The same in the form it has on the wire.
    fn encode(parts: ResponseParts) -> Encoding {
        Encoding::new(parts, Self::RESPONSE)
    }

    /// About how many names the next response will be; [`usize::MAX`] when that is not known before all is
    /// looked at.
    fn burden(&self) -> usize {
        self.subscription().burden()
    }

    /// What the peer asked for, holds and refused.
    fn subscription(&self) -> &Subscription;

    /// The same, to tell of a change.
    fn subscription_mut(&mut self) -> &mut Subscription;
}

/// The parts of a request that both variants have.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Who asks.
    pub node: Option<&'a Node>,
    /// For what.
    pub type_url: &'a str,
    /// It answers for no response.
    pub is_first: bool,
    /// How many names the request lists.
    pub names: usize,
    /// How many resources the peer says it holds.
    pub held: usize,
    /// Bytes of all these names.
    pub bytes: usize,
    /// Bytes of the longest name, or version of what is held.
    pub longest: usize,
    /// Why the response was refused, if it was.
    pub error: Option<&'a Status>,
}

/// What a later request said.
#[derive(Debug, Default)]
pub struct Heard {
    /// The response in flight that it settled.
    pub settled: Option<Settled>,
    /// It spoke about a response that is not in flight.
    pub stale: bool,
}

/// What a client says that knows how long to keep something.
pub(super) const TTL: &str = "xds.config.supports-resource-ttl";

/// Whether one of `names` is one of the features.
pub(super) fn has(features: &[String], names: &[&str]) -> bool {
    features.iter().any(|feature| names.contains(&feature.as_str()))
}

/// What a peer was told before it is told that something is still good.
#[derive(Clone, Copy, Debug)]
pub struct SaidBefore<'a> {
    /// The version of the type that it accepted last; empty if there is none.
    pub version: &'a str,
    /// The names up to this one.
    pub after: Option<&'a Name>,
    /// Bytes of a response.
    pub limit: Option<usize>,
}

/// Code of a refusal that has nothing to do with what is refused: `UNAVAILABLE`.
pub(super) const NOT_NOW: i32 = 14;
/// Bytes of a refusal in words that are searched for names, and how many details are read.
const LONGEST_WORDS: usize = 64 * 1024;
const MOST_DETAILS: usize = 10_000;

/// What every response of a stream carries.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// Its number.
    pub nonce: u64,
    /// Who answers.
    pub identifier: &'a str,
}

impl ResponseParts {
    /// The head of a response of this type.
    pub(super) fn headed(type_url: impl Into<Cow<'static, str>>, header: &Header<'_>) -> Self {
        Self {
            type_url: type_url.into(),
            nonce: header.nonce,
            identifier: header.identifier.to_owned(),
            ..Self::default()
        }
    }

    /// What it says about each resource.
    pub(super) fn envelopes(&self) -> impl Iterator<Item = Resource> {
        let updated = self.updated.iter().map(|wanted| Resource {
            aliases: self.aliases.get(&wanted.name).into_iter().flatten().map(ToString::to_string).collect(),
            ..wanted.to_resource(self.ttl)
        });
        let unresolved = self.unresolved.iter().map(|asked| Resource {
            aliases: vec![asked.to_string()],
            ..bare(&vacancy(asked), String::new(), self.ttl)
        });
        updated
            .chain(unresolved)
            .chain(self.alive.iter().map(|(name, version)| bare(name, version.clone(), self.ttl)))
    }

    pub(super) fn control_plane(&self) -> Option<ControlPlane> {
        (!self.identifier.is_empty()).then(|| ControlPlane { identifier: self.identifier.clone() })
    }
}

/// Incremental: every response is a difference.
#[derive(Debug)]
pub struct Delta {
    subscription: Subscription,
    /// What the peer holds is not what it should have, and not known yet.
    listing: Option<Box<HeldList>>,
}

/// The list of what a peer holds that came with a summary, page by page.
#[derive(Debug, Default)]
struct HeldList {
    /// What it has listed.
    claims: HashMap<String, String>,
    /// Bytes of that.
    bytes: usize,
    /// Under which number the next page was asked for.
    asked: Option<u64>,
}

impl Delta {
    fn of(subscription: Subscription) -> Self {
        Self { subscription, listing: None }
    }

    /// The state of a peer that asks for everything and holds what it `claims` to hold.
    fn resumed(rule: &TypeRule, claims: &HashMap<String, String>, want: &dyn Want) -> Self {
        let known = (!claims.is_empty() && want.ready(rule.type_url)).then(|| want.collection(rule.type_url));
        Self::of(match known.flatten() {
            Some(collection) => Subscription::resume(rule.type_url, claims, collection),
            None => Subscription::open(rule.type_url, [WILDCARD], texts(claims)),
        })
        .narrowed(rule)
    }

    /// The state of a peer that asks for everything and sums up what it holds.
    fn summed_up(rule: &TypeRule, summary: &str, want: &dyn Want) -> Self {
        let type_url = rule.type_url;
        let is_known = want.ready(type_url) && Summary::of_wanted(type_url, want).to_string() == summary;
        match want.collection(type_url).filter(|_| is_known) {
            Some(collection) => Self::of(Subscription::resume_unchanged(type_url, collection)).narrowed(rule),
            None => Self {
                subscription: Subscription::open(type_url, [WILDCARD], []),
                listing: Some(Box::default()),
            },
        }
    }

    fn narrowed(mut self, rule: &TypeRule) -> Self {
        if rule.narrows {
            self.subscription.narrow();
        }
        self
    }
}

impl Dialect for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    const REQUEST: RequestFields = RequestFields {
        version: None,
        node: 1,
        type_url: 2,
        names: &[3, 4],
        held: Some(5),
        nonce: 6,
        error: 7,
        locators: &[8, 9],
    };
    const RESPONSE: ResponseFields = ResponseFields {
        version: 1,
        resources: 2,
        type_url: 4,
        nonce: 5,
        removed: Some(6),
        removed_variants: Some(8),
        control_plane: 7,
        errors: None,
        named: true,
    };

    fn envelope(request: &Self::Request) -> Envelope<'_> {
        let held = request.initial_resource_versions.iter().flat_map(|(name, version)| [name, version]);
        let names = request.resource_names_subscribe.iter().chain(&request.resource_names_unsubscribe);
        let (bytes, longest) = measure(names.chain(held));
        Envelope {
            node: request.node.as_ref(),
            type_url: &request.type_url,
            is_first: request.response_nonce.is_empty(),
            bytes,
            longest,
            names: request.resource_names_subscribe.len() + request.resource_names_unsubscribe.len(),
            held: request.initial_resource_versions.len(),
            error: request.error_detail.as_ref(),
        }
    }

    fn open(rule: &TypeRule, request: &Self::Request, want: &dyn Want) -> Self {
        let names = subscribed(request);
        let all = names.is_empty() && rule.implied_wildcard;
        let claims = &request.initial_resource_versions;
        let for_all = all || names == [WILDCARD];
        if for_all && unsubscribed(request).is_empty() {
            return match Summary::read(request) {
                Some(summary) => Self::summed_up(rule, summary, want),
                None => Self::resumed(rule, claims, want),
            };
        }
        let names = names.iter().map(|name| &**name).chain(all.then_some(WILDCARD));
        let mut opened = Self::of(Subscription::open(rule.type_url, names, texts(claims))).narrowed(rule);
        opened.subscription.unsubscribe(unsubscribed(request).iter().map(|name| &**name));
        opened
    }

    fn hear(&mut self, request: &Self::Request) -> Heard {
        let mut heard = Heard::default();
        if request.response_nonce.is_empty() {
            // A second first request is promised an answer like the first.
            if request.resource_names_subscribe.iter().any(|name| name == WILDCARD) {
                self.subscription.owe();
            }
        } else {
            heard = self.hear_again(&request.response_nonce, request.error_detail.as_ref());
        }
        // Subscriptions are differences too: they count even beside a stale nonce.
        self.subscription.subscribe(subscribed(request).iter().map(|name| &**name));
        self.subscription.unsubscribe(unsubscribed(request).iter().map(|name| &**name));
        heard
    }

    fn take_page(&mut self, rule: &TypeRule, request: &Self::Request, want: &dyn Want) -> Option<usize> {
        let listing = self.listing.as_deref_mut()?;
        if listing.asked.is_none_or(|asked| request.response_nonce != asked.to_string()) {
            return None;
        }
        let page = &request.initial_resource_versions;
        listing.asked = None;
        listing.bytes += page.iter().map(|(name, version)| name.len() + version.len()).sum::<usize>();
        listing.claims.extend(page.iter().map(|(name, version)| (name.clone(), version.clone())));
        let listed = listing.claims.len();
        // Who asks for everything once more has listed everything.
        if page.is_empty() || request.resource_names_subscribe.iter().any(|name| name == WILDCARD) {
            let claims = std::mem::take(&mut listing.claims);
            *self = Self::resumed(rule, &claims, want);
        }
        Some(listed)
    }

    fn bytes(&self) -> usize {
        self.subscription.bytes() + self.listing.as_ref().map_or(0, |listing| listing.bytes)
    }

    fn listed(_request: &Self::Request) -> Option<&[String]> {
        None
    }

    fn hear_again(&mut self, nonce: &str, error: Option<&Status>) -> Heard {
        let nonce = nonce.parse().ok();
        let settled = nonce.and_then(|nonce| self.subscription.settle(nonce, &verdict(error)));
        Heard { stale: settled.is_none(), settled }
    }

    fn next(
        &mut self,
        want: &dyn Want,
        part: DeltaPart,
        limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<ResponseParts> {
        let type_url = self.subscription.type_url();
        if let Some(listing) = &mut self.listing {
            if part == DeltaPart::Removals || listing.asked.is_some() {
                return None;
            }
            listing.asked = Some(header.nonce);
            return Some(ResponseParts {
                version: LIST.to_owned(),
                ..ResponseParts::headed(type_url, header)
            });
        }
        let offer = self.subscription.next(want, part, limit, header.nonce)?;
        let aliases = self.subscription.aliases(&offer);
        let removed = offer.removed.into_iter();
        let (unresolved, removed): (Vec<Name>, Vec<Name>) =
            removed.partition(|name| self.subscription.is_unresolved(name));
        // That there is nothing for who has these parameters is told under the name alone, once.
        let missing: BTreeSet<&str> = removed
            .iter()
            .filter(|name| variant::is_locator(name))
            .map(|name| variant::plain_name(name))
            .collect();
        let missing: Vec<Name> = missing.into_iter().map(Name::from).collect();
        let mut removed = removed;
        if !missing.is_empty() {
            removed.retain(|name| !variant::is_locator(name) && !missing.contains(name));
            removed.extend(missing);
        }
        Some(ResponseParts {
            version: if offer.more { MORE.to_owned() } else { want.stamp() },
            updated: offer.updated,
            removed,
            aliases,
            unresolved,
            ..ResponseParts::headed(type_url, header)
        })
    }

    fn keeps_time(features: &[String]) -> bool {
        has(features, &[TTL])
    }

    fn still_good(
        &mut self,
        want: &dyn Want,
        told: SaidBefore<'_>,
        header: &Header<'_>,
    ) -> Option<(ResponseParts, Option<Name>)> {
        let told = self.subscription.still_good(want, false, told.after, told.limit, header.nonce)?;
        let type_url = self.subscription.type_url();
        let alive = told.names.into_iter().map(|(name, version)| {
            let own = want.get(type_url, &name).and_then(|wanted| wanted.own_version);
            let version = own.map_or_else(|| version.to_string(), |own| own.text.to_string());
            (name, version)
        });
        let parts = ResponseParts {
            version: want.stamp(),
            alive: alive.collect(),
            ..ResponseParts::headed(type_url, header)
        };
        Some((parts, told.until))
    }

    fn nothing(type_url: String, header: &Header<'_>) -> ResponseParts {
        ResponseParts::headed(type_url, header)
    }

    fn message(parts: &ResponseParts) -> Self::Response {
        DeltaDiscoveryResponse {
            system_version_info: parts.version.clone(),
            resources: parts.envelopes().collect(),
            removed_resources: parts
                .removed
                .iter()
                .filter(|name| !variant::is_variant(name))
                .map(ToString::to_string)
                .collect(),
            removed_resource_names: parts
                .removed
                .iter()
                .filter_map(|name| variant::resource_name(name))
                .collect(),
            type_url: parts.type_url.clone().into_owned(),
            nonce: parts.nonce.to_string(),
            control_plane: parts.control_plane(),
            ..DeltaDiscoveryResponse::default()
        }
    }

    fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.subscription
    }
}

/// Names a request adds.
fn subscribed(request: &DeltaDiscoveryRequest) -> Vec<Cow<'_, str>> {
    let located = request.resource_locators_subscribe.iter().map(variant::located);
    request.resource_names_subscribe.iter().map(|name| Cow::from(name.as_str())).chain(located).collect()
}

/// Names and versions of a map as texts.
fn texts(held: &HashMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    held.iter().map(|(name, version)| (&**name, &**version))
}

/// Names a request takes away.
fn unsubscribed(request: &DeltaDiscoveryRequest) -> Vec<Cow<'_, str>> {
    let located = request.resource_locators_unsubscribe.iter().map(variant::located);
    request.resource_names_unsubscribe.iter().map(|name| Cow::from(name.as_str())).chain(located).collect()
}

/// Bytes of all these texts, and of the longest.
pub(super) fn measure<'a>(texts: impl Iterator<Item = &'a String>) -> (usize, usize) {
    texts.fold((0, 0), |(all, longest), text| (all + text.len(), longest.max(text.len())))
}

/// Stands in `system_version_info` of a response that the byte limit cut short: the stamp of the state
/// comes with the last part.
pub(super) const MORE: &str = "more";

/// Stands there in a response to a peer that summed up what it holds, and holds something else than there is: it is to
/// list that, a page with each answer.
pub(super) const LIST: &str = "list";

/// Reads an ACK or a NACK. A peer that can tell which items it refused lists them as `ResourceError`s;
/// Envoy lists clusters and listeners in its text, unless the text became too long.
pub(crate) fn verdict(error: Option<&Status>) -> Confirmation {
    let Some(error) = error else { return Confirmation::Accepted };
    if error.message.len() > LONGEST_WORDS || error.details.len() > MOST_DETAILS {
        // Nobody is made to look for names in that; then all of it is refused.
        return Confirmation::Refused { items: Vec::new() };
    }
    let errors = error.details.iter().filter(|detail| detail.type_url == ResourceError::type_url());
    let items: Vec<String> = errors
        .filter_map(|detail| ResourceError::decode(detail.value.as_slice()).ok()?.resource_name)
        .map(|resource| resource.name)
        .collect();
    let words = error.message.strip_prefix("Error adding/updating ").and_then(|words| words.split_once(' '));
    match words {
        Some((_, words)) if items.is_empty() && !words.ends_with("(truncated)") => {
            Confirmation::RefusedInWords(words.to_owned())
        }
        _ if items.is_empty() && error.code == NOT_NOW => Confirmation::Postponed,
        _ => Confirmation::Refused { items },
    }
}
