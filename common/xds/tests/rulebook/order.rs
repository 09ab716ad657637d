//! R46-R56, R70: which type comes when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{CDS, Delta, EDS, LDS, NOTHING, RDS, SDS, Sotw, SourceSettings, Stream, Variant, both};
use crate::xds::{Input, Name, Version, Want, Wanted};

const ALL: [(&str, &str); 5] = [(CDS, "*"), (EDS, "c"), (SDS, "s"), (LDS, "*"), (RDS, "r")];

/// A peer that has taken one resource of each type.
fn settled<D: Variant>() -> Stream<D> {
    let mut stream = Stream::<D>::new(&[
        (CDS, "c", "1"),
        (EDS, "c", "1"),
        (SDS, "s", "1"),
        (LDS, "l", "1"),
        (RDS, "r", "1"),
    ]);
    for (type_url, name) in ALL {
        stream.want(type_url, &[name]);
        stream.settle();
    }
    stream
}

/// Types in the order in which they were sent since then.
fn types<D: Variant>(stream: &Stream<D>, since: usize) -> Vec<&str> {
    stream.sent[since..].iter().map(|sent| sent.type_url.rsplit('.').next().unwrap()).collect()
}

fn additions_go_down_the_chain<D: Variant>() {
    let mut stream = settled::<D>();
    let since = stream.sent.len();
    let all = [(CDS, "c", "2"), (EDS, "c", "2"), (SDS, "s", "2"), (LDS, "l", "2"), (RDS, "r", "2")];
    stream.change(&all, &[]);
    stream.settle();
    let order = ["Cluster", "ClusterLoadAssignment", "Secret", "Listener", "RouteConfiguration"];
    assert_eq!(types(&stream, since), order);
}
both!(r46_b9_b33_additions_go_from_clusters_to_routes, additions_go_down_the_chain);

/// What a peer uses that has read all that was sent, and has answered some of it.
#[derive(Debug)]
struct Used {
    clusters: BTreeSet<String>,
    /// What listeners and routes send to, by type.
    to: BTreeMap<String, String>,
}

impl Used {
    /// A response may be read before any other is answered.
    fn read<D: Variant>(&mut self, sent: &super::Sent, unanswered: &[&str], order: &[&str]) {
        let is_unanswered = |type_url: &str| unanswered.contains(&type_url);
        match &*sent.type_url {
            CDS => {
                let before = self.clusters.clone();
                if !D::IS_DELTA {
                    self.clusters.clear();
                }
                self.clusters.extend(sent.names());
                self.clusters.retain(|name| !sent.removed.contains(name));
                for gone in before.difference(&self.clusters) {
                    let users = self.to.iter().filter(|(_, to)| *to == gone);
                    assert_eq!(users.count(), 0, "{gone} is used, after answers for {order:?}");
                    let is_over = !is_unanswered(LDS) && !is_unanswered(RDS);
                    assert!(is_over, "{gone} may be used still, after answers for {order:?}");
                }
            }
            LDS | RDS => {
                for content in sent.contents() {
                    let to = content.split_once("@to ").map(|(_, to)| to.to_owned()).unwrap();
                    assert!(self.clusters.contains(&to), "{content} without its cluster after {order:?}");
                    assert!(!is_unanswered(CDS), "{content} before the answer for clusters, after {order:?}");
                    self.to.insert(sent.type_url.clone(), to);
                }
            }
            _ => {}
        }
    }
}

const CHAIN: [&str; 5] = [CDS, EDS, SDS, LDS, RDS];

