//! The two forms a stream can take: incremental, and state of the world.

use prost::{Message, Name as _};

use super::{Part, Settled, Subscription, TypeRule, Verdict, Want, subscription::WILDCARD};
use crate::proto::{
    envoy::{
        config::core::v3::{ControlPlane, Node},
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, ResourceError},
    },
    google::rpc::Status,
};

/// One type on one stream in server role, in the words of one protocol variant.
pub trait Dialect: Sized {
    /// What the peer sends.
    type Request;
    /// What it gets.
    type Response;

    /// The parts of a request that both variants have.
    fn envelope(request: &Self::Request) -> Envelope<'_>;

    /// The state after the first request of a type. Its nonce, if any, belongs to an earlier stream.
    fn open(rule: &TypeRule, request: &Self::Request) -> Self;

    /// Takes a later request.
    fn hear(&mut self, request: &Self::Request) -> Heard;

    /// The next response, as [`Subscription::next`].
    fn next(
        &mut self,
        want: &dyn Want,
        part: Part,
        limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<Self::Response>;

    /// The answer for a type this side does not have.
    fn nothing(type_url: &str, header: &Header<'_>) -> Self::Response;

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

impl Header<'_> {
    pub(super) fn control_plane(&self) -> Option<ControlPlane> {
        (!self.identifier.is_empty()).then(|| ControlPlane { identifier: self.identifier.to_owned() })
    }
}

/// Incremental: every response is a difference.
#[derive(Debug)]
pub struct Delta(Subscription);

impl Dialect for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

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

    fn open(rule: &TypeRule, request: &Self::Request) -> Self {
        let all = request.resource_names_subscribe.is_empty() && rule.implied_wildcard;
        let names = request.resource_names_subscribe.iter().map(String::as_str);
        let held = request.initial_resource_versions.iter().map(|(name, version)| (&**name, &**version));
        let mut opened = Subscription::open(rule.type_url, names.chain(all.then_some(WILDCARD)), held);
        opened.unsubscribe(request.resource_names_unsubscribe.iter().map(String::as_str));
        Self(opened)
    }

    fn hear(&mut self, request: &Self::Request) -> Heard {
        let mut heard = Heard::default();
        let subscribe = &request.resource_names_subscribe;
        if request.response_nonce.is_empty() {
            // A second first request is promised an answer like the first.
            if subscribe.iter().any(|name| name == WILDCARD) {
                self.0.owe();
            }
        } else {
            let verdict = verdict(request.error_detail.as_ref());
            let nonce = request.response_nonce.parse().ok();
            heard.settled = nonce.and_then(|nonce| self.0.settle(nonce, &verdict));
            heard.stale = heard.settled.is_none();
        }
        // Subscriptions are differences too: they count even beside a stale nonce.
        self.0.subscribe(subscribe.iter().map(String::as_str));
        self.0.unsubscribe(request.resource_names_unsubscribe.iter().map(String::as_str));
        heard
    }

    fn next(
        &mut self,
        want: &dyn Want,
        part: Part,
        limit: Option<usize>,
        header: &Header<'_>,
    ) -> Option<Self::Response> {
        let type_url = self.0.type_url();
        let offer = self.0.next(want, part, limit, header.nonce)?;
        Some(DeltaDiscoveryResponse {
            system_version_info: if offer.more { MORE.to_owned() } else { want.stamp() },
            resources: offer.updated.iter().map(|wanted| wanted.to_resource()).collect(),
            removed_resources: offer.removed.iter().map(ToString::to_string).collect(),
            ..Self::nothing(type_url, header)
        })
    }

    fn nothing(type_url: &str, header: &Header<'_>) -> Self::Response {
        DeltaDiscoveryResponse {
            type_url: type_url.to_owned(),
            nonce: header.nonce.to_string(),
            control_plane: header.control_plane(),
            ..DeltaDiscoveryResponse::default()
        }
    }

    fn subscription(&self) -> &Subscription {
        &self.0
    }

    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.0
    }
}

/// Bytes of all these texts, and of the longest.
pub(super) fn measure<'a>(texts: impl Iterator<Item = &'a String>) -> (usize, usize) {
    texts.fold((0, 0), |(all, longest), text| (all + text.len(), longest.max(text.len())))
}

/// Stands in `system_version_info` of a response that the byte limit cut short: the stamp of the state
/// comes with the last part.
pub(super) const MORE: &str = "more";

/// Reads an ACK or a NACK. A peer that can tell which items it refused lists them as `ResourceError`s;
/// Envoy lists clusters and listeners in its text, unless the text became too long.
pub(super) fn verdict(error: Option<&Status>) -> Verdict {
    let Some(error) = error else { return Verdict::Accepted };
    if error.message.len() > LONGEST_WORDS || error.details.len() > MOST_DETAILS {
        // Nobody is made to look for names in that; then all of it is refused.
        return Verdict::Refused { items: Vec::new() };
    }
    let errors = error.details.iter().filter(|detail| detail.type_url == ResourceError::type_url());
    let items: Vec<String> = errors
        .filter_map(|detail| ResourceError::decode(detail.value.as_slice()).ok()?.resource_name)
        .map(|resource| resource.name)
        .collect();
    let words = error.message.strip_prefix("Error adding/updating ").and_then(|words| words.split_once(' '));
    match words {
        Some((_, words)) if items.is_empty() && !words.ends_with("(truncated)") => {
            Verdict::RefusedInWords(words.to_owned())
        }
        _ => Verdict::Refused { items },
    }
}
