//! A zone that gives one host name to thousands of its services, and one that is called as a service of another zone.

use common::{
    kds::mapper,
    model::{
        Resource, ResourceKey,
        kinds::{mesh_service, zone_ingress},
        labels,
    },
    proto::envoy::service::discovery::v3::Resource as Item,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    harness::{KdsPeer, Options, Zone, eventually, kds_peer::item},
    mesh::{federation, federation_with},
    transparent::Redirected,
};

/// So many that what each does to each other would be felt.
const MANY: usize = 4000;
/// In a message.
const AT_ONCE: usize = 500;

/// A service called `web`, as all of its zone are.
fn web(number: usize) -> Item {
    let key = ResourceKey::new(&mesh_service::KIND, "default", "web");
    let service = Resource::new(key, chrono::DateTime::UNIX_EPOCH)
        .with_label(labels::DISPLAY_NAME, "web")
        .with_label(labels::NAMESPACE, &format!("n{number}"))
        .with_label(labels::ENV, labels::ENV_UNIVERSAL)
        .with_spec(r#"{"ports": [{"port": 80}], "state": "Available"}"#);
    item(&mapper::up(&service, "stolen", &[]).expect("it names no zone of its own"))
}

/// How many services of the zone that was taken over have an address here, and how many have the host name.
async fn told(zone: &Zone) -> Result<(usize, usize), String> {
    let (mut addressed, mut named) = (0, 0);
    let mut offset = 0;
    loop {
        let page = zone.try_get(&format!("/meshes/default/meshservices?size=1000&offset={offset}")).await?;
        let items = page["items"].as_array().ok_or("a list")?;
        for service in items.iter().filter(|service| service["labels"]["kuma.io/zone"] == "stolen") {
            addressed += usize::from(service["status"]["vips"][0]["ip"].is_string());
            let addresses = service["status"]["addresses"].as_array().map_or(0, Vec::len);
            named += addresses;
        }
        offset += items.len();
        if page["next"].is_null() || items.is_empty() {
            return Ok((addressed, named));
        }
    }
}

async fn are_told(zone: &Zone) {
    eventually("what there is to say of each of them", || async {
        match told(zone).await? {
            (MANY, 1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn is_online(global: &crate::harness::Global) {
    eventually("the zone with its services", || async {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test]
async fn one_host_name_of_thousands_of_services_holds_nobody_up() {
    let (global, mut zones) = federation_with(1, Options::default(), Options::default()).await;
    let peer = KdsPeer::connect(&global, "stolen").await;
    let mut up = peer.up().await.expect("its token is good");
    for first in (0..MANY).step_by(AT_ONCE) {
        let some = (first..first + AT_ONCE).map(web).collect();
        assert_eq!(up.offer(&mesh_service::KIND, some).await.expect("it is let in"), None);
    }
    let zone = &mut zones[0];
    are_told(zone).await;

    // Whoever leads anew looks at all of them, and serves others meanwhile.
    zone.process.stop().await;
    zone.start_again().await;
    is_online(&global).await;
    zone.apply(
        "{type: MeshService, mesh: default, name: honest, labels: {kuma.io/origin: zone}, spec: {ports: [{port: 80}], selector: {dataplaneTags: \
         {kuma.io/service: honest}}}}",
    );
    eventually("the host name of an honest service", || async {
        let service = zone.try_get("/meshes/default/meshservices/honest").await?;
        let is_named = service["status"]["addresses"][0]["hostname"].is_string();
        if is_named { Ok(()) } else { Err(service.to_string()) }
    })
    .await;
    are_told(zone).await;
    let log = zone.process.whole_log();
    assert!(!log.contains("the store cannot be written"), "it answered all the time");
    drop(up);
}

/// The address in the answer to a question for `name`, among all answers in `shown`.
fn answer(shown: &Value, name: &str) -> Option<String> {
    let address = &shown["endpoint"]["addressList"]["address"][0];
    if shown["name"] == name && address.is_string() {
        return address.as_str().map(str::to_owned);
    }
    let members = shown.as_object().into_iter().flat_map(|members| members.values());
    members.chain(shown.as_array().into_iter().flatten()).find_map(|member| answer(member, name))
}

/// The same, once there is one.
async fn answered(zone: &Zone, name: &str) -> String {
    eventually(&format!("an address of {name}"), || async {
        let config = zone.try_get("/meshes/default/dataplanes/client-1/_config").await?;
        answer(&config, name).ok_or_else(|| config.to_string())
    })
    .await
}

/// An underscore is in no name of a host, so who has one is called with a dot as well; a service of another zone may be
/// called so of itself, and its address may be a lower one.
#[tokio::test]
async fn a_stolen_zone_takes_no_host_name_of_a_service_that_is_served_here() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    // Its Envoy answers questions for names.
    let _client = Redirected::join(zone).await;
    for (name, service) in [("aaa-1", "aaa"), ("bank-1", "bank_api")] {
        zone.apply(&format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 192.0.2.1, inbound: [{{port: 80, tags: \
             {{kuma.io/service: {service}}}}}]}}}}"
        ));
        answered(zone, &format!("{service}.mesh")).await;
    }
    // An address below that of the other one becomes free.
    let (status, body) = zone.call(Method::DELETE, "/meshes/default/dataplanes/aaa-1", None).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    eventually("nobody is called aaa", || async {
        let config = zone.try_get("/meshes/default/dataplanes/client-1/_config").await?;
        answer(&config, "aaa.mesh").map_or(Ok(()), Err)
    })
    .await;
    let before = answered(zone, "bank.api.mesh").await;
    let peer = KdsPeer::connect(&global, "stolen").await;
    let mut up = peer.up().await.expect("its token is good");
    let offered = ["bank.api", "last"]
        .map(|service| json!({"mesh": "default", "instances": 1, "tags": {"kuma.io/service": service}}));
    let spec = json!({"networking": {"address": "10.66.0.1", "port": 10001,
        "advertisedAddress": "10.66.0.1", "advertisedPort": 10001}, "availableServices": offered});
    let ingress = item(&peer.honest(&zone_ingress::KIND, "", "thief-1", &spec.to_string()));
    let refused = up.offer(&zone_ingress::KIND, vec![ingress]).await.expect("the stream goes on");
    assert_eq!(refused, None);
    answered(zone, "last.mesh").await;
    assert_eq!(answered(zone, "bank.api.mesh").await, before);
    assert_eq!(answered(zone, "bank_api.mesh").await, before);
}
