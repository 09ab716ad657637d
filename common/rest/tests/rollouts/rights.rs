//! Who may begin and steer runs, and see how far they are.

use super::{
    super::rights::{as_user, token_of},
    *,
};
use crate::{
    access::{Access, AccessRule},
    registry,
    rest::tests::kinds,
    rollouts::why_not_carried,
};

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

fn demanding(name: &str, demand: &Value) -> Value {
    let mut spec = waves();
    spec["requiredFor"] = json!([demand]);
    json!({ "type": "Rollout", "name": name, "spec": spec })
}

#[tokio::test]
async fn what_is_demanded_can_be_done_and_is_lifted_again() {
    let api = with_keys(federation(&waves()).await).await;
    let mut taken = 0;
    for kind in registry::ALL.iter().copied() {
        let of_kind = demanding("canary", &json!({ "kinds": [kind.name] }));
        let (status, answer) = ask(&api, "PUT", "/rollouts/canary", Some(of_kind)).await;
        if let Some(why) = why_not_carried(kind) {
            assert_eq!(status, 400, "{}: {answer}", kind.name);
            let refused = &answer["invalid_parameters"][0];
            assert_eq!(refused["field"], "spec.requiredFor[0].kinds[0]", "{answer}");
            assert!(refused["reason"].as_str().unwrap().contains(why), "{answer}");
            continue;
        }
        taken += 1;
        assert_eq!(status, 200, "{}: {answer}", kind.name);
        let item = format!("{}/a", kinds::path(kind));
        let document = kinds::document(kind);
        let (status, refused) = ask(&api, "PUT", &item, Some(document.clone())).await;
        assert_eq!(status, 403, "{}: {refused}", kind.name);
        assert!(refused["detail"].as_str().unwrap().contains("--rollout canary"), "{refused}");
        let met = json!({ "resources": [document], "dryRun": true });
        let (status, begun) = begin(&api, met).await;
        assert_eq!(status, 200, "{}: {begun}", kind.name);
        assert_eq!(
            ask(&api, "PUT", "/rollouts/canary", Some(canary(&waves()))).await.0,
            200,
            "{}",
            kind.name
        );
    }
    assert!(taken > 20, "{taken} types go out in waves");
    let unknown = demanding("canary", &json!({ "kinds": ["MeshTimeout", "Nothing"] }));
    let (status, refused) = ask(&api, "PUT", "/rollouts/canary", Some(unknown)).await;
    assert_eq!(
        (status, &refused["invalid_parameters"][0]["field"]),
        (400, &json!("spec.requiredFor[0].kinds[1]"))
    );
    // A mesh goes at once or not at all, and it is said how.
    let of_meshes = demanding("canary", &json!({ "kinds": ["Mesh"] }));
    assert_eq!(ask(&api, "PUT", "/rollouts/canary", Some(of_meshes)).await.0, 200);
    let (status, refused) = ask(&api, "DELETE", "/meshes/default", None).await;
    assert_eq!(status, 403, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("take Mesh out of"), "{refused}");
    assert_eq!(ask(&api, "DELETE", "/rollouts/canary", None).await.0, 200);
    assert_eq!(ask(&api, "DELETE", "/meshes/default", None).await.0, 200);
}

