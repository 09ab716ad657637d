//! A source and a sink over a link that breaks: the sink ends with what is wanted.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use crate::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    },
    xds::{
        DeltaSource, Input, Refusal, ResponseBatch, Sink, SinkEvent, SinkType, Source, SourceOutput,
        SourceSettings, Version, Versions, WantSnapshot, Wanted,
    },
};

const TYPES: [&str; 2] = ["Mesh", "Zone"];
const BAD: &[u8] = b"4";

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8, u8),
    Remove(usize, u8),
    Down,
    Up,
    Reconnect { resume: Option<Resume>, limited: bool },
}

/// How a sink says what it holds.
#[derive(Clone, Copy, Debug)]
enum Resume {
    Listed,
    SummedUp,
}

fn resume() -> impl Strategy<Value = Resume> {
    prop_oneof![Just(Resume::Listed), Just(Resume::SummedUp)]
}

fn step() -> impl Strategy<Value = Step> {
    let resource = (0..TYPES.len(), 0..5_u8);
    prop_oneof![
        4 => (resource.clone(), 0..5_u8).prop_map(|((t, name), content)| Step::Put(t, name, content)),
        2 => resource.prop_map(|(t, name)| Step::Remove(t, name)),
        6 => Just(Step::Down),
        6 => Just(Step::Up),
        1 => (prop::option::of(resume()), any::<bool>()).prop_map(|(resume, limited)| Step::Reconnect { resume, limited }),
    ]
}

struct Link {
    world: WantSnapshot,
    now: Instant,
    source: DeltaSource,
    sink: Sink,
    down: VecDeque<DeltaDiscoveryResponse>,
    up: VecDeque<DeltaDiscoveryRequest>,
    /// What the follower stored.
    store: BTreeMap<&'static str, Versions>,
}

impl Link {
    fn new() -> Self {
        let mut link = Self {
            world: WantSnapshot::new(1),
            now: Instant::now(),
            source: Source::new(SourceSettings::kds("global", TYPES)),
            sink: Sink::new(Node::default(), []),
            down: VecDeque::new(),
            up: VecDeque::new(),
            store: TYPES.into_iter().map(|type_url| (type_url, Versions::new())).collect(),
        };
        link.connect(None, None);
        link
    }

    fn connect(&mut self, resume: Option<Resume>, limit: Option<usize>) {
        let held = &self.store;
        let types = TYPES.map(|type_url| SinkType {
            type_url,
            resume: resume.map(|_| held.get(type_url).cloned().unwrap_or_default()),
        });
        self.sink = Sink::new(Node { id: "zone".into(), ..Node::default() }, types);
        if matches!(resume, Some(Resume::SummedUp)) {
            self.sink = std::mem::replace(&mut self.sink, Sink::new(Node::default(), [])).summing_up();
        }
        self.source = Source::new(SourceSettings { limit, ..SourceSettings::kds("global", TYPES) });
        self.down.clear();
        self.up = self.sink.open().collect();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(t, name, content) => {
                let wanted = Wanted::new(name.to_string(), TYPES[t], vec![b'0' + content]);
                self.change(|world| world.put(wanted));
            }
            Step::Remove(t, name) => self.change(|world| world.remove(TYPES[t], &name.to_string())),
            Step::Down => self.deliver_down(),
            Step::Up => self.deliver_up(),
            // Only who resumes can take the state in pieces.
            Step::Reconnect { resume, limited } => {
                self.connect(resume, (resume.is_some() && limited).then_some(100))
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut WantSnapshot)) {
        let before = self.world.clone();
        change(&mut self.world);
        self.world.revision += 1;
        let changed = self.world.changed_since(&before);
        self.send(|source, now, world| source.step(now, Input::Changed(&changed), world).unwrap());
    }

    fn deliver_up(&mut self) {
        if let Some(request) = self.up.pop_front() {
            self.send(|source, now, world| source.step(now, Input::Request(&request), world).unwrap());
        }
    }

    fn send(
        &mut self,
        step: impl FnOnce(&mut DeltaSource, Instant, &WantSnapshot) -> Vec<SourceOutput<DeltaDiscoveryResponse>>,
    ) {
        for output in step(&mut self.source, self.now, &self.world) {
            if let SourceOutput::Send(response) = output {
                self.down.push_back(response);
            }
        }
    }

    fn deliver_down(&mut self) {
        let Some(response) = self.down.pop_front() else { return };
        let batch = match self.sink.receive(response).unwrap() {
            SinkEvent::Batch(batch) => batch,
            SinkEvent::Listed(page) => return self.up.push_back(*page),
            SinkEvent::Unasked { type_url, .. } => panic!("{type_url} was not asked for"),
        };
        let refused = self.apply(&batch);
        self.up.push_back(self.sink.verdict(batch.type_url, &batch.nonce, &refused).unwrap());
    }

    fn apply(&mut self, batch: &ResponseBatch) -> Vec<Refusal> {
        let store = self.store.get_mut(batch.type_url).unwrap();
        if batch.full {
            store.retain(|name, _| batch.added.iter().any(|resource| *resource.name == **name));
        }
        batch.removed.iter().for_each(|name| {
            store.remove(name.as_str());
        });
        let mut refused = Vec::new();
        for resource in &batch.added {
            if resource.resource.as_ref().unwrap().value == BAD {
                refused.push(Refusal { name: resource.name.clone(), reason: "bad".into() });
                continue;
            }
            store.insert((*resource.name).into(), (*resource.version).into());
        }
        refused
    }

    fn settle_down(&mut self) {
        for _ in 0..200 {
            self.deliver_up();
            self.deliver_down();
        }
        assert!(self.up.is_empty() && self.down.is_empty() && self.source.is_settled());
        assert!(self.sink.is_ready());
    }
}

proptest! {
    #[test]
    fn follower_ends_with_what_is_wanted(steps in vec(step(), 0..80)) {
        let mut link = Link::new();
        steps.iter().for_each(|step| link.step(step));
        link.settle_down();
        for type_url in TYPES {
            let store = &link.store[type_url];
            for wanted in link.world.list(type_url).filter(|wanted| &*wanted.value != BAD) {
                prop_assert_eq!(store.get(&*wanted.name).map(|v| v.to_string()), Some(wanted.version.to_string()));
            }
            for name in store.keys() {
                prop_assert!(link.world.list(type_url).any(|wanted| *wanted.name == **name), "{name} stays");
            }
            prop_assert!(store.values().all(|version| **version != Version::of(BAD).to_string()));
            for progress in link.source.progress() {
                prop_assert_eq!((progress.sent, progress.acked), (progress.head, progress.head));
            }
        }
    }

    #[test]
    fn resume_moves_nothing_that_did_not_change(steps in vec(step(), 0..40), resume in resume(), limited: bool) {
        let mut link = Link::new();
        steps.iter().for_each(|step| link.step(step));
        link.settle_down();
        link.connect(Some(resume), limited.then_some(100));
        let mut told = Vec::new();
        while !link.up.is_empty() {
            link.deliver_up();
            // What lists what it holds is no answer yet.
            while let Some(response) = link.down.pop_front() {
                match link.sink.receive(response.clone()).unwrap() {
                    SinkEvent::Listed(page) => link.up.push_back(*page),
                    _ => told.push(response),
                }
            }
        }
        prop_assert_eq!(told.len(), TYPES.len());
        for response in &told {
            prop_assert!(response.removed_resources.is_empty());
            let good = response.resources.iter().filter(|r| r.resource.as_ref().unwrap().value != BAD);
            prop_assert_eq!(good.count(), 0);
        }
    }
}
