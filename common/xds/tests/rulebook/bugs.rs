//! What was wrong in other control planes and no other rule here is about.

use super::{Ask, CDS, Delta, EDS, LDS, NOTHING, RDS, SDS, Sotw, SourceSettings, Stream, Variant, both};
use crate::xds::envoy;

fn every_change_is_pushed<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "0"), (EDS, "a", "0")]);
    stream.want(CDS, &["*"]);
    stream.want(EDS, &["a"]);
    stream.settle();
    for generation in ["1", "2", "3"] {
        let sent = stream.change(&[(EDS, "a", generation)], &[]);
        assert_eq!(sent, [format!("ClusterLoadAssignment a@{generation}")]);
        assert_eq!(stream.ack(EDS), NOTHING);
    }
    // Nor is one of two lost of which neither was followed by a request.
    stream.change(&[(CDS, "b", "1")], &[]);
    stream.change(&[(CDS, "c", "1")], &[]);
    stream.settle();
    let told: Vec<String> = stream.sent.iter().flat_map(super::Sent::contents).collect();
    assert!(["b@1", "c@1"].iter().all(|one| told.iter().any(|told| told == one)), "{told:?}");
}
both!(b6_b13_after_an_answer_every_change_is_pushed, every_change_is_pushed);

#[test]
fn b20_delta_every_resource_of_every_type_has_a_name_and_a_version() {
    let known = [CDS, EDS, SDS, LDS, RDS, envoy::RUNTIME, envoy::VIRTUAL_HOST];
    let alone = [envoy::SCOPED_ROUTE, envoy::LB_ENDPOINT, envoy::EXTENSION_CONFIG];
    for type_url in known.into_iter().chain(alone) {
        let settings = SourceSettings::alone("cp", type_url);
        let mut stream = Stream::<Delta>::with(settings, &[(type_url, "r/a", "1"), (type_url, "r/b", "1")]);
        stream.want(type_url, &["r/a", "r/b"]);
        stream.settle();
        stream.change(&[(type_url, "r/a", "2")], &[]);
        let named: Vec<_> =
            stream.sent.iter().flat_map(|sent| &sent.updated).map(|(named, _)| named).collect();
        assert_eq!(named.len(), 3, "{type_url}");
        let is_whole = |(name, version): &(String, String)| !name.is_empty() && !version.is_empty();
        assert!(named.iter().all(|named| named.as_ref().is_some_and(is_whole)), "{type_url}: {named:?}");
    }
}

/// Each is the first thing that is said on a stream; what is said after it is served.
fn nonsense_is_survived<D: Variant>() {
    const DEBUG: &str = "istio.io/debug";
    let (none, named) = (Vec::new(), vec!["syncz".to_owned()]);
    for (type_url, nonce, error, names) in [
        ("no.such.Type", "7", Some("unwatched"), &none),
        ("no.such.Type", "", Some("Error adding/updating "), &none),
        (DEBUG, "", None, &named),
        (DEBUG, "x", None, &named),
        (LDS, "", Some(""), &none),
        (LDS, "0", Some("Error adding/updating listener(s) : \n: "), &none),
        (LDS, "-1", Some("Error adding/updating cluster(s) a"), &named),
        (LDS, "99999999999999999999999", Some("(truncated)"), &named),
        (EDS, "1", Some("\0"), &none),
    ] {
        let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
        let said = Ask {
            nonce: nonce.to_owned(),
            error,
            subscribe: names.clone(),
            all: names.iter().cloned().collect(),
            ..stream.wish(type_url, &[])
        };
        let sent = stream.raw(&said).unwrap();
        assert!(sent.iter().all(|sent| !sent.contains('@')), "{type_url} {error:?}: {sent:?}");
        assert_eq!(stream.want(CDS, &["*"]), ["Cluster a@1"], "{type_url} {error:?}");
        assert_eq!(stream.ack(CDS), NOTHING);
        assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"]);
    }
}
both!(b21_a_first_request_that_makes_no_sense_hurts_nobody, nonsense_is_survived);

/// A client that finds out later that it cannot use what it has confirmed.
fn late_refusals_are_no_answers<D: Variant>() {
    let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
    stream.want(CDS, &["*"]);
    let late = stream.answer(CDS, Some("after all"));
    assert_eq!(stream.ack(CDS), NOTHING);
    assert_eq!(stream.raw(&late).unwrap(), NOTHING, "it was answered for");
    assert_eq!(stream.change(&[(CDS, "a", "2")], &[]), ["Cluster a@2"]);
    assert_eq!(stream.raw(&late).unwrap(), NOTHING, "nor is it about 2");
    assert_eq!(stream.change(&[(CDS, "a", "3")], &[]), NOTHING, "which is unanswered");
    assert_eq!(stream.ack(CDS), ["Cluster a@3"]);
}
both!(b35_a_refusal_after_the_answer_changes_nothing, late_refusals_are_no_answers);

#[test]
fn b35_sotw_an_empty_response_has_a_nonce_to_go_on_from() {
    let mut stream = Stream::<Sotw>::new(&[(EDS, "a", "1")]);
    stream.want(EDS, &[]);
    let nonce = stream.newest().nonce.clone();
    assert!(stream.newest().updated.is_empty() && !nonce.is_empty());
    let ask = Ask { nonce, ..stream.wish(EDS, &["a"]) };
    assert_eq!(stream.raw(&ask).unwrap(), ["ClusterLoadAssignment a@1"]);
}
