#![allow(clippy::unwrap_used)]

use super::*;
use crate::xds::{Confirmation, verdict};

fn node() -> Node {
    Node { id: "zone-1".into(), cluster: "metadata".into(), ..Node::default() }
}

fn sink(resume: Option<&[(&str, &str)]>) -> Sink {
    let resume = resume.map(|held| held.iter().map(|(name, v)| ((*name).into(), (*v).into())).collect());
    Sink::new(node(), [SinkType { type_url: "Mesh", resume }])
}

fn response(nonce: &str, added: &[(&str, &str)], removed: &[&str]) -> DeltaDiscoveryResponse {
    let resource = |(name, version): &(&str, &str)| Resource {
        name: (*name).into(),
        version: (*version).into(),
        ..Resource::default()
    };
    DeltaDiscoveryResponse {
        type_url: "Mesh".into(),
        nonce: nonce.into(),
        resources: added.iter().map(resource).collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

fn receive(sink: &mut Sink, response: DeltaDiscoveryResponse) -> ResponseBatch {
    match sink.receive(response).unwrap() {
        SinkEvent::Batch(batch) => batch,
        other => panic!("no batch but {other:?}"),
    }
}

fn refusal(name: &str) -> Refusal {
    Refusal { name: name.into(), reason: "spec.x: must be set".into() }
}

fn held(sink: &Sink) -> Vec<String> {
    sink.held("Mesh").unwrap().iter().map(|(name, version)| format!("{name}@{version}")).collect()
}

#[test]
fn node_is_full_at_first_and_an_id_later() {
    let mut sink = sink(None);
    let open: Vec<_> = sink.open().collect();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].node.clone(), &*open[0].resource_names_subscribe),
        (Some(node()), &["*".to_owned()][..])
    );
    receive(&mut sink, response("1", &[], &[]));
    let ack = sink.verdict("Mesh", "1", &[]).unwrap();
    assert_eq!(ack.node.unwrap(), Node { id: "zone-1".into(), ..Node::default() });
    assert_eq!((&*ack.response_nonce, ack.error_detail), ("1", None));
    assert!(ack.resource_names_subscribe.is_empty());
}

#[test]
fn first_response_is_full_unless_resumed_or_cut_short() {
    let more = |mut response: DeltaDiscoveryResponse| {
        response.system_version_info = MORE.into();
        response
    };
    for (resume, first, full) in [
        (None, response("1", &[], &[]), true),
        (None, more(response("1", &[], &[])), false),
        (Some(&[("a", "1")][..]), response("1", &[], &[]), false),
        (Some(&[][..]), response("1", &[], &[]), false),
    ] {
        let mut sink = sink(resume);
        let batch = receive(&mut sink, first);
        assert_eq!((batch.first, batch.full), (true, full));
        assert!(!sink.is_ready());
        sink.verdict("Mesh", "1", &[]).unwrap();
        assert_eq!(sink.is_ready(), !batch.more);
        let batch = receive(&mut sink, response("2", &[], &[]));
        assert_eq!((batch.first, batch.full), (false, false));
    }
}

#[test]
fn what_was_refused_is_not_held_and_what_was_held_before_still_is() {
    let mut sink = sink(Some(&[("kept", "1"), ("gone", "1"), ("stuck", "1")]));
    let request = sink.open().next().unwrap();
    assert_eq!(request.initial_resource_versions.len(), 3);
    receive(&mut sink, response("1", &[("kept", "2"), ("new", "2"), ("good", "2")], &["gone", "stuck"]));
    let nack = sink.verdict("Mesh", "1", &[refusal("kept"), refusal("new"), refusal("stuck")]).unwrap();
    assert_eq!(held(&sink), ["good@2", "kept@1", "stuck@1"]);
    let error = nack.error_detail.unwrap();
    assert!(error.message.starts_with("kept: spec.x: must be set\nnew: "), "{}", error.message);
    assert_eq!(error.details.len(), 3);
}

#[test]
fn refused_batch_changes_nothing() {
    let mut sink = sink(Some(&[("a", "1")]));
    receive(&mut sink, response("1", &[("b", "1")], &["a"]));
    assert_eq!(sink.refuse("Mesh", "1", "store is read-only").unwrap().error_detail.unwrap().code, 3);
    assert_eq!(held(&sink), ["a@1"]);
    assert!(!sink.is_ready());
}

