//! R57, R58: what is kept for a time, and word that it is still good.

use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use super::{CDS, EDS, node, put};
use crate::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, Resource},
    xds::{Delta, Dialect, Input, Sotw, Source, SourceOutput, SourceSettings, WantSnapshot, envoy},
};

const TTL: &str = "xds.config.supports-resource-ttl";
const ENVELOPE: &str = "xds.config.resource-in-sotw";
const ENVELOPE_IN_PROSE: &str = "xds.config.supports-resource-in-sotw";
const LIVES: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_secs(10);

/// What the tests need of a variant.
trait Timed: Dialect {
    fn ask(type_url: &str, names: &[&str], features: &[&str], nonce: &str) -> Self::Request;
    /// Type, nonce, version of the response, and each resource in its envelope, if it has one.
    fn told(response: Self::Response) -> (String, String, String, Vec<Option<Resource>>);
}

fn asking(features: &[&str], nonce: &str) -> Option<crate::proto::envoy::config::core::v3::Node> {
    let client_features = features.iter().map(|feature| (*feature).to_owned()).collect();
    nonce.is_empty().then(|| crate::proto::envoy::config::core::v3::Node { client_features, ..node("envoy") })
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Timed for Sotw {
    fn ask(type_url: &str, names: &[&str], features: &[&str], nonce: &str) -> DiscoveryRequest {
        DiscoveryRequest {
            node: asking(features, nonce),
            type_url: type_url.to_owned(),
            resource_names: owned(names),
            response_nonce: nonce.to_owned(),
            ..DiscoveryRequest::default()
        }
    }

    fn told(response: Self::Response) -> (String, String, String, Vec<Option<Resource>>) {
        let resources = response.resources.iter().map(|any| {
            let is_envelope = any.type_url.ends_with("/envoy.service.discovery.v3.Resource");
            is_envelope.then(|| Resource::decode(&any.value[..]).unwrap())
        });
        (response.type_url, response.nonce, response.version_info, resources.collect())
    }
}

impl Timed for Delta {
    fn ask(type_url: &str, names: &[&str], features: &[&str], nonce: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: asking(features, nonce),
            type_url: type_url.to_owned(),
            resource_names_subscribe: if nonce.is_empty() { owned(names) } else { Vec::new() },
            response_nonce: nonce.to_owned(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn told(response: Self::Response) -> (String, String, String, Vec<Option<Resource>>) {
        let resources = response.resources.into_iter().map(Some).collect();
        (response.type_url, response.nonce, response.system_version_info, resources)
    }
}

/// A stream of a peer with these features.
struct Peer<D: Timed> {
    source: Source<D>,
    world: WantSnapshot,
    now: Instant,
    features: Vec<&'static str>,
    names: Vec<&'static str>,
}

impl<D: Timed> Peer<D> {
    fn new(settings: SourceSettings, features: &[&'static str], names: &[&'static str]) -> Self {
        let mut world = WantSnapshot::new(1);
        for name in names {
            put(&mut world, CDS, name, "1");
            put(&mut world, EDS, name, "1");
        }
        let (features, names) = (features.to_vec(), names.to_vec());
        Self { source: Source::new(settings), world, now: Instant::now(), features, names }
    }

    fn sent(&mut self, input: Input<'_, D::Request>) -> Vec<(String, String, String, Vec<Option<Resource>>)> {
        let outputs = self.source.step(self.now, input, &self.world).unwrap();
        let responses = outputs.into_iter().filter_map(|output| match output {
            SourceOutput::Send(response) => Some(D::told(response)),
            SourceOutput::Event(_) => None,
        });
        responses.collect()
    }

    /// Asks for a type and accepts what comes; says what came.
    fn begin(&mut self, type_url: &str) -> (String, Vec<Option<Resource>>) {
        let request = D::ask(type_url, &self.names, &self.features, "");
        let mut sent = self.sent(Input::Request(&request));
        assert_eq!(sent.len(), 1);
        let (told, nonce, version, resources) = sent.remove(0);
        assert_eq!(told, type_url);
        assert!(self.accept(type_url, &nonce).is_empty());
        (version, resources)
    }

    fn accept(
        &mut self,
        type_url: &str,
        nonce: &str,
    ) -> Vec<(String, String, String, Vec<Option<Resource>>)> {
        let request = D::ask(type_url, &self.names, &self.features, nonce);
        self.sent(Input::Request(&request))
    }

    /// What is said after this time.
    fn after(&mut self, time: Duration) -> Vec<(String, String, String, Vec<Option<Resource>>)> {
        self.now += time;
        self.sent(Input::Wake)
    }
}

fn timed() -> SourceSettings {
    SourceSettings { ttl: Some(LIVES), ..SourceSettings::ads("cp") }
}

fn silent<D: Timed>(settings: SourceSettings, features: &[&'static str], is_enveloped: bool) {
    let mut peer = Peer::<D>::new(settings, features, &["a"]);
    for type_url in [CDS, EDS] {
        let (_, resources) = peer.begin(type_url);
        assert_eq!(resources.len(), 1);
        for resource in resources {
            assert_eq!(resource.is_some(), is_enveloped, "{features:?}");
            assert!(resource.is_none_or(|resource| resource.ttl.is_none()));
        }
    }
    assert_eq!(peer.source.deadline(peer.now), None);
    assert!(peer.after(LIVES * 2).is_empty(), "{features:?}");
}

#[test]
fn r57_nothing_perishes_where_nobody_says_so_or_who_would_not_understand() {
    let never = || SourceSettings::ads("cp");
    silent::<Sotw>(never(), &[TTL, ENVELOPE], false);
    silent::<Delta>(never(), &[TTL], true);
    silent::<Sotw>(timed(), &[], false);
    silent::<Delta>(timed(), &[], true);
    silent::<Delta>(timed(), &[ENVELOPE], true);
}

#[test]
fn r58_sotw_nothing_is_enveloped_for_who_does_not_say_both() {
    silent::<Sotw>(timed(), &[TTL], false);
    silent::<Sotw>(timed(), &[ENVELOPE], false);
    silent::<Sotw>(timed(), &[ENVELOPE_IN_PROSE], false);
}

fn heartbeats<D: Timed>(features: &[&'static str]) -> Peer<D> {
    let mut peer = Peer::<D>::new(timed(), features, &["a", "b"]);
    let (_, clusters) = peer.begin(CDS);
    assert!(clusters.iter().flatten().all(|resource| resource.ttl.is_none()), "clusters do not perish");
    let (version, resources) = peer.begin(EDS);
    assert_eq!(resources.len(), 2);
    let mut versions = Vec::new();
    for resource in resources.into_iter().flatten() {
        assert_eq!(resource.ttl.map(|ttl| (ttl.seconds, ttl.nanos)), Some((30, 0)));
        assert_eq!(resource.resource.map(|any| any.type_url).as_deref(), Some(EDS));
        versions.push(resource.version);
    }
    assert_eq!(versions.len(), 2, "each is in an envelope");
    for _ in 0..3 {
        assert_eq!(peer.source.deadline(peer.now), Some(peer.now + ROUND));
        assert!(peer.after(ROUND - Duration::from_millis(1)).is_empty());
        let mut told = peer.after(Duration::from_millis(1));
        assert_eq!(told.len(), 1);
        let (type_url, nonce, told_version, resources) = told.remove(0);
        assert_eq!((type_url.as_str(), &told_version), (EDS, &version));
        for (i, resource) in resources.iter().flatten().enumerate() {
            assert_eq!(resource.name, ["a", "b"][i]);
            assert!(resource.resource.is_none(), "only that it is still good");
            assert_eq!(resource.ttl.map(|ttl| ttl.seconds), Some(30));
            let known = if version.is_empty() { &versions[i] } else { &version };
            assert_eq!(&resource.version, known, "what the client has");
        }
        assert_eq!(resources.iter().flatten().count(), 2);
        assert!(peer.accept(EDS, &nonce).is_empty());
    }
    peer
}

#[test]
fn r57_delta_what_perishes_is_said_to_be_good_before_it_does() {
    heartbeats::<Delta>(&[TTL]);
}

#[test]
fn r57_r58_sotw_what_perishes_is_said_to_be_good_before_it_does() {
    heartbeats::<Sotw>(&[TTL, ENVELOPE]);
    heartbeats::<Sotw>(&[TTL, ENVELOPE_IN_PROSE]);
}

fn changes<D: Timed>(features: &[&'static str]) {
    let mut peer = heartbeats::<D>(features);
    // While an answer is owed nothing more is said of the type; what is not held any more is not said to be good.
    let mut told = peer.after(ROUND);
    let nonce = told.remove(0).1;
    assert!(peer.after(ROUND * 2).is_empty());
    let before = peer.world.clone();
    put(&mut peer.world, EDS, "a", "2");
    peer.world.remove(EDS, "b");
    peer.world.revision += 1;
    let changed = peer.world.changed_since(&before);
    assert!(peer.sent(Input::Changed(&changed)).is_empty());
    let told = peer.accept(EDS, &nonce);
    assert_eq!(told.len(), 1, "what changed goes first");
    assert!(told[0].3.iter().flatten().any(|resource| resource.resource.is_some()));
    let told = peer.accept(EDS, &told[0].1.clone());
    let names: Vec<&str> = told.iter().flat_map(|of| of.3.iter().flatten()).map(|of| &*of.name).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn r57_sotw_word_goes_on_after_a_refusal_about_what_was_accepted() {
    let mut peer = Peer::<Sotw>::new(timed(), &[TTL, ENVELOPE], &["a", "b"]);
    let (version, _) = peer.begin(EDS);
    let before = peer.world.clone();
    put(&mut peer.world, EDS, "a", "2");
    peer.world.revision += 1;
    let changed = peer.world.changed_since(&before);
    let sent = peer.sent(Input::Changed(&changed));
    assert_ne!(sent[0].2, version, "it is another version of the type");
    let refusal = crate::proto::google::rpc::Status { message: "no".to_owned(), ..Default::default() };
    let request = Sotw::ask(EDS, &peer.names, &peer.features, &sent[0].1);
    let request = DiscoveryRequest { error_detail: Some(refusal), ..request };
    assert!(peer.sent(Input::Request(&request)).is_empty());
    let told = peer.after(ROUND);
    assert_eq!(told.len(), 1, "word goes on");
    let resources = told[0].3.iter().flatten();
    assert!(resources.clone().all(|resource| resource.resource.is_none() && resource.version == version));
    let names: Vec<&str> = resources.map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "it kept the older `a`");
    assert_eq!(told[0].2, version);
}

#[test]
fn r57_word_is_no_delivery() {
    let mut peer = heartbeats::<Sotw>(&[TTL, ENVELOPE]);
    peer.now += ROUND;
    let parts = peer.source.next_parts(peer.now, &peer.world).unwrap();
    assert!(parts.is_heartbeat());
    let accept = Sotw::ask(EDS, &peer.names, &peer.features, &parts.nonce.to_string());
    assert_eq!(peer.source.handle(Input::Request(&accept), &peer.world), Ok(None), "nothing was delivered");
    assert!(peer.source.is_settled());
    put(&mut peer.world, EDS, "a", "9");
    peer.world.revision += 1;
    peer.source.handle(Input::Resync, &peer.world).unwrap();
    assert!(!peer.source.next_parts(peer.now, &peer.world).unwrap().is_heartbeat());
}

#[test]
fn r57_what_changed_goes_before_word_of_what_did_not() {
    changes::<Sotw>(&[TTL, ENVELOPE]);
    changes::<Delta>(&[TTL]);
}

#[test]
fn r57_r45_word_of_many_is_split() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let settings = SourceSettings { limit: Some(300), ..timed() };
    let mut peer = Peer::<Delta>::new(settings, &[TTL], &NAMES);
    let mut sent = peer.sent(Input::Request(&Delta::ask(EDS, &NAMES, &[TTL], "")));
    while let Some((_, nonce, ..)) = sent.pop() {
        sent = peer.accept(EDS, &nonce);
    }
    for _ in 0..2 {
        let (mut told, mut names) = (peer.after(ROUND), Vec::new());
        while let Some((_, nonce, _, resources)) = told.pop() {
            assert!(resources.len() < NAMES.len());
            names.extend(resources.into_iter().flatten().map(|resource| resource.name));
            told = peer.accept(EDS, &nonce);
        }
        assert_eq!(names, NAMES, "each once in a round");
    }
    assert!(SourceSettings::alone("cp", envoy::RUNTIME).types[0].perishable);
}
