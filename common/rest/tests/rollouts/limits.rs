//! What no run may do, and what none is lost by.

use super::*;
use crate::{
    model::{
        ResourceKey,
        kinds::{rollout, rollout_insight::kept_key, secret::SECRET},
        labels,
    },
    rest::{
        precondition::Conditions,
        read::ResourcePath,
        write::{WrittenBy, deletion},
    },
    store::{Batch, Precondition, StoreError, Write},
};

fn secured(backends: &[&str], enabled: &str, issuing: &str) -> Value {
    let backends: Vec<Value> =
        backends.iter().map(|name| json!({ "name": name, "type": "builtin" })).collect();
    json!({ "type": "Mesh", "name": "default", "labels": { labels::ISSUING: issuing },
        "mtls": { "enabledBackend": enabled, "backends": backends } })
}

#[tokio::test]
async fn a_mesh_by_which_keys_of_all_zones_change_goes_out_in_no_waves() {
    let api = federation(&waves()).await;
    // What the zones need for one backend more comes with it, wave by wave, and goes again.
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(secured(&["one"], "one", "zone"))).await.0, 200);
    let before = secured(&["one", "two"], "one", "zone");
    let (status, begun) = begin(&api, json!({ "resources": [before] })).await;
    assert_eq!(status, 201, "{begun}");
    let secrets = api.index.current().count(&SECRET);
    assert_eq!(steer(&api, "abort").await.0, 200);
    assert_eq!(api.index.current().count(&SECRET), secrets - 2);
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(before.clone())).await.0, 200);
    let head = api.index.current().revision;
    for (mesh, what) in [
        (secured(&["one", "two"], "one", "zone-only"), "another strait.io/issuing"),
        (secured(&["one", "two"], "one", "mesh"), "another strait.io/issuing"),
        (secured(&["one"], "one", "zone"), "without the builtin mTLS backend \"two\""),
        (secured(&["one", "two"], "", "zone"), "switching mTLS off"),
        (json!({ "type": "Mesh", "name": "default" }), "switching mTLS off"),
    ] {
        for dry in [true, false] {
            let (status, refused) = begin(&api, json!({ "resources": [mesh], "dryRun": dry })).await;
            assert_eq!(status, 400, "{refused}");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains(what) && detail.contains("without a rollout"), "{what}: {refused}");
        }
    }
    // A half of its key is lost, and would be made anew.
    let half = ResourceKey::new(&SECRET, "default", "default.ca-builtin-key-two");
    let lost = Write::delete_when(half, Precondition::Exists);
    let lost = api.store.transact(Batch::of([lost])).await.unwrap();
    api.index.wait_for(lost.revision).await.unwrap();
    let mut routed = before.clone();
    routed["routing"] = json!({ "zoneEgress": true });
    let (status, refused) = begin(&api, json!({ "resources": [routed] })).await;
    assert_eq!(status, 400, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("Secret"), "{refused}");
    assert_eq!(api.index.current().revision, head + 1, "nothing was written");
}

#[tokio::test]
async fn there_are_only_so_many_documents_runs_and_rollouts() {
    let api = federation(&waves()).await;
    let many =
        |count: usize| -> Vec<Value> { (0..count).map(|n| timeout(&format!("many-{n}"), 1)).collect() };
    // So many are not even looked at: the first of them is no document.
    let mut asked = many(1_001);
    asked[0] = json!({ "type": "Nothing" });
    for dry in [true, false] {
        let (status, refused) = begin(&api, json!({ "resources": asked, "dryRun": dry })).await;
        assert_eq!(status, 413, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("at most 1000"), "{refused}");
    }
    let (status, refused) = begin(&api, json!({ "resources": many(1_000), "dryRun": true })).await;
    assert_eq!(status, 413, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("at most 200"), "{refused}");

    let mut codes = Vec::new();
    for n in 0..257 {
        let rollout = json!({ "type": "Rollout", "name": format!("r{n}"), "spec": waves() });
        codes.push(ask(&api, "PUT", &format!("/rollouts/r{n}"), Some(rollout)).await.0);
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 255, "with canary these are 256");
    assert_eq!(codes[256], 400);
    let mut last = (0, Value::Null);
    for n in 0..17 {
        let body = json!({ "resources": [timeout(&format!("of-{n}"), 1)] });
        last = ask(&api, "POST", &format!("/rollouts/r{n}/begin"), Some(body)).await;
        assert_eq!(last.0 == 201, n < 16, "{n}: {}", last.1);
    }
    assert_eq!(last.0, 409);
    assert!(last.1["detail"].as_str().unwrap().contains("r0, r1"), "{}", last.1);
    assert_eq!(ask(&api, "POST", "/rollouts/r3/abort", None).await.0, 200);
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201, "there is a place again");
}

