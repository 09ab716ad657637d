//! Services as resources: made in one zone, seen and called in others.

use serde_json::{Value, json};

use crate::{
    harness::{Zone, control_plane::ControlPlane, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, ingress},
};

/// The status of a service, once it says what `wanted` finds in it.
async fn status<T>(at: &ControlPlane, path: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
    let wanted = &wanted;
    eventually(path, || async move {
        let service = at.try_get(path).await?;
        wanted(&service["status"]).ok_or_else(|| service.to_string())
    })
    .await
}

fn vip(status: &Value) -> Option<String> {
    status["vips"][0]["ip"].as_str().map(str::to_owned)
}

fn hostnames(status: &Value) -> Vec<&str> {
    status["addresses"].as_array().into_iter().flatten().filter_map(|one| one["hostname"].as_str()).collect()
}

/// Where the service `inventory` of zone 2 is called in other zones.
async fn found(zone: &Zone) -> String {
    eventually("the service of the other zone", || async move {
        let all = zone.try_get("/meshes/default/meshservices").await?;
        let items = all["items"].as_array().into_iter().flatten();
        let labelled = |item: &&Value| {
            item["labels"]["kuma.io/display-name"] == "inventory"
                && item["labels"]["kuma.io/zone"] == "zone-2"
        };
        let found = items.into_iter().find(labelled).and_then(|item| item["name"].as_str());
        found.map(|name| format!("/meshes/default/meshservices/{name}")).ok_or_else(|| all.to_string())
    })
    .await
}

#[tokio::test]
async fn a_service_made_of_a_tag_is_called_from_another_zone() {
    let (global, mut zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&format!("{MESH}meshServices: {{ mode: Exclusive }}\n"));
    let _ingress = ingress(&global, &zones[1]).await;
    let inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;

    let own = "/meshes/default/meshservices/inventory";
    let at_home = status(&zones[1], own, |s| {
        (s["dataplaneProxies"]["healthy"] == 1 && hostnames(s) == ["inventory.svc.mesh.local"])
            .then(|| vip(s))?
    })
    .await;
    assert!(at_home.starts_with("241."), "{at_home}");
    let service = zones[1].get(own).await;
    assert_eq!(service["labels"]["kuma.io/managed-by"], "meshservice-generator", "{service}");
    assert_eq!(
        service["spec"]["identities"],
        json!([{"type": "ServiceTag", "value": "inventory"}]),
        "{service}"
    );

    // Global has what the zone says; the other zone has addresses and names of its own for it.
    let path = found(&zones[0]).await;
    status(&global, &path, |s| (vip(s).as_ref() == Some(&at_home)).then_some(())).await;
    let away = status(&zones[0], &path, |s| {
        (hostnames(s) == ["inventory.svc.zone-2.mesh.local"]).then(|| vip(s))?
    })
    .await;
    let names = global.get(&format!("{path}/_hostnames")).await;
    assert!(names.to_string().contains("inventory.svc.zone-2.mesh.local"), "{names}");

    let port = inventory.inbound.port();
    let reference = format!(
        "{{ kind: MeshService, labels: {{ kuma.io/display-name: inventory, kuma.io/zone: zone-2 }}, port: {port} }}"
    );
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &[&reference])).await;
    let seen = client.reaches(0, "inventory-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/client"), "{seen}");

    // Addresses survive who gave them.
    for zone in &mut zones {
        zone.process.kill();
        zone.start_again().await;
    }
    assert_eq!(vip(&zones[0].get(&path).await["status"]), Some(away));
    assert_eq!(vip(&zones[1].get(own).await["status"]), Some(at_home));
    client.reaches(0, "inventory-1").await;
}

/// The port 80 of the service `name` of a zone is that of `member`.
fn offer(zone: &Zone, member: &Member) {
    zone.apply(&format!(
        "
type: MeshService
name: stock-eighty
mesh: default
labels: {{ kuma.io/origin: zone, app: stock }}
spec:
  selector: {{ dataplaneTags: {{ kuma.io/service: stock }} }}
  ports: [{{ port: 80, targetPort: {}, appProtocol: http }}]
",
        member.inbound.port()
    ));
}

#[tokio::test]
async fn a_service_of_several_zones_fails_over_between_them() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&format!("{MESH}meshServices: {{ mode: Exclusive }}\n"));
    global.apply(
        "
type: MeshMultiZoneService
name: stock
mesh: default
spec:
  selector: { meshService: { matchLabels: { app: stock } } }
  ports: [{ port: 80, appProtocol: http }]
",
    );
    let _ingress = ingress(&global, &zones[1]).await;
    let there = Member::join(&zones[1], Shape::http("stock-there", "stock", &[])).await;
    offer(&zones[1], &there);
    let reference = "{ kind: MeshMultiZoneService, labels: { kuma.io/display-name: stock }, port: 80 }";
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &[reference])).await;
    client.reaches(0, "stock-there").await;

    let here = Member::join(&zones[0], Shape::http("stock-here", "stock", &[])).await;
    offer(&zones[0], &here);
    let client = &client;
    eventually("every request in this zone", || async move {
        for _ in 0..20 {
            let (_, seen) = client.call(0, "/").await?;
            if seen["service"] != "stock-here" {
                return Err(seen.to_string());
            }
        }
        Ok(())
    })
    .await;
    let all = zones[0].get("/meshes/default/meshmultizoneservices").await;
    let path = format!("/meshes/default/meshmultizoneservices/{}", all["items"][0]["name"].as_str().unwrap());
    let parts = status(&zones[0], &path, |s| {
        (hostnames(s) == ["stock.mzsvc.mesh.local"] && s["meshServices"].as_array()?.len() == 2)
            .then(|| s["meshServices"].clone())
    })
    .await;
    let zones_of: Vec<&Value> = parts.as_array().into_iter().flatten().map(|part| &part["zone"]).collect();
    assert_eq!(zones_of, ["zone-1", "zone-2"], "{parts}");
    assert!(vip(&zones[0].get(&path).await["status"]).is_some_and(|ip| ip.starts_with("243.")));

    zones[0].straitctl(&["delete", "dataplane", "stock-here"]);
    drop(here);
    client.reaches(0, "stock-there").await;
}
