//! `If-Match` and `If-None-Match`.

use axum::http::HeaderMap;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;
use crate::runtime::http::Connection;

/// Sends from this machine with one more header; gives status, headers and text.
async fn send(
    api: &TestApi,
    method: &str,
    path: &str,
    condition: Option<(&str, &str)>,
    body: Option<Value>,
) -> (u16, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some((name, value)) = condition {
        request = request.header(name, value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut request = request.body(body).unwrap();
    request.extensions_mut().insert(Connection { peer: ([127, 0, 0, 1], 1).into(), tls: false });
    let answer = api.router().oneshot(request).await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, headers, String::from_utf8_lossy(&text).into_owned())
}

fn marked(name: &str, mark: &str) -> Option<Value> {
    Some(json!({ "type": "Mesh", "name": name, "labels": { "mark": mark } }))
}

async fn tag(api: &TestApi, path: &str) -> String {
    let (status, headers, text) = send(api, "GET", path, None, None).await;
    assert_eq!(status, 200, "{text}");
    headers["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_write_happens_only_as_its_condition_says() {
    let api = global(&[mesh("default")]).await;
    let put = async |path: &str, condition, mark| {
        let name = path.rsplit('/').next().unwrap().to_owned();
        send(&api, "PUT", path, condition, marked(&name, mark)).await
    };
    let first = tag(&api, "/meshes/default").await;
    assert_eq!(put("/meshes/default", Some(("if-match", &first)), "a").await.0, 200);
    let second = tag(&api, "/meshes/default").await;
    assert_ne!(first, second);
    assert_eq!(put("/meshes/default", Some(("if-match", &second)), "a").await.0, 200, "an equal put");
    assert_eq!(tag(&api, "/meshes/default").await, second, "is no change");

    let (status, _, text) = put("/meshes/default", Some(("if-match", &first)), "b").await;
    assert_eq!(status, 412, "{text}");
    assert!(text.contains(&second.replace('"', "\\\"")), "it says what is there: {text}");
    assert_eq!(put("/meshes/default", Some(("if-none-match", "*")), "b").await.0, 412);
    assert_eq!(put("/meshes/new", Some(("if-match", "*")), "b").await.0, 412);
    assert_eq!(put("/meshes/new", Some(("if-none-match", "*")), "b").await.0, 201);
    assert_eq!(put("/meshes/new", Some(("if-none-match", "*")), "b").await.0, 412);
    assert_eq!(put("/meshes/new", Some(("if-match", "nonsense")), "b").await.0, 400);
    assert_eq!(put("/meshes/default", Some(("if-match", "\"99999999\"")), "b").await.0, 412);
    assert_eq!(tag(&api, "/meshes/default").await, second, "nothing of that was written");

    let delete = async |condition| send(&api, "DELETE", "/meshes/default", Some(condition), None).await.0;
    assert_eq!(delete(("if-match", &first)).await, 412);
    assert_eq!(delete(("if-none-match", "*")).await, 412);
    assert_eq!(delete(("if-match", &second)).await, 200);
    assert_eq!(delete(("if-match", "*")).await, 404);

    let known = tag(&api, "/meshes/new").await;
    let (status, headers, text) =
        send(&api, "GET", "/meshes/new", Some(("if-none-match", &known)), None).await;
    assert_eq!((status, &headers["etag"], text.as_str()), (304, &known.parse().unwrap(), ""));
}

#[tokio::test]
async fn of_writers_with_one_tag_one_wins() {
    let api = global(&[mesh("default")]).await;
    let known = tag(&api, "/meshes/default").await;
    let put = async |i: usize| {
        let condition = Some(("if-match", known.as_str()));
        send(&api, "PUT", "/meshes/default", condition, marked("default", &i.to_string())).await.0
    };
    let mut statuses = futures::future::join_all((0..8).map(put)).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    let create = async |i: usize| {
        let condition = Some(("if-none-match", "*"));
        send(&api, "PUT", "/meshes/new", condition, marked("new", &i.to_string())).await.0
    };
    let mut statuses = futures::future::join_all((0..8).map(create)).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 412, 412, 412, 412, 412, 412, 412]);
}
