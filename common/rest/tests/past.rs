//! The history over the API, and taking changes back.

use super::{
    rights::{as_user, token_of},
    *,
};
use crate::access::{Access, AccessRule};

fn timeout(name: &str, seconds: u32) -> Value {
    let conf = json!({ "idleTimeout": format!("{seconds}s") });
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "targetRef": { "kind": "Mesh" }, "to": [{ "targetRef": { "kind": "Mesh" }, "default": conf }],
    } })
}

fn secret(value: &str) -> Value {
    json!({ "type": "Secret", "mesh": "default", "name": "s", "data": value })
}

const TIMEOUT: &str = "/meshes/default/meshtimeouts/a";
const SECRET: &str = "/meshes/default/secrets/s";

/// Where reading takes a role.
async fn guarded() -> TestApi {
    let access = Access { read_resources: AccessRule::admins(), ..Access::default() };
    let config = ApiConfig { access, ..config(Mode::Global) };
    let api = TestApi::start(config, &[mesh("default")]).await.unwrap();
    let defaults = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &defaults).await.unwrap();
    api.index.wait_for(*api.store.watch_head().borrow()).await.unwrap();
    api
}

/// Writes, and returns the revision.
async fn write(api: &TestApi, method: &str, path: &str, body: Option<Value>) -> u64 {
    let request = Request::builder().method(method).uri(path).header("host", crate::testing::api::HOST);
    let body = body.map(|body| Body::from(body.to_string())).unwrap_or_default();
    let (parts, text) = api.answer_from([127, 0, 0, 1], request.body(body).unwrap()).await.unwrap();
    assert!(parts.status.is_success(), "{method} {path}: {text}");
    parts.headers[REVISION].to_str().unwrap().parse().unwrap()
}

async fn put(api: &TestApi, path: &str, body: Value) -> u64 {
    write(api, "PUT", path, Some(body)).await
}

/// What there is, without what writing it again changes.
async fn everything(api: &TestApi) -> Vec<Value> {
    let index = api.index.current();
    // Keys are made anew.
    let kept = index.iter().filter(|resource| !resource.kind().admin_only);
    let documents = kept.map(|resource| {
        let mut document = crate::document::render(resource).unwrap();
        for member in ["creationTime", "modificationTime"] {
            document.as_object_mut().unwrap().remove(member);
        }
        document
    });
    documents.collect()
}

async fn undo(api: &TestApi, body: Value) -> (u16, Value) {
    ask(api, "POST", "/history/undo", Some(body)).await
}

