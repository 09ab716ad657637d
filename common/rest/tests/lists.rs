//! Lists: pages, filters, overviews, and the lookup by identifier.

use serde_json::{Value, json};

use super::{ask, config, dataplane, mesh};
use crate::{mode::Mode, model::names, testing::api::TestApi};

async fn names_at(api: &TestApi, path: &str) -> Vec<String> {
    let (status, list) = ask(api, "GET", path, None).await;
    assert_eq!(status, 200, "{path}: {list}");
    let items = list["items"].as_array().unwrap();
    assert!(list["total"].as_u64().unwrap() >= items.len() as u64, "{list}");
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_have_limits() {
    let meshes: Vec<Value> = (0..120).map(|i| mesh(&format!("m{i:03}"))).collect();
    let api = TestApi::start(config(Mode::Global), &meshes).await.unwrap();
    assert_eq!(names_at(&api, "/meshes").await.len(), 100, "the default size");
    assert_eq!(names_at(&api, "/meshes?size=1000").await.len(), 120);
    assert_eq!(names_at(&api, "/meshes?size=&offset=").await.len(), 100, "empty is absent");
    assert_eq!(names_at(&api, "/meshes?offset=118").await, ["m118", "m119"]);
    assert_eq!(names_at(&api, "/meshes?offset=500").await, [""; 0]);
    let (_, page) = ask(&api, "GET", "/meshes?size=10&name=m0&filter[labels.a]=b", None).await;
    assert_eq!(page, json!({ "total": 0, "items": [], "next": null }));
    let (_, page) = ask(&api, "GET", "/meshes?size=7&offset=7&name=m0", None).await;
    assert_eq!((&page["total"], page["items"].as_array().unwrap().len()), (&json!(100), 7));
    assert_eq!(page["next"], "http://localhost:5681/meshes?name=m0&offset=14&size=7");

    let refused = async |query: &str, detail: &str, reason: Option<&str>| {
        let (status, body) = ask(&api, "GET", &format!("/meshes?{query}"), None).await;
        assert_eq!((status, &body["detail"]), (400, &json!(detail)), "{query}");
        assert_eq!(body["title"], "Could not retrieve resources");
        assert_eq!(body["invalid_parameters"][0]["reason"].as_str(), reason, "{query}");
    };
    let size = "Invalid page size";
    refused("size=0", size, Some("must be greater than 0")).await;
    refused("size=-5", size, Some("must be greater than 0")).await;
    refused("size=x", size, Some("invalid format")).await;
    refused("size=1001", size, Some("invalid page size of 1001. Maximum page size is 1000")).await;
    let offset = "invalid: invalid offset: ";
    refused("offset=x", &format!("{offset}strconv.Atoi: parsing \"x\": invalid syntax"), None).await;
    refused("offset=-1", &format!("{offset}it must not be negative"), None).await;
    let huge = "99999999999999999999";
    let out_of_range = format!("{offset}strconv.Atoi: parsing \"{huge}\": value out of range");
    refused(&format!("offset={huge}"), &out_of_range, None).await;
}

#[tokio::test]
async fn dataplanes_are_filtered_by_tags_labels_and_gateway() {
    let mut labelled = dataplane("web-2");
    labelled["labels"] = json!({ "team": "a", "tier": "front" });
    labelled["networking"]["inbound"][0]["tags"]["version"] = json!("v2-beta");
    let gateway = |name: &str, kind: &str| {
        json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": { "address": "10.0.0.2",
            "gateway": { "type": kind, "tags": { "kuma.io/service": "edge" } } } })
    };
    let other = json!({ "type": "Dataplane", "mesh": "other", "name": "db-1", "networking": {
        "address": "10.0.0.3", "inbound": [{ "port": 1, "tags": { "kuma.io/service": "db" } }] } });
    let (delegated, builtin) = (gateway("edge-1", "DELEGATED"), gateway("edge-2", "BUILTIN"));
    let documents = [mesh("default"), mesh("other"), dataplane("web-1"), labelled, delegated, builtin, other];
    let api = TestApi::start(config(Mode::standalone_zone("east")), &documents).await.unwrap();
    let check = async |query: &str, expected: &[&str]| {
        for list in ["/dataplanes", "/dataplanes/_overview"] {
            assert_eq!(names_at(&api, &format!("{list}?{query}")).await, expected, "{list}?{query}");
        }
    };
    check("", &["edge-1", "edge-2", "web-1", "web-2", "db-1"]).await;
    check("name=web", &["web-1", "web-2"]).await;
    check("tag=kuma.io/service:web", &["web-1", "web-2"]).await;
    check("tag=kuma.io/service:web&tag=version:v2", &["web-2"]).await;
    check("tag=version:v3", &[]).await;
    check("gateway=true", &["edge-1", "edge-2"]).await;
    check("gateway=false", &["web-1", "web-2", "db-1"]).await;
    check("gateway=builtin", &["edge-2"]).await;
    check("gateway=delegated", &["edge-1"]).await;
    check("filter[labels.team]=a", &["web-2"]).await;
    check("filter%5Blabels.team%5D=a&filter[labels.tier]=back", &[]).await;
    assert_eq!(names_at(&api, "/meshes/other/dataplanes+insights").await, ["db-1"]);
    for query in ["gateway=maybe", "filter[name]=a", "filter[labels.a][eq]=b", "filter[labels.a"] {
        assert_eq!(ask(&api, "GET", &format!("/dataplanes?{query}"), None).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn overviews_of_dataplanes_are_asked_for_by_how_they_do() {
    let insight = |name: &str, member: &str| {
        let mut subscription = json!({ "id": "1", "connectTime": "2026-01-01T00:00:00Z" });
        subscription[member] = json!("2026-01-02T00:00:00Z");
        json!({ "type": "DataplaneInsight", "mesh": "default", "name": name, "subscriptions": [subscription] })
    };
    let mut half = dataplane("half");
    let inbound = json!({ "port": 81, "state": "NotReady", "tags": { "kuma.io/service": "web" } });
    half["networking"]["inbound"].as_array_mut().unwrap().push(inbound);
    let connected = ["on-1", "on-2", "half"].map(|name| insight(name, "connectTime"));
    let all = ["on-1", "on-2", "off-1", "off-2"].map(dataplane);
    let documents =
        [vec![mesh("default"), half, insight("off-2", "disconnectTime")], all.into(), connected.into()]
            .concat();
    let api = TestApi::start(config(Mode::standalone_zone("east")), &documents).await.unwrap();
    for list in ["/dataplanes/_overview", "/meshes/default/dataplanes/_overview", "/dataplanes+insights"] {
        let asked = async |query: &str| names_at(&api, &format!("{list}?{query}")).await;
        assert_eq!(asked("status=online").await, ["on-1", "on-2"], "{list}");
        assert_eq!(asked("status=offline").await, ["off-1", "off-2"], "{list}");
        assert_eq!(asked("status=partially_degraded").await, ["half"], "{list}");
        assert_eq!(asked("status=unknown").await, [""; 0], "{list}");
        assert_eq!(asked("status=offline&name=off-2").await, ["off-2"], "{list}");
        let (status, _) = ask(&api, "GET", &format!("{list}?status=fine"), None).await;
        assert_eq!(status, 400, "{list}");
    }
    let (_, page) = ask(&api, "GET", "/dataplanes/_overview?status=online&size=1", None).await;
    assert_eq!((&page["total"], page["items"].as_array().unwrap().len()), (&json!(2), 1));
    let next = page["next"].as_str().unwrap();
    assert!(next.contains("status=online") && next.contains("offset=1"), "{next}");
}

#[tokio::test]
async fn overviews_join_each_kind_with_its_insight() {
    let subscriptions = json!([{ "id": "1", "connectTime": "2026-01-01T00:00:00Z" }]);
    let insight = |kind: &str, name: &str| {
        let mut insight = json!({ "type": kind, "name": name, "subscriptions": subscriptions });
        if kind == "DataplaneInsight" {
            insight["mesh"] = json!("default");
        }
        insight
    };
    let networking = json!({ "address": "10.0.0.1", "port": 10001 });
    let documents = [
        mesh("default"),
        dataplane("a"),
        insight("DataplaneInsight", "a"),
        json!({ "type": "Zone", "name": "a" }),
        insight("ZoneInsight", "a"),
        json!({ "type": "ZoneIngress", "name": "a", "networking": networking }),
        insight("ZoneIngressInsight", "a"),
        json!({ "type": "ZoneEgress", "name": "a", "networking": networking }),
        insight("ZoneEgressInsight", "a"),
        json!({ "type": "ZoneEgress", "name": "b", "networking": networking }),
    ];
    let api = TestApi::start(config(Mode::standalone_zone("east")), &documents).await.unwrap();
    let check = async |list: &str, kind: &str, base: &str, joined: &str| {
        let (status, one) = ask(&api, "GET", &format!("{list}/a/_overview"), None).await;
        assert_eq!((status, &one["type"]), (200, &json!(kind)), "{list}");
        assert!(one[base].is_object(), "{one}");
        assert_eq!(one[joined]["subscriptions"][0]["id"], "1", "{one}");
        let (_, all) = ask(&api, "GET", &format!("{list}/_overview"), None).await;
        assert_eq!(all["items"][0], one);
    };
    check("/meshes/default/dataplanes", "DataplaneOverview", "dataplane", "dataplaneInsight").await;
    check("/zones", "ZoneOverview", "zone", "zoneInsight").await;
    check("/zoneingresses", "ZoneIngressOverview", "zoneIngress", "zoneIngressInsight").await;
    check("/zone-ingresses", "ZoneIngressOverview", "zoneIngress", "zoneIngressInsight").await;
    check("/zoneegresses", "ZoneEgressOverview", "zoneEgress", "zoneEgressInsight").await;
    for old in ["/zones+insights", "/zoneingresses+insights", "/zoneegressoverviews", "/dataplanes+insights"]
    {
        let path =
            if old == "/dataplanes+insights" { format!("/meshes/default{old}") } else { old.to_owned() };
        let (_, all) = ask(&api, "GET", &path, None).await;
        let (status, one) = ask(&api, "GET", &format!("{path}/a"), None).await;
        assert_eq!((status, &all["items"][0]), (200, &one), "{path}");
    }
    let (_, silent) = ask(&api, "GET", "/zoneegresses/b/_overview", None).await;
    assert_eq!(silent.get("zoneEgressInsight"), None, "no insight is no error");
    let (status, missing) = ask(&api, "GET", "/zones/none/_overview", None).await;
    assert_eq!((status, &missing["detail"]), (404, &json!("Not found")));
}

#[tokio::test]
async fn identifiers_lead_to_resources_of_here_and_elsewhere() {
    let timeout = |name: &str, labels: Value| {
        json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "labels": labels, "spec": {
            "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] } })
    };
    let hashed = |name: &str, zone: Option<&str>| names::hashed("default", name, zone, None);
    let synced =
        timeout(&hashed("t1", None), json!({ "kuma.io/display-name": "t1", "kuma.io/origin": "global" }));
    let west =
        timeout(&hashed("t2", Some("west")), json!({ "kuma.io/display-name": "t2", "kuma.io/zone": "west" }));
    let own = timeout("t2", json!({ "kuma.io/zone": "east", "kuma.io/origin": "zone" }));
    let documents = [mesh("default"), synced, west, own];
    let zone = TestApi::start(config(Mode::federated_zone("east")), &documents).await.unwrap();
    let check = async |kri: &str, expected: Option<&str>| {
        let (status, body) = ask(&zone, "GET", &format!("/_kri/{kri}"), None).await;
        match expected {
            Some(name) => assert_eq!((status, &body["name"]), (200, &json!(name)), "{kri}"),
            None => assert_eq!(status, 404, "{kri}: {body}"),
        }
    };
    check("kri_m____default_", Some("default")).await;
    check("kri_mt_default___t1_", Some(&hashed("t1", None))).await;
    check("kri_mt_default_west__t2_", Some(&hashed("t2", Some("west")))).await;
    check("kri_mt_default_east__t2_", Some("t2")).await;
    check("kri_mt_default___t2_", None).await;
    check("kri_mt_default_east__none_", None).await;
    check("kri_mt_nowhere___t1_", None).await;
    let refused = async |kri: &str, reason: &str| {
        let (status, body) = ask(&zone, "GET", &format!("/_kri/{kri}"), None).await;
        assert_eq!((status, &body["title"]), (400, &json!("Bad Request")), "{kri}");
        assert_eq!(body["detail"], format!("bad request: {reason}"));
    };
    refused("nonsense", "invalid identifier string: \"nonsense\"").await;
    refused("id_mt_default___t1_", "identifier must start with 'kri': \"id_mt_default___t1_\"").await;
    refused("kri_xyz_default___t1_", "unknown short name of resource type: \"xyz\"").await;
    refused("kri__default___t1_", "unknown short name of resource type: \"\"").await;
}

#[tokio::test]
async fn a_page_of_long_items_ends_early_and_goes_on() {
    let rule = json!({ "targetRef": { "kind": "MeshService", "name": "x".repeat(4000) },
        "default": { "idleTimeout": "1s" } });
    let policy = |n: usize| {
        json!({ "type": "MeshTimeout", "mesh": "default", "name": format!("t{n:02}"),
            "spec": { "to": vec![rule.clone(); 250] } })
    };
    let documents: Vec<Value> = [mesh("default")].into_iter().chain((0..12).map(policy)).collect();
    let api = TestApi::start(config(Mode::Global), &documents).await.unwrap();
    let (mut seen, mut pages) = (Vec::new(), 0);
    let mut path = "/meshes/default/meshtimeouts?size=1000".to_owned();
    loop {
        let (status, page) = ask(&api, "GET", &path, None).await;
        assert_eq!((status, &page["total"]), (200, &json!(12)));
        assert!(page.to_string().len() < 6 << 20, "what is over the limit is one item");
        seen.extend(page["items"].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        let offset = format!("/meshes/default/meshtimeouts?offset={}&size=1000", seen.len());
        path = next.strip_prefix("http://localhost:5681").unwrap().to_owned();
        assert_eq!(path, offset);
    }
    assert_eq!(pages, 3, "four megabytes each");
    assert!(seen.iter().eq((0..12).map(|n| format!("t{n:02}")).collect::<Vec<_>>().iter()), "{seen:?}");
}

#[tokio::test]
async fn a_query_has_few_parameters_whatever_asks() {
    let api = TestApi::start(config(Mode::Global), &[mesh("default")]).await.unwrap();
    for path in ["/who-am-i", "/meshes", "/access/can-i?verb=read&kind=Mesh"] {
        let ask_with = async |count: usize| {
            let more = "a&".repeat(count);
            let path = if path.contains('?') { format!("{path}&{more}") } else { format!("{path}?{more}") };
            ask(&api, "GET", &path, None).await
        };
        assert_eq!(ask_with(100).await.0, 200, "{path}");
        let (status, refused) = ask_with(5_000).await;
        assert_eq!(status, 400, "{path}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains("and may have 128"), "{path}: {refused}");
    }
}
