#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::{
    super::{SourceSettings, Unknown, Version, WantSnapshot, Wanted, envoy, summary::Summary},
    hearing::MAX_UNSERVED,
    *,
};
use crate::proto::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    },
    google::rpc::Status,
};

/// A stream, the world behind it and what the peer got but did not answer yet.
struct Stream {
    source: DeltaSource,
    world: WantSnapshot,
    now: Instant,
    events: Vec<SourceEvent>,
}

impl Stream {
    fn new(settings: SourceSettings) -> Self {
        let source = Source::new(settings);
        Self { source, world: WantSnapshot::new(1), now: Instant::now(), events: Vec::new() }
    }

    /// Moves the world on and returns what is sent, each as `nonce type +added -removed`.
    fn change(&mut self, put: &[(&'static str, &str, &str)], remove: &[(&'static str, &str)]) -> Vec<String> {
        let before = self.world.clone();
        put.iter().for_each(|(type_url, name, content)| {
            self.world.put(Wanted::new(*name, type_url, content.as_bytes().to_vec()));
        });
        remove.iter().for_each(|(type_url, name)| self.world.remove(type_url, name));
        self.world.revision += 1;
        let changed = self.world.changed_since(&before);
        self.step(Input::Changed(&changed)).unwrap()
    }

    fn ask(&mut self, request: &DeltaDiscoveryRequest) -> Result<Vec<String>, Malformed> {
        self.step(Input::Request(request))
    }

    fn step(&mut self, input: Input<'_, DeltaDiscoveryRequest>) -> Result<Vec<String>, Malformed> {
        let mut sent = Vec::new();
        for output in self.source.step(self.now, input, &self.world)? {
            match output {
                SourceOutput::Send(response) => sent.push(show(&response)),
                SourceOutput::Event(event) => self.events.push(event),
            }
        }
        Ok(sent)
    }
}

fn show(response: &DeltaDiscoveryResponse) -> String {
    let kind = response.type_url.rsplit('.').next().unwrap();
    let added: Vec<&str> = response.resources.iter().map(|resource| &*resource.name).collect();
    let removed = response.removed_resources.join(" ");
    format!("{} {kind} +{} -{removed}", response.nonce, added.join(" "))
}

