//! What a change costs, counted in questions to the world.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use tokio::time::Instant;

use crate::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DeltaDiscoveryRequest},
    xds::{
        DeltaSource, Input, Name, Source, SourceOutput, SourceSettings, Version, Want, WantSnapshot, Wanted,
    },
};

const TYPE: &str = "MeshTimeout";
const RESOURCES: usize = 10_000;

#[derive(Default)]
struct Counting {
    world: WantSnapshot,
    visits: Cell<usize>,
}

impl Want for Counting {
    fn revision(&self) -> u64 {
        self.world.revision()
    }
    fn ready(&self, type_url: &str) -> bool {
        self.world.ready(type_url)
    }
    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.world.each(type_url, &mut |name, version| {
            self.visits.set(self.visits.get() + 1);
            visit(name, version);
        });
    }
    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.visits.set(self.visits.get() + 1);
        self.world.get(type_url, name)
    }
}

fn send(source: &mut DeltaSource, input: Input<'_, DeltaDiscoveryRequest>, world: &Counting) -> usize {
    let outputs = source.step(Instant::now(), input, world).unwrap();
    let resources = outputs.iter().map(|output| match output {
        SourceOutput::Send(response) => response.resources.len(),
        SourceOutput::Event(_) => 0,
    });
    resources.sum()
}

#[test]
fn cost_follows_the_change() {
    let mut world = Counting::default();
    for i in 0..RESOURCES {
        world.world.put_as(TYPE, Wanted::new(format!("{i}.default"), TYPE, "1"));
    }
    let mut source = Source::new(SourceSettings::kds("global", [TYPE]));
    let mut request = DeltaDiscoveryRequest {
        node: Some(Node { id: "zone".into(), ..Node::default() }),
        type_url: TYPE.into(),
        ..DeltaDiscoveryRequest::default()
    };
    assert_eq!(send(&mut source, Input::Request(&request), &world), RESOURCES);
    request.response_nonce = "1".into();
    assert_eq!(send(&mut source, Input::Request(&request), &world), 0);

    let changed = Wanted::new("17.default", TYPE, "2");
    let names = [(TYPE, vec![Name::clone(&changed.name)])].into();
    world.world.put_as(TYPE, changed);
    world.visits.set(0);
    assert_eq!(send(&mut source, Input::Changed(&names), &world), 1);
    assert!(world.visits.get() <= 2, "{} questions for one change", world.visits.get());
}
