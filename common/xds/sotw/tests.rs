#![allow(clippy::unwrap_used)]

use tokio::time::Instant;

use crate::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        google::rpc::Status,
    },
    xds::{
        Input, SotwSource, Source, SourceEvent, SourceOutput, SourceSettings, WantSnapshot, Wanted, envoy,
    },
};

/// A stream and the world behind it.
struct Stream {
    source: SotwSource,
    world: WantSnapshot,
    now: Instant,
    events: Vec<SourceEvent>,
    versions: Vec<String>,
}

impl Stream {
    fn new(resources: &[(&'static str, &str, &str)]) -> Self {
        let mut stream = Self {
            source: Source::new(SourceSettings::ads("cp")),
            world: WantSnapshot::new(1),
            now: Instant::now(),
            events: Vec::new(),
            versions: Vec::new(),
        };
        stream.change(resources, &[]);
        stream
    }

    /// Moves the world on and returns what is sent, each as `nonce type names`.
    fn change(&mut self, put: &[(&'static str, &str, &str)], remove: &[(&'static str, &str)]) -> Vec<String> {
        let before = self.world.clone();
        put.iter().for_each(|(type_url, name, content)| {
            self.world.put(Wanted::new(*name, type_url, format!("{name}@{content}")));
        });
        remove.iter().for_each(|(type_url, name)| self.world.remove(type_url, name));
        let changed = self.world.changed_since(&before);
        self.step(Input::Changed(&changed))
    }

    fn ask(&mut self, type_url: &str, nonce: &str, names: &[&str]) -> Vec<String> {
        self.step(Input::Request(&request(type_url, nonce, names)))
    }

    fn nack(&mut self, type_url: &str, nonce: &str, names: &[&str]) -> Vec<String> {
        let error_detail = Some(Status { message: "no".into(), ..Status::default() });
        self.step(Input::Request(&DiscoveryRequest { error_detail, ..request(type_url, nonce, names) }))
    }

    fn step(&mut self, input: Input<'_, DiscoveryRequest>) -> Vec<String> {
        let mut sent = Vec::new();
        for output in self.source.step(self.now, input, &self.world).unwrap() {
            match output {
                SourceOutput::Send(response) => {
                    sent.push(show(&response));
                    self.versions.push(response.version_info);
                }
                SourceOutput::Event(event) => self.events.push(event),
            }
        }
        sent
    }
}

fn request(type_url: &str, nonce: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(Node { id: "envoy".into(), ..Node::default() }),
        type_url: type_url.into(),
        response_nonce: nonce.into(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    }
}

fn show(response: &DiscoveryResponse) -> String {
    let kind = response.type_url.rsplit('.').next().unwrap();
    let resources = response.resources.iter().map(|any| String::from_utf8(any.value.clone()).unwrap());
    format!("{} {kind} {}", response.nonce, resources.collect::<Vec<_>>().join(" "))
}

const EDS: &str = envoy::ENDPOINTS;
const SDS: &str = envoy::SECRET;
const CDS: &str = envoy::CLUSTER;
const LDS: &str = envoy::LISTENER;

#[test]
fn clusters_come_whole_and_endpoints_by_name() {
    let mut stream = Stream::new(&[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")]);
    assert_eq!(stream.ask(CDS, "", &[]), ["1 Cluster a@1 b@1"]);
    assert_eq!(stream.ask(EDS, "", &["a"]), ["2 ClusterLoadAssignment a@1"]);
    assert_eq!(stream.ask(CDS, "1", &[]), [""; 0]);
    assert_eq!(stream.ask(EDS, "2", &["a"]), [""; 0]);
    assert_eq!(stream.ask(EDS, "2", &["a", "b"]), ["3 ClusterLoadAssignment b@1"]);
    assert_eq!(stream.ask(EDS, "2", &["a"]), [""; 0], "overtaken by 3");
    assert_eq!(stream.change(&[(EDS, "a", "2"), (EDS, "c", "1")], &[]), [""; 0], "3 is in flight");
    assert_eq!(stream.ask(EDS, "3", &["a", "b"]), ["4 ClusterLoadAssignment a@2"]);
    assert_eq!(stream.ask(EDS, "4", &["b"]), [""; 0]);
    assert_eq!(stream.change(&[(EDS, "a", "3")], &[]), [""; 0], "nobody asks for it any more");
    assert_eq!(stream.ask(EDS, "4", &["a", "b"]), ["5 ClusterLoadAssignment a@3"]);
}

#[test]
fn first_request_is_answered_once_even_with_nothing() {
    let mut stream = Stream::new(&[]);
    assert_eq!(stream.ask(CDS, "", &[]), ["1 Cluster "]);
    assert_eq!(stream.ask(SDS, "", &["missing"]), ["2 Secret "]);
    assert_eq!(stream.ask(CDS, "1", &[]), [""; 0]);
    assert_eq!(stream.ask(SDS, "2", &["missing"]), [""; 0]);
    assert_eq!(
        stream.ask(SDS, "2", &["missing", "too"]),
        ["3 Secret "],
        "an error says that it is not there"
    );
    assert_eq!(stream.ask(SDS, "3", &["missing", "too"]), [""; 0], "once");
    assert!(stream.source.is_settled());
    assert_eq!(stream.change(&[(SDS, "missing", "1")], &[]), ["4 Secret missing@1"]);
}

#[test]
fn cluster_without_endpoints_is_told_so_but_never_loses_them() {
    let mut stream = Stream::new(&[(EDS, "a", "1")]);
    let vacant = |nonce: &str, name: &str| format!("{nonce} ClusterLoadAssignment \n{}{name}", '\u{7}');
    assert_eq!(
        stream.ask(EDS, "", &["a", "missing"]),
        [vacant("1", "missing").replace("ment ", "ment a@1 ")]
    );
    assert_eq!(stream.ask(EDS, "1", &["a", "missing"]), [""; 0]);
    assert_eq!(stream.change(&[], &[(EDS, "a")]), [""; 0], "a listener that was refused may still use it");
}

#[test]
fn equal_sets_have_equal_versions() {
    let mut stream = Stream::new(&[(CDS, "a", "1")]);
    stream.ask(CDS, "", &[]);
    stream.ask(CDS, "1", &[]);
    stream.change(&[(CDS, "a", "2")], &[]);
    stream.ask(CDS, "2", &[]);
    stream.change(&[(CDS, "a", "1")], &[]);
    let [first, second, third] = stream.versions.as_slice() else { panic!("{:?}", stream.versions) };
    assert!(first == third && first != second);
}

#[test]
fn refused_set_waits_for_a_change_and_an_accepted_one_clears_it() {
    let mut stream = Stream::new(&[(CDS, "bad", "1"), (CDS, "good", "1")]);
    stream.ask(CDS, "", &[]);
    assert_eq!(stream.nack(CDS, "1", &[]), [""; 0]);
    let refused = |stream: &Stream| stream.source.progress().next().unwrap().refused;
    assert_eq!(refused(&stream), 2, "nobody can tell which one it was");
    assert!(matches!(&stream.events[1], SourceEvent::Nacked { message, .. } if message == "no"));
    assert_eq!(stream.change(&[(CDS, "bad", "2")], &[]), ["2 Cluster bad@2 good@1"]);
    stream.ask(CDS, "2", &[]);
    assert_eq!(refused(&stream), 0);
}

#[test]
fn make_before_break() {
    let mut stream = Stream::new(&[(CDS, "c", "1"), (LDS, "l", "1"), (LDS, "m", "1")]);
    stream.ask(CDS, "", &[]);
    stream.ask(CDS, "1", &[]);
    assert_eq!(stream.ask(LDS, "", &[]), ["2 Listener l@1 m@1"]);
    stream.ask(LDS, "2", &[]);
    let sent = stream.change(&[(CDS, "d", "1"), (LDS, "l", "2")], &[(CDS, "c"), (LDS, "m")]);
    assert_eq!(sent, ["3 Cluster c@1 d@1"], "the new one, and still the old one");
    assert_eq!(stream.ask(CDS, "3", &[]), ["4 Listener l@2"]);
    assert_eq!(stream.nack(LDS, "4", &[]), [""; 0], "the listener in use needs c");
    assert_eq!(stream.change(&[(LDS, "l", "3")], &[]), ["5 Listener l@3"]);
    assert_eq!(stream.ask(LDS, "5", &[]), ["6 Cluster d@1"]);
}

#[test]
fn replaced_cluster_gets_its_endpoints_again() {
    let mut stream = Stream::new(&[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")]);
    stream.ask(CDS, "", &[]);
    stream.ask(EDS, "", &["a", "b"]);
    stream.ask(CDS, "1", &[]);
    stream.ask(EDS, "2", &["a", "b"]);
    let sent = stream.change(&[(CDS, "a", "2")], &[]);
    assert_eq!(sent, ["3 Cluster a@2 b@1", "4 ClusterLoadAssignment a@1"]);
}

#[test]
fn named_clusters_and_listeners_are_full_state_too() {
    let mut stream = Stream::new(&[(LDS, "a", "1"), (LDS, "b", "1")]);
    assert_eq!(stream.ask(LDS, "", &["a", "b"]), ["1 Listener a@1 b@1"]);
    assert_eq!(stream.ask(LDS, "1", &["a", "b"]), [""; 0]);
    assert_eq!(stream.change(&[], &[(LDS, "a")]), ["2 Listener b@1"]);
    assert_eq!(stream.ask(LDS, "2", &["b"]), [""; 0]);
}

#[test]
fn wildcard_ends_with_the_first_names_and_empty_names_end_the_subscription() {
    let mut stream = Stream::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.ask(CDS, "", &[]);
    stream.ask(CDS, "1", &[]);
    assert_eq!(stream.ask(CDS, "1", &["a"]), ["2 Cluster a@1"], "asked for by name");
    assert_eq!(stream.ask(CDS, "2", &["a"]), [""; 0]);
    assert_eq!(stream.change(&[(CDS, "b", "2")], &[]), [""; 0]);
    assert_eq!(stream.ask(CDS, "2", &["*", "a"]), ["3 Cluster a@1 b@2"]);
    assert_eq!(stream.ask(CDS, "3", &[]), [""; 0]);
    assert_eq!(stream.change(&[(CDS, "a", "2"), (CDS, "b", "3")], &[]), [""; 0]);
}

#[test]
fn starting_over_gets_everything_again() {
    let mut stream = Stream::new(&[(CDS, "a", "1"), (EDS, "a", "1")]);
    stream.ask(CDS, "", &[]);
    stream.ask(EDS, "", &["a"]);
    assert_eq!(stream.ask(EDS, "", &["a"]), [""; 0], "2 is in flight");
    stream.ask(EDS, "2", &["a"]);
    assert_eq!(stream.ask(EDS, "", &["a"]), ["3 ClusterLoadAssignment a@1"]);
}

#[test]
fn who_refuses_a_listener_at_once_may_go_on_with_one_from_before_it_came() {
    let begin = |version_info: &str| {
        let mut stream = Stream::new(&[(envoy::CLUSTER, "c", "1"), (envoy::LISTENER, "l", "1")]);
        for type_url in [envoy::CLUSTER, envoy::LISTENER] {
            let first =
                DiscoveryRequest { version_info: version_info.to_owned(), ..request(type_url, "", &[]) };
            stream.step(Input::Request(&first));
            if type_url == envoy::CLUSTER {
                stream.ask(envoy::CLUSTER, "1", &[]);
            }
        }
        stream.nack(envoy::LISTENER, "2", &[]);
        stream.change(&[], &[(envoy::CLUSTER, "c")])
    };
    assert_eq!(begin("").len(), 1, "it has none that could need the cluster");
    assert_eq!(begin("1"), [""; 0], "it may have one");
}
