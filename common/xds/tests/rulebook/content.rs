//! R20-R26, R57, R58, R61, R71, R76: versions, and what is in a response of either variant.

use std::collections::BTreeSet;

use super::{Ask, CDS, Delta, EDS, LDS, NOTHING, RDS, SDS, Sent, SourceSettings, Stream, Variant, both};

/// Versions the peer gets of these resources.
fn versions<D: Variant>(resources: &[(&'static str, &str, &str)]) -> Vec<String> {
    let mut stream = Stream::<D>::new(resources);
    stream.want(CDS, &["*"]);
    let Sent { version, updated, .. } = stream.newest();
    let named = updated.iter().filter_map(|(envelope, _)| Some(envelope.as_ref()?.1.clone()));
    let named: Vec<String> = named.collect();
    if D::IS_DELTA { named } else { vec![version.clone()] }
}

fn versions_follow_the_content<D: Variant>() {
    let one = versions::<D>(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    assert_eq!(versions::<D>(&[(CDS, "b", "1"), (CDS, "a", "1")]), one, "another process, another order");
    assert_ne!(versions::<D>(&[(CDS, "a", "2"), (CDS, "b", "1")]), one);
    assert_ne!(versions::<D>(&[(CDS, "a", "1")]), one);
    assert!(one.iter().all(|version| !version.is_empty()));
}
both!(r20_b24_b32_versions_are_of_the_content_and_the_same_from_every_replica, versions_follow_the_content);

fn only_changes_are_sent<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (EDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    stream.settle();
    assert_eq!(stream.change(&[(CDS, "a", "1")], &[]), NOTHING, "the same again");
    assert_eq!(stream.change(&[(EDS, "b", "1"), (LDS, "l", "1")], &[]), NOTHING, "nobody asked for these");
    stream.alter(&[(EDS, "a", "2")], &[]);
    stream.alter(&[(EDS, "a", "1")], &[]);
    assert_eq!(stream.pump(), NOTHING, "there and back");
}
both!(r21_nothing_is_sent_but_changes, only_changes_are_sent);

fn a_new_name_is_answered_at_any_version<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(SDS, "a", "1"), (SDS, "b", "1")]);
    stream.want(SDS, &["a"]);
    stream.settle();
    assert_eq!(stream.want(SDS, &["a", "b"]), ["Secret b@1"]);
    stream.settle();
    stream.want(SDS, &["a"]);
    assert_eq!(stream.want(SDS, &["a", "b"]), ["Secret b@1"], "although it was sent before");
}
both!(r22_b3_a_name_that_is_asked_for_is_sent_at_an_unchanged_version, a_new_name_is_answered_at_any_version);

fn no_name_stands_twice<D: Variant>() {
    let names: Vec<String> = (0..500).map(|n| format!("cluster-{n}")).collect();
    let resources: Vec<(&'static str, &str, &str)> = names.iter().map(|name| (CDS, &**name, "1")).collect();
    let mut stream = Stream::<D>::new(&resources);
    let asked: Vec<&str> = names.iter().map(String::as_str).chain(["*", "missing"]).collect();
    stream.want(CDS, &asked);
    stream.settle();
    let half: Vec<_> = names[..250].iter().map(|name| (CDS, &**name, "2")).collect();
    let rest: Vec<_> = names[250..].iter().map(|name| (CDS, &**name)).collect();
    stream.change(&half, &rest);
    stream.settle();
    for sent in &stream.sent {
        let mut seen = BTreeSet::new();
        assert!(sent.names().iter().chain(&sent.removed).all(|name| seen.insert(name.clone())));
        assert!(!sent.nonce.is_empty());
        let inside = sent.updated.iter().filter_map(|(envelope, _)| Some(envelope.as_ref()?.0.clone()));
        let inside: Vec<String> = inside.collect();
        assert!(!D::IS_DELTA || inside == sent.names());
    }
}
both!(r23_no_name_stands_twice_in_a_response, no_name_stands_twice);

fn types_are_those_of_the_contents<D: Variant>() {
    let resources = [(CDS, "a", "1"), (EDS, "a", "1"), (LDS, "a", "1"), (RDS, "a", "1"), (SDS, "a", "1")];
    let mut stream = Stream::<D>::new(&resources);
    for (type_url, ..) in resources {
        stream.want(type_url, &["a", "missing"]);
        stream.settle();
    }
    for sent in &stream.sent {
        assert!(sent.updated.iter().all(|(_, any)| any.type_url == sent.type_url), "{sent}");
    }
}
both!(r24_the_type_of_a_response_is_that_of_its_contents, types_are_those_of_the_contents);

/// An Envoy answers what it did not ask for with an empty request at its old version.
fn an_empty_request_is_not_answered_for_ever<D: Variant>() {
    let mut stream = Stream::<D>::new(&[]);
    let type_url = "type.googleapis.com/no.such.Type";
    stream.want(type_url, &[]);
    for _ in 0..10 {
        let ask = Ask { nonce: stream.nonce(type_url), ..stream.wish(type_url, &[]) };
        assert_eq!(stream.raw(&ask).unwrap(), NOTHING);
    }
}
both!(r24_b21_an_answer_about_an_unwatched_type_makes_no_loop, an_empty_request_is_not_answered_for_ever);

fn nothing_else_is_sent<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(EDS, "a", "1"), (EDS, "b", "1"), (CDS, "c", "1")]);
    stream.want(EDS, &["a"]);
    stream.settle();
    stream.change(&[(EDS, "a", "2"), (EDS, "b", "2"), (CDS, "c", "2")], &[(CDS, "c")]);
    stream.settle();
    assert!(stream.sent.iter().all(|sent| sent.type_url == EDS && sent.names() == ["a"]));
}
both!(r25_what_nobody_asked_for_is_not_sent, nothing_else_is_sent);

