//! Which looks are taken down.

use serde_json::json;

use super::{ask, global, mesh};

#[tokio::test]
async fn looks_at_what_is_for_a_few_are_taken_down_and_others_are_not() {
    let api = global(&[mesh("default")]).await;
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "s", "data": "YQ==" });
    assert_eq!(ask(&api, "PUT", "/meshes/default/secrets/s", Some(secret)).await.0, 201);
    for (path, is_of_few) in [
        ("/config", true),
        ("/strait/backup", true),
        ("/secrets", true),
        ("/meshes/default/secrets", true),
        ("/audit", true),
        ("/", false),
        ("/meshes", false),
        ("/meshes/default", false),
        ("/history", false),
        ("/who-am-i", false),
    ] {
        assert_eq!(ask(&api, "GET", path, None).await.0, 200, "{path}");
        let (_, log) = ask(&api, "GET", "/audit", None).await;
        let items = log["items"].as_array().unwrap();
        let is_there = items.iter().any(|item| item["method"] == "GET" && item["path"] == path);
        assert_eq!(is_there, is_of_few, "{path}: {log}");
    }
}
