//! Callers for whom a provider vouches.

use super::*;
use crate::{
    access::AccessRule,
    oidc::{
        OpenIdProvider,
        signer::{self, Signer, claims},
    },
};

async fn with(provider: OpenIdProvider) -> TestApi {
    let mut config = config(Mode::Global);
    config.open_id = Some(Arc::new(provider));
    config.access.admin_resources = AccessRule { users: [].into(), groups: ["platform".to_owned()].into() };
    let api = TestApi::start(config, &[mesh("default")]).await.unwrap();
    let defaults = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &defaults).await.unwrap();
    let head = *api.store.watch_head().borrow();
    api.index.wait_for(head).await.unwrap();
    api
}

async fn call(api: &TestApi, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("host", "cp");
    let request = request.header("authorization", format!("Bearer {token}"));
    let body = body.map(|body| Body::from(body.to_string())).unwrap_or_default();
    let (status, text) = api.send_from([10, 0, 0, 1], request.body(body).unwrap()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[tokio::test]
async fn a_token_of_the_provider_is_good_on_every_route_for_what_roles_say() {
    let signer = Signer::new("1");
    let api = with(signer::provider(&[&signer])).await;
    let now = api.env.now().timestamp();
    let (ann, bob) =
        (signer.sign(&claims(now, "ann", &["platform"])), signer.sign(&claims(now, "bob", &["devs"])));

    let (status, who) = call(&api, &ann, "GET", "/who-am-i", None).await;
    assert_eq!(
        (status, &who),
        (
            200,
            &json!({ "name": "ann", "groups": ["platform", "mesh-system:openid", "mesh-system:authenticated"] })
        )
    );
    let secret = json!({ "type": "GlobalSecret", "name": "s", "data": "YQ==" });
    assert_eq!(call(&api, &bob, "PUT", "/globalsecrets/s", Some(secret.clone())).await.0, 403);
    assert_eq!(call(&api, &ann, "PUT", "/globalsecrets/s", Some(secret)).await.0, 201);
    let (_, can) = call(&api, &bob, "GET", "/access/can-i?verb=view-secrets&kind=GlobalSecret", None).await;
    assert_eq!((&can["allowed"], &can["user"]), (&json!(false), &json!("bob")), "{can}");

    // Whom a provider has accounts for is nothing that an operator said.
    assert_eq!(call(&api, &bob, "PUT", "/meshes/too-early", Some(mesh("too-early"))).await.0, 403);
    let role = json!({ "type": "AccessRole", "name": "meshes", "spec": { "rules": [{ "verbs": ["write"], "kinds": ["Mesh"] }] } });
    let binding = json!({ "type": "AccessRoleBinding", "name": "meshes", "spec": {
        "subjects": [{ "type": "Group", "name": "devs" }], "roles": ["meshes"] } });
    assert_eq!(call(&api, &ann, "PUT", "/accessroles/meshes", Some(role)).await.0, 201);
    assert_eq!(call(&api, &ann, "PUT", "/accessrolebindings/meshes", Some(binding)).await.0, 201);
    assert_eq!(call(&api, &bob, "PUT", "/meshes/by-bob", Some(mesh("by-bob"))).await.0, 201);
    let carl = signer.sign(&claims(now, "carl", &["others"]));
    assert_eq!(call(&api, &carl, "PUT", "/meshes/by-carl", Some(mesh("by-carl"))).await.0, 403);

    let (_, log) = call(&api, &ann, "GET", "/audit", None).await;
    let by = |name: &str, outcome: &str| {
        let mut items = log["items"].as_array().unwrap().iter();
        items.any(|one| one["user"] == name && one["outcome"] == outcome)
    };
    assert!(by("ann", "done") && by("bob", "done") && by("bob", "refused") && by("carl", "refused"), "{log}");
    let (_, history) = call(&api, &ann, "GET", "/history?kind=Mesh", None).await;
    assert!(history.to_string().contains("user bob"), "{history}");

    // Our own tokens are good as they were.
    let asked = json!({ "name": "dan", "groups": [], "validFor": "1h" });
    let (_, own) = api.send("POST", "/tokens/user", Some(asked.to_string())).await.unwrap();
    assert_eq!(call(&api, &own, "GET", "/who-am-i", None).await.1["name"], "dan");
}

#[tokio::test]
async fn what_is_wrong_with_a_token_is_said_and_nothing_else_suffers() {
    let (signer, stranger) = (Signer::new("1"), Signer::new("2"));
    let api = with(signer::provider(&[&signer])).await;
    let now = api.env.now().timestamp();
    let changed = |name: &str, value: Value| {
        let mut all = claims(now, "ann", &["platform"]);
        all[name] = value;
        all
    };
    for (token, words) in [
        (signer.sign(&changed("exp", json!(now - 1))), "expired"),
        (signer.sign(&changed("aud", json!("other"))), "is no client of this control plane"),
        (signer.sign(&changed("sub", json!("mesh-system:admin"))), "only a control plane gives"),
        (stranger.sign(&claims(now, "ann", &["platform"])), "asked again"),
    ] {
        for path in ["/who-am-i", "/meshes", "/globalsecrets"] {
            let (status, error) = call(&api, &token, "GET", path, None).await;
            assert_eq!(status, 401, "{path}: {error}");
            assert!(error["detail"].as_str().unwrap().contains(words), "{error}");
        }
    }
    // A token of another provider is one of nobody.
    let other = signer.sign(&changed("iss", json!("https://evil.example")));
    assert_eq!(call(&api, &other, "GET", "/meshes", None).await.0, 401);
    let admin = signer.sign(&claims(now, "eve", &["mesh-system:admin", "mesh-system:node"]));
    assert_eq!(
        call(&api, &admin, "GET", "/who-am-i", None).await.1["groups"],
        json!(["mesh-system:openid", "mesh-system:authenticated"])
    );
    for (method, path) in
        [("GET", "/globalsecrets"), ("GET", "/audit"), ("POST", "/tokens/zone"), ("GET", "/strait/backup")]
    {
        assert_eq!(call(&api, &admin, method, path, Some(json!({}))).await.0, 403, "{path}");
    }

    let api = with(OpenIdProvider::new(&signer::settings()).unwrap()).await;
    let token = signer.sign(&claims(now, "ann", &["platform"]));
    let (status, error) = call(&api, &token, "GET", "/meshes", None).await;
    assert_eq!(status, 503, "{error}");
    assert!(error["detail"].as_str().unwrap().contains("could not be asked for its keys yet"), "{error}");
    assert_eq!(ask(&api, "GET", "/meshes", None).await.0, 200, "others are not concerned");
}

#[tokio::test]
async fn everybody_learns_how_to_log_in() {
    let api = with(signer::provider(&[&Signer::new("1")])).await;
    let ways = ask(&api, "GET", "/authn", None).await.1;
    let provider = json!({ "issuer": signer::ISSUER, "cliClientId": "cli", "scopes": ["openid", "profile", "email"], "page": false });
    assert_eq!(ways, json!({ "tokens": true, "openIdConnect": provider }), "there is no page in this test");
    let ways = ask(&global(&[]).await, "GET", "/authn", None).await.1;
    assert_eq!(ways, json!({ "tokens": true, "openIdConnect": null }));
}
