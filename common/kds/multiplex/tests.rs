//! Whole states on the wire, differences at the half that takes them: it ends with what is wanted.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use chrono::DateTime;
use proptest::{collection::vec, prelude::*};
use prost::{Message as _, Name as _};
use tokio::time::Instant;

use super::*;
use crate::{
    kds::codec::{self, ENVELOPE_URL},
    model::{Resource, ResourceKey},
    policy::mesh_timeout,
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{ResourceError, ResourceName},
        },
        google::{protobuf::Any, rpc::Status as Verdict},
        kuma::mesh::v1alpha1::KumaResource,
    },
    xds::{
        Input, Refusal, ResponseBatch, Sink, SinkEvent, SinkType, SotwSource, Source, SourceSettings,
        Versions, WantSnapshot, Wanted,
    },
};

const TYPE: &str = "MeshTimeout";
const BAD: u8 = 4;

/// A policy with this content.
fn wanted(name: &str, content: u8) -> Wanted {
    let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
    let resource = Resource::new(key, DateTime::UNIX_EPOCH).with_label("content", &content.to_string());
    codec::encode(&resource)
}

fn any(wanted: &Wanted) -> Any {
    Any { type_url: ENVELOPE_URL.to_owned(), value: wanted.value.to_vec() }
}

fn differences() -> Differences {
    Differences::new([&mesh_timeout::KIND])
}

/// A response as a control plane of Kuma sends it.
fn state(nonce: &str, resources: &[Wanted]) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: format!("v{nonce}"),
        type_url: TYPE.to_owned(),
        nonce: nonce.to_owned(),
        resources: resources.iter().map(any).collect(),
        ..DiscoveryResponse::default()
    }
}

fn answer(nonce: &str, error: Option<Verdict>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: TYPE.to_owned(),
        response_nonce: nonce.to_owned(),
        error_detail: error,
        ..DeltaDiscoveryRequest::default()
    }
}

fn refusal(items: &[&str]) -> Verdict {
    let detail = |item: &&str| {
        let resource_name = Some(ResourceName { name: (*item).to_owned(), ..ResourceName::default() });
        let error = ResourceError { resource_name, error_detail: None };
        Any { type_url: ResourceError::type_url(), value: error.encode_to_vec() }
    };
    Verdict { code: 3, message: "no".to_owned(), details: items.iter().map(detail).collect() }
}

/// What a response says: names that are new or changed, and names that are gone.
fn told(response: &DeltaDiscoveryResponse) -> (Vec<&str>, Vec<&str>) {
    let added = response.resources.iter().map(|resource| resource.name.as_str());
    (added.collect(), response.removed_resources.iter().map(String::as_str).collect())
}

/// A state, what is refused of it, and what the half is told of it.
struct StateCase {
    state: Vec<Wanted>,
    refused: &'static [&'static str],
    added: &'static [&'static str],
    removed: &'static [&'static str],
}

#[test]
fn a_state_is_told_as_what_differs_from_the_one_that_was_taken() {
    const NONE: &[&str] = &[];
    let case = |state: &[(&str, u8)], refused, added, removed| {
        let state = state.iter().map(|(name, content)| wanted(name, *content)).collect();
        StateCase { state, refused, added, removed }
    };
    let cases = [
        case(&[("a", 1), ("b", 1)], NONE, &["a.default", "b.default"], NONE),
        case(&[("a", 1), ("b", 1)], NONE, NONE, NONE),
        case(&[("a", 2), ("b", 1)], NONE, &["a.default"], NONE),
        // What was refused is told again with the next state, and held as it was.
        case(&[("a", 3), ("b", 2)], &["a.default"], &["a.default", "b.default"], NONE),
        case(&[("a", 3), ("b", 2)], NONE, &["a.default"], NONE),
        case(&[("a", 4), ("b", 2)], &["a.default"], &["a.default"], NONE),
        case(&[("a", 3), ("b", 2)], NONE, NONE, NONE),
        case(&[("b", 2)], NONE, NONE, &["a.default"]),
        case(&[], NONE, NONE, &["b.default"]),
    ];
    let mut differences = differences();
    let mut version = String::new();
    for (nonce, case) in (1..).zip(cases) {
        let nonce = nonce.to_string();
        let read = differences.read(state(&nonce, &case.state)).unwrap();
        assert_eq!(told(&read), (case.added.to_vec(), case.removed.to_vec()), "state {nonce}");
        let error = (!case.refused.is_empty()).then(|| refusal(case.refused));
        if error.is_none() {
            version = format!("v{nonce}");
        }
        let written = differences.write(answer(&nonce, error));
        assert_eq!((&written.version_info, &written.response_nonce), (&version, &nonce));
        assert!(written.resource_names.is_empty(), "none stand for all of a type");
    }
}