fn subscribe(type_url: &str, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node { id: "peer".into(), ..Node::default() }),
        type_url: type_url.into(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn ack(type_url: &str, nonce: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.into(),
        response_nonce: nonce.into(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn nack(type_url: &str, nonce: &str) -> DeltaDiscoveryRequest {
    let status = Status { message: "no".into(), ..Status::default() };
    DeltaDiscoveryRequest { error_detail: Some(status), ..ack(type_url, nonce) }
}

fn kds() -> Stream {
    let mut stream = Stream::new(SourceSettings::kds("global", ["Mesh", "Zone"]));
    stream.change(&[("Mesh", "default.", "1")], &[]);
    stream
}

#[test]
fn types_share_the_nonce_and_each_first_request_gets_all_of_its_type() {
    let mut stream = kds();
    assert_eq!(stream.ask(&subscribe("Mesh", &["*"])).unwrap(), ["1 Mesh +default. -"]);
    assert_eq!(stream.ask(&subscribe("Zone", &[])).unwrap(), ["2 Zone + -"]);
    assert_eq!(stream.ask(&subscribe("Unheard", &["*"])).unwrap(), ["3 Unheard + -"]);
    assert_eq!(stream.ask(&ack("Unheard", "3")).unwrap(), [""; 0]);
    assert_eq!(stream.change(&[("Mesh", "b.", "1"), ("Zone", "z.", "1")], &[]), [""; 0], "both in flight");
    assert_eq!(stream.ask(&ack("Zone", "2")).unwrap(), ["4 Zone +z. -"]);
    assert_eq!(stream.ask(&ack("Zone", "2")).unwrap(), [""; 0], "overtaken");
    assert_eq!(stream.ask(&ack("Mesh", "what")).unwrap(), [""; 0]);
    assert_eq!(stream.ask(&nack("Mesh", "1")).unwrap(), ["5 Mesh +b. -"]);
    let expected = [
        SourceEvent::Subscribed { type_url: "Mesh", wildcard: true, resumed: 0 },
        SourceEvent::Subscribed { type_url: "Zone", wildcard: true, resumed: 0 },
        SourceEvent::Unserved { type_url: "Unheard".into() },
        SourceEvent::Acked { type_url: "Zone", nonce: 2, accepted: 0 },
        SourceEvent::Stale { type_url: "Zone" },
        SourceEvent::Stale { type_url: "Mesh" },
        SourceEvent::Nacked {
            type_url: "Mesh",
            nonce: 1,
            accepted: 0,
            refused: vec!["default.".into()],
            message: "no".into(),
            passing: false,
        },
    ];
    assert_eq!(stream.events, expected);
}

#[test]
fn a_peer_that_is_offered_again_what_it_refused_is_not_content_before_it_takes_it() {
    let mut stream = kds();
    stream.ask(&subscribe("Mesh", &["*"])).unwrap();
    stream.ask(&subscribe("Zone", &["*"])).unwrap();
    stream.ask(&nack("Mesh", "1")).unwrap();
    assert!(stream.source.refuses("Mesh", "default."));
    stream.source.reconsider();
    assert_eq!(stream.step(Input::Wake).unwrap(), ["3 Mesh +default. -"]);
    stream.ask(&ack("Zone", "2")).unwrap();
    assert!(!stream.source.is_content(), "its word on the other type says nothing about this one");
    stream.ask(&ack("Mesh", "3")).unwrap();
    assert!(stream.source.is_content());
}

#[test]
fn what_an_operator_means_is_offered_again_with_a_new_nonce_and_nothing_else() {
    let mut stream = kds();
    stream.change(&[("Zone", "z.", "1")], &[]);
    stream.ask(&subscribe("Mesh", &["*"])).unwrap();
    stream.ask(&subscribe("Zone", &["*"])).unwrap();
    assert_eq!(stream.source.reconsider_some(|_, _| true), 0, "nothing is refused");
    stream.ask(&nack("Mesh", "1")).unwrap();
    stream.ask(&nack("Zone", "2")).unwrap();
    assert_eq!(stream.source.reconsider_some(|type_url, name| type_url == "Mesh" && name == "other."), 0);
    assert_eq!(stream.step(Input::Wake).unwrap(), [""; 0]);
    assert_eq!(stream.source.reconsider_some(|type_url, name| type_url == "Mesh" && name == "default."), 1);
    assert_eq!(stream.step(Input::Wake).unwrap(), ["3 Mesh +default. -"]);
    // Who says no again can be asked again.
    stream.ask(&nack("Mesh", "3")).unwrap();
    assert_eq!(stream.source.reconsider_some(|type_url, _| type_url == "Mesh"), 1);
    assert_eq!(stream.step(Input::Wake).unwrap(), ["4 Mesh +default. -"]);
    stream.ask(&ack("Mesh", "4")).unwrap();
    assert!(!stream.source.refuses("Mesh", "default.") && stream.source.is_refused(), "the other type waits");
}

#[test]
fn responses_say_who_answers_and_hold_the_encoded_resource() {
    let stream = kds();
    let mut source = stream.source;
    let outputs = source.step(stream.now, Input::Request(&subscribe("Mesh", &["*"])), &stream.world).unwrap();
    let Some(SourceOutput::Send(response)) = outputs.last() else { panic!("{outputs:?}") };
    assert_eq!(response.control_plane.as_ref().unwrap().identifier, "global");
    assert_eq!(response.system_version_info, "");
    let any = response.resources[0].resource.as_ref().unwrap();
    assert_eq!((&*any.type_url, &*any.value), ("Mesh", &b"1"[..]));
    assert_eq!(response.resources[0].version, crate::xds::Version::of(b"1").to_string());
}

#[test]
fn malformed_requests_end_the_stream() {
    let node = Some(Node::default());
    let without_id = DeltaDiscoveryRequest { node, ..subscribe("Mesh", &["*"]) };
    let without_node = DeltaDiscoveryRequest { node: None, ..subscribe("Mesh", &["*"]) };
    let many: Vec<String> = (0..9).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let held = many.iter().map(|name| (name.to_string(), "1".to_owned())).collect();
    let resumed = DeltaDiscoveryRequest { initial_resource_versions: held, ..subscribe("Mesh", &["*"]) };
    let unknown = Malformed::UnknownType { type_url: "Other".into() };
    let too_many = || Malformed::TooManyNames { type_url: "Mesh".into(), max: 8 };
    for (request, error) in [
        (subscribe("", &["*"]), Malformed::NoType),
        (without_id, Malformed::NoNode),
        (without_node, Malformed::NoNode),
        (subscribe("Other", &["*"]), unknown),
        (subscribe("Mesh", &many), too_many()),
        (resumed, too_many()),
    ] {
        let settings =
            SourceSettings { unknown: Unknown::Refuse, max_names: 8, ..SourceSettings::kds("g", ["Mesh"]) };
        assert_eq!(Stream::new(settings).ask(&request), Err(error));
    }
    let mut stream = Stream::new(SourceSettings { max_names: 8, ..SourceSettings::kds("g", ["Mesh"]) });
    stream.ask(&subscribe("Mesh", &many[..5])).unwrap();
    assert_eq!(stream.ask(&subscribe("Mesh", &many[4..])), Err(too_many()), "in two requests");
    for _ in 0..MAX_UNSERVED {
        stream.source.handle(Input::Request(&subscribe("Other", &[])), &stream.world).unwrap();
    }
    let flood = stream.source.handle(Input::Request(&subscribe("Other", &[])), &stream.world);
    assert_eq!(flood, Err(Malformed::TooManyTypes));
}

struct Loading(WantSnapshot);

impl Want for Loading {
    fn revision(&self) -> u64 {
        0
    }
    fn ready(&self, type_url: &str) -> bool {
        type_url != "Mesh"
    }
    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, crate::xds::Version)) {
        self.0.each(type_url, visit);
    }
    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.0.get(type_url, name)
    }
}

