//! A whole delta stream in client role.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
};

use prost::{Message, Name as _};

use super::{
    dialect::{LIST, MORE, NOT_NOW},
    subscription::WILDCARD,
    summary::Summary,
};
use crate::proto::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource, ResourceError, ResourceName,
        },
    },
    google::{protobuf::Any, rpc::Status},
};

#[cfg(test)]
mod tests;

/// Name and version of everything held of one type. The versions are the upstream's and opaque.
pub type Versions = BTreeMap<Box<str>, Box<str>>;

/// Longest name or version that is remembered, in bytes.
const LONGEST: usize = 1024;

/// Bytes of names and versions on a page of what is held. What a peer reads a request into it keeps for as long as the
/// stream lives, so one that lists everything at once is remembered by its size.
const PAGE: usize = 32 * 1024;

/// The state of one delta stream in client role.
#[derive(Debug)]
pub struct Sink {
    node: Node,
    types: BTreeMap<&'static str, TypeExchange>,
}

/// A type to subscribe to.
#[derive(Clone, Debug)]
pub struct SinkType {
    /// Which type.
    pub type_url: &'static str,
    /// What is held from an earlier stream, to be told only the difference. `None` asks for all of it.
    pub resume: Option<Versions>,
}

/// How far the list of what is held has got, on a stream that began with its summary.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Paging {
    /// Nothing was listed.
    Summed,
    /// Everything up to this name was.
    After(Box<str>),
    /// There is nothing to list, or all of it was.
    Over,
}

/// What came in.
#[derive(Debug)]
pub enum SinkEvent {
    /// Resources to apply; every batch is to be answered with [`Sink::verdict`].
    Batch(ResponseBatch),
    /// The upstream wants to know what is held: send this.
    Listed(Box<DeltaDiscoveryRequest>),
    /// Something this side never asked for: send this refusal.
    Unasked {
        /// Of which type.
        type_url: String,
        /// The NACK.
        answer: Box<DeltaDiscoveryRequest>,
    },
}

/// One response, to be applied as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseBatch {
    /// Of which type.
    pub type_url: &'static str,
    /// Which response, for the verdict.
    pub nonce: String,
    /// The first of its type on this stream.
    pub first: bool,
    /// It is all there is: what it lacks does not exist upstream. Otherwise it is a difference, and only
    /// `removed` says what is gone.
    pub full: bool,
    /// The upstream cut it short; more follows once this is settled.
    pub more: bool,
    /// What the upstream says about its state (`system_version_info`).
    pub stamp: String,
    /// New or changed resources.
    pub added: Vec<Resource>,
    /// Names that are gone.
    pub removed: Vec<String>,
}

/// One item of a batch that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its name on the wire.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Why a stream must end: the upstream does not speak the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SinkError {
    /// Without a nonce no answer can refer to the response.
    #[error("a response of type {type_url:?} has no nonce")]
    NoNonce {
        /// Of which type.
        type_url: String,
    },
    /// Every answer repeats both.
    #[error("a response has a type and a nonce of {bytes} bytes; {LONGEST} is the limit")]
    TooLong {
        /// How long they are.
        bytes: usize,
    },
    /// Responses come faster than they are answered.
    #[error("the upstream sent {MAX_OUTSTANDING} responses of type {type_url} without waiting for an answer")]
    Flooded {
        /// Of which type.
        type_url: &'static str,
    },
}

/// Responses of one type that may wait for their verdict. One is normal.
const MAX_OUTSTANDING: usize = 4;

/// Bytes of refusal text in one request.
const MAX_REASONS: usize = 16 * 1024;

/// Bytes of the details that name what is refused, in one request. Where there is more to name, none is: that stands for all
/// of the response, of which the upstream knows then that it may have been taken or not.
const MAX_DETAILS: usize = 192 * 1024;