#[test]
fn of_a_state_that_was_refused_as_a_whole_nobody_knows_what_is_held() {
    let mut differences = differences();
    differences.read(state("1", &[wanted("a", 1)])).unwrap();
    differences.write(answer("1", None));
    differences.read(state("2", &[wanted("a", 2), wanted("b", 1)])).unwrap();
    let refused = differences.write(answer("2", Some(refusal(&[]))));
    assert_eq!((refused.version_info.as_str(), refused.response_nonce.as_str()), ("v1", "2"));
    let again = differences.read(state("3", &[wanted("a", 1)])).unwrap();
    assert_eq!(told(&again), (vec![], vec!["b.default"]), "it may have been taken in part");
}

#[test]
fn states_that_are_sent_without_waiting_are_told_in_order() {
    let mut differences = differences();
    for (nonce, resources, expected) in [
        ("1", vec![wanted("a", 1)], (vec!["a.default"], vec![])),
        ("2", vec![], (vec![], vec!["a.default"])),
        ("3", vec![wanted("a", 1)], (vec!["a.default"], vec![])),
    ] {
        let read = differences.read(state(nonce, &resources)).unwrap();
        assert_eq!(told(&read), expected, "state {nonce}");
    }
    for nonce in ["1", "2", "3"] {
        differences.write(answer(nonce, None));
    }
    let read = differences.read(state("4", &[wanted("a", 1)])).unwrap();
    assert_eq!(told(&read), (vec![], vec![]));
}

#[test]
fn nothing_is_gone_from_a_state_in_which_something_has_no_name() {
    let mut differences = differences();
    differences.read(state("1", &[wanted("a", 1)])).unwrap();
    differences.write(answer("1", None));
    let mut broken = state("2", &[]);
    broken.resources.push(Any { type_url: ENVELOPE_URL.to_owned(), value: vec![0xff] });
    let read = differences.read(broken).unwrap();
    assert_eq!(told(&read), (vec![""], vec![]), "it may be the one that seems to be gone");
    differences.write(answer("2", Some(refusal(&[""]))));
    let read = differences.read(state("3", &[])).unwrap();
    assert_eq!(told(&read), (vec![], vec!["a.default"]));
}

#[test]
fn a_peer_cannot_make_this_side_remember_without_end() {
    let mut differences = differences();
    let long = DiscoveryResponse { version_info: "v".repeat(2000), ..state("1", &[]) };
    assert_eq!(differences.read(long), Err(DifferenceError::LongVersion { bytes: 2000 }));
    let mut read = (1..).map(|nonce: u32| differences.read(state(&nonce.to_string(), &[])));
    assert_eq!(read.find_map(Result::err), Some(DifferenceError::Flooded { type_url: TYPE }));
    // What was not asked for is not remembered at all.
    for _ in 0..100 {
        let other = DiscoveryResponse { type_url: "MadeUp".to_owned(), ..state("1", &[wanted("a", 1)]) };
        assert_eq!(told(&differences.read(other).unwrap()), (vec![], vec![]));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Remove(u8),
    Down,
    Up,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5_u8, 0..5_u8).prop_map(|(name, content)| Step::Put(name, content)),
        2 => (0..5_u8).prop_map(Step::Remove),
        6 => Just(Step::Down),
        6 => Just(Step::Up),
        1 => Just(Step::Reconnect),
    ]
}

