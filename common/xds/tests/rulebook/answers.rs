//! R1-R8, R13-R19: streams, nodes, nonces and what a peer says to a response.

use super::{
    Ask, CDS, Delta, EDS, LDS, Malformed, NOTHING, RDS, SDS, Sotw, SourceEvent, SourceSettings, Stream,
    Variant, both, node,
};
use crate::xds::Input;

fn later_requests_need_no_node<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (LDS, "l", "1")]);
    for node in [None, Some(node(""))] {
        let ask = Ask { node, ..stream.wish(CDS, &["*"]) };
        assert_eq!(Stream::<D>::new(&[]).raw(&ask), Err(Malformed::NoNode));
    }
    let first = Ask { type_url: SDS.to_owned(), node: Some(node("envoy")), ..Ask::default() };
    stream.raw(&first).unwrap();
    let ask = Ask { node: None, subscribe: vec!["*".into()], ..stream.wish(CDS, &["*"]) };
    assert_eq!(stream.raw(&ask).unwrap(), ["Cluster a@1"]);
}
both!(r1_only_the_first_request_names_the_node, later_requests_need_no_node);

fn a_repeated_node_changes_nothing<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["a"]);
    let ask = Ask { node: Some(node("envoy")), ..stream.answer(CDS, None) };
    assert_eq!(stream.raw(&ask).unwrap(), NOTHING);
    assert_eq!(stream.change(&[(CDS, "b", "2")], &[]), NOTHING, "still interested in a only");
    assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"]);
}
both!(r2_a_repeated_node_resets_nothing, a_repeated_node_changes_nothing);

fn another_node_is_refused<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["a"]);
    let ask = Ask { node: Some(node("other")), ..stream.answer(CDS, None) };
    assert_eq!(stream.raw(&ask), Err(Malformed::OtherNode));
    assert!(!Malformed::OtherNode.is_excess(), "it is told INVALID_ARGUMENT");
}
both!(r2_another_node_id_is_a_protocol_error, another_node_is_refused);

/// Also where the names are those that were listed before, so that the request is not decoded.
#[test]
fn r2_another_node_id_is_seen_in_an_answer_that_is_not_decoded() {
    use prost::Message;
    let mut stream = Stream::<Sotw>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["a"]);
    for (id, expected) in [("envoy", Ok(())), ("other", Err(Malformed::OtherNode))] {
        let ask = Ask { node: Some(node(id)), ..stream.answer(CDS, None) };
        let message = Sotw::request(&ask).encode_to_vec();
        let repeat = stream.source.repeat(&stream.source.outline(&message).unwrap()).unwrap();
        let heard = stream.source.handle(Input::Repeat(&repeat), &stream.world);
        assert_eq!(heard.map(|_| ()), expected);
    }
}

fn streams_share_nothing<D: Variant>() {
    let resources = [(CDS, "a", "1"), (CDS, "b", "1")];
    let (mut one, mut two) = (Stream::<D>::new(&resources), Stream::<D>::new(&resources));
    assert_eq!(one.want(CDS, &["a"]), ["Cluster a@1"]);
    assert_eq!(two.want(CDS, &["b"]), ["Cluster b@1"]);
    assert_eq!(one.ack(CDS), NOTHING);
    assert_eq!(two.change(&[(CDS, "b", "2")], &[]), NOTHING, "its own response is unanswered");
    assert_eq!(two.ack(CDS), ["Cluster b@2"]);
}
both!(r3_state_belongs_to_a_stream_and_a_type, streams_share_nothing);

fn every_nonce_is_new<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "0"), (EDS, "a", "0")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    stream.settle();
    for generation in 1..50 {
        stream.change(&[(CDS, "a", &generation.to_string())], &[]);
        stream.settle();
    }
    let mut nonces: Vec<&str> = stream.sent.iter().map(|sent| &*sent.nonce).collect();
    assert_eq!(nonces.len(), 100, "clusters and, after each, their endpoints");
    assert!(stream.sent.iter().all(|sent| !sent.nonce.is_empty() && sent.nonce != sent.version));
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 100);
}
both!(r4_b31_every_response_has_a_nonce_of_its_own, every_nonce_is_new);

