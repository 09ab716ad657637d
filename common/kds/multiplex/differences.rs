//! Whole states, as the half in client role hears them: as differences to what it holds. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use crate::{
    kds::{codec, names::delta_name},
    model::Kind,
    proto::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
        },
        google::rpc::Status,
    },
    xds::{Confirmation, Version, verdict},
};

/// Bytes a version may have; it is said back with every answer.
const LONGEST: usize = 1024;
/// Responses of one type that may wait for their answer. One is normal.
const MAX_WAITING: usize = 8;

/// Translates for one stream.
///
/// The first response of a type holds all there is, in either dialect. Of a later one, what is not held yet was added,
/// and what is held and not in it was removed: its sender has sent it on this very stream.
#[derive(Debug)]
pub struct Differences {
    types: BTreeMap<&'static str, KnownStates>,
}

/// Why a stream must end.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DifferenceError {
    /// Every answer repeats the version.
    #[error("a response has a version of {bytes} bytes; {LONGEST} is the limit")]
    LongVersion {
        /// How long it is.
        bytes: usize,
    },
    /// Responses come faster than they are answered.
    #[error("the upstream sent {MAX_WAITING} responses of type {type_url} without waiting for an answer")]
    Flooded {
        /// Of which type.
        type_url: &'static str,
    },
}

/// Names, and the version each is held at; none where nobody knows.
type KnownVersions = BTreeMap<Box<str>, Option<Version>>;

#[derive(Debug)]
struct KnownStates {
    kind: &'static Kind,
    /// Of the last state that was accepted, in the words of the upstream.
    version: String,
    held: KnownVersions,
    waiting: VecDeque<WaitingState>,
}

/// A state that is not answered for.
#[derive(Debug)]
struct WaitingState {
    nonce: String,
    version: String,
    names: BTreeMap<Box<str>, Version>,
    /// Something in it has no name, so what it lacks may be that.
    is_partial: bool,
}

impl Differences {
    /// A stream on which nothing was said yet.
    pub fn new(kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        let nothing = |kind: &'static Kind| KnownStates {
            kind,
            version: String::new(),
            held: KnownVersions::new(),
            waiting: VecDeque::new(),
        };
        Self { types: kinds.into_iter().map(|kind| (kind.name, nothing(kind))).collect() }
    }

    /// What a response says that the half does not hold yet.
    ///
    /// # Errors
    /// [`DifferenceError`]: the stream must end.
    pub fn read(&mut self, response: DiscoveryResponse) -> Result<DeltaDiscoveryResponse, DifferenceError> {
        let bytes = response.version_info.len();
        if bytes > LONGEST {
            return Err(DifferenceError::LongVersion { bytes });
        }
        let mut read = DeltaDiscoveryResponse {
            nonce: response.nonce,
            control_plane: response.control_plane,
            ..DeltaDiscoveryResponse::default()
        };
        // What was not asked for is refused by the half itself.
        if let Some(known) = self.types.get_mut(&*response.type_url) {
            if known.waiting.len() == MAX_WAITING {
                return Err(DifferenceError::Flooded { type_url: known.kind.name });
            }
            let mut state = WaitingState {
                nonce: read.nonce.clone(),
                version: response.version_info,
                names: BTreeMap::new(),
                is_partial: false,
            };
            for any in response.resources {
                let version = Version::of(&any.value);
                let key = codec::named(known.kind, &any);
                let name = key.map(|key| delta_name(&key.name, &key.mesh)).unwrap_or_default();
                state.is_partial |= name.is_empty();
                let is_held = known.held.get(&*name) == Some(&Some(version)) && !known.is_waited_for(&name);
                if !name.is_empty() {
                    state.names.insert(name.as_str().into(), version);
                }
                if !is_held {
                    let (version, resource) = (version.to_string(), Some(any));
                    read.resources.push(Resource { name, version, resource, ..Resource::default() });
                }
            }
            read.removed_resources = known.missing(&state);
            known.waiting.push_back(state);
        }
        read.type_url = response.type_url;
        Ok(read)
    }

    /// A request of the half in the form it has on the stream.
    pub fn write(&mut self, request: DeltaDiscoveryRequest) -> DiscoveryRequest {
        let mut version_info = String::new();
        if let Some(known) = self.types.get_mut(&*request.type_url) {
            known.settle(&request.response_nonce, request.error_detail.as_ref());
            version_info.clone_from(&known.version);
        }
        DiscoveryRequest {
            version_info,
            node: request.node,
            type_url: request.type_url,
            response_nonce: request.response_nonce,
            error_detail: request.error_detail,
            // None stand for all of a type.
            resource_names: Vec::new(),
            ..DiscoveryRequest::default()
        }
    }
}

impl KnownStates {
    /// Whether a state that is not answered for says something else of this name, or nothing.
    fn is_waited_for(&self, name: &str) -> bool {
        let held = self.held.get(name).copied().flatten();
        self.waiting.iter().any(|state| state.names.get(name).copied() != held)
    }

    /// What is held, or will be, and does not exist in `state`.
    fn missing(&self, state: &WaitingState) -> Vec<String> {
        if state.is_partial {
            return Vec::new();
        }
        let waiting = self.waiting.iter().flat_map(|state| state.names.keys());
        let names: BTreeSet<&str> = self.held.keys().chain(waiting).map(AsRef::as_ref).collect();
        names.into_iter().filter(|name| !state.names.contains_key(*name)).map(str::to_owned).collect()
    }

    /// Takes over what the half says about a response.
    fn settle(&mut self, nonce: &str, error: Option<&Status>) {
        let Some(at) = self.waiting.iter().position(|state| state.nonce == nonce) else { return };
        let Some(state) = self.waiting.remove(at) else { return };
        let refused: Option<BTreeSet<String>> = match verdict(error) {
            Confirmation::Accepted => Some(BTreeSet::new()),
            Confirmation::Refused { items } if !items.is_empty() => Some(items.into_iter().collect()),
            Confirmation::Refused { .. } | Confirmation::RefusedInWords(_) | Confirmation::Postponed => None,
        };
        let Some(refused) = refused else {
            // Nobody knows what of it was taken: all of it is told again, and taken back if it is gone by then.
            state.names.into_keys().for_each(|name| {
                self.held.entry(name).or_insert(None);
            });
            return;
        };
        if !state.is_partial {
            self.held.retain(|name, _| state.names.contains_key(name) || refused.contains(&**name));
        }
        for (name, version) in state.names {
            match refused.contains(&*name) {
                // What was held before still is.
                true => drop(self.held.entry(name).or_insert(None)),
                false => drop(self.held.insert(name, Some(version))),
            }
        }
        if refused.is_empty() {
            self.version = state.version;
        }
    }
}
