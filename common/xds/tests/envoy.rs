//! A model of Envoy on an aggregated stream, in both dialects: whatever happens, no listener it uses
//! refers to a cluster it does not have, and clusters never wait for endpoints in vain.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::{collection::vec, prelude::*};
use prost::Message;
use tokio::time::Instant;

use crate::{
    proto::{
        envoy::{
            config::{core::v3::Node, endpoint::v3::ClusterLoadAssignment},
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            },
        },
        google::rpc::Status,
    },
    xds::{
        Delta, Dialect, Input, Sotw, Source, SourceOutput, SourceSettings, WantSnapshot, Wanted,
        envoy::{CLUSTER, ENDPOINTS, LISTENER},
    },
};

/// What the model needs of a dialect: the contents travel as `name=content`.
trait Speak: Dialect {
    fn request(type_url: &str, nonce: &str, names: &BTreeSet<String>, new: &Interest) -> Self::Request;
    fn refuse(request: &mut Self::Request, words: String);
    /// The nonce of a request that only changes the interest.
    fn nonce(newest: &str) -> &str;
    /// Type, nonce, resources and, in a difference, removed names.
    fn read(response: Self::Response) -> (String, String, BTreeMap<String, String>, Option<Vec<String>>);
}

/// A change of interest, for the dialect that tells changes.
#[derive(Default)]
struct Interest {
    added: Vec<String>,
    dropped: Vec<String>,
}

fn node() -> Option<Node> {
    Some(Node { id: "envoy".into(), ..Node::default() })
}

fn status(message: String) -> Option<Status> {
    Some(Status { message, ..Status::default() })
}

fn split(content: &[u8]) -> (String, String) {
    match ClusterLoadAssignment::decode(content) {
        Ok(vacant) => (vacant.cluster_name, String::new()),
        Err(_) => {
            let (name, content) = std::str::from_utf8(content).unwrap().split_once('=').unwrap();
            (name.to_owned(), content.to_owned())
        }
    }
}

