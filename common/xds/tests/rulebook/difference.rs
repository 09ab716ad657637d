//! R32-R45: the incremental variant.

use super::{Ask, CDS, Delta, EDS, LDS, Malformed, NOTHING, RDS, SDS, SourceSettings, Stream};
use crate::xds::{Version, Wanted, envoy};

fn version(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), Version::of(format!("{name}@{content}").as_bytes()).to_string())
}

/// What a peer that comes back is told first.
fn resumed(
    world: &[(&'static str, &str, &str)],
    type_url: &str,
    names: &[&str],
    held: &[(String, String)],
) -> (Vec<String>, Stream<Delta>) {
    let mut stream = Stream::<Delta>::new(world);
    let ask = Ask { held: held.to_vec(), ..stream.wish(type_url, names) };
    (stream.raw(&ask).unwrap(), stream)
}

#[test]
fn r32_delta_every_resource_has_a_version_of_its_own() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["*"]);
    let envelopes: Vec<_> =
        stream.newest().updated.iter().filter_map(|(envelope, _)| envelope.clone()).collect();
    assert_eq!(envelopes, [version("a", "1"), version("b", "1")]);
    stream.ack(CDS);
    assert_eq!(stream.change(&[(CDS, "b", "2")], &[]), ["Cluster b@2"], "the difference only");
}

#[test]
fn r33_delta_who_comes_back_is_told_the_difference() {
    let world = [(CDS, "same", "1"), (CDS, "altered", "2"), (CDS, "new", "1")];
    let held = [version("same", "1"), version("altered", "1"), version("gone", "1")];
    for names in [&["*"][..], &[]] {
        let (told, mut stream) = resumed(&world, CDS, names, &held);
        assert_eq!(told, ["Cluster altered@2 new@1 -gone"], "{names:?}");
        stream.ack(CDS);
        assert_eq!(stream.change(&[(CDS, "same", "2")], &[]), ["Cluster same@2"]);
    }
    let (told, _) = resumed(&world, CDS, &["same", "altered", "gone"], &held);
    assert_eq!(told, ["Cluster altered@2 -gone"]);
}

#[test]
fn r33_delta_what_is_held_and_not_asked_for_is_nobodys_concern() {
    let (told, _) = resumed(&[(EDS, "a", "1")], EDS, &["a"], &[version("a", "1"), version("other", "1")]);
    assert_eq!(told, ["ClusterLoadAssignment"], "all of it is current");
}

#[test]
fn r34_b16_delta_what_went_meanwhile_is_removed() {
    for (type_url, names) in [(CDS, &["*"][..]), (LDS, &["*"]), (SDS, &["gone"]), (EDS, &["gone"])] {
        // At a version that no process of ours ever made, too.
        for held in [version("gone", "1"), ("gone".to_owned(), "17".to_owned())] {
            let (_, stream) = resumed(&[], type_url, names, &[held]);
            assert_eq!(stream.newest().removed, ["gone"]);
        }
    }
}

#[test]
fn r35_b4_delta_what_is_subscribed_again_is_sent_again() {
    let mut stream = Stream::<Delta>::new(&[(EDS, "a", "1")]);
    let ask = stream.wish(EDS, &["a"]);
    stream.raw(&ask).unwrap();
    stream.ack(EDS);
    for _ in 0..3 {
        assert_eq!(stream.raw(&ask).unwrap(), ["ClusterLoadAssignment a@1"]);
        stream.ack(EDS);
    }
}

#[test]
fn r35_delta_also_while_the_answer_is_under_way() {
    let mut stream = Stream::<Delta>::new(&[(EDS, "a", "1")]);
    let ask = stream.wish(EDS, &["a"]);
    stream.raw(&ask).unwrap();
    assert_eq!(stream.raw(&ask).unwrap(), NOTHING);
    assert_eq!(stream.ack(EDS), ["ClusterLoadAssignment a@1"]);
}

#[test]
fn r36_b7_delta_a_name_that_does_not_exist_is_answered_at_once() {
    for type_url in [CDS, EDS, LDS, RDS, SDS, envoy::RUNTIME] {
        let mut stream = Stream::<Delta>::new(&[]);
        stream.want(type_url, &["missing"]);
        assert_eq!(stream.newest().removed, ["missing"]);
        stream.ack(type_url);
        stream.want(type_url, &["missing", "other"]);
        assert_eq!(stream.newest().removed, ["other"]);
        stream.ack(type_url);
        stream.change(&[(type_url, "missing", "1")], &[]);
        assert_eq!(stream.newest().contents(), ["missing@1"]);
    }
}

