//! An engine that keeps references to what it sent, and one that does not read the names it knows, say
//! exactly what one says that keeps and reads every name.
#![allow(clippy::unwrap_used)]

use std::{collections::VecDeque, time::Duration};

use proptest::{collection::vec, prelude::*};
use prost::Message;
use tokio::time::Instant;

use crate::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        },
        google::rpc::Status,
    },
    xds::{
        Delta, Dialect, Input, Malformed, Name, ResponseParts, Sotw, Source, SourceEvent, SourceSettings,
        Version, Want, WantSnapshot, Wanted,
        envoy::{CLUSTER, ENDPOINTS, LISTENER},
    },
};

const TYPES: [&str; 3] = [CLUSTER, ENDPOINTS, LISTENER];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "*"];

/// The same world, name by name only.
struct Plain<'a>(&'a WantSnapshot);

impl Want for Plain<'_> {
    fn revision(&self) -> u64 {
        self.0.revision()
    }
    fn ready(&self, type_url: &str) -> bool {
        self.0.ready(type_url)
    }
    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.0.each(type_url, visit);
    }
    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.0.get(type_url, name)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Names of one type get these contents or, without one, go; all at once.
    Change(Vec<(usize, usize, Option<u8>)>),
    /// The peer asks, without an answer, for these names more or these less.
    Ask {
        of: usize,
        first: bool,
        more: Vec<usize>,
        less: Vec<usize>,
    },
    /// It answers the oldest response it has not answered yet.
    Answer {
        refuses: Option<Vec<usize>>,
        more: Vec<usize>,
        less: Vec<usize>,
    },
    /// It answers one that it has answered before.
    AnswerAgain,
    Resync,
    Reconsider,
    Wait,
    Reconnect {
        resume: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let names = || vec(0..NAMES.len(), 0..3);
    let change = (0..TYPES.len(), 0..NAMES.len() - 1, prop::option::weighted(0.7, 0..4_u8));
    let refuses = prop::option::weighted(0.2, names());
    prop_oneof![
        6 => vec(change, 1..5).prop_map(Step::Change),
        3 => (0..TYPES.len(), prop::bool::weighted(0.2), names(), names())
            .prop_map(|(of, first, more, less)| Step::Ask { of, first, more, less }),
        8 => (refuses, names(), names()).prop_map(|(refuses, more, less)| Step::Answer { refuses, more, less }),
        1 => Just(Step::AnswerAgain),
        1 => Just(Step::Resync),
        1 => Just(Step::Reconsider),
        1 => Just(Step::Wait),
        1 => any::<bool>().prop_map(|resume| Step::Reconnect { resume }),
    ]
}

/// What a peer says in either dialect.
struct Said<'a> {
    of: &'static str,
    nonce: &'a str,
    error: Option<Status>,
    /// All names of interest, where these have to be said.
    names: &'a [&'static str],
    more: &'a [usize],
    less: &'a [usize],
    held: Vec<(String, String)>,
}

fn named(names: &[usize]) -> Vec<String> {
    names.iter().map(|n| NAMES[*n].to_owned()).collect()
}

fn node() -> Option<Node> {
    Some(Node { id: "peer".into(), ..Node::default() })
}

trait Say: Dialect<Request: Message + Default> {
    fn request(said: Said<'_>) -> Self::Request;
}

impl Say for Delta {
    fn request(said: Said<'_>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: node(),
            type_url: said.of.into(),
            response_nonce: said.nonce.into(),
            error_detail: said.error,
            resource_names_subscribe: named(said.more),
            resource_names_unsubscribe: named(said.less),
            initial_resource_versions: said.held.into_iter().collect(),
            ..Default::default()
        }
    }
}

impl Say for Sotw {
    fn request(said: Said<'_>) -> DiscoveryRequest {
        DiscoveryRequest {
            node: node(),
            type_url: said.of.into(),
            response_nonce: said.nonce.into(),
            error_detail: said.error,
            resource_names: said.names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        }
    }
}

