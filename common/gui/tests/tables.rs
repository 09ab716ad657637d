//! Tables over lists that are longer than one answer.

use super::*;

/// The name of an item, so that names sort as they are made.
fn name(n: usize) -> String {
    format!("item-{n:03}")
}

/// Bytes of one, of which an answer of the API holds some forty.
const LONG: usize = 100_000;

async fn with_items(items: impl Iterator<Item = Value>) -> TestApi {
    let api = global().await;
    let resource = |document: Value| {
        let document = crate::document::Document::parse(&document).unwrap();
        crate::store::Write::put(document.into_resource(api.env.now()))
    };
    let batch = crate::store::Batch::of(items.map(resource));
    let revision = api.store.transact(batch).await.unwrap().revision;
    api.index.wait_for(revision).await.unwrap();
    api
}

/// The names on a page, and what it says which they are.
async fn shown(api: &TestApi, path: &str) -> (Vec<String>, String) {
    let (parts, body) = look(api, path, "").await;
    assert_eq!(parts.status.as_u16(), 200, "{path}");
    let names = body.match_indices("title=\"item-").map(|(at, _)| body[at + 7..at + 15].to_owned());
    let said = body.split("<p class=\"pages\"><span>").nth(1).and_then(|rest| rest.split('<').next());
    (names.collect(), said.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn no_item_is_left_out_where_an_answer_ends_early() {
    let long = "x".repeat(LONG);
    let api = with_items((0..70).map(|n| {
        json!({ "type": "Dataplane", "mesh": "default", "name": name(n), "networking": { "address": "10.0.0.3",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web", "long": long } }] } })
    }))
    .await;
    for filter in ["search=item&status=offline"] {
        let (first, said) = shown(&api, &format!("/gui/dataplanes?{filter}")).await;
        assert_eq!((first.len(), said.as_str()), (50, "1–50 of 70"), "{filter}");
        let (second, said) = shown(&api, &format!("/gui/dataplanes?{filter}&page=2")).await;
        assert_eq!((second.len(), said.as_str()), (20, "51–70 of 70"), "{filter}");
        let all: Vec<String> = first.into_iter().chain(second).collect();
        assert_eq!(all, (0..70).map(name).collect::<Vec<_>>(), "{filter}");
    }
    let (none, said) = shown(&api, "/gui/dataplanes?search=item&status=online").await;
    assert_eq!((none.len(), said.as_str()), (0, "0–0 of 0"));
}

#[tokio::test]
async fn a_page_goes_on_from_one_type_to_the_next() {
    let policy = |kind: &str, n: usize| {
        json!({ "type": kind, "mesh": "default", "name": name(n), "spec": {
            "to": [{ "targetRef": { "kind": "Mesh" }, "default": {} }] } })
    };
    let retries = (0..30).map(|n| policy("MeshRetry", n));
    let api = with_items(retries.chain((30..95).map(|n| policy("MeshTimeout", n)))).await;
    let mut all = Vec::new();
    for (page, expected) in [(1, "1–50 of 95"), (2, "51–95 of 95")] {
        let (names, said) = shown(&api, &format!("/gui/policies?search=item&page={page}")).await;
        assert_eq!(said, expected);
        all.extend(names);
    }
    all.sort();
    assert_eq!(all, (0..95).map(name).collect::<Vec<_>>());
    let (names, said) = shown(&api, "/gui/policies?search=item&type=MeshRetry").await;
    assert_eq!((names.len(), said.as_str()), (30, "1–30 of 30"));
}
