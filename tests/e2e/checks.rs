//! `straitctl check` against control planes that are well, and that are not.

use serde_json::Value;

use crate::{
    harness::{Options, addresses, control_plane::ControlPlane, eventually},
    mesh::{ALLOW_ALL, federation_with},
};

/// What was found of this verdict, as one text.
fn of(found: &Value, verdict: &str) -> String {
    let checks = found["checks"].as_array().into_iter().flatten();
    let lines = checks.filter(|check| check["verdict"] == verdict);
    lines.map(|check| format!("{}: {}\n", check["about"], check["found"])).collect()
}

/// Waits for a check to end with this code, and with these words among its failures and warnings.
async fn finds(cp: &ControlPlane, code: i32, words: &str) -> Value {
    eventually(&format!("a check ends with {code} and finds {words:?}"), || async move {
        let (got, found) = cp.check();
        let wrong = [of(&found, "failure"), of(&found, "warning")].concat();
        if got == code && wrong.contains(words) { Ok(found) } else { Err(format!("{got}: {found:#}")) }
    })
    .await
}

#[tokio::test]
async fn a_check_says_what_is_wrong_and_ends_with_a_code_for_scripts() {
    let (mut global, mut zones) = federation_with(2, Options::impatient(), Options::default()).await;
    global.apply(ALLOW_ALL);
    let found = finds(&global.cp, 0, "").await;
    let ok = of(&found, "ok");
    for words in [
        "zone-1 is online and in sync",
        "zone-2 is online",
        "who may see everything",
        "sync with zones: the cert",
    ] {
        assert!(ok.contains(words), "{words:?} is not in {ok}");
    }
    let found = finds(&zones[0].cp, 0, "").await;
    assert!(of(&found, "ok").contains("connected since"), "{found:#}");

    // Nobody may call anybody once there is somebody to call.
    let dataplane = format!(
        "{{type: Dataplane, mesh: default, name: web-1, networking: {{address: {}, inbound: [{{port: 80, tags: \
         {{kuma.io/service: web}}}}]}}}}",
        addresses::loopback()
    );
    zones[0].apply(&dataplane);
    finds(&zones[0].cp, 1, "dataplanes are offline").await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    finds(&global.cp, 2, "nobody is allowed to call anybody").await;
    global.apply(ALLOW_ALL);

    zones[1].process.kill();
    finds(&global.cp, 2, "zone-2 is offline").await;
    let (ok, out, _) = global.try_straitctl(&["check", "--quiet"]);
    assert!(
        !ok && out.contains("failure  zone-2 is offline") && out.contains("-> see whether it runs"),
        "{out}"
    );
    assert!(!out.contains("zone-1 is online"), "{out}");
    // Who looks on sees it first.
    let out = global.straitctl(&["top", "--once"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("2 zones, 1 away") && lines[2].starts_with("zone-2"), "{out}");
    assert!(lines[2].contains("offline") && out.contains("1 proxies") && out.contains("web-1"), "{out}");
    assert!(global.process.stop().await.success());
    finds(&zones[0].cp, 2, "not connected since").await;
    let (code, found) = global.check();
    assert!(code == 2 && of(&found, "failure").contains("cannot reach"), "{found:#}");
}