#[test]
fn nothing_is_said_before_it_is_known() {
    let mut stream = kds();
    let loading = Loading(stream.world.clone());
    let input = subscribe("Mesh", &["*"]);
    let outputs = stream.source.step(stream.now, Input::Request(&input), &loading).unwrap();
    assert!(outputs.iter().all(|output| matches!(output, SourceOutput::Event(_))));
    assert!(!stream.source.is_settled());
    assert_eq!(stream.step(Input::Wake).unwrap(), ["1 Mesh +default. -"]);
}

#[test]
fn progress_counts_revisions() {
    let mut stream = kds();
    let progress = |stream: &Stream| {
        let mesh = stream.source.progress().next().unwrap();
        (mesh.head, mesh.sent, mesh.acked)
    };
    stream.world.revision = 10;
    stream.ask(&subscribe("Mesh", &["*"])).unwrap();
    assert_eq!(progress(&stream), (10, 10, 0));
    assert_eq!(stream.source.stalled_since(), Some(stream.now));
    stream.change(&[("Mesh", "b.", "1")], &[]);
    assert_eq!(progress(&stream), (11, 10, 0));
    stream.ask(&ack("Mesh", "1")).unwrap();
    assert_eq!(progress(&stream), (11, 11, 10));
    stream.ask(&ack("Mesh", "2")).unwrap();
    assert_eq!(progress(&stream), (11, 11, 11));
    assert_eq!(stream.source.stalled_since(), None);
    stream.change(&[("Zone", "z.", "1")], &[]);
    assert_eq!(progress(&stream), (12, 12, 12), "nothing there concerns it");
}

/// Subscribes to clusters, endpoints and listeners, all acknowledged: `c`, its endpoints, `l`.
fn ads() -> Stream {
    let mut stream = Stream::new(SourceSettings::ads("cp"));
    stream.change(
        &[(envoy::CLUSTER, "c", "1"), (envoy::ENDPOINTS, "c", "1"), (envoy::LISTENER, "l", "1")],
        &[],
    );
    stream.ask(&subscribe(envoy::CLUSTER, &["*"])).unwrap();
    stream.ask(&subscribe(envoy::ENDPOINTS, &["c", "d"])).unwrap();
    stream.ask(&ack(envoy::CLUSTER, "1")).unwrap();
    stream.ask(&ack(envoy::ENDPOINTS, "2")).unwrap();
    assert_eq!(stream.ask(&subscribe(envoy::LISTENER, &["*"])).unwrap(), ["3 Listener +l -"]);
    stream.ask(&ack(envoy::LISTENER, "3")).unwrap();
    assert!(stream.source.is_settled());
    stream
}