fn a_first_request_is_first_whatever_it_carries<D: Variant>() {
    for (nonce, error) in [("17", None), ("1", None), ("", Some("of another stream")), ("9", Some("old"))] {
        let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
        let ask = Ask { nonce: nonce.into(), error, ..stream.wish(CDS, &["a"]) };
        assert_eq!(stream.raw(&ask).unwrap(), ["Cluster a@1"], "nonce {nonce:?}, error {error:?}");
        assert_eq!(stream.ack(CDS), NOTHING);
        assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"]);
    }
}
both!(
    r5_the_first_request_of_a_type_is_answered_with_any_nonce,
    a_first_request_is_first_whatever_it_carries
);

fn types_do_not_hold_each_other_up<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (LDS, "l", "1"), (SDS, "s", "1")]);
    for type_url in [CDS, SDS] {
        stream.want(type_url, if type_url == CDS { &["*"] } else { &["s"] });
        stream.settle();
    }
    stream.want(LDS, &["*"]);
    stream.nack(LDS);
    assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"], "listeners are refused");
    stream.ack(CDS);
    stream.change(&[(LDS, "l", "2")], &[]);
    assert_eq!(stream.change(&[(CDS, "a", "3")], &[]), ["Cluster a@3"], "listeners are not answered for");
    assert_eq!(stream.change(&[(SDS, "s", "2")], &[]), ["Secret s@2"], "nor are the clusters now");
}
both!(r6_a_refusal_or_silence_in_one_type_blocks_no_other, types_do_not_hold_each_other_up);

fn the_newest_names_count<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(EDS, "a", "1"), (EDS, "b", "1"), (EDS, "c", "1")]);
    stream.want(EDS, &["a", "b"]);
    stream.ack(EDS);
    assert_eq!(stream.want(EDS, &["b", "c"]), ["ClusterLoadAssignment c@1"]);
    stream.ack(EDS);
    let sent = stream.change(&[(EDS, "a", "2"), (EDS, "b", "2"), (EDS, "c", "2")], &[]);
    assert_eq!(sent, ["ClusterLoadAssignment b@2 c@2"]);
}
both!(r7_the_newest_request_says_which_names, the_newest_names_count);

fn any_order_of_types_is_served<D: Variant>() {
    let resources = [(CDS, "a", "1"), (EDS, "a", "1"), (LDS, "l", "1"), (RDS, "r", "1"), (SDS, "s", "1")];
    let types = [(CDS, "*"), (EDS, "a"), (LDS, "*"), (RDS, "r"), (SDS, "s")];
    for begin in 0..types.len() {
        let mut stream = Stream::<D>::new(&resources);
        for i in 0..types.len() {
            let (type_url, name) = types[(begin + i) % types.len()];
            stream.want(type_url, &[name]);
            assert!(stream.sent.iter().any(|sent| sent.type_url == type_url), "{type_url} as number {i}");
            stream.settle();
        }
        assert!(stream.source.is_settled());
    }
}
both!(r8_types_are_asked_for_in_any_order, any_order_of_types_is_served);

#[test]
fn r13_sotw_a_stale_request_is_not_answered() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    let late = stream.answer(CDS, None);
    stream.ack(CDS);
    stream.change(&[(CDS, "a", "2")], &[]);
    assert_eq!(stream.raw(&late).unwrap(), NOTHING);
    assert_eq!(stream.change(&[(CDS, "a", "3")], &[]), NOTHING, "2 is still unanswered");
    assert!(matches!(stream.events.last(), Some(SourceEvent::Stale { .. })));
    assert_eq!(stream.ack(CDS), ["Cluster a@3"]);
}

#[test]
fn r13_b35_sotw_names_of_a_stale_request_are_not_lost() {
    let mut stream = Stream::<Sotw>::new(&[(EDS, "a", "1"), (EDS, "b", "1")]);
    stream.want(EDS, &["a"]);
    let overtaken = Ask { nonce: stream.nonce(EDS), ..stream.wish(EDS, &["a", "b"]) };
    stream.wish(EDS, &["a"]);
    stream.ack(EDS);
    stream.change(&[(EDS, "a", "2")], &[]);
    assert_eq!(stream.raw(&overtaken).unwrap(), NOTHING, "2 is unanswered, and it says nothing about it");
    // What the peer says next lists both, as it would, and it is not mistaken for what it listed before.
    stream.wish(EDS, &["a", "b"]);
    assert_eq!(stream.ack(EDS), ["ClusterLoadAssignment b@1"]);
}

