//! What roles narrow, and what the API says about it.

use super::*;
use crate::token;

const TIMEOUT: &str = "/meshes/default/meshtimeouts/a";

/// The token of a user, made as an administrator makes it.
pub(super) async fn token_of(api: &TestApi, name: &str, groups: &[&str]) -> String {
    let asked = json!({ "name": name, "groups": groups, "validFor": "1h" });
    let (status, token) = api.send("POST", "/tokens/user", Some(asked.to_string())).await.unwrap();
    assert_eq!(status, 200, "{token}");
    assert!(token::validate_user(&api.index.current(), &token, api.env.now()).is_ok());
    token
}

pub(super) async fn as_user(
    api: &TestApi,
    token: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("host", "cp");
    let request = request.header("authorization", format!("Bearer {token}"));
    let body = body.map(|body| Body::from(body.to_string())).unwrap_or_default();
    let (status, text) = api.send_from([10, 0, 0, 1], request.body(body).unwrap()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn timeout(name: &str) -> Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] } })
}

async fn with_users() -> (TestApi, String, String) {
    let api = global(&[mesh("default")]).await;
    let defaults = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &defaults).await.unwrap();
    let head = *api.store.watch_head().borrow();
    api.index.wait_for(head).await.unwrap();
    let (ann, bob) = (token_of(&api, "ann", &["devs"]).await, token_of(&api, "bob", &[]).await);
    (api, ann, bob)
}

async fn bind(api: &TestApi) {
    let role = json!({ "type": "AccessRole", "name": "timeouts", "spec": { "rules": [
        { "verbs": ["put", "delete"], "kinds": ["MeshTimeout", "Secret"], "meshes": ["default"], "names": ["a", "b*"] },
    ] } });
    assert_eq!(ask(api, "PUT", "/accessroles/timeouts", Some(role)).await.0, 201);
    let wrong = json!({ "type": "AccessRole", "name": "wrong", "spec": { "rules": [
        { "verbs": ["put"], "kinds": ["*", "Nothing"] }] } });
    let (status, refused) = ask(api, "PUT", "/accessroles/wrong", Some(wrong)).await;
    assert_eq!(
        (status, &refused["invalid_parameters"][0]["field"]),
        (400, &json!("spec.rules[0].kinds[1]")),
        "{refused}"
    );
    let binding = json!({ "type": "AccessRoleBinding", "name": "devs", "spec": {
        "subjects": [{ "type": "Group", "name": "devs" }], "roles": ["timeouts"] } });
    assert_eq!(ask(api, "PUT", "/accessrolebindings/devs", Some(binding)).await.0, 201);
}

#[tokio::test]
async fn roles_narrow_every_way_to_write() {
    let (api, ann, bob) = with_users().await;
    // Without a binding whoever is known writes.
    assert_eq!(as_user(&api, &bob, "PUT", TIMEOUT, Some(timeout("a"))).await.0, 201);
    bind(&api).await;

    let (status, refused) = as_user(&api, &bob, "PUT", TIMEOUT, Some(timeout("a"))).await;
    assert_eq!(status, 403);
    assert!(refused["detail"].as_str().unwrap().contains("has no role"), "{refused}");
    assert_eq!(as_user(&api, &bob, "DELETE", TIMEOUT, None).await.0, 403);
    assert_eq!(as_user(&api, &bob, "GET", TIMEOUT, None).await.0, 200, "reading is as it was");
    let other = "/meshes/default/meshtimeouts/c";
    let (status, refused) = as_user(&api, &ann, "PUT", other, Some(timeout("c"))).await;
    assert_eq!(status, 403);
    assert!(refused["detail"].as_str().unwrap().contains("has the roles timeouts"), "{refused}");
    assert_eq!(as_user(&api, &ann, "PUT", "/meshes/m2", Some(mesh("m2"))).await.0, 403);
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "a", "data": "YQ==" });
    assert_eq!(
        as_user(&api, &ann, "PUT", "/meshes/default/secrets/a", Some(secret)).await.0,
        403,
        "roles only narrow"
    );
    for path in ["/accessroles/timeouts", "/accessrolebindings/devs"] {
        assert_eq!(as_user(&api, &ann, "DELETE", path, None).await.0, 403);
        assert_eq!(as_user(&api, &ann, "GET", path, None).await.0, 403);
    }

    let second = "/meshes/default/meshtimeouts/b1";
    assert_eq!(as_user(&api, &ann, "PUT", second, Some(timeout("b1"))).await.0, 201);
    assert_eq!(as_user(&api, &ann, "DELETE", second, None).await.0, 200);
    let before = api.index.current().revision - 2;
    // What one may not write one may not take back either.
    assert_eq!(ask(&api, "PUT", other, Some(timeout("c"))).await.0, 201);
    let (_, plan) =
        as_user(&api, &ann, "POST", "/history/undo", Some(json!({ "since": before, "dryRun": true }))).await;
    assert_eq!(plan["left"][0]["name"], "c", "{plan}");
    assert!(plan["left"][0]["reason"].as_str().unwrap().contains("cannot delete"), "{plan}");
}

