//! What people write in terms of Envoy is a text with a document in it, and a stranger sees no secret there either.

use reqwest::{Client, Method, StatusCode};
use serde_json::json;

use crate::{harness::eventually, mesh::federation};

const SECRET: &str = "opaque-of-a-patch-91";

#[tokio::test]
async fn a_stranger_sees_no_secret_in_what_is_written_in_terms_of_envoy() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    let patches = [
        format!(
            "name: x\ntransport_socket: {{typed_config: {{private_key: {{inline_string: {SECRET}}}}}}}\n"
        ),
        format!(
            "name: x\ntypedExtensionProtocolOptions:\n  a:\n    password:\n      inlineString: {SECRET}\n"
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
    let (client, mut shown) = (Client::new(), 0);
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