#[test]
fn r13_sotw_a_new_name_beside_an_old_nonce_arrives_without_another_request_of_the_peer() {
    let mut stream = Stream::<Sotw>::new(&[(EDS, "a", "1"), (EDS, "b", "1")]);
    stream.want(EDS, &["a"]);
    let old = stream.nonce(EDS);
    stream.ack(EDS);
    stream.change(&[(EDS, "a", "2")], &[]);
    stream.ack(EDS);
    let ask = Ask { nonce: old, ..stream.wish(EDS, &["a", "b"]) };
    assert_eq!(stream.raw(&ask).unwrap(), ["ClusterLoadAssignment b@1"]);
}

#[test]
fn r14_delta_lists_count_beside_any_nonce() {
    let mut stream = Stream::<Delta>::new(&[(EDS, "a", "1"), (EDS, "b", "1"), (EDS, "c", "1")]);
    stream.want(EDS, &["a"]);
    stream.ack(EDS);
    for (nonce, name) in [("0", "b"), ("no number", "c")] {
        let ask = Ask { nonce: nonce.into(), ..stream.wish(EDS, &[name]) };
        assert_eq!(stream.raw(&ask).unwrap(), [format!("ClusterLoadAssignment {name}@1")]);
        stream.ack(EDS);
    }
    let sent = stream.change(&[(EDS, "a", "2"), (EDS, "b", "2"), (EDS, "c", "2")], &[]);
    assert_eq!(sent, ["ClusterLoadAssignment c@2"], "a and b were given up the same way");
}

#[test]
fn r15_sotw_only_an_error_refuses_whatever_the_version_says() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    let version = stream.newest().version.clone();
    let nack = Ask { version, ..stream.answer(CDS, Some("no")) };
    assert_eq!(stream.raw(&nack).unwrap(), NOTHING);
    assert!(matches!(stream.events.last(), Some(SourceEvent::Nacked { .. })));
    stream.change(&[(CDS, "a", "2")], &[]);
    let ack = Ask { version: "of long ago".into(), ..stream.answer(CDS, None) };
    stream.raw(&ack).unwrap();
    assert!(matches!(stream.events.last(), Some(SourceEvent::Acked { .. })));
}

fn an_empty_error_refuses<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    let nack = stream.answer(CDS, Some(""));
    stream.raw(&nack).unwrap();
    assert!(matches!(stream.events.last(), Some(SourceEvent::Nacked { .. })));
}
both!(r15_an_error_without_words_refuses_too, an_empty_error_refuses);

fn an_answer_is_not_answered<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (EDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    for _ in 0..3 {
        assert_eq!(stream.ack(CDS), NOTHING, "once, and again");
        assert_eq!(stream.ack(EDS), NOTHING);
    }
    assert_eq!(stream.sent.len(), 2);
}
both!(r16_an_acknowledgement_is_not_answered, an_answer_is_not_answered);

fn what_is_refused_is_not_sent_again<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (EDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    for _ in 0..10 {
        assert_eq!(stream.nack(CDS), NOTHING);
        assert_eq!(stream.nack(EDS), NOTHING);
    }
    assert_eq!(stream.pump(), NOTHING);
    let sent = stream.change(&[(CDS, "a", "2")], &[]);
    assert_eq!(sent, ["Cluster a@2", "ClusterLoadAssignment a@1"]);
    let told = stream.events.iter().find_map(|event| match event {
        SourceEvent::Nacked { type_url, message, .. } => Some((*type_url, &**message)),
        _ => None,
    });
    assert_eq!(told, Some((CDS, "no")), "who said what is noted");
}
both!(r17_b10_a_refusal_is_never_answered_with_the_same_again, what_is_refused_is_not_sent_again);

#[test]
fn r18_sotw_what_follows_a_refusal_is_the_whole_state() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "bad", "1"), (CDS, "good", "1")]);
    stream.want(CDS, &["*"]);
    stream.nack(CDS);
    assert_eq!(stream.change(&[(CDS, "new", "1")], &[]), ["Cluster bad@1 good@1 new@1"]);
}

#[test]
fn r18_delta_a_removal_after_a_refusal_names_what_may_have_been_applied() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "bad", "1"), (CDS, "good", "1")]);
    stream.want(CDS, &["*"]);
    stream.nack(CDS);
    assert_eq!(stream.change(&[], &[(CDS, "good")]), ["Cluster -good"]);
}

fn names_beside_an_answer_are_asked_for<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(EDS, "a", "1"), (EDS, "b", "1")]);
    for error in [None, Some("no")] {
        stream.want(EDS, &["a"]);
        let answer = Ask { nonce: stream.nonce(EDS), error, ..stream.wish(EDS, &["a", "b"]) };
        assert_eq!(stream.raw(&answer).unwrap(), ["ClusterLoadAssignment b@1"], "error {error:?}");
        stream.ack(EDS);
        stream.want(EDS, &[]);
    }
}
both!(r19_an_answer_may_ask_for_more, names_beside_an_answer_are_asked_for);

