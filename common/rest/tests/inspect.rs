//! Which policy is for which proxy: what the recorded cases leave out.

use super::*;

fn proxy(name: &str, service: &str, calls: &[&str]) -> Value {
    let outbounds =
        calls.iter().enumerate().map(|(i, to)| json!({"port": 10001 + i, "tags": {"kuma.io/service": to}}));
    json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": {
        "address": "10.0.0.1",
        "inbound": [{"port": 80, "servicePort": 8080, "tags": {"kuma.io/service": service}}],
        "outbound": outbounds.collect::<Vec<_>>(),
    }})
}

fn older(kind: &str, name: &str, from: &str, to: &str) -> Value {
    let tags = |service: &str| json!([{"match": {"kuma.io/service": service}}]);
    json!({"type": kind, "mesh": "default", "name": name, "sources": tags(from), "destinations": tags(to)})
}

async fn inspected() -> TestApi {
    let gateway = json!({"type": "Dataplane", "mesh": "default", "name": "edge-1", "networking": {
        "address": "10.0.0.9", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}},
    }});
    let listeners = json!([{"port": 8080, "protocol": "HTTP", "hostname": "a.example"}]);
    let edge = json!({"type": "MeshGateway", "mesh": "default", "name": "edge",
        "selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": {"listeners": listeners}});
    let route = json!({"type": "MeshGatewayRoute", "mesh": "default", "name": "all",
        "selectors": [{"match": {"kuma.io/service": "*"}}]});
    let timeout = json!({"type": "MeshTimeout", "mesh": "default", "name": "quick", "spec": {
        "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}},
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}],
    }});
    let trace = json!({"type": "TrafficTrace", "mesh": "default", "name": "trace",
        "selectors": [{"match": {"kuma.io/service": "*"}}]});
    let documents = [
        mesh("default"),
        proxy("web-1", "web", &["api", "db"]),
        proxy("web-2", "web", &["api"]),
        proxy("api-1", "api", &[]),
        gateway,
        edge,
        route,
        timeout,
        trace,
        older("TrafficPermission", "everybody", "*", "*"),
        older("TrafficPermission", "to-api", "*", "api"),
        older("Retry", "to-anything", "web", "*"),
        older("Retry", "to-db", "web", "db"),
        older("Timeout", "to-api", "*", "api"),
    ];
    TestApi::start(config(Mode::Global), &documents).await.unwrap()
}

async fn get(api: &TestApi, path: &str) -> Value {
    let (status, text) = api.send("GET", path, None).await.unwrap();
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn the_policies_of_a_proxy_are_listed_by_what_they_are_attached_to() {
    let api = inspected().await;
    let shown = get(&api, "/meshes/default/dataplanes/web-1/policies").await;
    assert_eq!(
        (shown["kind"].as_str(), shown["total"].as_u64()),
        (Some("SidecarDataplane"), Some(5)),
        "{shown:#}"
    );
    let items = shown["items"].as_array().unwrap();
    let attached = |form: &str, name: &str, kind: &str| -> Vec<&str> {
        let item = items.iter().find(|item| item["type"] == form && item["name"] == name);
        let item = item.unwrap_or_else(|| panic!("no {form} {name} in {shown:#}"));
        let policies = item["matchedPolicies"][kind].as_array().into_iter().flatten();
        policies.filter_map(|policy| policy["name"].as_str()).collect()
    };
    assert_eq!(attached("dataplane", "", "MeshTimeout"), ["quick"]);
    assert_eq!(attached("dataplane", "", "TrafficTrace"), ["trace"]);
    assert_eq!(attached("inbound", "10.0.0.1:80:8080", "TrafficPermission"), ["everybody"]);
    assert_eq!(attached("outbound", "127.0.0.1:10001", "Timeout"), ["to-api"]);
    assert_eq!(attached("service", "api", "Retry"), ["to-anything"]);
    assert_eq!(attached("service", "db", "Retry"), ["to-db"], "the one that says more wins");

    let shown = get(&api, "/meshes/default/dataplanes/edge-1/policies").await;
    assert_eq!(shown["kind"], "MeshGatewayDataplane");
    assert_eq!(shown["gateway"], json!({"mesh": "default", "name": "edge"}));
    assert_eq!(shown["listeners"][0]["protocol"], "HTTP");
    let host = &shown["listeners"][0]["hosts"][0];
    assert_eq!((&host["hostName"], &host["routes"][0]["route"]), (&"a.example".into(), &"all".into()));
    assert_eq!(shown["policies"]["TrafficTrace"]["name"], "trace");
}

#[tokio::test]
async fn the_proxies_of_a_policy_are_listed_in_both_forms() {
    let api = inspected().await;
    let names = |shown: &Value| -> Vec<String> {
        let items = shown["items"].as_array().unwrap().iter();
        let name = |item: &Value| {
            if item["dataplane"].is_object() {
                item["dataplane"]["name"].clone()
            } else {
                item["name"].clone()
            }
        };
        items.map(|item| name(item).as_str().unwrap().to_owned()).collect()
    };
    let check = async |path: &str, expected: &[&str]| {
        let shown = get(&api, &format!("/meshes/default/{path}")).await;
        assert_eq!(names(&shown), expected, "{path}: {shown:#}");
        shown
    };
    let web = ["web-1", "web-2"];
    let shown = check("meshtimeouts/quick/dataplanes", &web).await;
    assert_eq!(shown["items"][0]["attachments"], json!([{"type": "dataplane", "name": "", "service": ""}]));
    check("meshtimeouts/quick/_resources/dataplanes", &web).await;
    check("meshtimeouts/quick/-resources/dataplanes", &web).await;
    let shown = check("retries/to-anything/dataplanes", &web).await;
    assert_eq!(
        shown["items"][0]["attachments"],
        json!([{"type": "service", "name": "api", "service": "api"}])
    );
    check("traffic-permissions/to-api/dataplanes", &["api-1"]).await;
    check("traffic-permissions/everybody/dataplanes", &web).await;
    check("meshgateways/edge/dataplanes", &["edge-1"]).await;
    check("meshgatewayroutes/all/dataplanes", &["edge-1"]).await;

    let first = check("meshtimeouts/quick/_resources/dataplanes?size=1", &["web-1"]).await;
    let next = first["next"].as_str().unwrap();
    assert!(next.ends_with("?offset=1&size=1"), "{next}");
    let last = check("meshtimeouts/quick/_resources/dataplanes?size=1&offset=1", &["web-2"]).await;
    assert!(last.get("next").is_none() && last["total"] == 2, "{last}");
    check("meshtimeouts/quick/_resources/dataplanes?name=-2", &["web-2"]).await;
    for path in
        ["meshtimeouts/none/_resources/dataplanes", "dataplanes/none/policies", "dataplanes/none/_rules"]
    {
        assert_eq!(api.send("GET", &format!("/meshes/default/{path}"), None).await.unwrap().0, 404, "{path}");
    }
}

#[tokio::test]
async fn rules_are_shown_in_the_older_form_too() {
    let api = inspected().await;
    let shown = get(&api, "/meshes/default/dataplanes/web-1/rules").await;
    let rule = &shown["items"][0];
    assert_eq!(
        (rule["type"].as_str(), rule["policyType"].as_str()),
        (Some("DestinationSubset"), Some("MeshTimeout"))
    );
    assert_eq!(rule["conf"]["idleTimeout"], "1s");
    assert_eq!(rule["origins"][0]["name"], "quick");
}
