//! What a change costs, counted in questions to the world.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use tokio::time::Instant;

use prost::Message;

use crate::{
    proto::envoy::{
        config::{core::v3::Node, route::v3::VirtualHost},
        service::discovery::v3::DeltaDiscoveryRequest,
    },
    xds::{
        Confirmation, DeltaPart, DeltaSource, Input, Name, Source, SourceOutput, SourceSettings,
        Subscription, Version, Want, WantSnapshot, Wanted, envoy,
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
    fn under(&self, type_url: &str, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        self.visits.set(self.visits.get() + 1);
        self.world.under(type_url, prefix, &mut |wanted| {
            self.visits.set(self.visits.get() + 1);
            visit(wanted);
        });
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

/// Many hosts are asked for, each of which is served by one of many virtual hosts.
#[test]
fn each_virtual_host_is_read_once_for_all_hosts_that_are_asked_for() {
    const HOSTS: usize = 2_000;
    let virtual_host = |i: usize, edition: u32| {
        let host = VirtualHost {
            name: format!("r/{i}"),
            domains: vec![format!("h{i}.example"), format!("edition-{edition}.h{i}.example")],
            ..VirtualHost::default()
        };
        let wanted = Wanted::new(format!("r/{i}"), envoy::VIRTUAL_HOST, host.encode_to_vec());
        Wanted { on_demand: true, ..wanted }
    };
    let mut world = Counting::default();
    (0..HOSTS).for_each(|i| world.world.put(virtual_host(i, 1)));
    let asked: Vec<String> =
        (0..HOSTS).map(|i| format!("r/h{i}.example")).chain((0..HOSTS).map(|i| format!("r/x{i}"))).collect();
    let mut peer = Subscription::open(envoy::VIRTUAL_HOST, asked.iter().map(String::as_str), []);
    let most = 4 * (HOSTS + asked.len());
    let first = peer.next(&world, DeltaPart::All, None, 1).unwrap();
    assert_eq!((first.updated.len(), first.removed.len()), (HOSTS, HOSTS));
    assert_eq!(peer.aliases(&first).len(), HOSTS);
    assert!(world.visits.get() <= most, "{} questions at first", world.visits.get());
    peer.settle(1, &Confirmation::Accepted).unwrap();

    for changed in [1, HOSTS] {
        let names: Vec<Name> = (0..changed).map(|i| format!("r/{i}").into()).collect();
        (0..changed).for_each(|i| world.world.put(virtual_host(i, 2 + u32::from(changed > 1))));
        world.visits.set(0);
        peer.touch(&names);
        let next = peer.next(&world, DeltaPart::All, None, 2).unwrap();
        assert_eq!((next.updated.len(), next.removed.len()), (changed, 0));
        assert!(world.visits.get() <= most, "{} questions for {changed} changes", world.visits.get());
        peer.settle(2, &Confirmation::Accepted).unwrap();
    }
}
