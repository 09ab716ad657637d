//! Changes in waves, from the form to the end.

use super::*;

fn change(seconds: u32, what: &str) -> String {
    let documents = format!(
        "type: MeshTimeout\nmesh: default\nname: quick\nspec:\n  to:\n  - targetRef: {{ kind: Mesh }}\n    default: {{ idleTimeout: {seconds}s }}\n"
    );
    let encoded = percent_encoding::utf8_percent_encode(&documents, percent_encoding::NON_ALPHANUMERIC);
    format!("documents={encoded}&rollout=canary&do={what}")
}

#[tokio::test]
async fn a_change_goes_out_in_waves_is_seen_on_its_way_and_taken_back() {
    let api = global().await;
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    let (_, body) = look(&api, "/gui/change", &admin).await;
    assert!(!body.contains("To whom first"), "there is no rollout: {body}");
    let rollout = json!({ "type": "Rollout", "name": "canary", "spec": {
        "waves": [{ "zones": { "names": ["east"] }, "pause": "10m" }] } });
    let (status, answer) = api.send("PUT", "/rollouts/canary", Some(rollout.to_string())).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let (_, body) = look(&api, "/gui/change", &admin).await;
    assert!(body.contains("To whom first") && body.contains("in the waves of canary"), "{body}");
    let (_, body) = look(&api, "/gui/rollouts", &admin).await;
    assert!(body.contains("/gui/rollouts/canary") && body.contains("never begun"), "{body}");

    let (parts, body) = send(&api, "/gui/change", &admin, &change(9, "preview"), OWN).await;
    assert_eq!(parts.status.as_u16(), 200, "{body}");
    for text in ["update MeshTimeout quick", "east, then pause 10m0s", "everybody else", "Begin"] {
        assert!(body.contains(text), "{text}: {body}");
    }
    let (parts, body) = send(&api, "/gui/change", &admin, &change(9, "apply"), OWN).await;
    assert_eq!(parts.status.as_u16(), 303, "{body}");
    assert_eq!(parts.headers[header::LOCATION], "/gui/rollouts/canary");
    let (_, body) = look(&api, "/gui/rollouts/canary", &admin).await;
    for text in
        ["running", "gets the change", "waiting", "kept", "Take it back", "wave 1 of 2 gets the change"]
    {
        assert!(body.contains(text), "{text}: {body}");
    }
    let (_, body) = look(&api, "/gui/rollouts/canary", "").await;
    assert!(body.contains("Sign in to halt it") && !body.contains("Take it back"), "{body}");

    let (parts, body) = send(&api, "/gui/rollouts/canary/halt", &admin, "", OWN).await;
    assert_eq!(parts.status.as_u16(), 303, "{body}");
    let (_, body) = look(&api, "/gui/rollouts/canary", &admin).await;
    assert!(body.contains("halted") && body.contains("Go on") && body.contains("by ann"), "{body}");
    let (_, body) = look(&api, "/gui", &admin).await;
    assert!(body.contains("rollout canary is halted at wave 1 of 2"), "{body}");
    let (parts, _) = send(&api, "/gui/rollouts/canary/explode", &admin, "", OWN).await;
    assert_eq!(parts.status.as_u16(), 404);
    let (parts, body) = send(&api, "/gui/rollouts/canary/abort", &admin, "", OWN).await;
    assert_eq!(parts.status.as_u16(), 303, "{body}");
    let (_, body) = look(&api, "/gui/rollouts/canary", &admin).await;
    assert!(body.contains("aborted") && !body.contains("Take it back"), "{body}");
    let stored = api.send("GET", "/meshes/default/meshtimeouts/quick", None).await.unwrap().1;
    assert!(stored.contains("7s"), "{stored}");
}
