//! R9-R12: what a list of names means, and what no names mean.

use super::{CDS, Delta, EDS, LDS, NOTHING, RDS, SDS, Sotw, Stream, Variant, both};

/// Contents of clusters of the newest generation that the peer is told about when all of them change.
fn heard<D: Variant>(stream: &mut Stream<D>, generation: &str) -> Vec<String> {
    stream.settle();
    let before = stream.sent.len();
    stream.change(&[(CDS, "A", generation), (CDS, "B", generation)], &[]);
    stream.settle();
    let news = stream.sent[before..].iter().flat_map(super::Sent::names);
    let mut news: Vec<String> = news.collect();
    news.sort();
    news
}

fn wildcard_beside_names<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "A", "1"), (CDS, "B", "1")]);
    assert_eq!(stream.want(CDS, &["*", "A", "missing"])[0].replace(" -missing", ""), "Cluster A@1 B@1");
    assert_eq!(heard(&mut stream, "2"), ["A", "B"]);
}
both!(r9_a_wildcard_may_stand_beside_names, wildcard_beside_names);

fn who_never_named_anything_means_all<D: Variant>() {
    for type_url in [CDS, LDS] {
        let mut stream = Stream::<D>::new(&[(type_url, "A", "1"), (type_url, "B", "1")]);
        let shown = stream.want(type_url, &[]);
        assert!(shown.len() == 1 && shown[0].ends_with(" A@1 B@1"), "{shown:?}");
    }
    for type_url in [EDS, RDS, SDS] {
        let mut stream = Stream::<D>::new(&[(type_url, "A", "1")]);
        stream.want(type_url, &[]);
        assert_eq!(stream.newest().updated, [], "{type_url} has no wildcard");
    }
}
both!(r10_no_names_mean_all_listeners_and_clusters, who_never_named_anything_means_all);

#[test]
fn r11_b14_sotw_after_names_no_names_mean_nothing() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "A", "1"), (CDS, "B", "1")]);
    let expected: [(&[&str], &[&str]); 5] =
        [(&[], &["A", "B"]), (&["*"], &["A", "B"]), (&["*", "A"], &["A", "B"]), (&["A"], &["A"]), (&[], &[])];
    for (generation, (names, told)) in expected.into_iter().enumerate() {
        stream.want(CDS, names);
        assert_eq!(heard(&mut stream, &(generation + 2).to_string()), told, "after {names:?}");
    }
}

#[test]
fn r11_sotw_neither_do_they_in_a_request_without_nonce() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "A", "1"), (CDS, "B", "1")]);
    stream.want(CDS, &["A"]);
    stream.ack(CDS);
    let ask = stream.wish(CDS, &[]);
    assert_eq!(stream.raw(&ask).unwrap(), ["Cluster"], "it starts over with nothing");
    assert_eq!(heard(&mut stream, "2"), NOTHING);
}

#[test]
fn r12_b14_delta_the_implied_wildcard_ends_by_name_only() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "A", "1"), (CDS, "B", "1")]);
    let step = |stream: &mut Stream<Delta>, subscribe: &[&str], unsubscribe: &[&str], generation: &str| {
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let (subscribe, unsubscribe) = (texts(subscribe), texts(unsubscribe));
        let ask = super::Ask { subscribe, unsubscribe, ..stream.wish(CDS, &[]) };
        stream.raw(&ask).unwrap();
        heard(stream, generation)
    };
    assert_eq!(step(&mut stream, &[], &[], "2"), ["A", "B"]);
    assert_eq!(step(&mut stream, &["A"], &[], "3"), ["A", "B"]);
    assert_eq!(step(&mut stream, &[], &["*"], "4"), ["A"]);
    assert_eq!(step(&mut stream, &[], &["A"], "5"), NOTHING);
}

/// What a client means that drops its last name.
fn the_last_name_ends_it<D: Variant>() {
    for last in [&[][..], &[""]] {
        let mut stream = Stream::<D>::new(&[(CDS, "A", "1"), (CDS, "B", "1")]);
        stream.want(CDS, &["A"]);
        stream.ack(CDS);
        assert_eq!(stream.want(CDS, last), NOTHING, "{last:?}");
        assert_eq!(heard(&mut stream, "2"), NOTHING);
    }
}
both!(r12a_b34_who_drops_the_last_name_wants_nothing, the_last_name_ends_it);

fn the_wildcard_follows_the_world<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "A", "1")]);
    stream.want(CDS, &["*"]);
    stream.ack(CDS);
    let came = stream.change(&[(CDS, "B", "1")], &[(CDS, "A")]);
    assert_eq!(came, [if D::IS_DELTA { "Cluster B@1 -A" } else { "Cluster B@1" }]);
}
both!(r12b_what_all_means_may_change, the_wildcard_follows_the_world);
