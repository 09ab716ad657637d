//! A zone that global does not hear any more: what is said about its proxies, and what the other zones keep of it.

use serde_json::Value;

use crate::{
    harness::{Options, Zone, addresses, control_plane::ControlPlane, eventually},
    mesh::federation_with,
};

fn dataplane(name: &str, service: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: {}, inbound: [{{port: 80, tags: \
         {{kuma.io/service: {service}}}}}]}}}}",
        addresses::loopback()
    )
}

fn ingress(name: &str) -> String {
    let address = addresses::loopback();
    format!(
        "{{type: ZoneIngress, name: {name}, networking: {{address: {address}, port: 10001, advertisedAddress: {address}, \
         advertisedPort: 10001}}}}"
    )
}

/// Waits for zone-1 to have, or not to have, the ingress of zone-2 with this service.
async fn reaches(zone: &Zone, service: &str, reaches: bool) {
    eventually(&format!("{service} of zone-2 in zone-1: {reaches}"), || async move {
        let all = zone.try_get("/zoneingresses").await?;
        let theirs = all["items"].as_array().into_iter().flatten().find(|item| item["zone"] == "zone-2");
        let offered =
            theirs.is_some_and(|ingress| ingress["availableServices"].to_string().contains(service));
        if offered == reaches { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
}

/// Waits for global to say this about zone-2.
async fn says(global: &ControlPlane, what: &str, says: impl Fn(&Value) -> bool) {
    let says = &says;
    eventually(what, || async move {
        let shown = global.try_get("/zones/zone-2/_overview").await?;
        if says(&shown["strait"]) { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

fn notes(status: &Value, words: &str) -> bool {
    status["notes"].to_string().contains(words)
}

#[tokio::test]
async fn a_lost_zone_is_unknown_and_withdrawn_unless_it_is_the_last() {
    let options = Options::impatient().with("multizone.global.kds.zoneHealthCheck.withdrawAfter", "1s");
    let (global, mut zones) = federation_with(2, options, Options::default()).await;
    for zone in &zones {
        zone.apply(&dataplane("backend-1", "backend"));
        zone.apply(&ingress(&format!("ingress-{}", zone.zone)));
    }
    reaches(&zones[0], "backend", true).await;
    says(&global, "clocks are compared", |strait| strait["clock"]["errorMs"].is_u64()).await;
    let metrics = global.metrics().await;
    assert!(metrics.contains("kds_zone_clock_skew_seconds{"), "{metrics}");
    let table = global.straitctl(&["inspect", "zones"]);
    assert!(table.contains("CLOCK") && table.contains("ms ±"), "{table}");

    zones[1].process.kill();
    let cp = &global.cp;
    eventually("its dataplane is unknown", || async move {
        let all = cp.try_get("/meshes/default/dataplanes/_overview").await?;
        let status = |zone: &str| {
            let mut items = all["items"].as_array().into_iter().flatten();
            let found = items.find(|item| item["labels"]["kuma.io/zone"] == zone);
            found.map(|item| item["strait"].clone())
        };
        let (lost, here) = (status("zone-2"), status("zone-1"));
        let is_so = lost.is_some_and(|lost| lost["status"] == "unknown" && lost["zone"]["name"] == "zone-2")
            && here == Some(Value::Null);
        if is_so { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
    let counted = global.get("/mesh-insights/default").await;
    assert_eq!(counted["dataplanes"]["unknown"], 1, "{counted}");
    let table = global.straitctl(&["inspect", "dataplanes"]);
    assert!(table.contains("unknown"), "{table}");
    // Its own services are elsewhere too.
    reaches(&zones[0], "backend", false).await;
    says(&global, "why", |strait| notes(strait, "is withdrawn from the other zones")).await;

    zones[1].start_again().await;
    reaches(&zones[0], "backend", true).await;
    says(&global, "nothing more", |strait| !notes(strait, "withdrawn")).await;
    assert!(global.get("/mesh-insights/default").await["dataplanes"]["unknown"].is_null());

    zones[1].apply(&dataplane("only-1", "only"));
    reaches(&zones[0], "only", true).await;
    zones[1].process.kill();
    says(&global, "why it stays", |strait| notes(strait, "nobody else exports only of mesh default")).await;
    reaches(&zones[0], "only", true).await;
}