#[test]
fn what_is_put_off_is_not_held_and_spoils_nothing() {
    let mut sink = sink(Some(&[("a", "1")]));
    receive(&mut sink, response("1", &[("b", "1")], &["a"]));
    let error = sink.put_off("Mesh", "1", "not now").unwrap().error_detail.unwrap();
    assert_eq!((error.code, &*error.message, error.details.len()), (NOT_NOW, "not now", 0));
    assert_eq!(held(&sink), ["a@1"]);
    assert!(!sink.is_ready());
    receive(&mut sink, response("2", &[("b", "1")], &["a"]));
    sink.verdict("Mesh", "2", &[]).unwrap();
    assert_eq!(held(&sink), ["b@1"]);
    assert!(sink.is_ready());
}

#[test]
fn misbehaving_upstreams() {
    let mut sink = sink(None);
    let unasked = DeltaDiscoveryResponse { type_url: "Other".into(), ..response("1", &[], &[]) };
    let SinkEvent::Unasked { answer, .. } = sink.receive(unasked).unwrap() else { panic!("not asked for") };
    assert_eq!((&*answer.type_url, &*answer.response_nonce), ("Other", "1"));
    assert!(answer.error_detail.is_some());
    let no_nonce = sink.receive(response("", &[], &[])).unwrap_err();
    assert_eq!(no_nonce, SinkError::NoNonce { type_url: "Mesh".into() });
    assert_eq!(sink.verdict("Mesh", "7", &[]), None);
    for nonce in 0..MAX_OUTSTANDING {
        receive(&mut sink, response(&format!("n{nonce}"), &[], &[]));
    }
    let flooded = sink.receive(response("one too many", &[], &[])).unwrap_err();
    assert_eq!(flooded, SinkError::Flooded { type_url: "Mesh" });
}

#[test]
fn refusal_text_is_bounded() {
    let refused: Vec<Refusal> = (0..5_000).map(|i| refusal(&format!("name-{i}"))).collect();
    let status = refusal_status(&refused).unwrap();
    assert!(status.message.len() <= MAX_REASONS + 10 && status.message.ends_with("and more"));
}

#[test]
fn an_answer_is_short_however_much_it_refuses() {
    for (name, items) in [(String::new(), 200_000), ("n".repeat(LONGEST), 2_000)] {
        let refused: Vec<Refusal> = (0..items).map(|_| refusal(&name)).collect();
        let status = refusal_status(&refused).unwrap();
        assert!(status.encoded_len() < 256 * 1024, "{}", status.encoded_len());
        assert_eq!(verdict(Some(&status)), Confirmation::Refused { items: Vec::new() }, "all of it");
        // What has room is named.
        let status = refusal_status(&refused[..100]).unwrap();
        assert_eq!(status.details.len(), 100);
    }
}

#[test]
fn what_is_held_is_summed_up_and_listed_page_by_page_when_it_is_asked_for() {
    let names: Vec<String> = (0..1000).map(|n| format!("{n:0100}")).collect();
    let held: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let mut sink = sink(Some(&held)).summing_up();
    let opening = sink.open().next().unwrap().initial_resource_versions;
    assert_eq!(opening.keys().collect::<Vec<_>>(), ["*"]);
    let asks = |nonce: &str| DeltaDiscoveryResponse {
        system_version_info: LIST.into(),
        ..response(nonce, &[], &[])
    };
    let (mut listed, mut pages) = (Versions::new(), 0);
    loop {
        pages += 1;
        let SinkEvent::Listed(page) = sink.receive(asks(&pages.to_string())).unwrap() else {
            panic!("no page")
        };
        assert_eq!(page.response_nonce, pages.to_string());
        let bytes: usize = page.initial_resource_versions.iter().map(|(n, v)| n.len() + v.len()).sum();
        assert!((1..=PAGE).contains(&bytes), "{bytes}");
        listed.extend(page.initial_resource_versions.into_iter().map(|(n, v)| (n.into(), v.into())));
        if page.resource_names_subscribe == ["*"] {
            break;
        }
    }
    assert!(pages > 2 && Some(&listed) == sink.held("Mesh"), "{pages} pages");
    assert!(!sink.is_ready());
    // Afterwards, and for who lists at once, it is a response like any other.
    assert!(!receive(&mut sink, asks("last")).full);
}

#[test]
fn who_holds_nothing_has_nothing_to_sum_up() {
    let mut sink = sink(Some(&[])).summing_up();
    assert!(sink.open().next().unwrap().initial_resource_versions.is_empty());
    receive(
        &mut sink,
        DeltaDiscoveryResponse { system_version_info: LIST.into(), ..response("1", &[], &[]) },
    );
}
