#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    compile::outbound::{CalledBy, CompiledCluster, CompiledListener},
    generator::XdsClient,
    mesh::ServiceSubset,
};

fn encoded(type_url: &'static str, name: &str, value: &str) -> Arc<Encoded> {
    Arc::new(Encoded::of_bytes(name, type_url, "test", value.as_bytes().to_vec()))
}

/// A service, or with a plus before its name a part of one.
fn destination(name: &str) -> Destination {
    let Some(service) = name.strip_prefix('+') else { return Destination::Service(name.into()) };
    let tags = [("kuma.io/service", service), ("version", "v1")];
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Destination::Subset(Arc::new(ServiceSubset { service: service.into(), tags }))
}

fn listener(backends: &[&str]) -> CompiledPart {
    let compiled = CompiledListener::of(encoded(type_url::LISTENER, "l", "listener"));
    let backends = backends.iter().map(|name| destination(name)).collect();
    CompiledPart::Listener(Arc::new(CompiledListener { backends, ..compiled }))
}

/// What a part becomes: all clusters, and all endpoints, have one name.
fn made(part: &Part) -> CompiledPart {
    match part {
        Part::Cluster(_, destination) => CompiledPart::Cluster(Arc::new(CompiledCluster {
            cluster: Some(encoded(type_url::CLUSTER, "c", &format!("{destination:?}"))),
            nearness: None,
            client: XdsClient::Envoy,
            problems: BTreeSet::new(),
        })),
        Part::Assignment(assigned) => {
            let value = format!("{:?}", assigned.destination);
            CompiledPart::Assignment(encoded(type_url::ENDPOINT, "c", &value))
        }
        Part::Listener(..) | Part::Front(..) => unreachable!("those are made by hand"),
    }
}

/// One set, and its parts.
struct Bench {
    parts: Parts,
    sets: Sets,
    id: SetId,
    call: Part,
}

impl Bench {
    fn new() -> Self {
        let (mut parts, mut sets) = (Parts::default(), Sets::default());
        let destination = Destination::Service("a".into());
        let call = Arc::new(OutboundCall { by: CalledBy::Name("l".into()), destination });
        let calls = [Arc::clone(&call)].into();
        let (id, _) = sets.join(&"p".into(), 0, calls, [].into(), Affinity::default(), &mut parts);
        Self { parts, sets, id, call: Part::Listener(0, call) }
    }

    /// Makes the listener, and everything that is new with it.
    fn make(&mut self, backends: &[&str]) {
        self.make_as(backends, made);
    }

    /// The same with what else there is becoming this.
    fn make_as(&mut self, backends: &[&str], made: impl Fn(&Part) -> CompiledPart) {
        if let Some(slot) = self.parts.get_mut(&self.call).filter(|slot| slot.made.is_some()) {
            slot.dirty = true;
            self.sets.await_part(&[self.id].into());
        }
        let mut new = vec![(self.call.clone(), listener(backends))];
        while let Some((part, made_of_it)) = new.pop() {
            let before = self.parts.made(&part, made_of_it);
            let (more, _) = self.sets.compiled(&part, before, &mut self.parts);
            new.extend(more.into_iter().map(|part| (part.clone(), made(&part))));
        }
    }

    /// What is published under the one name, and what is told of it.
    fn has(&self) -> (Vec<String>, Vec<String>) {
        let set = self.sets.get(self.id).unwrap();
        let published = set.published.as_ref().unwrap();
        let value =
            |of_type| published.get(of_type, "c").map(|c| String::from_utf8_lossy(&c.value).into_owned());
        let values = [type_url::CLUSTER, type_url::ENDPOINT].into_iter().filter_map(value);
        let problems = set.problems(&self.parts).map(ToString::to_string);
        (values.collect(), problems.collect())
    }
}

#[test]
fn of_parts_of_one_name_the_first_is_sent_and_that_is_told_until_there_is_one() {
    let service = |name: &str| format!("{:?}", Destination::Service(name.into()));
    let twice = |what: &str| format!("{what} \"c\": is there 2 times, and not the same: one of them is sent");
    for order in [["a", "b"], ["b", "a"]] {
        let mut bench = Bench::new();
        bench.make(&order[..1]);
        assert_eq!(bench.has(), (vec![service(order[0]); 2], vec![]));
        bench.make(&order);
        let told = vec![twice("Cluster"), twice("ClusterLoadAssignment")];
        let (values, mut problems) = bench.has();
        problems.sort();
        assert_eq!((values, problems), (vec![service("a"); 2], told), "whoever came first");
        bench.make(&["b"]);
        assert_eq!(bench.has(), (vec![service("b"); 2], vec![]));
        bench.make(&[]);
        assert_eq!(bench.has(), (vec![], vec![]));
    }
}