fn what_is_missing_is_sent_when_it_comes<D: Variant>() {
    for type_url in [CDS, RDS, SDS] {
        let mut stream = Stream::<D>::new(&[]);
        stream.want(type_url, &["late"]);
        stream.settle();
        let came = stream.change(&[(type_url, "late", "1")], &[]);
        assert!(came.len() == 1 && came[0].ends_with(" late@1"), "{came:?}");
        stream.settle();
        stream.change(&[], &[(type_url, "late")]);
        stream.settle();
        let back = stream.change(&[(type_url, "late", "2")], &[]);
        assert!(back.len() == 1 && back[0].ends_with(" late@2"), "{back:?}");
    }
}
both!(r26_b7_a_name_that_does_not_exist_stays_subscribed, what_is_missing_is_sent_when_it_comes);

/// The envelopes of a difference are checked where they are read: `Variant::sent`.
fn nothing_expires<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    let ask = stream.wish(CDS, &["*"]);
    let node = ask.node.map(|node| crate::proto::envoy::config::core::v3::Node {
        client_features: vec![
            "xds.config.supports-resource-ttl".into(),
            "xds.config.resource-in-sotw".into(),
        ],
        ..node
    });
    stream.raw(&Ask { node, ..ask }).unwrap();
    let (_, any) = &stream.newest().updated[0];
    assert_eq!(any.type_url, CDS, "no wrapper, whatever the peer can read");
}
both!(r57_nothing_has_a_time_to_live, nothing_expires);
both!(r58_no_resource_is_wrapped_in_the_state_of_the_world, nothing_expires);

/// A name with a scheme is a name like others.
fn xdstp_names_are_names<D: Variant>() {
    let name = "xdstp://authority/envoy.config.cluster.v3.Cluster/web?zone=east";
    let mut stream = Stream::<D>::new(&[(CDS, name, "1")]);
    stream.want(CDS, &[name]);
    assert_eq!(stream.newest().names(), [name]);
}
both!(r61_xdstp_names_are_echoed_as_they_were_asked_for, xdstp_names_are_names);

/// Who does not know what there is says nothing, whatever was sent before.
fn a_lost_source_deletes_nothing<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (LDS, "l", "1")]);
    stream.want(CDS, &["*"]);
    stream.want(LDS, &["*"]);
    stream.settle();
    let before = stream.sent.len();
    for _ in 0..100 {
        stream.source.handle(crate::xds::Input::Wake, &stream.world).unwrap();
        stream.pump();
    }
    assert_eq!(stream.sent.len(), before);
}
both!(r71_b26_without_news_the_last_state_stays, a_lost_source_deletes_nothing);

#[test]
fn r59_delta_nobody_on_the_way_may_keep_secrets() {
    let mut stream = Stream::<Delta>::new(&[(SDS, "s", "1"), (CDS, "c", "1")]);
    for (type_url, name, is_private) in [(SDS, "s", true), (CDS, "c", false)] {
        let request = Delta::request(&stream.wish(type_url, &[name]));
        stream.source.handle(crate::xds::Input::Request(&request), &stream.world).unwrap();
        let response = stream.source.next(stream.now, &stream.world).unwrap();
        let told = response.resources[0].cache_control.as_ref().is_some_and(|control| control.do_not_cache);
        assert_eq!(told, is_private, "{type_url}");
    }
}

fn endpoints_come_by_name<D: Variant>() {
    let settings = SourceSettings::ads("cp");
    let mut stream = Stream::<D>::with(settings, &[(CDS, "a", "1"), (EDS, "a", "1"), (EDS, "b", "1")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    stream.settle();
    let sent = stream.change(&[(CDS, "b", "1"), (EDS, "b", "2")], &[]);
    assert!(sent.iter().all(|sent| !sent.starts_with("ClusterLoadAssignment")), "{sent:?}");
    assert_eq!(
        stream.change(&[(EDS, "a", "2")], &[]),
        ["ClusterLoadAssignment a@2"],
        "unasked, but subscribed"
    );
}
both!(r76_endpoints_are_pushed_for_clusters_of_the_subscription_only, endpoints_come_by_name);
