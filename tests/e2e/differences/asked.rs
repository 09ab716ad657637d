//! How it is asked: paths, methods, pages, filters, and how errors are called.

use common::registry;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Global, Options, Zone, eventually};

async fn title(cp: &ControlPlane, method: Method, path: &str, body: Option<Value>) -> (u16, String) {
    let (status, answer) = cp.call(method, path, body).await;
    (status.as_u16(), answer["title"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn paths_and_methods_are_answered_as_kuma_does() {
    let global = Global::start().await;
    for path in
        ["/meshes", "/meshes/default", "/meshes/default/meshtimeouts", "/zones", "/who-am-i", "/_resources"]
    {
        let with = global.get(&format!("{path}/")).await;
        assert_eq!(with, global.get(path).await, "{path}/");
        assert_eq!(global.get(&format!("{path}//?size=10")).await, with, "{path}//");
    }
    let page = global.get("/meshes/default/meshtimeouts/?size=1").await;
    assert!(page["next"].as_str().is_some_and(|next| next.ends_with("?offset=1&size=1")), "{page}");
    let timeout = json!({ "type": "MeshTimeout", "mesh": "default", "name": "t", "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] } });
    let (status, answer) = global.call(Method::PUT, "/meshes/default/meshtimeouts/t/", Some(timeout)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(global.call(Method::DELETE, "/meshes/default/meshtimeouts/t/", None).await.0, StatusCode::OK);

    // A slash opens nothing that is closed without it.
    let stranger = reqwest::Client::new();
    for path in ["/global-secrets", "/global-secrets/", "/meshes/default/secrets/", "/config/"] {
        let status = stranger.get(global.url(path)).send().await.unwrap().status();
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    let put =
        stranger.put(global.url("/meshes/stranger/")).json(&json!({ "type": "Mesh", "name": "stranger" }));
    assert_eq!(put.send().await.unwrap().status(), StatusCode::FORBIDDEN);

    for (method, path) in
        [("POST", "/meshes"), ("PATCH", "/meshes/default"), ("PUT", "/meshes"), ("DELETE", "/meshes")]
    {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer =
            global.admin().request(method.clone(), global.url(path)).json(&json!({})).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        assert!(answer.text().await.unwrap().starts_with("405"), "{method} {path}");
    }
    for path in ["/", "/meshes", "/meshes/default", "/zones/_overview", "/global-insight"] {
        let seen = global.admin().head(global.url(path)).send().await.unwrap();
        assert_eq!(seen.status(), StatusCode::OK, "{path}");
        assert_eq!(seen.headers()["content-type"], "application/json", "{path}");
    }
    let unknown = global.admin().get(global.url("/nowhere")).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    assert_eq!(unknown.text().await.unwrap(), "404: Page Not Found");
    for (header, value, status) in [
        ("accept", "text/html", StatusCode::NOT_ACCEPTABLE),
        ("accept", "application/*", StatusCode::OK),
        ("accept", "text/html, */*;q=0.1", StatusCode::OK),
        ("accept", "application/json; charset=utf-8", StatusCode::OK),
    ] {
        let answer = global.admin().get(global.url("/meshes")).header(header, value).send().await.unwrap();
        assert_eq!(answer.status(), status, "{header}: {value}");
    }
    for (form, status) in [
        ("text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("application/yaml", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("application/json; charset=utf-8", StatusCode::BAD_REQUEST),
    ] {
        let put = global.admin().put(global.url("/meshes/new")).header("content-type", form).body("{");
        assert_eq!(put.send().await.unwrap().status(), status, "{form}");
    }
}

#[tokio::test]
async fn errors_have_the_titles_of_kuma() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let long = "m".repeat(64);
    let mesh = |name: &str| Some(json!({ "type": "Mesh", "name": name }));
    let of_nobody = Some(json!({ "mesh": "nowhere", "name": "p", "validFor": "1h" }));
    let dataplane = json!({ "type": "Dataplane", "mesh": "default", "name": "d", "networking": {
        "address": "192.0.2.1", "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }] } });
    let (get, put, post) = (Method::GET, Method::PUT, Method::POST);
    let (status, answer) = zone.call(Method::PUT, "/meshes/default/dataplanes/d", Some(dataplane)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let long_path = format!("/meshes/{long}");
    for cp in [&global.cp, &zone.cp] {
        for (path, status, expected) in [
            ("/meshes/nowhere", 404, "Could not retrieve a resource"),
            ("/meshes/nowhere/meshtimeouts", 404, "Failed to retrieve Mesh"),
            ("/meshes/nowhere/dataplanes/d/_overview", 404, "Failed to retrieve Mesh"),
            ("/meshes/default/dataplanes/nobody/_overview", 404, "Could not retrieve a resource"),
            ("/zones/nobody/_overview", 404, "Could not retrieve a resource"),
            ("/zoneingresses/nobody/_overview", 404, "Could not retrieve a resource"),
            ("/meshes/default/dataplanes/nobody/xds", 404, "Could not get dataplane resource"),
            ("/meshes/default/dataplanes/nobody/stats", 404, "Could not get dataplane resource"),
            ("/meshes/default/dataplanes/nobody/clusters", 404, "Could not get dataplane resource"),
            ("/zoneingresses/nobody/xds", 404, "Could not get zone ingress resource"),
            ("/zoneegresses/nobody/xds", 404, "Could not get zone egress resource"),
            ("/meshes?size=0", 400, "Could not retrieve resources"),
            ("/meshes/default?format=xml", 400, "Could not retrieve a resource"),
            ("/_kri/nonsense", 400, "Bad Request"),
            ("/meshes/default/dataplanes/nobody/_layout", 400, "Bad Request"),
        ] {
            assert_eq!(title(cp, get.clone(), path, None).await, (status, expected.to_owned()), "{path}");
        }
        // Nobody runs it, so its Envoy cannot be asked.
        let own = cp.get("/meshes/default/dataplanes").await;
        if let Some(name) = own["items"][0]["name"].as_str() {
            let path = format!("/meshes/default/dataplanes/{name}/xds");
            let (status, is) = title(cp, get.clone(), &path, None).await;
            assert!(
                (400..=503).contains(&status) && is == "Could not execute admin operation",
                "{status} {is}"
            );
        }
    }
    let created = title(&global, put.clone(), &long_path, mesh(&long)).await;
    assert_eq!(created, (400, "Failed to create a resource".to_owned()));
    assert_eq!(title(&global, put, "/mesh-insights/m", None).await, (405, "Method not allowed".to_owned()));
    let token = title(&global, post.clone(), "/tokens/dataplane", of_nobody).await;
    assert_eq!(token, (404, "Signing Key not found".to_owned()));
    let empty = title(&global, post.clone(), "/tokens/dataplane", Some(json!({}))).await;
    assert_eq!(empty, (400, "Invalid request".to_owned()));
    assert_eq!(title(&global, post, "/tokens/zone", Some(json!({}))).await.0, 400);
    let unreadable =
        global.admin().post(global.url("/tokens/dataplane")).header("content-type", "application/json");
    let unreadable = unreadable.body("{").send().await.unwrap();
    assert_eq!((unreadable.status(), unreadable.text().await.unwrap().len()), (StatusCode::BAD_REQUEST, 0));
    let refused =
        reqwest::Client::new().get(global.url("/meshes")).bearer_auth("nonsense").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["title"], "Invalid authentication data", "{refused}");
}

/// Of whatever kind, a list has its size, its offset, and filters that exist or are refused.
#[tokio::test]
async fn every_list_has_the_same_pages_and_filters() {
    let global = Global::start().await;
    for name in ["a", "ab", "b"] {
        let labels = json!({ "team": if name == "b" { "two" } else { "one" }, "all": "yes" });
        let mesh =
            json!({ "type": "Mesh", "name": name, "labels": labels, "skipCreatingInitialPolicies": ["*"] });
        let (status, answer) = global.call(Method::PUT, &format!("/meshes/{name}"), Some(mesh)).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty()) {
        let mut lists = vec![format!("/{}", kind.path)];
        if kind.is_mesh_scoped() {
            lists.push(format!("/meshes/default/{}", kind.path));
        }
        for list in lists {
            let all = global.get(&format!("{list}?size=1000")).await;
            let total = all["total"].as_u64().unwrap();
            assert_eq!(all["items"].as_array().map(Vec::len), usize::try_from(total).ok(), "{list}");
            assert_eq!(all["next"], Value::Null, "{list}");
            let beyond = global.get(&format!("{list}?offset={}", total + 5)).await;
            assert_eq!(beyond, json!({ "total": total, "items": [], "next": null }), "{list}");
            let edge = global.get(&format!("{list}?size=1&offset={}", total.saturating_sub(1))).await;
            assert_eq!(edge["next"], Value::Null, "{list} has nothing after its last");
            assert_eq!(global.get(&format!("{list}?name=no-such-name")).await["total"], 0, "{list}");
            for wrong in ["size=0", "size=-1", "size=1001", "size=x", "offset=-1", "offset=x"] {
                let (status, answer) = global.call(Method::GET, &format!("{list}?{wrong}"), None).await;
                assert_eq!(status, StatusCode::BAD_REQUEST, "{list}?{wrong}: {answer}");
                assert_eq!(answer["title"], "Could not retrieve resources", "{list}?{wrong}");
            }
        }
    }
    let names = async |query: &str| {
        let list = global.get(&format!("/meshes{query}")).await;
        let items = list["items"].as_array().unwrap().iter();
        items.map(|mesh| mesh["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["a", "ab", "b", "default"]);
    assert_eq!(names("?name=a").await, ["a", "ab", "default"], "a name is found by any part of it");
    assert_eq!(names("?filter[labels.team]=one").await, ["a", "ab"]);
    assert_eq!(names("?filter[labels.team]=one&filter[labels.all]=yes&size=1&offset=1").await, ["ab"]);
    assert_eq!(names("?filter[labels.team]=two&filter[labels.all]=no").await, [""; 0]);
    let (status, answer) = global.call(Method::GET, "/meshes?filter[name]=a", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let first = global.get("/meshes?size=2").await;
    let next = first["next"].as_str().unwrap();
    assert_eq!((first["total"].as_u64(), next), (Some(4), &*global.url("/meshes?offset=2&size=2")));
}