/// What else would have to wait until nothing can refer to it any more.
#[test]
fn r36_delta_although_listeners_are_unanswered_or_refused() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (LDS, "l", "1")]);
    stream.want(CDS, &["*"]);
    stream.ack(CDS);
    stream.want(LDS, &["*"]);
    assert_eq!(stream.want(CDS, &["*", "missing"]), ["Cluster -missing"], "listeners are unanswered");
    stream.ack(CDS);
    stream.nack(LDS);
    assert_eq!(stream.want(CDS, &["*", "missing", "too"]), ["Cluster -too"], "listeners are refused");
    stream.ack(CDS);
    assert_eq!(stream.change(&[], &[(CDS, "a")]), ["Cluster -a"], "no listener in use could need it");
}

#[test]
fn r37_delta_giving_up_what_was_not_asked_for_is_nothing() {
    let mut stream = Stream::<Delta>::new(&[(EDS, "a", "1"), (EDS, "b", "1")]);
    stream.want(EDS, &["a"]);
    stream.ack(EDS);
    for name in ["b", "missing", "*", ""] {
        let ask = Ask { unsubscribe: vec![name.to_owned()], ..stream.wish(EDS, &["a"]) };
        assert_eq!(stream.raw(&ask).unwrap(), NOTHING, "{name:?}");
    }
    assert_eq!(stream.change(&[(EDS, "a", "2")], &[]), ["ClusterLoadAssignment a@2"]);
}

#[test]
fn r38_delta_giving_up_is_answered_only_under_the_wildcard() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["*", "a", "missing"]);
    stream.ack(CDS);
    assert_eq!(stream.want(CDS, &["*", "missing"]), ["Cluster a@1"], "the wildcard covers it");
    stream.ack(CDS);
    assert_eq!(stream.want(CDS, &["*"]), ["Cluster -missing"], "and that there is none");
    stream.ack(CDS);
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["a", "b"]);
    stream.ack(CDS);
    assert_eq!(stream.want(CDS, &["b"]), NOTHING);
    assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), NOTHING);
}

#[test]
fn r38_delta_adding_and_giving_up_in_one_request_has_a_result() {
    for (subscribe, unsubscribe, told) in [
        ("a", "a", "Cluster"),
        ("*", "*", "Cluster"),
        ("a", "*", "Cluster a@1"),
        ("*", "a", "Cluster a@1 b@1"),
    ] {
        let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
        let ask = Ask {
            subscribe: vec![subscribe.into()],
            unsubscribe: vec![unsubscribe.into()],
            ..stream.wish(CDS, &[])
        };
        assert_eq!(stream.raw(&ask).unwrap(), [told], "+{subscribe} -{unsubscribe}");
        assert_eq!(stream.ack(CDS), NOTHING);
    }
}

#[test]
fn r39_delta_a_removal_is_told_once_and_the_name_stays_subscribed() {
    for (type_url, names) in [(CDS, &["*"][..]), (SDS, &["a"])] {
        let mut stream = Stream::<Delta>::new(&[(type_url, "a", "1")]);
        stream.want(type_url, names);
        stream.ack(type_url);
        stream.change(&[], &[(type_url, "a")]);
        assert_eq!(stream.newest().removed, ["a"]);
        assert_eq!(stream.ack(type_url), NOTHING);
        assert_eq!(stream.pump(), NOTHING);
        stream.change(&[(type_url, "a", "1")], &[]);
        assert_eq!(stream.newest().contents(), ["a@1"]);
    }
}

#[test]
fn r40_delta_extensions_are_never_removed() {
    let ecds = envoy::EXTENSION_CONFIG;
    let settings = SourceSettings::alone("cp", ecds);
    let mut stream = Stream::<Delta>::with(settings, &[(ecds, "filter", "1")]);
    stream.want(ecds, &["filter", "missing"]);
    assert_eq!(
        (stream.newest().contents(), &*stream.newest().removed),
        (vec!["filter@1".to_owned()], &[][..])
    );
    stream.ack(ecds);
    stream.change(&[], &[(ecds, "filter")]);
    stream.ack(ecds);
    assert!(stream.sent.iter().all(|sent| sent.removed.is_empty()));
    stream.change(&[(ecds, "filter", "2")], &[]);
    assert_eq!(stream.newest().contents(), ["filter@2"]);
}

#[test]
fn r43_delta_a_cluster_on_demand_is_answered_beside_no_wildcard() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "there", "1"), (CDS, "other", "1")]);
    assert_eq!(stream.want(CDS, &["there", "missing"]), ["Cluster there@1 -missing"]);
    stream.ack(CDS);
    assert_eq!(stream.change(&[(CDS, "other", "2")], &[]), NOTHING);
    assert_eq!(stream.change(&[(CDS, "missing", "1")], &[]), ["Cluster missing@1"]);
}

