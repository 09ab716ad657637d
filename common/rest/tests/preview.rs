//! Writes that are only tried.

use super::*;

#[tokio::test]
async fn a_write_that_is_tried_says_what_it_would_do_and_does_nothing() {
    let api = global(&[mesh("default"), dataplane("web-1"), json!({ "type": "Zone", "name": "east" })]).await;
    let head = *api.store.watch_head().borrow();
    let (status, shown) = ask(&api, "PUT", "/meshes/new?dryRun=true", Some(mesh("new"))).await;
    assert_eq!((status, &shown["created"], &shown["before"]), (200, &json!(true), &Value::Null), "{shown}");
    assert_eq!(shown["after"]["name"], "new");
    assert!(shown["also"].to_string().contains("mesh-timeout-all-new"), "its defaults come with it: {shown}");
    assert_eq!(shown["reaches"]["zones"], json!([{ "zone": "east", "state": "sent", "status": "online" }]));
    assert_eq!(shown["reaches"]["dataplanes"], Value::Null);

    let timeout = |seconds: u32| {
        json!({ "type": "MeshTimeout", "mesh": "default", "name": "quick", "spec": {
            "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": format!("{seconds}s") } }] } })
    };
    let path = "/meshes/default/meshtimeouts/quick";
    let (_, shown) = ask(&api, "PUT", &format!("{path}?dryRun=true"), Some(timeout(1))).await;
    assert_eq!(shown["reaches"]["dataplanes"]["items"][0]["name"], "web-1", "{shown}");
    assert_eq!(*api.store.watch_head().borrow(), head, "nothing was written");

    assert_eq!(ask(&api, "PUT", path, Some(timeout(1))).await.0, 201);
    let (_, shown) = ask(&api, "PUT", &format!("{path}?dryRun=true"), Some(timeout(2))).await;
    assert_eq!(shown["created"], false);
    assert!(
        shown["before"].to_string().contains("1s") && shown["after"].to_string().contains("2s"),
        "{shown}"
    );
    assert!(ask(&api, "GET", path, None).await.1.to_string().contains("1s"));
    let (status, refused) = ask(&api, "PUT", &format!("{path}?dryRun=true"), Some(json!({}))).await;
    assert_eq!(status, 400, "it is checked as the write would be: {refused}");

    // In words that are not understood nothing is done either.
    let head = *api.store.watch_head().borrow();
    for (method, query) in
        [("PUT", "dryRun=1"), ("PUT", "dryRun"), ("DELETE", "dryRun=true"), ("DELETE", "dryRun")]
    {
        let (status, refused) = ask(&api, method, &format!("{path}?{query}"), Some(timeout(7))).await;
        assert_eq!(status, 400, "{method} {query}: {refused}");
        assert!(refused.to_string().contains("dryRun"), "{refused}");
    }
    assert_eq!(*api.store.watch_head().borrow(), head);
    assert_eq!(ask(&api, "PUT", &format!("{path}?dryRun=false"), Some(timeout(1))).await.0, 200);

    let request = Request::put(format!("{path}?dryRun=true"))
        .header("host", "cp")
        .body(Body::from(timeout(2).to_string()));
    let (status, _) = api.send_from([10, 0, 0, 1], request.unwrap()).await.unwrap();
    assert_eq!(status, 403, "who may not write may not try either");
}