#[tokio::test]
async fn one_version_that_is_lost_loses_no_other() {
    let api = federation(&waves()).await;
    assert_eq!(ask(&api, "PUT", "/meshes/default/meshtimeouts/b", Some(timeout("b", 1))).await.0, 201);
    let (status, begun) =
        begin(&api, json!({ "resources": [timeout("a", 2), timeout("b", 2), timeout("c", 2)] })).await;
    assert_eq!(status, 201, "{begun}");
    let changes = begun["changes"].as_array().unwrap();
    let of_a = changes.iter().position(|change| change["name"] == "a").unwrap();
    let lost = Write::delete_when(kept_key("canary", of_a), Precondition::Exists);
    let lost = api.store.transact(Batch::of([lost])).await.unwrap();
    api.index.wait_for(lost.revision).await.unwrap();
    assert_eq!(seen_by(&api, "zone-3"), "a=2s b=1s", "what can be kept back is");
    let (status, answer) = steer(&api, "abort").await;
    assert_eq!((status, &answer["state"]), (200, &json!("aborted")), "{answer}");
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("MeshTimeout default/a stays as it is"), "{answer}");
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(seen_by(&api, "zone-1"), "a=2s b=1s");
    let (_, shown) = ask(&api, "GET", "/rollouts/canary/status", None).await;
    assert!(shown["log"].to_string().contains("MeshTimeout default/a stays as it is"), "{shown}");
}

#[tokio::test]
async fn a_mesh_that_is_taken_back_takes_nothing_of_others_along() {
    let api = federation(&waves()).await;
    let other = json!({ "type": "Rollout", "name": "other", "spec": waves() });
    assert_eq!(ask(&api, "PUT", "/rollouts/other", Some(other)).await.0, 201);
    let mut inside = timeout("x", 1);
    inside["mesh"] = "new".into();
    let (status, begun) = begin(&api, json!({ "resources": [mesh("new"), inside] })).await;
    assert_eq!(status, 201, "{begun}");

    let mut theirs = timeout("y", 1);
    theirs["mesh"] = "new".into();
    let body = json!({ "resources": [theirs] });
    assert_eq!(ask(&api, "POST", "/rollouts/other/begin", Some(body)).await.0, 201);
    let (status, refused) = steer(&api, "abort").await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("MeshTimeout new/y"), "{refused}");
    assert_eq!(ask(&api, "POST", "/rollouts/other/abort", None).await.0, 200);

    theirs["name"] = "z".into();
    assert_eq!(ask(&api, "PUT", "/meshes/new/meshtimeouts/z", Some(theirs)).await.0, 201);
    let (status, refused) = steer(&api, "abort").await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("z"), "{refused}");
    assert_eq!(ask(&api, "DELETE", "/meshes/new/meshtimeouts/z", None).await.0, 200);
    let (status, answer) = steer(&api, "abort").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(ask(&api, "GET", "/meshes/new", None).await.0, 404);
}

#[tokio::test]
async fn a_rollout_is_deleted_with_no_run_that_began_meanwhile() {
    let api = federation(&waves()).await;
    let silent = silent(false).await;
    let at = KindApi { api: silent, kind: &rollout::KIND };
    let target = ResourcePath { mesh: String::new(), name: "canary".to_owned() };
    let decided = async || {
        let index = api.index.current();
        deletion(&at, &index, &target, &Conditions::default(), WrittenBy::Client, || Ok(())).unwrap().batch
    };
    let before_the_first = decided().await;
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201);
    let refused = api.store.transact(before_the_first).await;
    assert!(matches!(refused, Err(StoreError::AlreadyExists { .. })), "{refused:?}");
    assert_eq!(steer(&api, "abort").await.0, 200);
    let before_the_next = decided().await;
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2)] })).await.0, 201);
    let refused = api.store.transact(before_the_next).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(ask(&api, "DELETE", "/rollouts/canary", None).await.0, 409);
    assert_eq!(steer(&api, "abort").await.0, 200);
    assert_eq!(ask(&api, "DELETE", "/rollouts/canary", None).await.0, 200);
    let index = api.index.current();
    assert_eq!(index.count(&rollout_insight::KIND) + index.count(&rollout_insight::KEPT), 0);
}
