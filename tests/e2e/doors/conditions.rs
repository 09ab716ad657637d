//! Writes on a condition: `If-Match` and `If-None-Match`, over real sockets.

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::Global;

#[tokio::test]
async fn a_write_over_something_else_than_was_read_is_refused() {
    let global = Global::start().await;
    let client = global.admin();
    let tag = async || {
        let answer = client.get(global.url("/meshes/default")).send().await.unwrap();
        answer.headers()["etag"].to_str().unwrap().to_owned()
    };
    let put = async |name: &str, condition: (&str, &str), mark: usize| {
        let body = json!({ "type": "Mesh", "name": name, "labels": { "mark": mark.to_string() } });
        let request = client.put(global.url(&format!("/meshes/{name}"))).json(&body);
        request.header(condition.0, condition.1).send().await.unwrap().status()
    };
    let known = tag().await;
    assert_eq!(put("default", ("if-match", &known), 1).await, StatusCode::OK);
    assert_eq!(put("default", ("if-match", &known), 2).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put("default", ("if-none-match", "*"), 3).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put("other", ("if-match", "*"), 4).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(global.get("/meshes/default").await["labels"]["mark"], "1");
    let delete = async |condition: &str| {
        let request = client.request(Method::DELETE, global.url("/meshes/default"));
        request.header("if-match", condition).send().await.unwrap().status()
    };
    assert_eq!(delete(&known).await, StatusCode::PRECONDITION_FAILED);

    // Of many who read the same, one writes; of many who create, one does.
    let known = tag().await;
    let policy = async |name: &str, condition: (&str, &str), mark: usize| {
        let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } }]);
        let body = json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": { "to": to },
            "labels": { "mark": mark.to_string() } });
        let path = format!("/meshes/default/meshtimeouts/{name}");
        let request = client.put(global.url(&path)).json(&body);
        request.header(condition.0, condition.1).send().await.unwrap().status()
    };
    let wins = |statuses: Vec<StatusCode>, good: StatusCode| {
        assert!(statuses.iter().all(|s| [good, StatusCode::PRECONDITION_FAILED].contains(s)), "{statuses:?}");
        statuses.iter().filter(|status| **status == good).count()
    };
    let updates = join_all((10..26).map(|mark| put("default", ("if-match", &known), mark))).await;
    assert_eq!(wins(updates, StatusCode::OK), 1);
    let creates = join_all((10..26).map(|mark| policy("fresh", ("if-none-match", "*"), mark))).await;
    assert_eq!(wins(creates, StatusCode::CREATED), 1);
    assert_eq!(delete(&tag().await).await, StatusCode::OK);
}
