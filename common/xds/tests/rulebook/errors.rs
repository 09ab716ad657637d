//! R60: what does not exist is said to in `resource_errors`, where nothing else says so.

use super::{CDS, Delta, EDS, LDS, NOTHING, RDS, SDS, Sotw, Stream};
use crate::xds::{SourceSettings, envoy};

#[test]
fn r60_sotw_a_name_that_does_not_exist_is_told_once() {
    for type_url in [CDS, LDS, RDS, SDS, envoy::RUNTIME] {
        let mut stream = Stream::<Sotw>::new(&[(type_url, "a", "1")]);
        stream.want(type_url, &["a", "missing"]);
        assert_eq!(
            (stream.newest().names(), &stream.newest().errors),
            (vec!["a".to_owned()], &missing("missing"))
        );
        stream.ack(type_url);
        stream.want(type_url, &["a", "missing", "other"]);
        assert_eq!(stream.newest().errors, missing("other"), "{type_url}: the first is known to be missing");
        stream.ack(type_url);
        stream.change(&[(type_url, "a", "2")], &[]);
        assert!(stream.newest().errors.is_empty(), "{type_url}: it was told");
        stream.ack(type_url);
        stream.change(&[(type_url, "missing", "1")], &[]);
        let newest = stream.newest();
        assert!(newest.names().contains(&"missing".to_owned()) && newest.errors.is_empty(), "never both");
    }
}

#[test]
fn r60_sotw_what_has_another_word_for_nothing_is_no_error() {
    let mut stream = Stream::<Sotw>::new(&[]);
    stream.want(EDS, &["missing"]);
    assert_eq!(
        (stream.newest().contents(), stream.newest().errors.len()),
        (vec!["missing@vacant".to_owned()], 0)
    );
    // Without the configuration of a filter an Envoy refuses traffic.
    let ecds = envoy::EXTENSION_CONFIG;
    let mut stream = Stream::<Sotw>::with(SourceSettings::alone("cp", ecds), &[]);
    stream.want(ecds, &["missing"]);
    assert!(stream.newest().errors.is_empty());
}

#[test]
fn r60_sotw_what_only_the_wildcard_covers_is_no_error_when_it_goes() {
    let mut stream = Stream::<Sotw>::new(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    stream.want(CDS, &["*"]);
    stream.ack(CDS);
    stream.change(&[], &[(CDS, "a")]);
    assert_eq!((stream.newest().contents(), stream.newest().errors.len()), (vec!["b@1".to_owned()], 0));
}

#[test]
fn r60_delta_a_removal_is_enough() {
    let mut stream = Stream::<Delta>::new(&[]);
    stream.want(SDS, &["missing"]);
    assert_eq!((stream.newest().removed.len(), stream.newest().errors.len()), (1, 0));
    stream.ack(SDS);
    assert_eq!(stream.want(SDS, &["missing"]), NOTHING);
}

fn missing(name: &str) -> Vec<(String, i32)> {
    vec![(name.to_owned(), 5)]
}