/// Host names, references and other control planes go by the label.
#[tokio::test]
async fn a_label_calls_nothing_what_a_role_does_not_name() {
    let (api, ann, _) = with_users().await;
    bind(&api).await;
    let called = |name: &str, label: &str| {
        let mut document = timeout(name);
        document["labels"] = json!({ "kuma.io/display-name": label });
        document
    };
    let path = "/meshes/default/meshtimeouts/b1";
    let (status, refused) = as_user(&api, &ann, "PUT", path, Some(called("b1", "c"))).await;
    assert_eq!(status, 403);
    assert!(refused["detail"].as_str().unwrap().contains("default/c"), "{refused}");
    assert_eq!(as_user(&api, &ann, "PUT", path, Some(timeout("b1"))).await.0, 201);
    assert_eq!(as_user(&api, &ann, "PUT", path, Some(called("b1", "c"))).await.0, 403, "later is the same");
    assert_eq!(as_user(&api, &ann, "PUT", path, Some(called("b1", "b2"))).await.0, 200);
    // Who may write all gives what name he likes, and what has it can be changed by who may write it.
    let other = "/meshes/default/meshtimeouts/b3";
    assert_eq!(ask(&api, "PUT", other, Some(called("b3", "c"))).await.0, 201);
    let mut changed = called("b3", "c");
    changed["labels"]["team"] = json!("a");
    assert_eq!(as_user(&api, &ann, "PUT", other, Some(changed)).await.0, 200);
}