#[test]
fn r44_delta_a_late_answer_repeats_nothing() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["*"]);
    let late = stream.answer(CDS, None);
    stream.alter(&[(CDS, "b", "2")], &[]);
    assert_eq!(stream.raw(&late).unwrap(), ["Cluster b@2"], "a was sent");
    assert_eq!(stream.raw(&late).unwrap(), NOTHING, "and once more");
    stream.ack(CDS);
    assert!(stream.source.is_content());
}

#[test]
fn r44_delta_after_a_refusal_the_base_stays_what_was_accepted() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["*"]);
    stream.ack(CDS);
    stream.change(&[(CDS, "a", "2")], &[]);
    stream.nack(CDS);
    assert_eq!(stream.change(&[(CDS, "b", "2")], &[]), ["Cluster b@2"]);
    stream.ack(CDS);
    assert_eq!(stream.change(&[(CDS, "a", "1")], &[]), ["Cluster a@1"], "it may have taken a@2 in part");
}

#[test]
fn r44_b27_delta_innocent_names_of_a_refused_response_are_offered_again() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "bad", "1"), (CDS, "good", "1")]);
    stream.want(CDS, &["*"]);
    stream.nack(CDS);
    stream.source.reconsider();
    assert_eq!(stream.pump(), ["Cluster bad@1 good@1"], "when the pause after a refusal is over");
}

#[test]
fn r45_delta_a_difference_is_split_where_its_bytes_are_bounded() {
    let names: Vec<String> = (0..100).map(|n| format!("c{n:02}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (CDS, &**name, "1")).collect();
    let settings = SourceSettings { limit: Some(1024), ..SourceSettings::ads("cp") };
    let mut stream = Stream::<Delta>::with(settings, &resources);
    stream.want(CDS, &["*"]);
    stream.settle();
    let told: Vec<String> = stream.sent.iter().flat_map(super::Sent::names).collect();
    assert!(told == names && stream.sent.len() > 5, "{} responses", stream.sent.len());
}

/// What fits is not split, whatever the bound; and what does not fit ends with the last part of it.
#[test]
fn r45_delta_parts_are_as_few_as_fit() {
    let resources = [(CDS, "a", "1"), (CDS, "b", "1"), (CDS, "c", "1")];
    let mut whole = Stream::<Delta>::new(&resources);
    whole.want(CDS, &["*"]);
    assert_eq!((whole.sent.len(), whole.newest().version.as_str()), (1, ""));
    let size = whole.world.list(CDS).map(Wanted::size).sum();
    for (limit, parts) in [(size, 1), (size - 1, 2), (size / 3, 3), (1, 3)] {
        let settings = SourceSettings { limit: Some(limit), ..SourceSettings::ads("cp") };
        let mut stream = Stream::<Delta>::with(settings, &resources);
        stream.want(CDS, &["*"]);
        stream.settle();
        assert_eq!(stream.sent.len(), parts, "{limit} bytes");
        stream.change(&[(CDS, "b", "2")], &[]);
        assert_eq!(stream.newest().contents(), ["b@2"], "{limit} bytes: all of it is known to be there");
    }
}

#[test]
fn r45_delta_a_missing_name_is_told_at_the_end_of_what_is_split_although_listeners_are_unanswered() {
    let settings = SourceSettings { limit: Some(1024), ..SourceSettings::ads("cp") };
    let names: Vec<String> = (0..100).map(|n| format!("c{n:02}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (CDS, &**name, "1")).collect();
    let mut stream = Stream::<Delta>::with(settings, &resources);
    stream.want(LDS, &["*"]);
    let asked: Vec<&str> = names.iter().map(String::as_str).chain(["missing"]).collect();
    stream.want(CDS, &asked);
    while !stream.ack(CDS).is_empty() {}
    assert!(stream.sent.len() > 5, "{} responses", stream.sent.len());
    assert_eq!(stream.newest().removed, ["missing"]);
}

#[test]
fn r45_delta_ten_thousand_names_are_taken_and_a_million_are_not() {
    let held: Vec<_> = (0..10_000).map(|n| version(&format!("cluster-{n}"), "1")).collect();
    let (told, _) = resumed(&[(CDS, "a", "1")], CDS, &["*"], &held);
    assert_eq!(told.len(), 1);
    let names: Vec<String> = (0..1_000_000).map(|n| n.to_string()).collect();
    let mut stream = Stream::<Delta>::new(&[]);
    let ask = Ask { subscribe: names, ..stream.wish(CDS, &[]) };
    let refused = stream.raw(&ask).unwrap_err();
    assert!(matches!(refused, Malformed::TooManyNames { .. }) && refused.is_excess());
}

#[test]
fn r53_delta_what_hangs_on_a_parent_that_is_gone_is_answered() {
    for held in [vec![], vec![version("gone", "1")]] {
        let (told, _) = resumed(&[], EDS, &["gone"], &held);
        assert_eq!(told, ["ClusterLoadAssignment -gone"]);
    }
}
