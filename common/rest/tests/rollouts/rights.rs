//! Who may begin and steer runs, and see how far they are.

use super::{
    super::rights::{as_user, token_of},
    *,
};
use crate::access::{Access, AccessRule};

/// Gives the group of this name a role of the same name.
async fn bind(api: &TestApi, name: &str, rules: Value) {
    let role = json!({ "type": "AccessRole", "name": name, "spec": { "rules": rules } });
    assert_eq!(ask(api, "PUT", &format!("/accessroles/{name}"), Some(role)).await.0, 201);
    let binding = json!({ "type": "AccessRoleBinding", "name": name, "spec": {
        "subjects": [{ "type": "Group", "name": name }], "roles": [name] } });
    assert_eq!(ask(api, "PUT", &format!("/accessrolebindings/{name}"), Some(binding)).await.0, 201);
}

async fn with_keys(api: TestApi) -> TestApi {
    let defaults = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &defaults).await.unwrap();
    api.index.wait_for(*api.store.watch_head().borrow()).await.unwrap();
    api
}

fn of(rules: &[(&[&str], &str, &[&str])]) -> Value {
    let rule = |(verbs, kind, names): &(&[&str], &str, &[&str])| json!({ "verbs": verbs, "kinds": [kind], "names": names });
    rules.iter().map(rule).collect()
}

#[tokio::test]
async fn who_begins_may_write_the_rollout_and_who_may_write_it_gets_it_free_again() {
    let api = with_keys(federation(&waves()).await).await;
    bind(&api, "devs", of(&[(&["write"], "MeshTimeout", &["a", "c"])])).await;
    bind(&api, "ops", of(&[(&["write"], "Rollout", &["canary"])])).await;
    bind(&api, "both", of(&[(&["write"], "MeshTimeout", &["a", "c"]), (&["write"], "Rollout", &["canary"])]))
        .await;
    let dev = token_of(&api, "dev", &["devs"]).await;
    let ops = token_of(&api, "ops", &["ops"]).await;
    let both = token_of(&api, "both", &["both"]).await;
    let body = |dry: bool| Some(json!({ "resources": [timeout("a", 2), timeout("c", 2)], "dryRun": dry }));
    for dry in [true, false] {
        let (status, refused) = as_user(&api, &dev, "POST", BEGIN, body(dry)).await;
        assert_eq!(status, 403, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("Rollout canary"), "{refused}");
        let (status, refused) = as_user(&api, &ops, "POST", BEGIN, body(dry)).await;
        assert_eq!(status, 403, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("MeshTimeout default/a"), "{refused}");
    }
    let steer = async |token: &str, what: &str| {
        as_user(&api, token, "POST", &format!("/rollouts/canary/{what}"), None).await.0
    };
    assert_eq!(as_user(&api, &both, "POST", BEGIN, body(false)).await.0, 201);
    // Who decides about the rollout stops it, and may not let it go on.
    assert_eq!(steer(&ops, "halt").await, 200);
    assert_eq!(steer(&ops, "resume").await, 403);
    assert_eq!(steer(&dev, "resume").await, 200, "he may write all of it");
    assert_eq!(steer(&ops, "advance").await, 403);
    // What the run made would be deleted, which he may not do.
    assert_eq!(steer(&dev, "abort").await, 403);
    assert_eq!(steer(&ops, "abort").await, 200);
    assert_eq!(seen_by(&api, "zone-1"), "a=1s");
}

#[tokio::test]
async fn who_reads_the_rollout_alone_is_told_no_more_than_that() {
    let access = Access { read_resources: AccessRule::admins(), ..Access::default() };
    let config = ApiConfig { access, ..config(Mode::Global) };
    let zones: Vec<Value> = ["zone-1", "zone-2", "zone-3"].map(zone_named).into();
    let documents = [vec![mesh("default")], zones].concat();
    let api = with_keys(TestApi::start(config, &documents).await.unwrap()).await;
    let mut spec = waves();
    let query =
        json!({ "promql": "up{authorization=\"Bearer abcdefghijklmnopqrstuvwxyz0123456789\"}", "above": 1 });
    spec["haltOn"] = json!({ "queries": [query] });
    assert_eq!(ask(&api, "PUT", "/rollouts/canary", Some(canary(&spec))).await.0, 201);
    assert_eq!(begin(&api, json!({ "resources": [timeout("a", 2), timeout("b", 2)] })).await.0, 201);
    let reason = json!({ "reason": "errors in zone-2" });
    assert_eq!(ask(&api, "POST", "/rollouts/canary/halt", Some(reason)).await.0, 200);

    let status = "/rollouts/canary/status";
    bind(&api, "few", of(&[(&["read"], "Rollout", &["canary"])])).await;
    let seen = of(&[
        (&["read"], "Rollout", &["canary"]),
        (&["read"], "RolloutInsight", &["canary"]),
        (&["read"], "Zone", &["zone-2"]),
        (&["read"], "MeshTimeout", &["a"]),
    ]);
    bind(&api, "some", seen).await;
    let few = token_of(&api, "few", &["few"]).await;
    let (code, shown) = as_user(&api, &few, "GET", status, None).await;
    assert_eq!((code, &shown["state"], &shown["wave"]), (200, &json!("halted"), &json!(0)), "{shown}");
    for named in ["zone-1", "zone-2", "zone-3", "MeshTimeout", "Bearer", "errors in"] {
        assert!(!shown.to_string().contains(named), "{named}: {shown}");
    }
    assert_eq!(shown["waves"].as_array().unwrap().len(), 3, "how far it is is told: {shown}");
    let some = token_of(&api, "some", &["some"]).await;
    let (_, shown) = as_user(&api, &some, "GET", status, None).await;
    let names = |member: &str, name: &str| -> Vec<String> {
        let all = shown[member].as_array().unwrap().iter();
        all.map(|one| one[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (names("zones", "zone"), names("changes", "name")),
        (vec!["zone-2".to_owned()], vec!["a".to_owned()])
    );
    assert!(shown["reasons"][0]["text"].as_str().unwrap().ends_with("errors in zone-2"), "{shown}");
    // The secret of a query is shown here as in the run itself: to nobody.
    let (_, insight) = ask(&api, "GET", "/rollout-insights/canary", None).await;
    let (_, whole) = ask(&api, "GET", status, None).await;
    for shown in [&shown, &insight, &whole] {
        assert!(!shown.to_string().contains("abcdefghijklmnopqrstuvwxyz"), "{shown}");
    }
    assert_eq!(whole["zones"].as_array().unwrap().len(), 3, "{whole}");
}