impl Speak for Delta {
    fn request(type_url: &str, nonce: &str, _: &BTreeSet<String>, new: &Interest) -> Self::Request {
        DeltaDiscoveryRequest {
            node: node(),
            type_url: type_url.into(),
            response_nonce: nonce.into(),
            resource_names_subscribe: new.added.clone(),
            resource_names_unsubscribe: new.dropped.clone(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn refuse(request: &mut Self::Request, words: String) {
        request.error_detail = status(words);
    }

    fn nonce(_: &str) -> &str {
        ""
    }

    fn read(
        response: DeltaDiscoveryResponse,
    ) -> (String, String, BTreeMap<String, String>, Option<Vec<String>>) {
        let resources =
            response.resources.iter().map(|r| split(&r.resource.as_ref().unwrap().value)).collect();
        (response.type_url, response.nonce, resources, Some(response.removed_resources))
    }
}

impl Speak for Sotw {
    fn request(type_url: &str, nonce: &str, names: &BTreeSet<String>, _: &Interest) -> Self::Request {
        DiscoveryRequest {
            node: node(),
            type_url: type_url.into(),
            response_nonce: nonce.into(),
            resource_names: names.iter().cloned().collect(),
            ..DiscoveryRequest::default()
        }
    }

    fn refuse(request: &mut Self::Request, words: String) {
        request.error_detail = status(words);
    }

    fn nonce(newest: &str) -> &str {
        newest
    }

    fn read(response: DiscoveryResponse) -> (String, String, BTreeMap<String, String>, Option<Vec<String>>) {
        let resources = response.resources.iter().map(|any| split(&any.value)).collect();
        (response.type_url, response.nonce, resources, None)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// These changes of the world become known together.
    Change(Vec<Change>),
    Down,
    Up,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// The listener now sends to this cluster; Envoy refuses it if the flag says so.
    Listen(u8, u8, bool),
    Unlisten(u8),
    Replace(u8, u8),
    /// The cluster goes, unless a listener uses it.
    Drop(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        4 => (0..3_u8, 0..4_u8, prop::bool::weighted(0.2)).prop_map(|(l, c, bad)| Change::Listen(l, c, bad)),
        1 => (0..3_u8).prop_map(Change::Unlisten),
        2 => (0..4_u8, 0..3_u8).prop_map(|(c, content)| Change::Replace(c, content)),
        3 => (0..4_u8).prop_map(Change::Drop),
    ];
    prop_oneof![2 => vec(change, 1..4).prop_map(Step::Change), 4 => Just(Step::Down), 4 => Just(Step::Up)]
}

struct Run<D: Speak> {
    world: WantSnapshot,
    now: Instant,
    source: Source<D>,
    down: VecDeque<D::Response>,
    up: VecDeque<D::Request>,
    clusters: BTreeMap<String, String>,
    warming: BTreeSet<String>,
    listeners: BTreeMap<String, String>,
    /// Confirmation of the clusters, kept back while any is warming.
    cluster_answer: Option<D::Request>,
    endpoints: BTreeSet<String>,
    endpoints_nonce: String,
}

impl<D: Speak> Run<D> {
    fn new() -> Self {
        let none = BTreeSet::new();
        let first = |type_url| D::request(type_url, "", &none, &Interest::default());
        Self {
            world: WantSnapshot::new(1),
            now: Instant::now(),
            source: Source::new(SourceSettings::ads("cp")),
            down: VecDeque::new(),
            up: [CLUSTER, LISTENER].map(first).into(),
            clusters: BTreeMap::new(),
            warming: BTreeSet::new(),
            listeners: BTreeMap::new(),
            cluster_answer: None,
            endpoints: BTreeSet::new(),
            endpoints_nonce: String::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Change(changes) => {
                let before = self.world.clone();
                changes.iter().for_each(|change| self.change(*change));
                self.world.revision += 1;
                let changed = self.world.changed_since(&before);
                let outputs = self.source.step(self.now, Input::Changed(&changed), &self.world).unwrap();
                self.send(outputs);
            }
            Step::Down => self.deliver_down(),
            Step::Up => self.deliver_up(),
        }
    }

    fn change(&mut self, change: Change) {
        let put = |world: &mut WantSnapshot, type_url, name: &str, content: String| {
            world.put(Wanted::new(name, type_url, format!("{name}={content}")));
        };
        match change {
            Change::Listen(listener, cluster, bad) => {
                let name = format!("c{cluster}");
                if !self.world.list(CLUSTER).any(|wanted| *wanted.name == *name) {
                    self.change(Change::Replace(cluster, 0));
                }
                let content = format!("{name}{}", if bad { "!" } else { "" });
                put(&mut self.world, LISTENER, &format!("l{listener}"), content);
            }
            Change::Unlisten(listener) => self.world.remove(LISTENER, &format!("l{listener}")),
            Change::Replace(cluster, content) => {
                let name = format!("c{cluster}");
                put(&mut self.world, CLUSTER, &name, content.to_string());
                put(&mut self.world, ENDPOINTS, &name, String::new());
            }
            Change::Drop(cluster) => {
                let name = format!("c{cluster}");
                let uses = |wanted: &Wanted| split(&wanted.value).1.trim_end_matches('!') == name;
                if !self.world.list(LISTENER).any(uses) {
                    self.world.remove(CLUSTER, &name);
                    self.world.remove(ENDPOINTS, &name);
                }
            }
        }
    }

    fn send(&mut self, outputs: Vec<SourceOutput<D::Response>>) {
        self.down.extend(outputs.into_iter().filter_map(|output| match output {
            SourceOutput::Send(response) => Some(response),
            SourceOutput::Event(_) => None,
        }));
    }

    fn deliver_up(&mut self) {
        if let Some(request) = self.up.pop_front() {
            let outputs = self.source.step(self.now, Input::Request(&request), &self.world).unwrap();
            self.send(outputs);
        }
    }

    fn deliver_down(&mut self) {
        let Some(response) = self.down.pop_front() else { return };
        let (type_url, nonce, resources, removed) = D::read(response);
        match &*type_url {
            CLUSTER => self.take_clusters(&nonce, resources, removed),
            ENDPOINTS => self.take_endpoints(&nonce, &resources, &removed.unwrap_or_default()),
            _ => self.take_listeners(&nonce, resources, removed),
        }
        for (listener, cluster) in &self.listeners {
            assert!(self.clusters.contains_key(cluster), "{listener} lost {cluster}");
        }
    }

    fn take_clusters(
        &mut self,
        nonce: &str,
        resources: BTreeMap<String, String>,
        removed: Option<Vec<String>>,
    ) {
        let before = self.clusters.clone();
        merge(&mut self.clusters, resources, removed);
        let replaced = self.clusters.iter().filter(|(name, content)| before.get(*name) != Some(*content));
        self.warming.extend(replaced.map(|(name, _)| name.clone()));
        self.warming.retain(|name| self.clusters.contains_key(name));
        self.cluster_answer = Some(D::request(CLUSTER, nonce, &BTreeSet::new(), &Interest::default()));

        let wanted: BTreeSet<String> = self.clusters.keys().cloned().collect();
        let new = Interest {
            added: wanted.difference(&self.endpoints).cloned().collect(),
            dropped: self.endpoints.difference(&wanted).cloned().collect(),
        };
        if !new.added.is_empty() || !new.dropped.is_empty() {
            self.endpoints = wanted;
            self.up.push_back(D::request(ENDPOINTS, D::nonce(&self.endpoints_nonce), &self.endpoints, &new));
        }
        self.confirm_clusters();
    }

    fn take_endpoints(&mut self, nonce: &str, resources: &BTreeMap<String, String>, removed: &[String]) {
        self.warming.retain(|name| !resources.contains_key(name) && !removed.contains(name));
        self.endpoints_nonce = nonce.to_owned();
        self.up.push_back(D::request(ENDPOINTS, nonce, &self.endpoints, &Interest::default()));
        self.confirm_clusters();
    }

    fn confirm_clusters(&mut self) {
        if self.warming.is_empty() {
            self.up.extend(self.cluster_answer.take());
        }
    }

    fn take_listeners(
        &mut self,
        nonce: &str,
        mut resources: BTreeMap<String, String>,
        removed: Option<Vec<String>>,
    ) {
        let mut answer = D::request(LISTENER, nonce, &BTreeSet::new(), &Interest::default());
        let bad: BTreeSet<String> =
            resources.iter().filter(|(_, to)| to.ends_with('!')).map(|(name, _)| name.clone()).collect();
        if !bad.is_empty() {
            let reasons: Vec<String> = bad.iter().map(|name| format!("{name}: is bad")).collect();
            D::refuse(&mut answer, format!("Error adding/updating listener(s) {}", reasons.join("\n")));
        }
        for name in bad {
            // The older one, if there is one, stays in use.
            match self.listeners.get(&name) {
                Some(older) => resources.insert(name, older.clone()),
                None => resources.remove(&name),
            };
        }
        merge(&mut self.listeners, resources, removed);
        self.up.push_back(answer);
    }

    fn settle_down(&mut self) {
        for _ in 0..500 {
            self.deliver_up();
            self.deliver_down();
        }
        assert!(self.up.is_empty() && self.down.is_empty(), "it never comes to rest");
        assert!(self.warming.is_empty(), "{:?} never get warm", self.warming);
    }

    fn check(&self) {
        let world = |type_url| self.world.list(type_url).map(|wanted| split(&wanted.value));
        let has_bad = world(LISTENER).any(|(_, to)| to.ends_with('!'));
        for (name, content) in world(CLUSTER) {
            assert_eq!(self.clusters.get(&name), Some(&content));
        }
        for (name, to) in world(LISTENER).filter(|(_, to)| !to.ends_with('!')) {
            assert_eq!(self.listeners.get(&name), Some(&to));
        }
        for name in self.listeners.keys() {
            assert!(world(LISTENER).any(|(wanted, _)| wanted == *name), "{name} stays");
        }
        for name in self.clusters.keys().filter(|_| !has_bad) {
            assert!(world(CLUSTER).any(|(wanted, _)| wanted == *name), "{name} stays");
        }
    }
}

fn merge(
    into: &mut BTreeMap<String, String>,
    resources: BTreeMap<String, String>,
    removed: Option<Vec<String>>,
) {
    match removed {
        Some(removed) => into.retain(|name, _| !removed.contains(name)),
        None => into.clear(),
    }
    into.extend(resources);
}

fn run<D: Speak>(steps: &[Step]) {
    let mut run = Run::<D>::new();
    steps.iter().for_each(|step| run.step(step));
    run.settle_down();
    run.check();
}

proptest! {
    #[test]
    fn delta_makes_before_it_breaks(steps in vec(step(), 0..80)) {
        run::<Delta>(&steps);
    }

    #[test]
    fn sotw_makes_before_it_breaks(steps in vec(step(), 0..80)) {
        run::<Sotw>(&steps);
    }
}
