//! What one proxy has asked for, and the requests that follow from what it got.

use std::{
    collections::{BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;

use crate::{AdsProtocol, ResourceType, references::References, response::ResponseEnd, wire};

/// Fields of a `DiscoveryRequest`.
mod sotw {
    pub(super) const VERSION: u32 = 1;
    pub(super) const NODE: u32 = 2;
    pub(super) const NAME: u32 = 3;
    pub(super) const TYPE: u32 = 4;
    pub(super) const NONCE: u32 = 5;
}

/// Fields of a `DeltaDiscoveryRequest`.
mod delta {
    pub(super) const NODE: u32 = 1;
    pub(super) const TYPE: u32 = 2;
    pub(super) const SUBSCRIBE: u32 = 3;
    pub(super) const UNSUBSCRIBE: u32 = 4;
    pub(super) const NONCE: u32 = 6;
}

/// One type.
#[derive(Default)]
struct TypeSubscription {
    begun: bool,
    answered: bool,
    /// What is asked for, and what of that never came.
    names: HashSet<u64>,
    missing: HashSet<u64>,
    /// The names as every request of the state-of-the-world protocol repeats them.
    encoded: Bytes,
    version: Bytes,
    nonce: Bytes,
}

/// All types of one proxy.
pub(crate) struct Subscriptions {
    protocol: AdsProtocol,
    /// The encoded node, until the first request took it.
    node: Vec<u8>,
    asked: [TypeSubscription; 5],
    /// What the resources of the response that is coming refer to.
    coming: BTreeSet<(ResourceType, Arc<str>)>,
    /// References of clusters and of listeners to secrets; both ask for them.
    secrets: [BTreeSet<Arc<str>>; 2],
    gone: Vec<Bytes>,
}

impl Subscriptions {
    pub(crate) fn new(protocol: AdsProtocol, node: Vec<u8>) -> Self {
        Self {
            protocol,
            node,
            asked: Default::default(),
            coming: BTreeSet::new(),
            secrets: Default::default(),
            gone: Vec::new(),
        }
    }

    /// Whether everything that was asked for has come.
    pub(crate) fn complete(&self) -> bool {
        let listeners = &self.asked[ResourceType::Listener as usize];
        listeners.answered && self.asked.iter().all(|asked| asked.missing.is_empty() && asked.settled())
    }

    /// Asks for all clusters, as an Envoy does first.
    pub(crate) fn open(&mut self) -> Vec<Vec<u8>> {
        self.asked[ResourceType::Cluster as usize].begun = true;
        vec![self.request(ResourceType::Cluster, &[], &[], false)]
    }

    /// Notes a resource of the response that is coming.
    pub(crate) fn resource(&mut self, kind: ResourceType, name: &[u8], references: Option<&References>) {
        let missing = &mut self.asked[kind as usize].missing;
        if !missing.is_empty() && missing.remove(&digest(name)) && missing.is_empty() {
            // It was as large as everything that was asked for.
            *missing = HashSet::new();
        }
        let Some(references) = references else { return };
        let all = [
            (ResourceType::Endpoint, &references.endpoints),
            (ResourceType::Route, &references.routes),
            (ResourceType::Secret, &references.secrets),
        ];
        for (kind, names) in all {
            self.coming.extend(names.iter().map(|name| (kind, Arc::clone(name))));
        }
    }

    /// Notes that a resource of the response that is coming is gone.
    pub(crate) fn gone(&mut self, name: Bytes) {
        self.gone.push(name);
    }

    /// The acknowledgement of a response, and the requests for what it makes necessary.
    pub(crate) fn end(&mut self, kind: ResourceType, end: &ResponseEnd) -> Vec<Vec<u8>> {
        let asked = &mut self.asked[kind as usize];
        asked.answered = true;
        // A nonce is a few bytes of a buffer that may be large.
        asked.version = Bytes::copy_from_slice(&end.version);
        asked.nonce = Bytes::copy_from_slice(&end.nonce);
        let mut requests = vec![self.request(kind, &[], &[], true)];
        let coming = std::mem::take(&mut self.coming);
        let gone = std::mem::take(&mut self.gone);
        match kind {
            ResourceType::Cluster => {
                requests.extend(self.follow(ResourceType::Endpoint, &coming, &gone));
                requests.extend(self.follow_secrets(0, &coming));
            }
            ResourceType::Listener => {
                requests.extend(self.follow(ResourceType::Route, &coming, &gone));
                requests.extend(self.follow_secrets(1, &coming));
            }
            ResourceType::Endpoint | ResourceType::Route | ResourceType::Secret => {}
        }
        requests.extend(self.listeners());
        requests
    }

    /// Asks for all listeners once the clusters have what they need, as an Envoy does.
    fn listeners(&mut self) -> Option<Vec<u8>> {
        let warm = [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Secret];
        let warm = warm.iter().all(|kind| self.asked[*kind as usize].settled());
        let listeners = &mut self.asked[ResourceType::Listener as usize];
        if !warm || listeners.begun {
            return None;
        }
        listeners.begun = true;
        Some(self.request(ResourceType::Listener, &[], &[], false))
    }

    fn follow_secrets(
        &mut self,
        place: usize,
        coming: &BTreeSet<(ResourceType, Arc<str>)>,
    ) -> Option<Vec<u8>> {
        let secrets = coming.iter().filter(|(kind, _)| *kind == ResourceType::Secret);
        let secrets = secrets.map(|(_, name)| Arc::clone(name));
        match self.protocol {
            AdsProtocol::Sotw => self.secrets[place] = secrets.collect(),
            // What came is not all there is.
            AdsProtocol::Delta => self.secrets[place].extend(secrets),
        }
        let all = self.secrets.iter().flatten().map(|name| (ResourceType::Secret, Arc::clone(name)));
        self.follow(ResourceType::Secret, &all.collect(), &[])
    }

    /// Moves the interest in a type to what is referred to now.
    fn follow(
        &mut self,
        kind: ResourceType,
        coming: &BTreeSet<(ResourceType, Arc<str>)>,
        gone: &[Bytes],
    ) -> Option<Vec<u8>> {
        let names: Vec<&str> = coming.iter().filter(|(k, _)| *k == kind).map(|(_, name)| &**name).collect();
        let asked = &mut self.asked[kind as usize];
        match self.protocol {
            AdsProtocol::Sotw => {
                let digests: HashSet<u64> = names.iter().map(|name| digest(name.as_bytes())).collect();
                if digests == asked.names {
                    return None;
                }
                asked.missing.retain(|name| digests.contains(name));
                asked.missing.extend(digests.difference(&asked.names));
                asked.names = digests;
                let mut encoded = Vec::new();
                names.iter().for_each(|name| wire::put(sotw::NAME, name.as_bytes(), &mut encoded));
                asked.encoded = encoded.into();
                asked.begun = true;
                Some(self.request(kind, &[], &[], true))
            }
            AdsProtocol::Delta => {
                let new: Vec<&str> =
                    names.into_iter().filter(|name| asked.names.insert(digest(name.as_bytes()))).collect();
                asked.missing.extend(new.iter().map(|name| digest(name.as_bytes())));
                let gone: Vec<&[u8]> = gone
                    .iter()
                    .filter(|name| asked.names.remove(&digest(name)))
                    .map(|name| &name[..])
                    .collect();
                for name in &gone {
                    asked.missing.remove(&digest(name));
                }
                if new.is_empty() && gone.is_empty() {
                    return None;
                }
                asked.begun = true;
                Some(self.request(kind, &new, &gone, false))
            }
        }
    }

    fn request(&mut self, kind: ResourceType, add: &[&str], drop: &[&[u8]], settled: bool) -> Vec<u8> {
        let asked = &self.asked[kind as usize];
        let mut out = vec![0; 5];
        match self.protocol {
            AdsProtocol::Sotw => {
                wire::put(sotw::VERSION, &asked.version, &mut out);
                wire::put(sotw::NODE, &self.node, &mut out);
                out.extend_from_slice(&asked.encoded);
                wire::put(sotw::TYPE, kind.url().as_bytes(), &mut out);
                wire::put(sotw::NONCE, &asked.nonce, &mut out);
            }
            AdsProtocol::Delta => {
                wire::put(delta::NODE, &self.node, &mut out);
                wire::put(delta::TYPE, kind.url().as_bytes(), &mut out);
                add.iter().for_each(|name| wire::put(delta::SUBSCRIBE, name.as_bytes(), &mut out));
                drop.iter().for_each(|name| wire::put(delta::UNSUBSCRIBE, name, &mut out));
                if settled {
                    wire::put(delta::NONCE, &asked.nonce, &mut out);
                }
            }
        }
        self.node = Vec::new();
        let length = u32::try_from(out.len() - 5).unwrap_or(u32::MAX);
        out[1..5].copy_from_slice(&length.to_be_bytes());
        out
    }
}

impl TypeSubscription {
    /// Whether nothing that was asked for is still to come.
    fn settled(&self) -> bool {
        self.missing.is_empty() && (self.answered || !self.begun)
    }
}

fn digest(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use envoy_types::pb::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    };
    use prost::Message;

    use super::*;

    fn node() -> Vec<u8> {
        Node { id: "default.web".to_owned(), ..Node::default() }.encode_to_vec()
    }

    fn end(version: &'static str, nonce: &'static str) -> ResponseEnd {
        ResponseEnd { version: version.into(), nonce: nonce.into(), ..ResponseEnd::default() }
    }

    fn cluster(name: &str) -> References {
        References { endpoints: vec![name.into()], secrets: vec!["identity".into()], ..References::default() }
    }

    fn sotw(request: &[u8]) -> DiscoveryRequest {
        DiscoveryRequest::decode(&request[5..]).unwrap()
    }

    fn delta(request: &[u8]) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest::decode(&request[5..]).unwrap()
    }

    #[test]
    fn state_of_the_world_is_asked_for_in_the_order_of_an_envoy() {
        let mut proxy = Subscriptions::new(AdsProtocol::Sotw, node());
        let first = proxy.open();
        assert_eq!(sotw(&first[0]).node.unwrap().id, "default.web");
        proxy.resource(ResourceType::Cluster, b"a", Some(&cluster("a")));
        proxy.resource(ResourceType::Cluster, b"b", Some(&cluster("b")));
        let requests = proxy.end(ResourceType::Cluster, &end("v1", "n1"));
        let [ack, endpoints, secrets] = &requests[..] else { panic!("{}", requests.len()) };
        let ack = sotw(ack);
        assert_eq!((&*ack.version_info, &*ack.response_nonce), ("v1", "n1"));
        assert!(ack.node.is_none() && ack.resource_names.is_empty());
        assert_eq!(sotw(endpoints).resource_names, ["a", "b"]);
        assert_eq!(sotw(secrets).resource_names, ["identity"]);
        proxy.resource(ResourceType::Secret, b"identity", None);
        assert_eq!(proxy.end(ResourceType::Secret, &end("v1", "n2")).len(), 1);
        proxy.resource(ResourceType::Endpoint, b"a", None);
        let requests = proxy.end(ResourceType::Endpoint, &end("v1", "n3"));
        assert_eq!(requests.len(), 1, "an assignment is missing");
        assert_eq!(sotw(&requests[0]).resource_names, ["a", "b"]);
        proxy.resource(ResourceType::Endpoint, b"b", None);
        let requests = proxy.end(ResourceType::Endpoint, &end("v2", "n4"));
        assert_eq!(sotw(&requests[1]).type_url, ResourceType::Listener.url());
        assert!(!proxy.complete());
        assert_eq!(proxy.end(ResourceType::Listener, &end("v1", "n5")).len(), 1);
        assert!(proxy.complete());
        // One cluster is gone, and with it the interest in its endpoints.
        proxy.resource(ResourceType::Cluster, b"b", Some(&cluster("b")));
        let requests = proxy.end(ResourceType::Cluster, &end("v2", "n6"));
        let endpoints = sotw(&requests[1]);
        assert_eq!(endpoints.resource_names, ["b"]);
        assert_eq!((&*endpoints.version_info, &*endpoints.response_nonce), ("v2", "n4"));
        assert!(proxy.complete());
    }

    #[test]
    fn the_incremental_protocol_names_what_is_new_and_what_is_gone() {
        let mut proxy = Subscriptions::new(AdsProtocol::Delta, node());
        assert!(delta(&proxy.open()[0]).node.is_some());
        proxy.resource(ResourceType::Cluster, b"a", Some(&cluster("a")));
        let requests = proxy.end(ResourceType::Cluster, &end("", "n1"));
        assert_eq!(delta(&requests[0]).response_nonce, "n1");
        let endpoints = delta(&requests[1]);
        assert_eq!(endpoints.resource_names_subscribe, ["a"]);
        assert_eq!(endpoints.response_nonce, "", "a subscription is no acknowledgement");
        proxy.resource(ResourceType::Cluster, b"b", Some(&cluster("b")));
        proxy.gone(Bytes::from_static(b"a"));
        let requests = proxy.end(ResourceType::Cluster, &end("", "n2"));
        let endpoints = delta(&requests[1]);
        assert_eq!(endpoints.resource_names_subscribe, ["b"]);
        assert_eq!(endpoints.resource_names_unsubscribe, ["a"]);
        assert_eq!(requests.len(), 2, "the secret is known");
    }
}