/// A relay is told what all zones are told, so it takes the right to all of them, whatever it is called.
#[tokio::test]
async fn a_role_for_one_zone_makes_no_relay() {
    let (api, ann, bob) = with_users().await;
    for (name, group, zones) in [("of-east", "devs", json!(["east"])), ("of-all", "all", json!([]))] {
        let rule = json!({ "verbs": ["generate-zone-token"], "zones": zones });
        let role = json!({ "type": "AccessRole", "name": name, "spec": { "rules": [rule] } });
        assert_eq!(ask(&api, "PUT", &format!("/accessroles/{name}"), Some(role)).await.0, 201);
        let binding = json!({ "type": "AccessRoleBinding", "name": name, "spec": {
            "subjects": [{ "type": "Group", "name": group }], "roles": [name] } });
        assert_eq!(ask(&api, "PUT", &format!("/accessrolebindings/{name}"), Some(binding)).await.0, 201);
    }
    let all = token_of(&api, "eve", &["all"]).await;
    let check = async |zone: &str, scopes: &[&str], of_east: u16| {
        let asked = json!({ "zone": zone, "scope": scopes });
        for (token, expected) in [(&ann, of_east), (&all, 200), (&bob, 403)] {
            let (status, said) = as_user(&api, token, "POST", "/tokens/zone", Some(asked.clone())).await;
            assert_eq!(status, expected, "{asked}: {said}");
            let may =
                format!("/access/can-i?verb=generate-zone-token&zone={zone}&scope={}", scopes.join(","));
            let (_, may) = as_user(&api, token, "GET", &may, None).await;
            assert_eq!(may["allowed"], json!(expected == 200), "{asked}: {may}");
        }
    };
    check("east", &["cp"], 200).await;
    check("east", &["cp", "ingress", "egress"], 200).await;
    check("west", &["cp"], 403).await;
    check("", &["ingress"], 403).await;
    check("east", &["relay"], 403).await;
    check("east", &["cp", "relay"], 403).await;
    check("", &["relay"], 403).await;
    let asked = json!({ "zone": "east", "scope": ["relay"], "carries": ["east"] });
    let (status, said) = as_user(&api, &ann, "POST", "/tokens/zone", Some(asked)).await;
    assert_eq!(status, 403);
    assert!(said["detail"].as_str().unwrap().contains("one of all zones"), "{said}");
    let unknown = "/access/can-i?verb=generate-zone-token&scope=cp,moon";
    assert_eq!(ask(&api, "GET", unknown, None).await.0, 400);
}

#[tokio::test]
async fn what_one_may_do_is_told_as_it_is() {
    let (api, ann, bob) = with_users().await;
    bind(&api).await;
    let check = async |token: &str, query: &str, allowed: bool| {
        let (status, answer) = as_user(&api, token, "GET", &format!("/access/can-i?{query}"), None).await;
        assert_eq!((status, &answer["allowed"]), (200, &json!(allowed)), "{query}: {answer}");
        assert_eq!(answer["reason"].is_string(), !allowed, "{answer}");
    };
    check(&ann, "verb=put&kind=MeshTimeout&name=a", true).await;
    check(&ann, "verb=delete&kind=meshtimeout&name=b7", true).await;
    check(&ann, "verb=put&kind=MeshTimeout&name=c", false).await;
    check(&ann, "verb=put&kind=MeshTimeout&name=a&mesh=other", false).await;
    check(&bob, "verb=put&kind=MeshTimeout&name=a", false).await;
    check(&bob, "verb=view&kind=MeshTimeout&name=a", true).await;
    check(&bob, "verb=view&kind=Secret&name=a", false).await;
    check(&bob, "verb=put&kind=Dataplane&name=a", false).await;
    check(&bob, "verb=view-stats", true).await;
    for verb in [
        "generate-user-token",
        "generate-zone-token",
        "generate-dataplane-token",
        "view-config-dump",
        "backup",
        "view-audit",
    ] {
        check(&bob, &format!("verb={verb}"), false).await;
        let (_, answer) = ask(&api, "GET", &format!("/access/can-i?verb={verb}"), None).await;
        assert_eq!(answer["allowed"], true, "{verb}: {answer}");
    }
    let about_ann = "/access/can-i?verb=put&kind=MeshTimeout&name=a&user=ann&groups=devs";
    assert_eq!(as_user(&api, &bob, "GET", about_ann, None).await.0, 403);
    assert_eq!(ask(&api, "GET", about_ann, None).await.1["allowed"], true);
    for wrong in ["", "verb=eat", "verb=put", "verb=put&kind=Nothing"] {
        assert_eq!(ask(&api, "GET", &format!("/access/can-i?{wrong}"), None).await.0, 400, "{wrong}");
    }
    let anonymous = Request::get("/access/can-i?verb=put&kind=MeshTimeout&name=a").header("host", "cp");
    let (_, answer) = api.send_from([10, 0, 0, 1], anonymous.body(Body::empty()).unwrap()).await.unwrap();
    assert!(answer.contains("\"allowed\": false"), "{answer}");
}