/// A source that sends states and a sink that takes differences.
struct Link {
    world: WantSnapshot,
    source: SotwSource,
    differences: Differences,
    sink: Sink,
    down: VecDeque<DiscoveryResponse>,
    up: VecDeque<DiscoveryRequest>,
    store: Versions,
}

impl Link {
    fn new() -> Self {
        let mut link = Self {
            world: WantSnapshot::new(1),
            source: Source::new(SourceSettings::kds("global", [TYPE])),
            differences: differences(),
            sink: Sink::new(Node::default(), []),
            down: VecDeque::new(),
            up: VecDeque::new(),
            store: BTreeMap::new(),
        };
        link.connect();
        link
    }

    fn connect(&mut self) {
        let node = Node { id: "zone".into(), ..Node::default() };
        self.sink = Sink::new(node, [SinkType { type_url: TYPE, resume: None }]);
        self.source = Source::new(SourceSettings::kds("global", [TYPE]));
        self.differences = differences();
        self.down.clear();
        self.up = self.sink.open().map(|request| self.differences.write(request)).collect();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(name, content) => {
                let wanted = wanted(&name.to_string(), content);
                self.change(|world| world.put_as(TYPE, wanted));
            }
            Step::Remove(name) => self.change(|world| world.remove(TYPE, &format!("{name}.default"))),
            Step::Down => self.deliver_down(),
            Step::Up => self.deliver_up(),
            Step::Reconnect => self.connect(),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut WantSnapshot)) {
        let before = self.world.clone();
        change(&mut self.world);
        self.world.revision += 1;
        let changed = self.world.changed_since(&before);
        self.source.handle(Input::Changed(&changed), &self.world).unwrap();
        self.send();
    }

    fn deliver_up(&mut self) {
        if let Some(request) = self.up.pop_front() {
            self.source.handle(Input::Request(&request), &self.world).unwrap();
            self.send();
        }
    }

    fn send(&mut self) {
        while let Some(response) = self.source.next(Instant::now(), &self.world) {
            self.down.push_back(response);
        }
    }

    fn deliver_down(&mut self) {
        let Some(response) = self.down.pop_front() else { return };
        let response = self.differences.read(response).unwrap();
        let SinkEvent::Batch(batch) = self.sink.receive(response).unwrap() else { panic!("nothing else") };
        let refused = self.apply(&batch);
        let answer = self.sink.verdict(batch.type_url, &batch.nonce, &refused).unwrap();
        self.up.push_back(self.differences.write(answer));
    }

    fn apply(&mut self, batch: &ResponseBatch) -> Vec<Refusal> {
        if batch.full {
            self.store.retain(|name, _| batch.added.iter().any(|resource| *resource.name == **name));
        }
        for name in &batch.removed {
            self.store.remove(name.as_str());
        }
        let mut refused = Vec::new();
        for resource in &batch.added {
            let any = resource.resource.as_ref().unwrap();
            let item = KumaResource::decode(any.value.as_slice()).unwrap();
            match item.meta.unwrap().labels["content"] == BAD.to_string() {
                true => refused.push(Refusal { name: resource.name.clone(), reason: "bad".into() }),
                false => drop(self.store.insert((*resource.name).into(), (*resource.version).into())),
            }
        }
        refused
    }
}

proptest! {
    #[test]
    fn who_hears_differences_ends_with_the_state(steps in vec(step(), 0..80)) {
        let mut link = Link::new();
        steps.iter().for_each(|step| link.step(step));
        for _ in 0..100 {
            link.deliver_up();
            link.deliver_down();
        }
        prop_assert!(link.up.is_empty() && link.down.is_empty() && link.source.is_settled());
        let is_bad = |wanted: &Wanted| (0..5).any(|name: u8| *wanted == super::tests::wanted(&name.to_string(), BAD));
        for wanted in link.world.list(TYPE).filter(|wanted| !is_bad(wanted)) {
            prop_assert_eq!(link.store.get(&*wanted.name).map(|v| v.to_string()), Some(wanted.version.to_string()));
        }
        for name in link.store.keys() {
            prop_assert!(link.world.list(TYPE).any(|wanted| *wanted.name == **name), "{name} stays");
        }
    }
}