/// Whoever is called like the cluster of a part of a service, in whatever order both come and whatever they had before.
#[test]
fn a_service_takes_no_cluster_of_a_part_of_another() {
    let part = format!("{:?}", destination("+b"));
    for order in [["a-1", "+b"], ["+b", "a-1"]] {
        let mut bench = Bench::new();
        bench.make(&order[..1]);
        bench.make(&order);
        let (values, problems) = bench.has();
        assert_eq!(values, vec![part.clone(); 2], "{order:?}");
        let told = "is there 2 times, and not the same: that of no service of this name is sent";
        assert!(problems.len() == 2 && problems.iter().all(|p| p.ends_with(told)), "{problems:?}");
        let set = bench.sets.get(bench.id).unwrap();
        assert!(set.problems(&bench.parts).all(|problem| !problem.is_lack() && problem.is_of_envoy()));
    }
}

/// However much else there is.
#[test]
fn what_has_a_name_is_found_by_it() {
    let mut bench = Bench::new();
    let found = |bench: &Bench, profile: ProfileId, name: &str| {
        let at = |type_url| EnvoyResource { type_url, name: name.into() };
        [type_url::CLUSTER, type_url::ENDPOINT].map(|of_type| bench.parts.at(profile, &at(of_type)).count())
    };
    bench.make(&["a", "+b"]);
    assert_eq!((found(&bench, 0, "c"), found(&bench, 0, "d")), ([2, 2], [0, 0]));
    assert_eq!(found(&bench, 1, "c"), [0, 2], "endpoints are of no profile");
    let renamed = CompiledCluster {
        cluster: Some(encoded(type_url::CLUSTER, "d", "a")),
        nearness: None,
        client: XdsClient::Envoy,
        problems: BTreeSet::new(),
    };
    bench.parts.made(&Part::Cluster(0, destination("a")), CompiledPart::Cluster(Arc::new(renamed)));
    assert_eq!((found(&bench, 0, "c"), found(&bench, 0, "d")), ([1, 2], [1, 0]));
    bench.make(&["+b"]);
    assert_eq!((found(&bench, 0, "c"), found(&bench, 0, "d")), ([1, 1], [0, 0]));
    bench.make(&[]);
    assert_eq!(found(&bench, 0, "c"), [0, 0]);
}

/// Where nobody serves either, both have the same endpoints, until one has some.
#[test]
fn endpoints_that_were_the_same_are_not_taken_for_those_of_another() {
    let mut bench = Bench::new();
    let assigned =
        |name: &str| Assigned { destination: destination(name), placement: None, client: XdsClient::Envoy };
    bench.make_as(&["a-1", "+b"], |part| match part {
        Part::Assignment(_) => CompiledPart::Assignment(encoded(type_url::ENDPOINT, "c", "nobody")),
        other => made(other),
    });
    assert_eq!(bench.has().0[1], "nobody");
    let of_thief = encoded(type_url::ENDPOINT, "c", "the thief");
    let part = Part::Assignment(assigned("a-1"));
    bench.parts.made(&part, CompiledPart::Assignment(Arc::clone(&of_thief)));
    bench.sets.reassigned(&of_thief, &[bench.id].into(), &bench.parts);
    assert_eq!(bench.has().0[1], "nobody");
    // Who has the name has its endpoints.
    let own = encoded(type_url::ENDPOINT, "c", "somebody");
    bench.parts.made(&Part::Assignment(assigned("+b")), CompiledPart::Assignment(Arc::clone(&own)));
    bench.sets.reassigned(&own, &[bench.id].into(), &bench.parts);
    assert_eq!(bench.has().0[1], "somebody");
    bench.make(&["+b"]);
    assert_eq!(bench.has(), (vec![format!("{:?}", destination("+b")), "somebody".to_owned()], vec![]));
}
