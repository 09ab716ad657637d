//! Which requests changed something, so that they have a line in the audit file whatever else was asked.

use super::{
    rights::{as_user, token_of},
    *,
};
use crate::{
    audit::{AuditLog, AuditQuery},
    rest::routes::{Needs, RouteMethod, TABLE, acts},
};

const TIMEOUT: &str = "/meshes/default/meshtimeouts/a";

fn timeout(seconds: u32) -> Option<Value> {
    Some(json!({ "type": "MeshTimeout", "mesh": "default", "name": "a", "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": format!("{seconds}s") } }] } }))
}

#[tokio::test]
async fn what_leaves_all_as_it_was_is_no_change() {
    let audit = Arc::<AuditLog>::default();
    let config = ApiConfig { audit: Arc::clone(&audit), ..config(Mode::Global) };
    let api = TestApi::start(config, &[mesh("default")]).await.unwrap();
    let defaults = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &defaults).await.unwrap();
    api.index.wait_for(*api.store.watch_head().borrow()).await.unwrap();
    let ann = token_of(&api, "ann", &[]).await;
    let asked = async |method: &str, path: &str, body: Option<Value>| {
        let (status, answer) = as_user(&api, &ann, method, path, body).await;
        let entry = audit.search(&AuditQuery::default(), 1).remove(0);
        assert_eq!((entry.method.as_str(), entry.status), (method, status), "{method} {path}: {answer}");
        (status, entry.changed)
    };
    let start = api.index.current().revision;
    assert_eq!(asked("PUT", TIMEOUT, timeout(1)).await, (201, true));
    assert_eq!(asked("PUT", TIMEOUT, timeout(1)).await, (200, false));
    assert_eq!(asked("PUT", &format!("{TIMEOUT}?dryRun=true"), timeout(2)).await, (200, false));
    assert_eq!(asked("PUT", TIMEOUT, timeout(2)).await, (200, true));
    let undo = |dry: bool| Some(json!({ "since": start + 1, "dryRun": dry }));
    assert_eq!(asked("POST", "/history/undo", undo(true)).await, (200, false));
    assert_eq!(asked("POST", "/history/undo", undo(false)).await, (200, true));
    assert_eq!(asked("POST", "/history/undo", undo(false)).await, (200, false), "it is like that already");
    assert_eq!(asked("DELETE", TIMEOUT, None).await, (200, true));
    assert_eq!(asked("DELETE", TIMEOUT, None).await, (404, false));
    assert_eq!(asked("GET", "/config", None).await, (200, false));
    let token = json!({ "name": "bob", "validFor": "1h" });
    assert_eq!(asked("POST", "/tokens/user", Some(token.clone())).await, (403, false));
    assert_eq!(api.send("POST", "/tokens/user", Some(token.to_string())).await.unwrap().0, 200);
    assert!(audit.search(&AuditQuery::default(), 1)[0].changed, "a token was made");
}

#[test]
fn what_is_led_or_made_without_a_revision_is_a_change() {
    for (method, path, expected) in [
        ("PUT", "/logging", true),
        ("DELETE", "/logging", true),
        ("DELETE", "/logging/{component}", true),
        ("POST", "/tokens/zone", true),
        ("POST", "/strait/epoch", true),
        ("POST", "/debug/force_disconnect", true),
        ("GET", "/logging", false),
        ("GET", "/strait/backup", false),
        ("POST", "/history/undo", false),
        ("POST", "/v3/discovery:monitoringassignments", false),
        ("POST", "/no/route", false),
    ] {
        assert_eq!(acts(method, path), expected, "{method} {path}");
    }
    // Whoever has to operate for it does something.
    let operating = TABLE
        .iter()
        .filter(|route| matches!(route.needs(), Needs::OnEverything(verb) if verb.as_str() == "operate"));
    for route in operating {
        assert_eq!(acts(route.method().as_str(), route.path()), route.method() != RouteMethod::Get);
    }
}
