//! Changes that go out in waves, over the API.

mod limits;
mod rights;

use super::*;
use crate::{model::kinds::rollout_insight, rollouts::Holds};

fn timeout(name: &str, seconds: u32) -> Value {
    let conf = json!({ "idleTimeout": format!("{seconds}s") });
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "targetRef": { "kind": "Mesh" }, "to": [{ "targetRef": { "kind": "Mesh" }, "default": conf }],
    } })
}

fn zone_named(name: &str) -> Value {
    json!({ "type": "Zone", "name": name })
}

fn canary(spec: &Value) -> Value {
    json!({ "type": "Rollout", "name": "canary", "spec": spec })
}

/// One zone, then another after somebody said so, then everybody.
fn waves() -> Value {
    json!({ "waves": [
        { "zones": { "names": ["zone-1"] }, "pause": "manual" }, { "zones": { "names": ["zone-2"] } },
    ] })
}

const TIMEOUT: &str = "/meshes/default/meshtimeouts/a";
const BEGIN: &str = "/rollouts/canary/begin";

async fn federation(spec: &Value) -> TestApi {
    let api =
        global(&[mesh("default"), zone_named("zone-1"), zone_named("zone-2"), zone_named("zone-3")]).await;
    let (status, answer) = ask(&api, "PUT", "/rollouts/canary", Some(canary(spec))).await;
    assert_eq!(status, 201, "{answer}");
    let (status, answer) = ask(&api, "PUT", TIMEOUT, Some(timeout("a", 1))).await;
    assert_eq!(status, 201, "{answer}");
    api
}

async fn begin(api: &TestApi, body: Value) -> (u16, Value) {
    ask(api, "POST", BEGIN, Some(body)).await
}

async fn steer(api: &TestApi, what: &str) -> (u16, Value) {
    ask(api, "POST", &format!("/rollouts/canary/{what}"), None).await
}

