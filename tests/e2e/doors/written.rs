//! What people write in terms of Envoy: a text with a document in it, in which a stranger sees no secret either, and steps
//! that could make a resource as long and as deep as they like.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::ads_peer::{self, CDS, join};
use crate::{
    harness::{eventually, http},
    mesh::federation,
};

const SECRET: &str = "opaque-of-a-patch-91";

#[tokio::test]
async fn a_stranger_sees_no_secret_in_what_is_written_in_terms_of_envoy() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    let patches = [
        format!(
            "name: x\nmetadata: {{filter_metadata: {{a: {{private_key: {{inline_string: {SECRET}}}}}}}}}\n"
        ),
        format!(
            "name: x\nmetadata:\n  filter_metadata:\n    a:\n      password:\n        inlineString: {SECRET}\n"
        ),
        format!("name: x\nmetadata:\n  filter_metadata:\n    a: &a\n      token: [{SECRET}]\n    b: *a\n"),
    ];
    for (n, value) in patches.iter().enumerate() {
        let patch = json!({
            "type": "MeshProxyPatch", "mesh": "default", "name": format!("native-{n}"),
            "spec": { "targetRef": { "kind": "Mesh" }, "default": { "appendModifications": [
                { "cluster": { "operation": "Patch", "match": { "name": "nobody" }, "value": value } } ] } },
        });
        let path = format!("/meshes/default/meshproxypatches/native-{n}");
        let (status, said) = global.call(Method::PUT, &path, Some(patch)).await;
        assert_eq!(status, StatusCode::CREATED, "{said}");
    }
    zone.apply(
        "type: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 127.0.0.9\n  inbound: [{ port: 80, \
         servicePort: 8080, tags: { kuma.io/service: web } }]\n",
    );
    eventually("the patches in the zone", || async move {
        let list = zone.try_get("/meshes/default/meshproxypatches").await?;
        if list["total"] == 3 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let (client, mut shown) = (http::client(), 0);
    for cp in [&global.cp, &zone.cp] {
        let list = cp.get("/meshes/default/meshproxypatches").await;
        assert!(list.to_string().contains(SECRET), "who may write it reads it as it is");
        let names =
            list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned());
        let items = names.flat_map(|name| {
            ["", "?format=k8s"].map(|form| format!("/meshes/default/meshproxypatches/{name}{form}"))
        });
        let lists = ["/meshproxypatches", "/meshes/default/meshproxypatches"].map(str::to_owned);
        let of_proxy = ["_rules", "_policies", "policies", "rules", "_older"];
        let of_proxy = of_proxy.map(|what| format!("/meshes/default/dataplanes/web/{what}"));
        for path in items.chain(lists).chain(of_proxy) {
            let text = client.get(cp.url(&path)).send().await.unwrap().text().await.unwrap();
            assert!(!text.contains(SECRET), "{path}: {text}");
            shown += usize::from(text.contains("[redacted]"));
        }
    }
    assert!(shown >= 10, "what was taken out is told {shown} times");
}

const WEB: &str = "
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.9
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web } }]
";
/// Memory that such a patch may cost a zone; far below what the copies would take.
const BUDGET: u64 = 192 << 20;

#[tokio::test]
async fn a_patch_that_copies_itself_is_left_out_and_the_zone_goes_on() {
    let (global, mut zones) = federation(1).await;
    let zone = &mut zones[0];
    zone.apply(WEB);
    let token = ads_peer::token(zone, &["--name", "web"]).await;
    let patch = |name: &str, steps: Value| {
        json!({
            "type": "MeshProxyPatch", "mesh": "default", "name": name,
            "spec": { "targetRef": { "kind": "Mesh" }, "default": { "appendModifications": [
                { "cluster": { "operation": "Patch", "jsonPatches": steps } } ] } },
        })
    };
    let copies = |from: &str| -> Value {
        let to = |n: usize| format!("/metadata/filterMetadata/x{n}");
        (0..40).map(|n| json!({ "op": "copy", "from": from, "path": to(n) })).collect()
    };
    let long = json!({ "op": "add", "path": "/metadata/filterMetadata", "value": { "a": { "b": "x".repeat(100) } } });
    let mut members = vec![long];
    members.extend(copies("/metadata/filterMetadata").as_array().unwrap().clone());
    let deep = json!([{ "op": "add", "path": format!("/metadata{}", "/a".repeat(20_000)), "value": 1 }]);
    let path = |name: &str| format!("/meshes/default/meshproxypatches/{name}");
    let (status, said) = global.call(Method::PUT, &path("deep"), Some(patch("deep", deep))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(said.to_string().contains("at most 128 steps"), "{said}");

    let before = zone.process.resident();
    for (name, steps) in [("whole", copies("")), ("members", Value::Array(members))] {
        let (status, said) = global.call(Method::PUT, &path(name), Some(patch(name, steps))).await;
        assert_eq!(status, StatusCode::CREATED, "{said}");
    }
    let there = &*zone;
    eventually("the patches in the zone", || async move {
        let list = there.try_get("/meshes/default/meshproxypatches").await?;
        if list["total"] == 2 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    // It is served without what cannot be done, and what comes after that is compiled as ever.
    let mut web = join(zone, ads_peer::node("default.web", None), Some(&token)).await.unwrap();
    zone.apply(&WEB.replace("servicePort: 8080", "servicePort: 8081"));
    assert_eq!(web.take().await.expect("the stream goes on").type_url, CDS);
    assert!(zone.process.runs());
    let cost = zone.process.resident().saturating_sub(before);
    assert!(cost < BUDGET, "{} MiB more than before", cost >> 20);
}