/// The listener moves from cluster `c` to `d`.
fn swap(stream: &mut Stream) -> Vec<String> {
    stream.change(
        &[(envoy::CLUSTER, "d", "1"), (envoy::ENDPOINTS, "d", "1"), (envoy::LISTENER, "l", "2")],
        &[(envoy::CLUSTER, "c")],
    )
}

#[test]
fn make_before_break() {
    let mut stream = ads();
    assert_eq!(swap(&mut stream), ["4 Cluster +d -", "5 ClusterLoadAssignment +d -"]);
    assert_eq!(stream.ask(&ack(envoy::ENDPOINTS, "5")).unwrap(), [""; 0], "the cluster is not warm yet");
    assert_eq!(stream.ask(&ack(envoy::CLUSTER, "4")).unwrap(), ["6 Listener +l -"]);
    assert_eq!(stream.ask(&ack(envoy::LISTENER, "6")).unwrap(), ["7 Cluster + -c"]);
}

#[test]
fn what_a_refused_listener_needs_stays() {
    let mut stream = ads();
    swap(&mut stream);
    stream.ask(&ack(envoy::ENDPOINTS, "5")).unwrap();
    stream.ask(&ack(envoy::CLUSTER, "4")).unwrap();
    assert_eq!(stream.ask(&nack(envoy::LISTENER, "6")).unwrap(), [""; 0], "cluster c stays");
    assert_eq!(stream.change(&[(envoy::LISTENER, "l", "3")], &[]), ["7 Listener +l -"]);
    assert_eq!(stream.ask(&ack(envoy::LISTENER, "7")).unwrap(), ["8 Cluster + -c"]);
}

#[test]
fn a_refused_listener_that_never_was_keeps_nothing() {
    let mut stream = ads();
    assert_eq!(stream.change(&[(envoy::LISTENER, "new", "1")], &[]), ["4 Listener +new -"]);
    assert_eq!(stream.ask(&nack(envoy::LISTENER, "4")).unwrap(), [""; 0]);
    assert_eq!(
        stream.change(&[], &[(envoy::CLUSTER, "c")]),
        ["5 Cluster + -c"],
        "what a policy takes away goes"
    );
    stream.ask(&ack(envoy::CLUSTER, "5")).unwrap();
    assert_eq!(stream.change(&[(envoy::LISTENER, "new", "2")], &[]), ["6 Listener +new -"]);
}

#[test]
fn who_refuses_several_listeners_without_a_name_may_have_taken_some() {
    let mut stream = ads();
    stream.change(&[(envoy::LISTENER, "m", "1"), (envoy::LISTENER, "n", "1")], &[]);
    stream.ask(&nack(envoy::LISTENER, "4")).unwrap();
    assert_eq!(stream.change(&[], &[(envoy::CLUSTER, "c")]), [""; 0], "one of them may need it");
}

#[test]
fn patience_with_a_cluster_that_does_not_get_warm_has_an_end() {
    let mut stream = ads();
    swap(&mut stream);
    let deadline = stream.source.deadline(stream.now).unwrap();
    assert_eq!(deadline, stream.now + Duration::from_secs(5));
    stream.now = deadline;
    assert_eq!(stream.step(Input::Wake).unwrap(), ["6 Listener +l -"]);
    assert_eq!(stream.source.deadline(stream.now), None);
}