#[derive(Debug)]
struct TypeExchange {
    resumed: bool,
    held: Versions,
    paging: Paging,
    answered: bool,
    ready: bool,
    /// A batch was refused whole, so upstream believes more than is true for as long as the stream lives.
    spoilt: bool,
    /// Number of the last batch that was answered.
    settled: Option<String>,
    outstanding: VecDeque<Outstanding>,
}

#[derive(Debug)]
struct Outstanding {
    nonce: String,
    full: bool,
    more: bool,
    added: Vec<(Box<str>, Box<str>)>,
    removed: Vec<String>,
}

impl Sink {
    /// A stream on which nothing was said yet. `node` is sent in full with the first request of each
    /// type; later requests carry its id only.
    pub fn new(node: Node, types: impl IntoIterator<Item = SinkType>) -> Self {
        let exchange = |wanted: SinkType| {
            let resumed = wanted.resume.is_some();
            let held = wanted.resume.unwrap_or_default();
            (
                wanted.type_url,
                TypeExchange {
                    resumed,
                    held,
                    paging: Paging::Over,
                    answered: false,
                    ready: false,
                    spoilt: false,
                    settled: None,
                    outstanding: VecDeque::new(),
                },
            )
        };
        Self { node, types: types.into_iter().map(exchange).collect() }
    }

    /// The same, for an upstream that is told a summary of what is held and asks for the list where that is something
    /// else than there is.
    #[must_use]
    pub fn summing_up(mut self) -> Self {
        for exchange in self.types.values_mut().filter(|exchange| !exchange.held.is_empty()) {
            exchange.paging = Paging::Summed;
        }
        self
    }

