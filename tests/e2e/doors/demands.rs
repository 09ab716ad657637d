//! What one Rollout may demand of everybody: who may write one alone locks nobody out.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Global, http};

/// As docs/rollouts.md has it: a Rollout for each team.
const ROLE: &str = "
type: AccessRole
name: team-a
spec: { rules: [{ verbs: [write], kinds: [Rollout], names: ['team-a-*'] }] }
---
type: AccessRoleBinding
name: team-a
spec: { subjects: [{ type: User, name: bob }], roles: [team-a] }
";

fn demanding(kinds: &[&str]) -> Value {
    json!({ "type": "Rollout", "name": "team-a-x", "spec": { "requiredFor": [{ "kinds": kinds }] } })
}

/// What an administrator does on a bad day.
async fn administers(global: &Global, seconds: u32) {
    let secret = json!({ "type": "GlobalSecret", "name": "user-token-revocations", "data": "MTIzNDU=" });
    let (status, said) =
        global.call(Method::PUT, "/global-secrets/user-token-revocations", Some(secret)).await;
    assert!(status.is_success(), "{said}");
    global.apply(&format!(
        "{{type: MeshTimeout, mesh: default, name: t, spec: {{to: [{{targetRef: {{kind: Mesh}}, default: \
         {{connectionTimeout: {seconds}s}}}}]}}}}"
    ));
}

#[tokio::test]
async fn who_may_write_one_rollout_locks_nobody_out() {
    let mut global = Global::start().await;
    global.apply(ROLE);
    let bob = global.straitctl(&["generate", "user-token", "--name", "bob", "--valid-for", "1h"]);
    let put = async |global: &Global, rollout: &Value| {
        let request = http::client().put(global.url("/rollouts/team-a-x")).bearer_auth(bob.trim());
        let answer = request.json(rollout).send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    };
    let everything = ["Rollout", "AccessRole", "AccessRoleBinding", "GlobalSecret", "Secret", "Zone", "Mesh"];
    let cases: [(&[&str], StatusCode); 4] = [
        (&everything, StatusCode::BAD_REQUEST),
        (&["Rollout"], StatusCode::BAD_REQUEST),
        (&["GlobalSecret"], StatusCode::BAD_REQUEST),
        (&["Mesh", "MeshTimeout"], StatusCode::FORBIDDEN),
    ];
    for (kinds, expected) in cases {
        let (status, said) = put(&global, &demanding(kinds)).await;
        assert_eq!(status, expected, "{kinds:?}: {said}");
    }
    let mut plain = demanding(&[]);
    plain["spec"] = json!({ "waves": [{ "zones": { "share": 10 } }] });
    let (status, said) = put(&global, &plain).await;
    assert_eq!(status, StatusCode::CREATED, "{said}");
    administers(&global, 1).await;

    // What an administrator demands locks out him no more than others.
    let (status, said) =
        global.call(Method::PUT, "/rollouts/team-a-x", Some(demanding(&["MeshTimeout"]))).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    global.process.kill();
    global.start_again().await;
    let (status, said) = global.call(Method::DELETE, "/rollouts/team-a-x", None).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    administers(&global, 2).await;
    for gone in ["/accessrolebindings/team-a", "/accessroles/team-a"] {
        let (status, said) = global.call(Method::DELETE, gone, None).await;
        assert_eq!(status, StatusCode::OK, "{gone}: {said}");
    }
}
