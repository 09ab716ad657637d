#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    compile::outbound::{CalledBy, CompiledCluster, CompiledListener},
    generator::XdsClient,
};

fn encoded(type_url: &'static str, name: &str, value: &str) -> Arc<Encoded> {
    Arc::new(Encoded::of_bytes(name, type_url, "test", value.as_bytes().to_vec()))
}

fn listener(backends: &[&str]) -> CompiledPart {
    let compiled = CompiledListener::of(encoded(type_url::LISTENER, "l", "listener"));
    let backends = backends.iter().map(|name| Destination::Service((*name).into())).collect();
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