    /// The requests that open the stream, one per type.
    pub fn open(&self) -> impl Iterator<Item = DeltaDiscoveryRequest> {
        self.types.iter().map(|(type_url, exchange)| DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: (*type_url).to_owned(),
            resource_names_subscribe: vec![WILDCARD.to_owned()],
            initial_resource_versions: exchange.introduction(),
            ..DeltaDiscoveryRequest::default()
        })
    }

    /// Takes a response. An error means that the stream must end.
    pub fn receive(&mut self, response: DeltaDiscoveryResponse) -> Result<SinkEvent, SinkError> {
        let bytes = response.nonce.len() + response.type_url.len();
        if bytes > LONGEST {
            return Err(SinkError::TooLong { bytes });
        }
        if response.nonce.is_empty() {
            return Err(SinkError::NoNonce { type_url: response.type_url });
        }
        let Some((&type_url, exchange)) = self.types.get_key_value(response.type_url.as_str()) else {
            let error = status("this type was not subscribed to".to_owned(), &[]);
            let answer = Box::new(self.answer(&response.type_url, response.nonce, Some(error)));
            return Ok(SinkEvent::Unasked { type_url: response.type_url, answer });
        };
        if exchange.outstanding.len() == MAX_OUTSTANDING {
            return Err(SinkError::Flooded { type_url });
        }
        if response.system_version_info == LIST && exchange.paging != Paging::Over {
            let page = self.types.get_mut(type_url).map(TypeExchange::next_page).unwrap_or_default();
            let answer = self.answer(type_url, response.nonce, None);
            return Ok(SinkEvent::Listed(Box::new(DeltaDiscoveryRequest {
                resource_names_subscribe: page.is_last.then(|| WILDCARD.to_owned()).into_iter().collect(),
                initial_resource_versions: page.held,
                ..answer
            })));
        }
        let (first, resumed) = (!exchange.answered, exchange.resumed);
        let more = response.system_version_info == MORE;
        let batch = ResponseBatch {
            type_url,
            nonce: response.nonce,
            first,
            full: first && !resumed && !more,
            more,
            stamp: if more { String::new() } else { response.system_version_info },
            added: response.resources,
            removed: response.removed_resources,
        };
        if let Some(exchange) = self.types.get_mut(type_url) {
            exchange.take(&batch);
        }
        Ok(SinkEvent::Batch(batch))
    }

    /// Settles a batch and makes the request that says so. Items that are not refused are held from now
    /// on; of a refused one, what was held before still is. `None`: there is no such batch.
    pub fn verdict(
        &mut self,
        type_url: &str,
        nonce: &str,
        refused: &[Refusal],
    ) -> Option<DeltaDiscoveryRequest> {
        let exchange = self.types.get_mut(type_url)?;
        let outstanding = exchange.settle(nonce)?;
        exchange.ready |= !outstanding.more && !exchange.spoilt;
        exchange.hold(outstanding, refused);
        exchange.settled = Some(nonce.to_owned());
        Some(self.answer(type_url, nonce.to_owned(), refusal_status(refused)))
    }

    /// Refuses a batch of which nothing could be applied. What was held stays held. The upstream does not
    /// offer the same again on this stream: where the cause may pass, end the stream instead.
    pub fn refuse(&mut self, type_url: &str, nonce: &str, reason: &str) -> Option<DeltaDiscoveryRequest> {
        let exchange = self.types.get_mut(type_url)?;
        exchange.settle(nonce)?;
        exchange.ready = false;
        exchange.spoilt = true;
        exchange.settled = Some(nonce.to_owned());
        Some(self.answer(type_url, nonce.to_owned(), Some(status(reason.to_owned(), &[]))))
    }

    /// Refuses a batch that could not be looked after now, whatever is in it. What was held stays held, and the
    /// upstream offers it again after a while. Not for a [full](ResponseBatch::full) one, which is not offered twice.
    pub fn put_off(&mut self, type_url: &str, nonce: &str, reason: &str) -> Option<DeltaDiscoveryRequest> {
        let exchange = self.types.get_mut(type_url)?;
        exchange.settle(nonce)?;
        exchange.settled = Some(nonce.to_owned());
        let error = Status { code: NOT_NOW, ..status(reason.to_owned(), &[]) };
        Some(self.answer(type_url, nonce.to_owned(), Some(error)))
    }

    /// The last acknowledgement of each type once more, for an upstream that may have lost sight of this stream.
    pub fn remind(&self) -> impl Iterator<Item = DeltaDiscoveryRequest> {
        let idle = self.types.iter().filter(|(_, exchange)| exchange.outstanding.is_empty());
        idle.filter_map(|(type_url, exchange)| Some(self.answer(type_url, exchange.settled.clone()?, None)))
    }

    /// Whether every type was answered in full and settled at least once, and no batch was refused whole.
    pub fn is_ready(&self) -> bool {
        self.types.values().all(|exchange| exchange.ready)
    }

    /// The types that keep this from being [ready](Self::is_ready).
    pub fn unanswered(&self) -> impl Iterator<Item = &'static str> {
        self.types.iter().filter(|(_, exchange)| !exchange.ready).map(|(type_url, _)| *type_url)
    }

    /// What is held of a type.
    pub fn held(&self, type_url: &str) -> Option<&Versions> {
        self.types.get(type_url).map(|exchange| &exchange.held)
    }

    /// What is held of every type, to resume with.
    pub fn into_held(self) -> BTreeMap<&'static str, Versions> {
        self.types.into_iter().map(|(type_url, exchange)| (type_url, exchange.held)).collect()
    }

    fn answer(&self, type_url: &str, nonce: String, error: Option<Status>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(Node { id: self.node.id.clone(), ..Node::default() }),
            type_url: type_url.to_owned(),
            response_nonce: nonce,
            error_detail: error,
            ..DeltaDiscoveryRequest::default()
        }
    }
}

/// Some of what is held.
#[derive(Default)]
struct VersionPage {
    held: HashMap<String, String>,
    is_last: bool,
}