/// Idle timeouts that `zone` is to have, by name.
fn seen_by(api: &TestApi, zone: &str) -> String {
    let index = api.index.current();
    let holds = Holds::of(&index);
    let shown = holds.without(&index, &holds.on(zone));
    let timeouts = shown.list(&crate::policy::mesh_timeout::KIND).filter(|it| it.name().len() == 1);
    let timeouts = timeouts.map(|timeout| {
        let spec: Value = serde_json::from_slice(&timeout.spec).unwrap();
        format!("{}={}", timeout.name(), spec["to"][0]["default"]["idleTimeout"].as_str().unwrap())
    });
    timeouts.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_change_is_begun_kept_back_and_taken_back() {
    let api = federation(&waves()).await;
    ask(&api, "PUT", "/meshes/default/meshtimeouts/b", Some(timeout("b", 1))).await;
    let body = json!({
        "resources": [timeout("a", 2), timeout("c", 2)],
        "deletes": [{ "type": "MeshTimeout", "mesh": "default", "name": "b" }],
    });
    let dry = json!({ "resources": body["resources"], "deletes": body["deletes"], "dryRun": true });
    let before = api.index.current().revision;
    let (status, shown) = begin(&api, dry).await;
    assert_eq!((status, api.index.current().revision), (200, before), "{shown}");
    let ops: Vec<&Value> = shown["changes"].as_array().unwrap().iter().map(|change| &change["op"]).collect();
    assert_eq!(ops, ["update", "delete", "create"], "{shown}");
    assert_eq!(shown["waves"][1]["zones"], json!(["zone-2"]), "{shown}");

    let (status, begun) = begin(&api, body.clone()).await;
    assert_eq!(status, 201, "{begun}");
    assert_eq!(seen_by(&api, "zone-1"), "a=2s c=2s");
    for zone in ["zone-2", "zone-3", "unheard"] {
        assert_eq!(seen_by(&api, zone), "a=1s b=1s", "{zone}");
    }
    // The API shows what is written, and how far it is.
    let (_, shown) = ask(&api, "GET", TIMEOUT, None).await;
    assert_eq!(shown["spec"]["to"][0]["default"]["idleTimeout"], "2s");
    let (status, shown) = ask(&api, "GET", "/rollouts/canary/status", None).await;
    assert_eq!((status, &shown["state"], &shown["wave"]), (200, &json!("running"), &json!(0)), "{shown}");
    let states: Vec<&str> =
        shown["zones"].as_array().unwrap().iter().map(|zone| zone["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["waiting", "kept", "kept"], "{shown}");
    assert_eq!(shown["changeRevision"], begun["revision"]);
    let (_, insight) = ask(&api, "GET", "/rollout-insights/canary", None).await;
    assert!(insight["spec"]["log"][0]["text"].as_str().unwrap().starts_with("begun"), "{insight}");
    assert!(
        !insight.to_string().contains("idleTimeout"),
        "who reads runs need not be one who reads that: {insight}"
    );

    // Nobody waits for those who wait.
    let (_, sync) = ask(&api, "GET", &format!("/sync/revisions/{}", begun["revision"]), None).await;
    let states: Vec<&str> =
        sync["zones"].as_array().unwrap().iter().map(|zone| zone["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["waiting", "kept", "kept"], "{sync}");
    let note = sync["zones"][1]["notes"][0].as_str().unwrap();
    assert!(note.contains("rollout canary: it is in wave 2 of 3"), "{note}");
    let (_, item) = ask(&api, "GET", "/sync/zones/zone-2/meshtimeouts/b?mesh=default", None).await;
    assert_eq!(item["state"], "kept", "it still has what is deleted: {item}");

    // Nobody else writes it meanwhile, and there is one run at a time.
    for (method, path, body) in [
        ("PUT", TIMEOUT, Some(timeout("a", 3))),
        ("DELETE", TIMEOUT, None),
        ("DELETE", "/meshes/default", None),
        ("DELETE", "/rollouts/canary", None),
        ("POST", BEGIN, Some(json!({ "resources": [timeout("d", 1)] }))),
    ] {
        let (status, answer) = ask(&api, method, path, body).await;
        assert_eq!(status, 409, "{method} {path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("straitctl rollout abort canary"), "{answer}");
    }
    let (status, _) = ask(&api, "PUT", "/meshes/default/meshtimeouts/d", Some(timeout("d", 1))).await;
    assert_eq!(status, 201, "what has nothing to do with it goes on");

    let (status, answer) = steer(&api, "abort").await;
    assert_eq!((status, &answer["state"]), (200, &json!("aborted")), "{answer}");
    for zone in ["zone-1", "zone-2", "zone-3"] {
        assert_eq!(seen_by(&api, zone), "a=1s b=1s d=1s", "{zone}");
    }
    assert_eq!(api.index.current().count(&rollout_insight::KEPT), 0);
    assert_eq!(steer(&api, "abort").await.0, 409);
    let (status, answer) = begin(&api, body).await;
    assert_eq!(status, 201, "another one may begin: {answer}");
}

#[tokio::test]
async fn who_waits_sees_no_change_when_it_is_taken_back() {
    let api = federation(&waves()).await;
    let of = |api: &TestApi| {
        let index = api.index.current();
        let holds = Holds::of(&index);
        let shown = holds.without(&index, &holds.on("zone-3"));
        let timeout = shown.find(&crate::policy::mesh_timeout::KIND, "default", "a").cloned().unwrap();
        (timeout.labels.clone(), timeout.spec.clone(), timeout.created)
    };
    let before = of(&api);
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201);
    assert_eq!(of(&api), before);
    assert_eq!(steer(&api, "abort").await.0, 200);
    assert_eq!(of(&api), before);
}

#[tokio::test]
async fn it_is_halted_resumed_and_advanced_when_there_is_reason_to() {
    let api = federation(&waves()).await;
    for what in ["halt", "resume", "advance", "abort", "status"] {
        let method = if what == "status" { "GET" } else { "POST" };
        let (status, answer) = ask(&api, method, &format!("/rollouts/canary/{what}"), None).await;
        assert_eq!(status, 404, "it was never begun: {what} {answer}");
    }
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201);
    let (status, answer) = steer(&api, "advance").await;
    assert_eq!(status, 409, "its wave has not got it yet: {answer}");
    assert_eq!(steer(&api, "resume").await.0, 409);
    let reason = json!({ "reason": "errors in zone-1" });
    let (status, answer) = ask(&api, "POST", "/rollouts/canary/halt", Some(reason)).await;
    assert_eq!((status, &answer["state"]), (200, &json!("halted")), "{answer}");
    let (_, shown) = ask(&api, "GET", "/rollouts/canary/status", None).await;
    assert!(shown["reasons"][0]["text"].as_str().unwrap().ends_with(": errors in zone-1"), "{shown}");
    assert_eq!(steer(&api, "halt").await.0, 409);
    assert_eq!(steer(&api, "advance").await.0, 409);
    let (status, answer) = steer(&api, "resume").await;
    assert_eq!((status, &answer["state"]), (200, &json!("running")), "{answer}");
    assert_eq!(seen_by(&api, "zone-2"), "a=1s");
}

#[tokio::test]
async fn what_has_to_go_in_waves_goes_no_other_way() {
    let mut spec = waves();
    spec["requiredFor"] = json!([{ "kinds": ["MeshTimeout"], "meshes": ["default"] }]);
    let api = federation(&waves()).await;
    assert_eq!(ask(&api, "PUT", "/rollouts/canary", Some(canary(&spec))).await.0, 200);
    for (method, body) in [("PUT", Some(timeout("a", 2))), ("DELETE", None)] {
        let (status, answer) = ask(&api, method, TIMEOUT, body).await;
        assert_eq!(status, 403, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("--rollout canary"), "{answer}");
    }
    let (status, answer) = ask(&api, "PUT", &format!("{TIMEOUT}?dryRun=true"), Some(timeout("a", 2))).await;
    assert_eq!(status, 403, "trying it says so as well: {answer}");
    assert_eq!(ask(&api, "PUT", TIMEOUT, Some(timeout("a", 1))).await.0, 200, "nothing changes");
    assert_eq!(ask(&api, "PUT", "/meshes/other", Some(mesh("other"))).await.0, 201);
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201);
}

#[tokio::test]
async fn what_cannot_go_in_waves_is_refused_with_the_reason() {
    let api = federation(&waves()).await;
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "s", "data": "eA==" });
    let many: Vec<Value> = (0..201).map(|n| timeout(&format!("many-{n}"), 1)).collect();
    let is_deleted = |kind: &str, name: &str| json!({ "deletes": [{ "type": kind, "name": name }] });
    for (body, status, part) in [
        (json!({}), 400, "nothing to roll out"),
        (json!({ "resources": [timeout("a", 1)] }), 400, "nothing would change"),
        (json!({ "resources": [timeout("a", 2), timeout("a", 3)] }), 400, "is there twice"),
        (json!({ "resources": [secret] }), 400, "cannot be kept"),
        (json!({ "resources": [zone_named("zone-9")] }), 400, "does not go from global to zones"),
        (json!({ "resources": [{ "type": "Nothing", "name": "x" }] }), 400, "no type \"Nothing\""),
        (is_deleted("Mesh", "default"), 400, "a mesh is deleted at once"),
        (is_deleted("MeshTimeout", "absent"), 404, "MeshTimeout"),
        (json!({ "resources": many }), 413, "at most 200"),
        (json!({ "reports": [] }), 400, "unknown field"),
    ] {
        let (found, answer) = begin(&api, body.clone()).await;
        assert_eq!(found, status, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(part), "{part}: {answer}");
    }
    let (status, _) =
        ask(&api, "POST", "/rollouts/other/begin", Some(json!({ "resources": [timeout("a", 2)] }))).await;
    assert_eq!(status, 404);
    let nobody = json!({ "waves": [{ "zones": { "labels": { "tier": "canary" } } }] });
    assert_eq!(ask(&api, "PUT", "/rollouts/canary", Some(canary(&nobody))).await.0, 200);
    let (status, answer) = begin(&api, json!({ "resources": [timeout("a", 2)] })).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("spec.waves[0].zones"), "{answer}");
}

#[tokio::test]
async fn a_zone_has_no_rollouts() {
    let api = zone(&[mesh("default")]).await;
    let (status, answer) = ask(&api, "POST", BEGIN, Some(json!({ "resources": [timeout("a", 2)] }))).await;
    assert_eq!(status, 404, "{answer}");
}