#[tokio::test]
async fn every_revision_of_a_resource_can_be_read_again() {
    let api = global(&[mesh("default")]).await;
    let first = put(&api, TIMEOUT, timeout("a", 1)).await;
    let second = put(&api, TIMEOUT, timeout("a", 2)).await;
    let gone = write(&api, "DELETE", TIMEOUT, None).await;
    let third = put(&api, TIMEOUT, timeout("a", 3)).await;

    let (_, list) = ask(&api, "GET", &format!("{TIMEOUT}/_history"), None).await;
    let told = list["items"].as_array().unwrap();
    let ops: Vec<Value> = told.iter().map(|item| json!([item["revision"], item["op"]])).collect();
    let expected = [(third, "create"), (gone, "delete"), (second, "update"), (first, "create")];
    assert_eq!(ops, expected.map(|(revision, op)| json!([revision, op])));
    assert_eq!(told[0]["author"], "user mesh-system:admin");
    assert_eq!((&told[0]["type"], &told[0]["mesh"]), (&json!("MeshTimeout"), &json!("default")));

    let idle = |document: &Value| document["spec"]["to"][0]["default"]["idleTimeout"].clone();
    let check = async |revision: u64, status: u16, expected: Value| {
        let (is, body) = ask(&api, "GET", &format!("{TIMEOUT}/_history/{revision}"), None).await;
        assert_eq!((is, idle(&body)), (status, expected), "{revision}: {body}");
    };
    check(first - 1, 404, Value::Null).await;
    check(first, 200, json!("1s")).await;
    check(second, 200, json!("2s")).await;
    check(gone, 404, Value::Null).await;
    check(third, 200, json!("3s")).await;
    check(third + 1, 404, Value::Null).await;
    assert_eq!(ask(&api, "GET", &format!("{TIMEOUT}/_history/x"), None).await.0, 400);

    let (_, of_revision) = ask(&api, "GET", &format!("/history/{gone}"), None).await;
    assert_eq!(of_revision["items"][0]["op"], "delete", "{of_revision}");
    let (_, page) = ask(&api, "GET", "/history?kind=meshtimeout&size=2", None).await;
    assert_eq!((page["items"].as_array().unwrap().len(), page["next"].as_u64()), (2, Some(gone)), "{page}");
    let (_, rest) = ask(&api, "GET", &format!("/history?kind=MeshTimeout&before={gone}"), None).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (2, &Value::Null), "{rest}");
    for query in ["size=0", "size=1001", "since=soon", "kind=Nothing", "before=-1"] {
        assert_eq!(ask(&api, "GET", &format!("/history?{query}"), None).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn the_history_is_for_those_who_are_known_and_holds_no_secrets() {
    let api = global(&[mesh("default")]).await;
    put(&api, SECRET, secret("b2xk")).await;
    let revision = put(&api, SECRET, secret("bmV3")).await;
    for path in ["/history", "/history/1", &format!("{TIMEOUT}/_history"), &format!("{TIMEOUT}/_history/1")] {
        let request = Request::get(path).header("host", "cp").body(Body::empty()).unwrap();
        let (status, body) = api.send_from([10, 0, 0, 1], request).await.unwrap();
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains("generate user-token"), "{body}");
    }
    let (_, list) = ask(&api, "GET", &format!("{SECRET}/_history"), None).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let (status, body) = ask(&api, "GET", &format!("{SECRET}/_history/{revision}"), None).await;
    assert_eq!(status, 404);
    assert!(body["detail"].as_str().unwrap().contains("is not kept"), "{body}");
    let (status, plan) = undo(&api, json!({ "revision": revision })).await;
    assert_eq!((status, plan["steps"].as_array().unwrap().len()), (200, 0), "{plan}");
    assert_eq!(plan["left"][0]["reason"], "what it held is not kept");
    let told = format!("{list}{body}{plan}");
    assert!(!told.contains("b2xk") && !told.contains("bmV3"), "{told}");
}

#[tokio::test]
async fn one_change_is_taken_back_unless_another_lies_on_it() {
    let api = global(&[mesh("default")]).await;
    let first = put(&api, TIMEOUT, timeout("a", 1)).await;
    let before = everything(&api).await;
    let second = put(&api, TIMEOUT, timeout("a", 2)).await;

    let (status, plan) = undo(&api, json!({ "revision": second, "dryRun": true })).await;
    assert_eq!((status, &plan["revision"]), (200, &Value::Null), "{plan}");
    let step = &plan["steps"][0];
    assert_eq!((&step["op"], &step["undoes"]), (&json!("update"), &json!([second])));
    let idle = |document: &Value| document["spec"]["to"][0]["default"]["idleTimeout"].clone();
    assert_eq!((idle(&step["now"]), idle(&step["then"])), (json!("2s"), json!("1s")));

    let (status, refused) = undo(&api, json!({ "revision": first })).await;
    assert_eq!(status, 409, "{refused}");
    let (status, done) = undo(&api, json!({ "revision": second })).await;
    assert_eq!((status, done["revision"].as_u64()), (200, Some(second + 1)), "{done}");
    assert_eq!(everything(&api).await, before);
    // What was taken back is a change like any other.
    let (status, again) = undo(&api, json!({ "revision": second + 1 })).await;
    assert_eq!(status, 200, "{again}");
    let (_, now) = ask(&api, "GET", TIMEOUT, None).await;
    assert_eq!(idle(&now), json!("2s"));
    for wrong in
        [json!({}), json!({"revision": 1, "since": 1}), json!({"since": "soon"}), json!({"revison": 1})]
    {
        assert_eq!(undo(&api, wrong.clone()).await.0, 400, "{wrong}");
    }
    assert_eq!(undo(&api, json!({ "revision": 999 })).await.0, 404);
    assert_eq!(undo(&api, json!({ "since": 999 })).await.0, 404);
}

#[tokio::test]
async fn everything_since_a_revision_is_taken_back_at_once() {
    let api = global(&[]).await;
    put(&api, "/meshes/default", mesh("default")).await;
    put(&api, TIMEOUT, timeout("a", 1)).await;
    put(&api, "/meshes/default/meshtimeouts/b", timeout("b", 1)).await;
    let cut = put(&api, "/meshes/second", mesh("second")).await;
    let before = everything(&api).await;
    put(&api, TIMEOUT, timeout("a", 2)).await;
    put(&api, TIMEOUT, timeout("a", 3)).await;
    write(&api, "DELETE", "/meshes/default/meshtimeouts/b", None).await;
    put(&api, "/meshes/default/meshtimeouts/c", timeout("c", 1)).await;
    put(&api, "/meshes/third", mesh("third")).await;

    let (status, plan) = undo(&api, json!({ "since": cut, "dryRun": true })).await;
    assert_eq!(status, 200, "{plan}");
    let done = undo(&api, json!({ "since": cut })).await;
    assert_eq!(done.0, 200, "{}", done.1);
    assert_eq!(everything(&api).await, before);
    assert!(api.index.current().find(&crate::model::kinds::mesh::KIND, "", "third").is_none());

    // By time, a mesh comes back with what was in it.
    let before = everything(&api).await;
    write(&api, "DELETE", "/meshes/default/meshtimeouts/a", None).await;
    let revision = write(&api, "DELETE", "/meshes/default", None).await;
    let (status, done) = undo(&api, json!({ "since": revision - 2 })).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(everything(&api).await, before);
}

#[tokio::test]
async fn who_may_write_and_not_read_is_shown_nothing_of_what_is_taken_back() {
    let api = guarded().await;
    put(&api, TIMEOUT, timeout("a", 1)).await;
    let revision = put(&api, TIMEOUT, timeout("a", 2)).await;
    let ann = token_of(&api, "ann", &[]).await;
    assert_eq!(as_user(&api, &ann, "GET", TIMEOUT, None).await.0, 403);

    let tried = json!({ "revision": revision, "dryRun": true });
    let (status, plan) = as_user(&api, &ann, "POST", "/history/undo", Some(tried.clone())).await;
    assert_eq!((status, &plan["steps"][0]["op"]), (200, &json!("update")), "{plan}");
    let (_, whole) = undo(&api, tried).await;
    for member in ["now", "then", "author", "at"] {
        assert!(plan["steps"][0][member].is_null(), "{member}: {plan}");
        assert!(!whole["steps"][0][member].is_null(), "{member}: {whole}");
    }
    let meant = Some(json!({ "revision": revision }));
    let (status, done) = as_user(&api, &ann, "POST", "/history/undo", meant).await;
    assert_eq!((status, &done["steps"][0]["now"]), (200, &Value::Null), "{done}");
    assert_eq!(done["revision"], revision + 1);
}

#[tokio::test]
async fn what_is_too_long_is_taken_back_in_smaller_steps() {
    let api = global(&[mesh("default")]).await;
    let write = |n: usize, seconds: u32, items: usize| {
        let mut document = timeout(&format!("t{n}"), seconds);
        let to = document["spec"]["to"][0].clone();
        document["spec"]["to"] = vec![to; items].into();
        let document = crate::document::Document::parse(&document).unwrap();
        crate::store::Write::put(document.into_resource(api.env.now()))
    };
    let author = crate::store::history::Author::User("ann".to_owned());
    let mut revisions = Vec::new();
    // Together some twenty megabytes of what was and what is; then one that is short.
    for (seconds, some, items) in [(1, 0..20, 8_000), (2, 0..20, 8_000), (2, 20..21, 1), (3, 20..21, 1)] {
        let writes = some.map(|n| write(n, seconds, items));
        let batch = crate::store::Batch::of(writes).by(author.clone());
        revisions.push(api.store.transact(batch).await.unwrap().revision);
    }
    api.index.wait_for(revisions[3]).await.unwrap();
    let tried = async |since: u64| undo(&api, json!({ "since": since, "dryRun": true })).await;
    let (status, refused) = tried(revisions[0]).await;
    assert_eq!(status, 400, "{}", refused["detail"]);
    assert!(refused["detail"].as_str().unwrap().contains("smaller steps"), "{}", refused["detail"]);
    let (status, plan) = tried(revisions[2]).await;
    assert_eq!((status, plan["steps"].as_array().map(Vec::len)), (200, Some(1)), "{}", plan["detail"]);
}

#[tokio::test]
async fn who_may_not_write_takes_nothing_back() {
    let api = global(&[mesh("default")]).await;
    let revision = put(&api, TIMEOUT, timeout("a", 1)).await;
    let body = json!({ "revision": revision }).to_string();
    let request = Request::post("/history/undo").header("host", "cp").body(Body::from(body)).unwrap();
    assert_eq!(api.send_from([10, 0, 0, 1], request).await.unwrap().0, 403);

    // What zones say stays: they would say it again.
    let mut of_zone = api
        .index
        .current()
        .find(&crate::policy::mesh_timeout::KIND, "default", "a")
        .unwrap()
        .as_ref()
        .clone();
    of_zone.spec = bytes::Bytes::from_static(b"{\"to\":[]}");
    let batch = crate::store::Batch::of([crate::store::Write::put(of_zone)])
        .by(crate::store::history::Author::Zone("east".to_owned()));
    let told = api.store.transact(batch).await.unwrap().revision;
    api.index.wait_for(told).await.unwrap();
    let (_, plan) = undo(&api, json!({ "since": revision - 1 })).await;
    assert_eq!(plan["steps"], json!([]), "{plan}");
    assert!(plan["left"][0]["reason"].as_str().unwrap().contains("zone east"), "{plan}");

    let config = ApiConfig { read_only: true, ..config(Mode::Global) };
    let api = TestApi::start(config, &[mesh("default")]).await.unwrap();
    assert_eq!(undo(&api, json!({ "revision": 1 })).await.0, 405);
}

#[tokio::test]
async fn what_a_zone_changes_hides_nothing_of_what_users_did() {
    let api = global(&[mesh("default")]).await;
    let first = put(&api, TIMEOUT, timeout("a", 1)).await;
    let second = put(&api, TIMEOUT, timeout("a", 2)).await;
    let as_zone = async |name: &str, seconds: u32| {
        let document = crate::document::Document::parse(&timeout(name, seconds)).unwrap();
        let write = crate::store::Write::put(document.into_resource(api.env.now()));
        let author = crate::store::history::Author::Zone("stolen".to_owned());
        let batch = crate::store::Batch::of([write]).by(author);
        let told = api.store.transact(batch).await.unwrap().revision;
        api.index.wait_for(told).await.unwrap();
    };
    let turn_over = async || {
        for seconds in 1..40 {
            as_zone("of-zone", seconds).await;
        }
        let age = std::time::Duration::from_secs(1 << 32);
        let limits = crate::store::history::HistoryLimits { age, changes: 20, bytes: u64::MAX };
        assert!(api.store.compact_history(&limits).await.unwrap() > 0);
    };
    turn_over().await;
    let (_, list) = ask(&api, "GET", "/history?author=user%20mesh-system%3Aadmin", None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    assert!(list["knownAfter"].as_u64().unwrap() > second, "{list}");
    let at = async |name: &str, revision: u64| {
        let path = format!("/meshes/default/meshtimeouts/{name}/_history/{revision}");
        ask(&api, "GET", &path, None).await.0
    };
    assert_eq!((at("a", first).await, at("a", second).await), (200, 200), "what replaced it is there");
    assert_eq!((at("a", first - 1).await, at("of-zone", second + 1).await), (404, 404), "nobody knows");
    let (status, done) = undo(&api, json!({ "revision": second })).await;
    assert_eq!((status, done["steps"][0]["op"].as_str()), (200, Some("update")), "{done}");

    // What lies on it is refused though the change itself is gone.
    as_zone("a", 7).await;
    turn_over().await;
    let (status, refused) = undo(&api, json!({ "revision": done["revision"] })).await;
    assert_eq!(status, 404, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("is not known any more"), "{refused}");
    assert_eq!(undo(&api, json!({ "since": first - 1 })).await.0, 404);
}

#[tokio::test]
async fn what_was_of_another_zone_is_shown_to_who_may_read_that_zone() {
    let api = guarded().await;
    let of_zone = |zone: &str, seconds: u32| {
        let mut document = timeout("a", seconds);
        document["labels"] = json!({ "kuma.io/zone": zone });
        document
    };
    let west = put(&api, TIMEOUT, of_zone("west", 1)).await;
    write(&api, "DELETE", TIMEOUT, None).await;
    let east = put(&api, TIMEOUT, of_zone("east", 2)).await;
    for (name, zones) in [("one", json!(["east"])), ("both", json!(["east", "west"]))] {
        let rule = json!({ "verbs": ["read"], "kinds": ["MeshTimeout"], "zones": zones });
        let role = json!({ "type": "AccessRole", "name": name, "spec": { "rules": [rule] } });
        put(&api, &format!("/accessroles/{name}"), role).await;
        let spec = json!({ "subjects": [{ "type": "User", "name": name }], "roles": [name] });
        let binding = json!({ "type": "AccessRoleBinding", "name": name, "spec": spec });
        put(&api, &format!("/accessrolebindings/{name}"), binding).await;
    }
    for (name, expected) in [("one", [200, 403]), ("both", [200, 200])] {
        let token = token_of(&api, name, &[]).await;
        for (revision, expected) in [east, west].into_iter().zip(expected) {
            let path = format!("{TIMEOUT}/_history/{revision}");
            let (status, shown) = as_user(&api, &token, "GET", &path, None).await;
            assert_eq!(status, expected, "{name} {revision}: {shown}");
            assert_eq!(shown["spec"].is_object(), expected == 200, "{shown}");
        }
    }
}