impl TypeExchange {
    /// What a first request says of what is held.
    fn introduction(&self) -> HashMap<String, String> {
        let held = self.held.iter();
        match self.paging {
            Paging::Over => held.map(|(name, version)| (name.to_string(), version.to_string())).collect(),
            _ => {
                let summary = Summary::of(held.map(|(name, version)| (&**name, &**version)));
                HashMap::from([(WILDCARD.to_owned(), summary.to_string())])
            }
        }
    }

    /// The next of what is held that the upstream asked for.
    fn next_page(&mut self) -> VersionPage {
        let (mut page, mut bytes) = (VersionPage::default(), 0);
        let from = match &self.paging {
            Paging::Summed => Bound::Unbounded,
            Paging::After(last) => Bound::Excluded(last.clone()),
            Paging::Over => return page,
        };
        for (name, version) in self.held.range::<Box<str>, _>((from, Bound::Unbounded)) {
            if bytes > 0 && bytes + name.len() + version.len() > PAGE {
                return page;
            }
            bytes += name.len() + version.len();
            page.held.insert(name.to_string(), version.to_string());
            self.paging = Paging::After(name.clone());
        }
        self.paging = Paging::Over;
        page.is_last = true;
        page
    }

    /// Takes out the response of this nonce, which is answered now.
    fn settle(&mut self, nonce: &str) -> Option<Outstanding> {
        let at = self.outstanding.iter().position(|outstanding| outstanding.nonce == nonce)?;
        let settled = self.outstanding.remove(at);
        // There are dozens of types, most of which hear something once.
        if self.outstanding.is_empty() {
            self.outstanding = VecDeque::new();
        }
        settled
    }

    fn take(&mut self, batch: &ResponseBatch) {
        self.answered = true;
        let added = batch.added.iter().map(|resource| (&*resource.name, &*resource.version));
        // What is no name or version of any upstream is not worth resuming from.
        let added = added.filter(|(name, version)| name.len() <= LONGEST && version.len() <= LONGEST);
        self.outstanding.push_back(Outstanding {
            nonce: batch.nonce.clone(),
            full: batch.full,
            more: batch.more,
            added: added.map(|(name, version)| (name.into(), version.into())).collect(),
            removed: batch.removed.clone(),
        });
    }

    fn hold(&mut self, outstanding: Outstanding, refused: &[Refusal]) {
        let refused: BTreeSet<&str> = refused.iter().map(|refusal| &*refusal.name).collect();
        let is_refused = |name: &str| refused.contains(name);
        if outstanding.full {
            self.held.clear();
        }
        for name in outstanding.removed.iter().filter(|name| !is_refused(name)) {
            self.held.remove(name.as_str());
        }
        self.held.extend(outstanding.added.into_iter().filter(|(name, _)| !is_refused(name)));
    }
}

fn refusal_status(refused: &[Refusal]) -> Option<Status> {
    if refused.is_empty() {
        return None;
    }
    let mut reasons = String::new();
    for refusal in refused {
        let line = format!("{}: {}\n", refusal.name, refusal.reason);
        if reasons.len() + line.len() > MAX_REASONS {
            reasons.push_str("and more");
            break;
        }
        reasons.push_str(&line);
    }
    Some(status(reasons.trim_end().to_owned(), refused))
}

/// A refusal that names its items in `details`, as far as they have room, for the peers that look there; the others read
/// the text.
fn status(message: String, refused: &[Refusal]) -> Status {
    const INVALID_ARGUMENT: i32 = 3;
    let detail = |refusal: &Refusal| {
        let name = ResourceName { name: refusal.name.clone(), ..ResourceName::default() };
        let error = ResourceError { resource_name: Some(name), error_detail: None };
        Any { type_url: ResourceError::type_url(), value: error.encode_to_vec() }
    };
    let (mut details, mut bytes) = (Vec::new(), 0);
    for refusal in refused {
        let detail = detail(refusal);
        bytes += detail.encoded_len();
        if bytes > MAX_DETAILS {
            details = Vec::new();
            break;
        }
        details.push(detail);
    }
    Status { code: INVALID_ARGUMENT, message, details }
}