/// A stream on which clusters, and what uses them, were exchanged, and these types were answered one after the other.
/// Gives the types that wait for an answer.
fn exchanged<D: Variant>(order: &[&str]) -> (Stream<D>, Vec<&'static str>) {
    let mut stream = Stream::<D>::new(&[
        (CDS, "c", "1"),
        (EDS, "c", "1"),
        (SDS, "s", "1"),
        (LDS, "l", "to c"),
        (RDS, "r", "to c"),
    ]);
    let names: [&[&str]; 5] = [&["*"], &["c", "d"], &["s"], &["*"], &["r"]];
    for (type_url, names) in CHAIN.into_iter().zip(names) {
        stream.want(type_url, names);
        stream.settle();
    }
    let to = |type_url: &str| (type_url.to_owned(), "c".to_owned());
    let mut used = Used { clusters: ["c".to_owned()].into(), to: [to(LDS), to(RDS)].into() };
    let mut read = stream.sent.len();
    let unanswered = |stream: &Stream<D>| -> Vec<&'static str> {
        let waits = |type_url: &&str| stream.source.in_flight_since(type_url).is_some();
        CHAIN.into_iter().filter(waits).collect()
    };
    let put = [(CDS, "d", "1"), (EDS, "d", "1"), (SDS, "s", "2"), (LDS, "l", "to d"), (RDS, "r", "to d")];
    stream.change(&put, &[(CDS, "c"), (EDS, "c")]);
    for at in 0..=order.len() {
        let waiting = unanswered(&stream);
        for sent in &stream.sent[read..] {
            // What came together with it is unanswered as well.
            let of_others: Vec<&str> = waiting.iter().copied().filter(|of| **of != *sent.type_url).collect();
            used.read::<D>(sent, &of_others, &order[..at]);
        }
        read = stream.sent.len();
        if let Some(type_url) = order.get(at) {
            stream.ack(type_url);
        }
    }
    if unanswered(&stream).is_empty() {
        assert!(stream.source.is_settled(), "{order:?} leaves something unsaid");
        assert_eq!(used.clusters, ["d".to_owned()].into(), "{order:?}");
        assert!(used.to.values().all(|to| to == "d"), "{order:?}");
    }
    let waiting = unanswered(&stream);
    (stream, waiting)
}

/// Every order in which a peer can answer, to the end.
fn whatever_is_answered_first<D: Variant>() {
    let (mut begun, mut ended) = (vec![Vec::new()], 0);
    while let Some(order) = begun.pop() {
        let (_, waiting) = exchanged::<D>(&order);
        ended += usize::from(waiting.is_empty());
        begun.extend(waiting.into_iter().map(|next| [&order[..], &[next]].concat()));
    }
    assert!(ended > 50, "{ended} orders");
}
both!(
    r47_a_cluster_is_there_before_and_until_something_refers_to_it_in_every_order_of_answers,
    whatever_is_answered_first
);

fn endpoints_do_not_wait_for_clusters<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "c", "1"), (EDS, "c", "1"), (SDS, "s", "1"), (LDS, "l", "1")]);
    assert_eq!(stream.want(CDS, &["*"]), ["Cluster c@1"]);
    assert_eq!(stream.want(EDS, &["c"]), ["ClusterLoadAssignment c@1"], "the clusters are unanswered");
    assert_eq!(stream.want(SDS, &["s"]), ["Secret s@1"], "they may need it to get warm");
    stream.ack(EDS);
    assert_eq!(stream.change(&[(EDS, "c", "2")], &[]), ["ClusterLoadAssignment c@2"]);
}
both!(r48_endpoints_and_secrets_never_wait_for_the_answer_of_clusters, endpoints_do_not_wait_for_clusters);

fn listeners_wait_only_so_long<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "c", "1"), (LDS, "l", "1")]);
    stream.want(CDS, &["*"]);
    assert_eq!(stream.want(LDS, &["*"]), NOTHING);
    stream.now += Duration::from_secs(6);
    assert_eq!(stream.pump(), ["Listener l@1"]);
}
both!(r48_a_cluster_that_does_not_get_warm_holds_up_listeners_for_a_while, listeners_wait_only_so_long);

fn a_cluster_that_is_sent_gets_its_endpoints<D: Variant>() {
    let mut stream = settled::<D>();
    let again = ["Cluster c@2", "ClusterLoadAssignment c@1"];
    assert_eq!(stream.change(&[(CDS, "c", "2")], &[]), again, "changed");
    stream.settle();
    stream.change(&[], &[(CDS, "c")]);
    stream.settle();
    let again = ["Cluster c@2", "ClusterLoadAssignment c@1"];
    assert_eq!(stream.change(&[(CDS, "c", "2")], &[]), again, "taken away and brought back");
}
both!(r49_b8_a_cluster_that_is_sent_is_followed_by_its_endpoints, a_cluster_that_is_sent_gets_its_endpoints);

/// The answer to endpoints of before the change comes after it.
fn a_late_answer_of_endpoints<D: Variant>() {
    let mut stream = settled::<D>();
    stream.change(&[(EDS, "c", "2")], &[]);
    let late = stream.answer(EDS, None);
    assert_eq!(stream.change(&[(CDS, "c", "2")], &[]), ["Cluster c@2"]);
    assert_eq!(stream.raw(&late).unwrap(), ["ClusterLoadAssignment c@2"], "for the new cluster");
}
both!(r49_b28_also_when_endpoints_were_under_way, a_late_answer_of_endpoints);