#[test]
fn a_listener_waits_for_all_parts_of_the_clusters_however_long_one_takes() {
    let limit = Some(2 * Wanted::new("c", envoy::CLUSTER, b"1".to_vec()).size());
    let mut stream = ads();
    stream.source.limit_bytes(limit);
    let clusters = ["e", "f", "g"].map(|name| (envoy::CLUSTER, name, "1"));
    let sent = stream.change(&[&clusters[..], &[(envoy::LISTENER, "l", "2")]].concat(), &[]);
    assert_eq!(sent, ["4 Cluster +e f -"]);
    stream.now += Duration::from_secs(60);
    assert_eq!(stream.step(Input::Wake).unwrap(), [""; 0], "it may use `g`, which was not sent");
    assert_eq!(stream.ask(&ack(envoy::CLUSTER, "4")).unwrap(), ["5 Cluster +g -"]);
    assert_eq!(stream.ask(&ack(envoy::CLUSTER, "5")).unwrap(), ["6 Listener +l -"]);
}

#[test]
fn replaced_cluster_gets_its_endpoints_again() {
    let mut stream = ads();
    let sent = stream.change(&[(envoy::CLUSTER, "c", "2")], &[]);
    assert_eq!(sent, ["4 Cluster +c -", "5 ClusterLoadAssignment +c -"]);
}

/// Endpoints of a cluster the peer has mean something to it before it hears what else became of the cluster.
#[test]
fn endpoints_may_go_ahead_of_much_else() {
    let mut stream = ads();
    let before = stream.world.clone();
    for (type_url, name) in [(envoy::CLUSTER, "c"), (envoy::LISTENER, "l"), (envoy::ENDPOINTS, "c")] {
        stream.world.put(Wanted::new(name, type_url, b"2".to_vec()));
    }
    stream.world.revision += 1;
    let changed = stream.world.changed_since(&before);
    stream.source.handle(Input::Changed(&changed), &stream.world).unwrap();
    assert_eq!(stream.source.burden(), 3);
    assert!(stream.source.next_ahead(stream.now, &stream.world, 0).is_none(), "one name is more than none");
    let ahead = stream.source.next_ahead(stream.now, &stream.world, 1).unwrap();
    assert_eq!((&*ahead.type_url, ahead.updated.len()), (envoy::ENDPOINTS, 1));
    assert!(stream.source.next_ahead(stream.now, &stream.world, 1).is_none(), "nothing else may");
    let rest = stream.step(Input::Wake).unwrap();
    assert_eq!(rest, ["5 Cluster +c -"], "the endpoints wait for their answer");
    // The cluster warms with them once more.
    assert_eq!(stream.ask(&ack(envoy::ENDPOINTS, "4")).unwrap(), ["6 ClusterLoadAssignment +c -"]);
}