struct Run<D: Dialect> {
    world: WantSnapshot,
    now: Instant,
    shared: Source<D>,
    plain: Source<D>,
    /// Gets requests as they are on the wire.
    wired: Source<D>,
    open: VecDeque<ResponseParts>,
    answered: Option<ResponseParts>,
    /// What the peer asks for by name, by type.
    names: [Vec<&'static str>; 3],
    newest: [String; 3],
}

impl<D: Say> Run<D> {
    fn new() -> Self {
        let source = || Source::new(SourceSettings::ads("cp"));
        Self {
            world: WantSnapshot::new(1),
            now: Instant::now(),
            shared: source(),
            plain: source(),
            wired: source(),
            open: VecDeque::new(),
            answered: None,
            names: Default::default(),
            newest: Default::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Change(changes) => {
                let before = self.world.clone();
                for (of, name, content) in changes {
                    let (of, name) = (TYPES[*of], NAMES[*name]);
                    match content {
                        Some(content) => self.world.put(Wanted::new(name, of, vec![b'0' + content])),
                        None => self.world.remove(of, name),
                    }
                }
                self.world.revision += 1;
                let changed = self.world.changed_since(&before);
                self.feed(Input::Changed(&changed));
            }
            Step::Ask { of, first, more, less } => {
                let nonce = if *first { String::new() } else { self.newest[*of].clone() };
                self.ask(*of, &nonce, None, more, less, Vec::new());
            }
            Step::Answer { refuses, more, less } => {
                let Some(response) = self.open.pop_front() else { return };
                let Some(of) = TYPES.iter().position(|of| *of == response.type_url) else { return };
                let error = refuses.as_ref().map(|names| {
                    let reasons: Vec<String> = named(names).iter().map(|n| format!("{n}: is bad")).collect();
                    let message = format!("Error adding/updating listener(s) {}", reasons.join("\n"));
                    Status { message, ..Status::default() }
                });
                self.ask(of, &response.nonce.to_string(), error, more, less, Vec::new());
                self.answered = Some(response);
            }
            Step::AnswerAgain => {
                let Some(response) = self.answered.clone() else { return };
                let of = TYPES.iter().position(|of| *of == response.type_url).unwrap();
                self.ask(of, &response.nonce.to_string(), None, &[], &[], Vec::new());
            }
            Step::Resync => self.feed(Input::Resync),
            Step::Reconsider => {
                self.shared.reconsider();
                self.plain.reconsider();
                self.wired.reconsider();
                self.feed(Input::Wake);
            }
            Step::Wait => {
                self.now += Duration::from_secs(10);
                self.feed(Input::Wake);
            }
            Step::Reconnect { resume } => {
                let world = std::mem::take(&mut self.world);
                *self = Self { world, now: self.now, ..Self::new() };
                for of in (0..TYPES.len()).filter(|_| *resume) {
                    let held = self.world.list(TYPES[of]).step_by(2);
                    let held = held.map(|w| (w.name.to_string(), w.version.to_string())).collect();
                    self.ask(of, "", None, &[of], &[], held);
                }
            }
        }
    }

    fn ask(
        &mut self,
        of: usize,
        nonce: &str,
        error: Option<Status>,
        more: &[usize],
        less: &[usize],
        held: Vec<(String, String)>,
    ) {
        let names = &mut self.names[of];
        names.retain(|name| !less.iter().any(|n| NAMES[*n] == *name));
        names.extend(more.iter().map(|n| NAMES[*n]));
        let said = Said { of: TYPES[of], nonce, error, names: &self.names[of], more, less, held };
        let request = D::request(said);
        self.feed(Input::Request(&request));
    }

    fn feed(&mut self, input: Input<'_, D::Request>) {
        let plain = Plain(&self.world);
        let events = (self.shared.handle(input, &self.world), self.plain.handle(input, &plain));
        assert_eq!(events.0, events.1);
        assert_eq!(hear(&mut self.wired, input, &self.world), events.1);
        loop {
            let sent = self.shared.next_parts(self.now, &self.world);
            assert_eq!(sent, self.plain.next_parts(self.now, &plain));
            assert_eq!(sent, self.wired.next_parts(self.now, &self.world));
            let Some(response) = sent else { break };
            if let Some(of) = TYPES.iter().position(|of| *of == response.type_url) {
                self.newest[of] = response.nonce.to_string();
            }
            self.open.push_back(response);
        }
        let progress = |source: &Source<D>| source.progress().collect::<Vec<_>>();
        assert_eq!(progress(&self.shared), progress(&self.plain));
        assert_eq!(self.shared.deadline(self.now), self.plain.deadline(self.now));
        let settled = |source: &Source<D>| (source.is_settled(), source.is_content());
        assert_eq!(settled(&self.shared), settled(&self.plain));
    }
}

/// Tells the engine that looks through requests before it reads them.
fn hear<D: Say>(
    wired: &mut Source<D>,
    input: Input<'_, D::Request>,
    world: &WantSnapshot,
) -> Result<Option<SourceEvent>, Malformed> {
    let Input::Request(request) = input else { return wired.handle(input, world) };
    let message = request.encode_to_vec();
    let outline = wired.outline(&message).unwrap();
    wired.admit(&outline).unwrap();
    match wired.repeat(&outline) {
        Some(repeat) => wired.handle(Input::Repeat(&repeat), world),
        None => {
            let request = D::Request::decode(&message[..]).unwrap();
            wired.handle(Input::Request(&request), world)
        }
    }
}

fn run<D: Say>(steps: &[Step]) {
    let mut run = Run::<D>::new();
    steps.iter().for_each(|step| run.step(step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn delta_says_the_same(steps in vec(step(), 0..100)) {
        run::<Delta>(&steps);
    }

    #[test]
    fn sotw_says_the_same(steps in vec(step(), 0..100)) {
        run::<Sotw>(&steps);
    }
}