fn new_names_get_what_they_name<D: Variant>() {
    let mut stream = settled::<D>();
    stream.change(&[(LDS, "l", "2"), (RDS, "r2", "1"), (SDS, "s2", "1")], &[]);
    assert_eq!(stream.want(RDS, &["r", "r2"]), ["RouteConfiguration r2@1"]);
    assert_eq!(stream.want(SDS, &["s", "s2"]), ["Secret s2@1"]);
}
both!(r50_a_new_name_of_a_route_or_secret_is_answered_at_once, new_names_get_what_they_name);

fn a_secret_is_replaced_alone<D: Variant>() {
    let mut stream = settled::<D>();
    assert_eq!(stream.change(&[(SDS, "s", "2")], &[]), ["Secret s@2"]);
    assert_eq!(stream.settle(), NOTHING);
}
both!(r51_a_new_secret_touches_no_listener_or_cluster, a_secret_is_replaced_alone);

#[test]
fn r53_sotw_what_hangs_on_a_parent_that_is_gone_is_answered() {
    let mut stream = Stream::<Sotw>::new(&[]);
    assert_eq!(stream.want(EDS, &["gone"]), ["ClusterLoadAssignment gone@vacant"]);
    assert_eq!(stream.want(RDS, &["gone"]), ["RouteConfiguration"]);
}

fn endpoints_first<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "c", "1"), (EDS, "c", "1")]);
    assert_eq!(stream.want(EDS, &["c"]), ["ClusterLoadAssignment c@1"]);
    stream.ack(EDS);
    assert_eq!(stream.change(&[(EDS, "c", "2")], &[]), ["ClusterLoadAssignment c@2"]);
}
both!(r54_b18_endpoints_are_served_without_clusters, endpoints_first);

#[test]
fn r55_b33_sotw_no_names_of_endpoints_are_none() {
    let mut stream = Stream::<Sotw>::new(&[(EDS, "c", "1")]);
    assert_eq!(stream.want(EDS, &[]), ["ClusterLoadAssignment"]);
    stream.ack(EDS);
    assert_eq!(stream.change(&[(EDS, "c", "2")], &[]), NOTHING);
    assert_eq!(stream.want(EDS, &["c"]), ["ClusterLoadAssignment c@2"]);
}

fn many_changes_make_few_responses<D: Variant>() {
    let mut stream = settled::<D>();
    let since = stream.sent.len();
    for generation in 2..100 {
        stream.change(&[(CDS, "c", &generation.to_string())], &[]);
    }
    stream.settle();
    let clusters = stream.sent[since..].iter().filter(|sent| sent.type_url == CDS).count();
    assert_eq!(clusters, 2, "the first, and the last");
}
both!(r56_changes_of_clusters_merge, many_changes_make_few_responses);

/// Of which nothing is known yet.
struct Unknown;

impl Want for Unknown {
    fn revision(&self) -> u64 {
        0
    }

    fn ready(&self, _: &str) -> bool {
        false
    }

    fn each(&self, _: &str, _: &mut dyn FnMut(&Name, Version)) {}

    fn get(&self, _: &str, _: &str) -> Option<Wanted> {
        None
    }
}

fn not_ready_is_not_empty<D: Variant>() {
    let mut stream = Stream::<D>::with(SourceSettings::ads("cp"), &[(CDS, "c", "1"), (LDS, "l", "1")]);
    for type_url in [CDS, LDS] {
        let request = D::request(&stream.wish(type_url, &["*"]));
        stream.source.handle(Input::Request(&request), &Unknown).unwrap();
        assert!(stream.source.next(stream.now, &Unknown).is_none());
    }
    assert_eq!(stream.pump(), ["Cluster c@1"]);
    assert_eq!(stream.ack(CDS), ["Listener l@1"]);
}
both!(r70_b19_nothing_is_said_before_it_is_known, not_ready_is_not_empty);

#[test]
fn r52_delta_endpoints_follow_the_cluster_and_not_the_request_for_them() {
    let mut stream = settled::<Delta>();
    for generation in 2..5 {
        let sent = stream.change(&[(CDS, "c", &generation.to_string())], &[]);
        assert_eq!(sent.last().map(String::as_str), Some("ClusterLoadAssignment c@1"), "nobody asked again");
        stream.settle();
    }
}