#[test]
fn names_are_limited_by_their_bytes() {
    let settings = || SourceSettings { max_name: 8, max_bytes: 20, ..SourceSettings::kds("test", ["T"]) };
    let ask = |type_url: &str, subscribe: &[&str], held: &[(&str, &str)]| DeltaDiscoveryRequest {
        node: Some(Node { id: "peer".to_owned(), ..Node::default() }),
        type_url: type_url.to_owned(),
        resource_names_subscribe: subscribe.iter().map(|name| (*name).to_owned()).collect(),
        initial_resource_versions: held.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    let long = |request| Stream::new(settings()).ask(&request).unwrap_err();
    for request in [
        ask("T", &["123456789"], &[]),
        ask("T", &[], &[("123456789", "v")]),
        ask("T", &[], &[("n", "123456789")]),
        ask("123456789", &[], &[]),
    ] {
        let refused = long(request);
        assert!(matches!(refused, Malformed::LongName { bytes: 9, max: 8, .. }), "{refused}");
        assert!(refused.is_excess());
    }
    let many = long(ask("T", &["12345678", "23456789", "34567"], &[]));
    assert_eq!(many, Malformed::TooManyBytes { max: 20 });

    // One by one it is the same; what is given back does not count.
    let mut stream = Stream::new(settings());
    for name in ["12345678", "23456789"] {
        stream.ask(&ask("T", &[name], &[])).unwrap();
    }
    let back = DeltaDiscoveryRequest {
        resource_names_unsubscribe: vec!["12345678".to_owned()],
        ..ask("T", &[], &[])
    };
    stream.ask(&back).unwrap();
    stream.ask(&ask("T", &["34567890", "23456789"], &[])).unwrap();
    let beyond = stream.ask(&ask("T", &["45678"], &[])).unwrap_err();
    assert_eq!(beyond, Malformed::TooManyBytes { max: 20 });
}

/// A stream of meshes `a` and `b`, and what a peer says that sums up what it holds of them.
fn resumed(held: &[(&str, &str)]) -> (Stream, DeltaDiscoveryRequest) {
    let mut stream = Stream::new(SourceSettings::kds("global", ["Mesh"]));
    stream.change(&[("Mesh", "a", "1"), ("Mesh", "b", "1")], &[]);
    let held: Vec<_> =
        held.iter().map(|(name, value)| (*name, Version::of(value.as_bytes()).to_string())).collect();
    let summary = Summary::of(held.iter().map(|(name, version)| (*name, version.as_str())));
    let first = DeltaDiscoveryRequest {
        initial_resource_versions: [("*".to_owned(), summary.to_string())].into(),
        ..subscribe("Mesh", &["*"])
    };
    (stream, first)
}

/// A page of what is held.
fn page(nonce: &str, held: &[(&str, &str)], names: &[&str]) -> DeltaDiscoveryRequest {
    let version = |value: &str| Version::of(value.as_bytes()).to_string();
    DeltaDiscoveryRequest {
        initial_resource_versions: held
            .iter()
            .map(|(name, value)| (name.to_string(), version(value)))
            .collect(),
        response_nonce: nonce.into(),
        ..subscribe("Mesh", names)
    }
}

#[test]
fn who_sums_up_what_there_is_lists_nothing() {
    let (mut stream, first) = resumed(&[("a", "1"), ("b", "1")]);
    assert_eq!(stream.ask(&first).unwrap(), ["1 Mesh + -"]);
    assert_eq!(stream.ask(&ack("Mesh", "1")).unwrap(), [""; 0]);
    assert!(stream.source.is_settled());
    assert_eq!(stream.change(&[("Mesh", "a", "2")], &[("Mesh", "b")]), ["2 Mesh +a -b"]);
}

#[test]
fn who_sums_up_something_else_is_asked_for_all_of_it() {
    let (mut stream, first) = resumed(&[("a", "1"), ("c", "1")]);
    assert_eq!(stream.ask(&first).unwrap(), ["1 Mesh + -"]);
    assert!(stream.source.stalled_since().is_some(), "the page is owed");
    // What changes meanwhile is told with the difference.
    assert_eq!(stream.change(&[("Mesh", "d", "1")], &[]), [""; 0]);
    assert_eq!(stream.ask(&page("7", &[("a", "2")], &[])).unwrap(), [""; 0], "nobody asked for that");
    assert_eq!(stream.ask(&page("1", &[("a", "1")], &[])).unwrap(), ["2 Mesh + -"]);
    assert!(!stream.source.is_settled());
    assert_eq!(stream.ask(&page("2", &[("c", "1")], &["*"])).unwrap(), ["3 Mesh +b d -c"]);
    assert_eq!(stream.ask(&ack("Mesh", "3")).unwrap(), [""; 0]);
    assert!(stream.source.is_settled());
}

#[test]
fn a_list_that_comes_in_pages_is_bounded_as_one() {
    let settings =
        || SourceSettings { max_names: 3, max_bytes: 1000, ..SourceSettings::kds("global", ["Mesh"]) };
    let first = resumed(&[("x", "1")]).1;
    let mut stream = Stream::new(settings());
    stream.ask(&first).unwrap();
    stream.ask(&page("1", &[("a", "1"), ("b", "1")], &[])).unwrap();
    let many = stream.ask(&page("2", &[("c", "1"), ("d", "1")], &[])).unwrap_err();
    assert_eq!(many, Malformed::TooManyNames { type_url: "Mesh".into(), max: 3 });
    let mut stream = Stream::new(SourceSettings { max_bytes: 150, ..settings() });
    stream.ask(&first).unwrap();
    let long = "n".repeat(80);
    stream.ask(&page("1", &[(&long, "1")], &[])).unwrap();
    let much = stream.ask(&page("2", &[("b", "1")], &[])).map(|_| stream.ask(&page("3", &[("c", "1")], &[])));
    assert!(matches!(
        much,
        Err(Malformed::TooManyBytes { max: 150 }) | Ok(Err(Malformed::TooManyBytes { max: 150 }))
    ));
}