#[tokio::test]
async fn nobody_demands_of_others_what_he_may_not_write() {
    let api = with_keys(federation(&waves()).await).await;
    bind(&api, "team", of(&[(&["write"], "Rollout", &["team-a-*"])])).await;
    let of_leads = json!([
        { "verbs": ["write"], "kinds": ["Rollout"], "names": ["team-b-*"] },
        { "verbs": ["write"], "kinds": ["MeshTimeout"], "meshes": ["default"] },
        { "verbs": ["write"], "kinds": ["MeshRetry"], "names": ["b-*"] },
        { "verbs": ["write"], "kinds": ["Mesh"], "names": ["b-*"] },
    ]);
    bind(&api, "leads", of_leads).await;
    let (bob, ann) = (token_of(&api, "bob", &["team"]).await, token_of(&api, "ann", &["leads"]).await);
    let put = async |token: &str, name: &str, demand: Value| {
        as_user(&api, token, "PUT", &format!("/rollouts/{name}"), Some(demanding(name, &demand))).await.0
    };
    for kind in registry::ALL.iter().copied() {
        let expected = if why_not_carried(kind).is_some() { 400 } else { 403 };
        assert_eq!(put(&bob, "team-a-x", json!({ "kinds": [kind.name] })).await, expected, "{}", kind.name);
    }
    for (demand, expected) in [
        (json!({ "kinds": ["MeshTimeout"] }), 403),
        (json!({ "kinds": ["MeshTimeout"], "meshes": ["default", "other"] }), 403),
        (json!({ "kinds": ["MeshTimeout", "MeshRetry"], "meshes": ["default"] }), 403),
        (json!({ "kinds": ["Mesh"], "meshes": ["default"] }), 403),
        (json!({ "kinds": ["Mesh"] }), 403),
        (json!({ "kinds": ["MeshTimeout"], "meshes": ["default"] }), 201),
        (json!({ "kinds": ["Mesh"], "meshes": ["b-one"] }), 200),
    ] {
        assert_eq!(put(&ann, "team-b-x", demand.clone()).await, expected, "{demand}");
    }
    // What an administrator demands stays when somebody else writes the rollout, and does not grow.
    let whole = demanding("team-a-y", &json!({ "kinds": ["MeshTimeout"] }));
    assert_eq!(ask(&api, "PUT", "/rollouts/team-a-y", Some(whole.clone())).await.0, 201);
    let mut later = whole;
    later["spec"]["haltOn"] = json!({ "converge": "5m" });
    assert_eq!(as_user(&api, &bob, "PUT", "/rollouts/team-a-y", Some(later)).await.0, 200);
    assert_eq!(put(&bob, "team-a-y", json!({ "kinds": ["MeshTimeout", "MeshRetry"] })).await, 403);
    assert_eq!(put(&bob, "team-a-y", json!({ "kinds": ["MeshTimeout"], "meshes": ["default"] })).await, 200);
    assert_eq!(put(&bob, "team-a-y", json!({ "kinds": ["MeshTimeout"] })).await, 403);
    // Whatever is demanded, administrators write rollouts and what goes out in none.
    let secret = json!({ "type": "GlobalSecret", "name": "user-token-revocations", "data": "eA==" });
    let (status, said) = ask(&api, "PUT", "/global-secrets/user-token-revocations", Some(secret)).await;
    assert!(matches!(status, 200 | 201), "{said}");
    for gone in ["/accessrolebindings/team", "/accessroles/team", "/rollouts/team-a-y", "/rollouts/team-b-x"]
    {
        assert_eq!(ask(&api, "DELETE", gone, None).await.0, 200, "{gone}");
    }
    assert_eq!(ask(&api, "PUT", TIMEOUT, Some(timeout("a", 3))).await.0, 200);
}

#[tokio::test]
async fn who_may_write_some_rollouts_leaves_places_to_others() {
    let api = with_keys(federation(&waves()).await).await;
    let of_team =
        |rollouts: &str| of(&[(&["write"], "Rollout", &[rollouts]), (&["write"], "MeshTimeout", &["of-*"])]);
    bind(&api, "a", of_team("a-*")).await;
    bind(&api, "b", of_team("b-*")).await;
    let (of_a, of_b) = (token_of(&api, "ann", &["a"]).await, token_of(&api, "bob", &["b"]).await);
    let make = async |token: &str, name: String| {
        let rollout = json!({ "type": "Rollout", "name": name, "spec": waves() });
        as_user(&api, token, "PUT", &format!("/rollouts/{name}"), Some(rollout)).await
    };
    for n in 0..128 {
        assert_eq!(make(&of_a, format!("a-{n}")).await.0, 201, "{n}");
    }
    let (status, refused) = make(&of_a, "a-128".to_owned()).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("128 of 256 rollouts"), "{refused}");
    assert_eq!(make(&of_a, "a-0".to_owned()).await.0, 200, "what is there is written");
    assert_eq!(make(&of_b, "b-0".to_owned()).await.0, 201, "there is place for others");

    let begin = async |token: &str, name: &str| {
        let body = json!({ "resources": [timeout(&format!("of-{name}"), 1)] });
        as_user(&api, token, "POST", &format!("/rollouts/{name}/begin"), Some(body)).await
    };
    for n in 0..8 {
        let (status, begun) = begin(&of_a, &format!("a-{n}")).await;
        assert_eq!(status, 201, "{begun}");
    }
    let (status, refused) = begin(&of_a, "a-8").await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("8 of 16 runs"), "{refused}");
    assert_eq!(begin(&of_b, "b-0").await.0, 201, "and for their runs");
}
