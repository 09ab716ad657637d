//! R27-R31: the state of the world.

use super::{Ask, CDS, EDS, LDS, NOTHING, RDS, SDS, Sotw, SourceSettings, Stream};

#[test]
fn r27_sotw_clusters_and_listeners_come_whole() {
    for type_url in [CDS, LDS] {
        let mut stream = Stream::<Sotw>::new(&[(type_url, "a", "1"), (type_url, "b", "1")]);
        stream.want(type_url, &["*"]);
        stream.ack(type_url);
        stream.change(&[(type_url, "a", "2")], &[]);
        assert_eq!(stream.newest().contents(), ["a@2", "b@1"]);
        stream.ack(type_url);
        stream.change(&[], &[(type_url, "a")]);
        assert_eq!(stream.newest().contents(), ["b@1"]);
        stream.ack(type_url);
        stream.change(&[], &[(type_url, "b")]);
        assert_eq!(stream.newest().updated, []);
        assert_eq!(stream.sent.len(), 4, "one response for each change");
    }
}

#[test]
fn r27_sotw_who_must_have_nothing_is_told_so() {
    for type_url in [CDS, LDS] {
        let mut stream = Stream::<Sotw>::new(&[]);
        assert_eq!(stream.want(type_url, &[]).len(), 1);
        assert_eq!((stream.newest().updated.len(), stream.newest().version.is_empty()), (0, false));
    }
}

#[test]
fn r28_sotw_of_other_types_what_changed_is_enough_and_what_is_gone_goes_with_its_parent() {
    for type_url in [EDS, RDS, SDS] {
        let mut stream = Stream::<Sotw>::new(&[(type_url, "a", "1"), (type_url, "b", "1")]);
        stream.want(type_url, &["a", "b"]);
        stream.ack(type_url);
        stream.change(&[(type_url, "a", "2")], &[]);
        assert_eq!(stream.newest().contents(), ["a@2"]);
        stream.ack(type_url);
        assert_eq!(stream.change(&[], &[(type_url, "a")]), NOTHING);
        assert_eq!(stream.change(&[(type_url, "b", "2")], &[]).len(), 1);
        assert_eq!(stream.newest().contents(), ["b@2"]);
    }
}

/// Of 100 endpoints one changes; the others are not in the answer and are not deleted by that.
#[test]
fn r28_b17_sotw_a_partial_answer_is_about_what_is_in_it() {
    let names: Vec<String> = (0..100).map(|n| format!("c{n:02}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (EDS, &**name, "1")).collect();
    let mut stream = Stream::<Sotw>::new(&resources);
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    stream.want(EDS, &asked);
    stream.ack(EDS);
    assert_eq!(stream.change(&[(EDS, "c07", "2")], &[]), ["ClusterLoadAssignment c07@2"]);
}

#[test]
fn r29_b5_sotw_what_exists_is_sent_at_once() {
    for type_url in [CDS, LDS, RDS, SDS] {
        let mut stream = Stream::<Sotw>::new(&[(type_url, "a", "1")]);
        assert_eq!(stream.want(type_url, &["a", "missing"]).len(), 1);
        assert_eq!(stream.newest().contents(), ["a@1"]);
        stream.ack(type_url);
        stream.change(&[(type_url, "missing", "1")], &[]);
        let whole = [CDS, LDS].contains(&type_url);
        assert_eq!(
            stream.newest().contents(),
            if whole { vec!["a@1", "missing@1"] } else { vec!["missing@1"] }
        );
    }
}

#[test]
fn r29_sotw_a_cluster_without_endpoints_does_not_wait_for_them() {
    let mut stream = Stream::<Sotw>::new(&[(EDS, "a", "1")]);
    stream.want(EDS, &["a", "missing"]);
    assert_eq!(stream.newest().contents(), ["a@1", "missing@vacant"]);
}

#[test]
fn r30_sotw_a_new_stream_is_answered_whatever_version_it_has() {
    let mut first = Stream::<Sotw>::new(&[(CDS, "a", "1"), (EDS, "a", "1")]);
    for (type_url, names) in [(CDS, &[][..]), (EDS, &["a"])] {
        first.want(type_url, names);
        let version = first.newest().version.clone();
        let mut second = Stream::<Sotw>::over(SourceSettings::ads("cp"), first.world.clone());
        let ask = Ask { version, ..second.wish(type_url, names) };
        assert_eq!(second.raw(&ask).unwrap().len(), 1);
        assert_eq!(second.newest().contents(), ["a@1"]);
    }
}

#[test]
fn r31_sotw_wanting_less_is_not_answered_and_what_remains_is_sent() {
    for type_url in [CDS, LDS, EDS, RDS] {
        let mut stream = Stream::<Sotw>::new(&[(type_url, "a", "1"), (type_url, "b", "1")]);
        stream.want(type_url, &["a", "b"]);
        stream.ack(type_url);
        assert_eq!(stream.want(type_url, &["b"]), NOTHING);
        stream.change(&[(type_url, "a", "2"), (type_url, "b", "2")], &[]);
        assert_eq!(stream.newest().contents(), ["b@2"]);
        assert_eq!(stream.sent.len(), 2);
    }
}