fn the_control_plane_names_itself<D: Variant>() {
    let mut stream = Stream::<D>::with(SourceSettings::ads("plane-1"), &[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    stream.want("unheard.of", &["x"]);
    stream.settle();
    stream.change(&[(CDS, "a", "2")], &[]);
    assert!(stream.sent.len() == 3 && stream.sent.iter().all(|sent| sent.identifier == "plane-1"));
}
both!(r64_every_response_names_the_control_plane, the_control_plane_names_itself);

fn a_request_names_its_type<D: Variant>() {
    let mut stream = Stream::<D>::new(&[]);
    let ask = Ask { type_url: String::new(), ..stream.wish(CDS, &["*"]) };
    assert_eq!(stream.raw(&ask), Err(Malformed::NoType));
    // Where a stream is about one type it may leave that out, and name no other.
    let alone = SourceSettings::alone("cp", CDS);
    let mut stream = Stream::<D>::with(alone.clone(), &[(CDS, "a", "1")]);
    assert_eq!(stream.raw(&ask).unwrap(), ["Cluster a@1"]);
    assert_eq!(stream.newest().type_url, CDS);
    let answer = Ask { type_url: String::new(), ..stream.answer(CDS, None) };
    stream.raw(&answer).unwrap();
    assert!(matches!(stream.events.last(), Some(SourceEvent::Acked { .. })));
    let other = Stream::<D>::with(alone, &[]).wish(LDS, &["*"]);
    let refused = stream.raw(&other).unwrap_err();
    assert!(matches!(&refused, Malformed::UnknownType { type_url } if type_url == LDS), "{refused}");
}
both!(r65_a_request_without_a_type_is_refused_where_there_are_several, a_request_names_its_type);

fn an_unknown_type_disturbs_nobody<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    assert_eq!(stream.want("type.googleapis.com/no.such.Type", &["x"]), ["Type"], "there is none of it");
    assert_eq!(stream.ack("type.googleapis.com/no.such.Type"), NOTHING);
    assert_eq!(stream.want(CDS, &["*"]), ["Cluster a@1"]);
    assert_eq!(stream.nack("type.googleapis.com/no.such.Type"), NOTHING, "whatever it says to that");
    assert_eq!(stream.ack(CDS), NOTHING);
    assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"]);
}
both!(r66_an_unknown_type_leaves_the_others_alone, an_unknown_type_disturbs_nobody);

fn changes_merge_while_a_response_is_unanswered<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "0")]);
    stream.want(CDS, &["*"]);
    for generation in 1..=1000 {
        assert_eq!(stream.change(&[(CDS, "a", &generation.to_string())], &[]), NOTHING);
    }
    assert_eq!(stream.ack(CDS), ["Cluster a@1000"]);
    stream.ack(CDS);
    for generation in 1001..=2000 {
        stream.alter(&[(CDS, "a", &generation.to_string())], &[]);
    }
    assert_eq!(stream.pump(), ["Cluster a@2000"], "nor is anything queued where there is no room");
}
both!(
    r67_b13_one_response_per_type_is_under_way_and_the_newest_follows,
    changes_merge_while_a_response_is_unanswered
);

fn all_types_at_once_need_no_reader<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1"), (LDS, "l", "1")]);
    for type_url in [CDS, EDS, SDS, LDS, RDS, "1", "2", "3", "4", "5", "6", "7"] {
        let request = D::request(&stream.wish(type_url, &["a"]));
        stream.source.handle(Input::Request(&request), &stream.world).unwrap();
    }
    assert_eq!(stream.pump().len(), 10, "listeners and routes wait for the clusters");
}
both!(r67_b1_requests_are_read_although_nothing_is_sent, all_types_at_once_need_no_reader);

fn an_answer_is_credited_to_its_response<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    stream.alter(&[(CDS, "a", "2")], &[]);
    let nack = stream.answer(CDS, Some("no"));
    assert_eq!(stream.raw(&nack).unwrap(), ["Cluster a@2"], "what was refused is 1");
    stream.ack(CDS);
    assert!(stream.source.is_content());
}
both!(r69_an_answer_is_about_the_response_it_names, an_answer_is_credited_to_its_response);
