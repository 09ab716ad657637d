//! What travels between global and zones, seen through their APIs.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::{
    harness::{Global, Zone, eventually},
    mesh::{ALLOW_ALL, federation},
};

const DATAPLANE: &str = "
type: Dataplane
mesh: default
name: dp
networking:
  address: 127.0.0.9
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web } }]
";

#[tokio::test]
async fn policies_go_down_and_dataplanes_come_up() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    for zone in &zones {
        let synced = eventually("the policy in the zone", || async move {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
            list["items"].get(0).cloned().ok_or_else(|| list.to_string())
        })
        .await;
        assert_eq!(synced["labels"]["kuma.io/origin"], "global");
        assert_eq!(synced["labels"]["kuma.io/display-name"], "allow-all");
        let path = format!("/meshes/default/meshtrafficpermissions/{}", synced["name"].as_str().unwrap());
        zone.apply(DATAPLANE);
        // What global owns is not a zone's to delete.
        let (status, answer) = zone.call(Method::DELETE, &path, None).await;
        assert!(status.is_client_error(), "{status} {answer}");
    }
    let global = &global;
    let both = eventually("the dataplanes of both zones on global", || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        if list["total"] == 2 { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    let mut zones_seen: Vec<&str> = both["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|d| d["labels"]["kuma.io/zone"].as_str())
        .collect();
    zones_seen.sort_unstable();
    assert_eq!(zones_seen, ["zone-1", "zone-2"], "one name in two zones is two dataplanes");

    zones[0].straitctl(&["delete", "dataplane", "dp"]);
    eventually("one dataplane left", || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    for zone in &zones {
        eventually("the policy is gone in the zone", || async move {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
            if list["total"] == 0 { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn zones_are_listed_with_status_revision_and_lag() {
    let (global, zones) = federation(2).await;
    let global = &global;
    zones[0].apply(DATAPLANE);
    let overview = eventually("both zones in sync", || async move {
        let list = global.try_get("/zones/_overview").await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let settled = items.len() == 2
            && items.iter().all(|z| {
                let strait = &z["strait"];
                strait["status"] == "online" && strait["down"]["lag"] == 0 && strait["up"]["lag"] == 0
            })
            && items[0]["strait"]["dataplanes"] == 1;
        if settled { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    assert!(overview["items"][0]["strait"]["since"].is_string(), "{overview}");
    let subscriptions = &overview["items"][0]["zoneInsight"]["subscriptions"];
    assert!(subscriptions[0]["connectTime"].is_string(), "{overview}");
    let table = global.straitctl(&["inspect", "zones"]);
    assert!(table.contains("zone-1") && table.contains("zone-2"), "{table}");
    let metrics = global.metrics().await;
    for line in [
        "kds_zone_online{zone=\"Global\",zone_name=\"zone-1\"} 1",
        "kds_zones{zone=\"Global\",status=\"online\"} 2",
        "kds_zone_lag{zone=\"Global\",zone_name=\"zone-2\",direction=\"down\"} 0",
        "resources_count{zone=\"Global\",resource_type=\"Zone\"} 2",
        "# TYPE kds_delta_delivery histogram",
        "# TYPE store histogram",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(metrics.lines().any(|said| said == line), "{line}: {metrics}");
    }
    let connections = metrics.lines().filter(|line| line.starts_with("kds_zone_active_connections{"));
    assert!(connections.count() == 2, "{metrics}");
    let of_zone = zones[0].metrics().await;
    assert!(of_zone.contains("kds_global_connected{zone=\"zone-1\"} 1"), "{of_zone}");
    let opened = |line: &str| {
        line.starts_with("zone_events_total{")
            && ["event=\"opened_stream\"", "zone_name=\"zone-1\""].iter().all(|label| line.contains(label))
    };
    assert!(metrics.lines().any(opened), "{metrics}");

    // A zone in use is not deleted by mistake.
    let (status, answer) = global.call(Method::DELETE, "/zones/zone-1", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
}

#[tokio::test]
async fn a_reconnect_resends_nothing_that_did_not_change() {
    let (mut global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let zone: &Zone = &zones[0];
    eventually("the policy in the zone", || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let before = zone.get("/meshes/default").await;
    assert!(global.process.stop().await.success());
    global.start_again().await;
    let global = &global;
    eventually("the zone is back in sync", || async move {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        let strait = &overview["strait"];
        if strait["status"] == "online" && strait["down"]["lag"] == 0 {
            Ok(())
        } else {
            Err(overview.to_string())
        }
    })
    .await;
    let values = |metrics: &str, name: &str| -> Vec<f64> {
        let lines = metrics.lines().filter(|l| l.starts_with(&format!("{name}{{")));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse().ok()).collect()
    };
    // A zone is in sync before the last of its types was answered: there is nothing to send.
    let metrics = eventually("every type is answered once", || async move {
        let metrics = global.metrics().await;
        if values(&metrics, "kds_delta_responses_sent").len() > 40 { Ok(metrics) } else { Err(metrics) }
    })
    .await;
    let sent: f64 = values(&metrics, "kds_delta_resources_sent").iter().sum();
    assert!(sent < 1.0, "{sent} resources were sent again");
    assert_eq!(zone.get("/meshes/default").await, before, "an equal resource is not written again");
}

#[tokio::test]
async fn a_dataplane_that_fails_validation_is_refused_with_the_field() {
    let (_global, zones) = federation(1).await;
    let (status, answer) = zones[0]
        .call(
            Method::PUT,
            "/meshes/default/dataplanes/dp",
            Some(json!({"type": "Dataplane", "mesh": "default", "name": "dp", "networking": {"address": "0.0.0.0"}})),
        )
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.to_string().contains("networking.address"), "{answer}");
}

/// Of every resource an operator is told why a zone has it, lacks it or does not take it.
#[tokio::test]
async fn a_zone_is_explained() {
    let (global, zones) = federation(1).await;
    let global = &global;
    let policy = |name: &str, label: &str| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: {name}, labels: {{{label}}}, spec: {{to: [{{targetRef: {{kind: \
             Mesh}}, default: {{connectionTimeout: 3s}}}}]}}}}"
        )
    };
    global.apply(&policy("taken", ""));
    global.apply(&policy("kept", "kuma.io/kds-sync: disabled"));
    zones[0].apply(DATAPLANE);
    let explain =
        |kind: &'static str, name: &'static str| global.straitctl(&["explain", "zone", "zone-1", kind, name]);
    eventually("the policy is acknowledged", || async move {
        let (_, answer) = global_item(global, "meshtimeouts/taken?mesh=default").await;
        if answer["state"] == "acknowledged" { Ok(()) } else { Err(answer) }
    })
    .await;
    let out = explain("meshtimeout", "taken");
    assert!(out.contains("MeshTimeout taken of mesh default in zone zone-1: acknowledged"), "{out}");
    let out = explain("meshtimeout", "kept");
    assert!(out.contains("filtered") && out.contains("kuma.io/kds-sync"), "{out}");
    let out = explain("meshtimeout", "never");
    assert!(out.contains("absent"), "{out}");
    let out = explain("zone", "zone-1");
    assert!(out.contains("filtered") && out.contains("stay on global"), "{out}");
}

async fn global_item(global: &Global, item: &str) -> (StatusCode, serde_json::Value) {
    global.call(Method::GET, &format!("/sync/zones/zone-1/{item}"), None).await
}

/// Who waits for a write finds it in every zone at once, and is told who lacks it.
#[tokio::test]
async fn a_write_is_followed_to_every_zone() {
    let (global, mut zones) = federation(2).await;
    let file = |text: &str| {
        let folder = global.admin_token_file().parent().unwrap().to_owned();
        crate::harness::control_plane::write(&folder, "followed.yaml", text).display().to_string()
    };
    let timeout = |seconds: u32| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: followed, spec: {{to: [{{targetRef: {{kind: Mesh}}, \
             default: {{connectionTimeout: {seconds}s}}}}]}}}}"
        )
    };
    for seconds in 1..=5 {
        global.straitctl(&["apply", "-f", &file(&timeout(seconds)), "--wait"]);
        for zone in &zones {
            let list = zone.get("/meshes/default/meshtimeouts").await;
            let seen =
                list["items"].as_array().unwrap().iter().any(|item| {
                    item["spec"]["to"][0]["default"]["connectionTimeout"] == format!("{seconds}s")
                });
            assert!(seen, "{list}");
        }
    }
    zones[1].process.kill();
    let waiting = ["apply", "-f", &file(&timeout(6)), "--wait", "--timeout", "3s"];
    let (done, _, error) = global.try_straitctl(&waiting);
    assert!(!done && error.contains("zone-2 is") && !error.contains("zone-1 is"), "{error}");
    let revision = error.split_whitespace().skip_while(|word| *word != "revision").nth(1).unwrap().to_owned();
    zones[1].start_again().await;
    let out = global.straitctl(&["wait", "revision", &revision, "--timeout", "60s"]);
    assert!(out.contains("zone-2: acknowledged"), "{out}");
    let list = zones[1].get("/meshes/default/meshtimeouts").await;
    assert!(list.to_string().contains("6s"), "{list}");
    let (status, answer) = global.call(Method::GET, "/sync", None).await;
    assert_eq!((status, answer["zones"].as_array().map(Vec::len)), (StatusCode::OK, Some(2)), "{answer}");
}
