//! What is shown: of a control plane, of insights, and in the form of Kubernetes.

use common::registry;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Global, Options, Zone, eventually};

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list.as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

#[tokio::test]
async fn a_control_plane_describes_itself() {
    let global = Global::start().await;
    let index = global.get("/").await;
    assert_eq!((index["product"].as_str(), index["gui"].as_str()), (Some("Kuma"), Some("/gui")), "{index}");
    assert!(
        ["hostname", "version", "instanceId", "clusterId"].iter().all(|name| index[name].is_string()),
        "{index}"
    );
    let page = global.admin().get(global.url("/gui")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(global.get("/who-am-i").await["name"], "mesh-system:admin");
    assert!(global.get("/config").await["store"]["type"].is_string());

    let resources = global.get("/_resources").await;
    for (name, one, many) in [
        ("Mesh", "Mesh", "Meshes"),
        ("MeshProxyPatch", "Mesh Proxy Patch", "Mesh Proxy Patches"),
        ("MeshOpenTelemetryBackend", "Mesh OpenTelemetry Backend", "Mesh OpenTelemetry Backends"),
        ("MeshPassthrough", "Mesh Passthrough", "Mesh Passthroughs"),
        ("MeshTLS", "Mesh TLS", "Mesh TLSes"),
        ("ZoneIngress", "Zone Ingress", "Zone Ingresses"),
        ("MeshIdentity", "Mesh Identity", "Mesh Identities"),
        ("MeshGateway", "Mesh Gateway", "Mesh Gateways"),
    ] {
        let kind = named(&resources["resources"], name);
        assert_eq!((&kind["singularDisplayName"], &kind["pluralDisplayName"]), (&json!(one), &json!(many)));
    }
    let names = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let policies = global.get("/policies").await;
    for list in [&resources["resources"], &policies["policies"]] {
        assert!(names(list).is_sorted(), "{:?}", names(list));
    }
    let served = registry::ALL.iter().filter(|kind| kind.policy.is_some()).count();
    assert_eq!(names(&policies["policies"]).len(), served);

    let secrets = global.get("/global-secrets").await;
    assert!(!names(&secrets["items"]).iter().any(|name| name == "inter-cp-ca"), "replicas need none");
    let secret = &global.get("/meshes/default/secrets").await["items"][0];
    assert_eq!(secret["labels"]["kuma.io/mesh"], "default");
}

fn dataplane(name: &str, mesh: &str, networking: &Value) -> Value {
    json!({ "type": "Dataplane", "mesh": mesh, "name": name, "networking": networking })
}

async fn put(cp: &ControlPlane, path: &str, document: Value) {
    let (status, answer) = cp.call(Method::PUT, path, Some(document)).await;
    assert!(status.is_success(), "{path}: {answer}");
}

#[tokio::test]
async fn insights_say_what_kumas_say() {
    let global = Global::start().await;
    let strict = json!({ "type": "Mesh", "name": "strict", "meshServices": { "mode": "Exclusive" } });
    put(&global, "/meshes/strict", strict).await;
    put(&global, "/zones/never", json!({ "type": "Zone", "name": "never", "enabled": true })).await;
    let outside = json!({ "type": "ExternalService", "mesh": "default", "name": "out",
        "tags": { "kuma.io/service": "out" }, "networking": { "address": "out.example:443" } });
    put(&global, "/meshes/default/external-services/out", outside).await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the meshes in the zone", || zone.try_get("/meshes/strict")).await;
    let inbound =
        json!({ "address": "192.0.2.1", "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }] });
    let gateway = json!({ "address": "192.0.2.2", "gateway": { "type": "DELEGATED", "tags": { "kuma.io/service": "edge" } } });
    for (name, mesh, networking) in
        [("web", "default", &inbound), ("edge", "default", &gateway), ("in", "strict", &inbound)]
    {
        put(&zone, &format!("/meshes/{mesh}/dataplanes/{name}"), dataplane(name, mesh, networking)).await;
    }
    let services = eventually("the services on global", || async {
        let services = global.try_get("/service-insights").await?;
        if services["total"] == 3 { Ok(services) } else { Err(services.to_string()) }
    })
    .await;
    let of = |name: &str| named(&services["items"], name);
    assert_eq!(of("web").get("serviceType"), None, "the usual type is left out");
    assert_eq!(of("web")["addressPort"], "web.mesh:80");
    assert_eq!(
        (&of("edge")["serviceType"], of("edge").get("addressPort")),
        (&json!("gateway_delegated"), None)
    );
    assert_eq!(
        (&of("out")["serviceType"], &of("out")["addressPort"]),
        (&json!("external"), &json!("out.example:443"))
    );
    let gone = global.get("/meshes/default/service-insights/nobody").await;
    assert!(gone["dataplanes"].is_object(), "{gone}");
    for (path, status) in [
        ("/service-insights?type=bogus", 400),
        ("/service-insights?type=internal,external", 200),
        ("/meshes/strict/service-insights/in", 404),
        ("/meshes/nowhere/service-insights", 404),
    ] {
        assert_eq!(global.call(Method::GET, path, None).await.0.as_u16(), status, "{path}");
    }
    assert_eq!(global.get("/meshes/strict/service-insights").await["total"], 0);

    let mesh = global.get("/mesh-insights/default").await;
    assert_eq!(mesh["dpVersions"]["kumaDp"]["unknown"]["total"], 2, "{mesh:#}");
    assert_eq!(mesh["dpVersions"]["envoy"]["unknown"]["total"], 2, "{mesh:#}");
    assert!(mesh["mTLS"]["supportedBackends"].is_object() && mesh["dataplanes"].is_object(), "{mesh:#}");

    // Zones and proxies that never came are not counted as if they had gone.
    let everything = global.get("/global-insight").await;
    assert_eq!(everything["zones"]["controlPlanes"], json!({ "online": 1, "total": 1 }), "{everything:#}");
    assert_eq!(everything["zones"]["zoneIngresses"]["total"], 0);
    let members = ["createdAt", "dataplanes", "meshes", "policies", "resources", "services", "zones"];
    assert!(members.iter().all(|member| !everything[member].is_null()), "{everything:#}");

    eventually("the streams in the insight of the zone", || async {
        let insight = &global.try_get("/zones/zone-1/_overview").await?["zoneInsight"];
        let streams = ["globalToZone", "zoneToGlobal", "configDump", "stats", "clusters"];
        let has_streams = streams.iter().all(|name| insight["kdsStreams"][name]["connectTime"].is_string());
        let asked = ["configDumpGlobalInstanceId", "statsGlobalInstanceId", "clustersGlobalInstanceId"];
        let is_asked = asked.iter().all(|name| insight["envoyAdminStreams"][name].is_string());
        let last = insight["subscriptions"].as_array().and_then(|all| all.last());
        let has_generation = last.is_some_and(|last| last["generation"].as_u64() > Some(0));
        if has_streams && is_asked && has_generation { Ok(()) } else { Err(insight.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn everything_is_shown_in_the_form_of_kubernetes() {
    let global = Global::start().await;
    let trace = json!({ "type": "MeshTrace", "mesh": "default", "name": "t", "labels": { "team": "a" }, "spec": {
        "default": { "backends": [{ "type": "Zipkin", "zipkin": { "url": "http://z:9411/api" } }] } } });
    put(&global, "/meshes/default/meshtraces/t", trace).await;
    for form in ["k8s", "kubernetes"] {
        let shown = global.get(&format!("/meshes/default/meshtraces/t?format={form}&namespace=shop")).await;
        assert_eq!((&shown["kind"], &shown["apiVersion"]), (&json!("MeshTrace"), &json!("kuma.io/v1alpha1")));
        let meta = &shown["metadata"];
        assert_eq!((&meta["name"], &meta["namespace"]), (&json!("t"), &json!("shop")), "{shown:#}");
        assert_eq!(meta["labels"], json!({ "kuma.io/mesh": "default", "team": "a" }), "{shown:#}");
        assert!(shown["spec"]["default"].is_object() && shown["status"].is_object(), "{shown:#}");
    }
    let insight = global.get("/mesh-insights/default?format=k8s").await;
    assert_eq!((&insight["kind"], &insight["metadata"]["name"]), (&json!("MeshInsight"), &json!("default")));
    assert!(insight["spec"]["dataplanes"].is_object() && insight.get("dataplanes").is_none(), "{insight:#}");
    // Each kind has a form, of what there is of it.
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty() && kind.name != "ServiceInsight") {
        let all = global.get(&format!("/{}?size=1", kind.path)).await;
        let Some(name) = all["items"][0]["name"].as_str() else { continue };
        let place =
            all["items"][0]["mesh"].as_str().map(|mesh| format!("/meshes/{mesh}")).unwrap_or_default();
        let path = format!("{place}/{}/{name}", kind.path);
        let shown = global.get(&format!("{path}?format=k8s")).await;
        assert!(shown["kind"].is_string() && shown["metadata"]["name"] == name, "{path}: {shown:#}");
        let universal = global.get(&format!("{path}?format=universal")).await;
        assert_eq!(universal["type"], kind.name, "{path}");
        assert_eq!(shown["status"].is_object(), universal["status"].is_object(), "{path}: {shown:#}");
        let (status, answer) = global.call(Method::GET, &format!("{path}?format=xml"), None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {answer}");
        assert_eq!(answer["invalid_parameters"][0]["field"], "format", "{path}: {answer}");
    }
    // The lists that an export is made of.
    let exported = global.straitctl(&["export", "--profile", "all"]);
    assert!(exported.contains("MeshTrace") && exported.contains("mesh-timeout-all-default"), "{exported}");
}
