//! Names: of others, taken before they are used; and too long to be one.

use std::collections::HashMap;

use common::{
    kds::{features, mapper, metadata::Peer},
    model::{Resource, ResourceKey, kinds, labels},
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};

use crate::{
    harness::{
        Global, KdsPeer, Options, Zone, eventually,
        kds_peer::{dial, item},
    },
    mesh::{ALLOW_ALL, MESH, federation},
};

const WEB: &str = "
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.9
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web } }]
";
const DATAPLANE: &str = r#"{"networking": {"address": "10.9.9.9", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;
/// Memory one peer may cost, whatever it says; far above what is measured, far below what it sends.
const BUDGET: u64 = 192 * 1024 * 1024;

/// Waits until global shows the dataplane `web` of this zone, and nobody else's.
async fn is_web_of(global: &Global, zone: &str) {
    eventually(&format!("the dataplane of {zone} on global"), || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        let owners: Vec<&str> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|item| item["labels"]["kuma.io/display-name"] == "web")
            .filter_map(|item| item["labels"]["kuma.io/zone"].as_str())
            .collect();
        if owners == [zone] { Ok(()) } else { Err(format!("{owners:?}")) }
    })
    .await;
}

#[tokio::test]
async fn the_hashed_name_of_another_zone_waits_for_its_owner() {
    let (global, zones) = federation(1).await;
    let squatter = KdsPeer::connect(&global, "squatter").await;
    let mut up = squatter.up().await.unwrap();
    let kind = &kinds::dataplane::KIND;
    let mine = squatter.honest(kind, "default", "web", DATAPLANE);
    let theirs =
        mapper::up(&Resource::new(ResourceKey::new(kind, "default", "web"), mine.created), "zone-1", &[]);
    // The name is all it takes; labels say what they like.
    let mut stolen = Resource { key: theirs.unwrap().key, ..mine };
    for display in [Some("web"), Some("else"), None] {
        match display {
            Some(name) => drop(stolen.labels.insert(labels::DISPLAY_NAME, name)),
            None => drop(stolen.labels.remove(labels::DISPLAY_NAME)),
        }
        let refused = up.offer(kind, vec![item(&stolen)]).await.unwrap().expect("it is not taken");
        assert!(refused.contains(stolen.name()) && refused.contains("\"squatter\""), "{refused}");
        let owner = "it is the name of what zone \"zone-1\" calls so";
        assert!(display != Some("web") || refused.contains(owner), "both are named: {refused}");
    }
    zones[0].apply(WEB);
    is_web_of(&global, "zone-1").await;
}

#[tokio::test]
async fn a_name_that_two_zones_can_make_goes_to_the_one_that_chose_less_of_it() {
    let global = Global::start().await;
    global.apply(MESH);
    // The hash is over `default` `web` `zone-1` `0` here and `default` `web` `zone-10` there.
    let early = KdsPeer::connect(&global, "zone-1").await;
    let mut up = early.up().await.unwrap();
    let kind = &kinds::dataplane::KIND;
    let plain = early.honest(kind, "default", "web", DATAPLANE);
    let bare = Resource { key: ResourceKey::new(kind, "default", "web"), ..plain };
    let crafted = mapper::up(&bare.with_label(labels::NAMESPACE, "0"), "zone-1", &[]).unwrap();
    assert_eq!(up.offer(kind, vec![item(&crafted)]).await.unwrap(), None, "it may well be a namespace");
    is_web_of(&global, "zone-1").await;

    let owner = Zone::start_with(&global, "zone-10", Options::default()).await;
    eventually("the mesh in the zone", || owner.try_get("/meshes/default")).await;
    owner.apply(WEB);
    is_web_of(&global, "zone-10").await;
    let again = up.offer(kind, vec![item(&crafted.with_label("again", "yes"))]).await.unwrap();
    let refused = again.expect("it is the other's now");
    assert!(refused.contains("belongs to zone zone-10; the one of zone zone-1"), "{refused}");
    is_web_of(&global, "zone-10").await;
}

/// Whose service `web` the zone has, once it has the policy of global of this name.
async fn web_in(zone: &Zone, global: &Global, policy: &str) -> Vec<String> {
    global.apply(&ALLOW_ALL.replace("allow-all", policy));
    eventually(&format!("{policy} in the zone"), || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list.to_string().contains(policy) { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let list = zone.get("/meshes/default/meshservices").await;
    let items = list["items"].as_array().into_iter().flatten();
    let web = items.filter(|item| item["labels"]["kuma.io/display-name"] == "web");
    web.map(|item| item["labels"]["kuma.io/zone"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A zone that hashes no names is free in what they are on global, and its labels make the names that others are sent.
#[tokio::test]
async fn a_zone_that_hashes_no_names_takes_none_of_another_in_the_other_zones() {
    const SERVICE: &str = r#"{"ports": [{"port": 80, "targetPort": 80}], "selector": {"dataplaneTags": {"kuma.io/service": "web"}}}"#;
    let global = Global::start().await;
    global.apply(MESH);
    let west = Zone::start_with(&global, "west", Options::default()).await;
    let kind = &kinds::mesh_service::KIND;
    let owner = KdsPeer::connect(&global, "zone-10").await;
    let mut owners = owner.up().await.unwrap();
    let web = owner.honest(kind, "default", "web", SERVICE);
    assert_eq!(owners.offer(kind, vec![item(&web)]).await.unwrap(), None);
    let of_web = format!("/meshes/default/meshservices/{}", web.name());
    eventually("the service in the other zone", || west.try_get(&of_web)).await;

    let mut thief = KdsPeer::connect(&global, "zone-1").await;
    thief.caller.features = [features::ZONE_PING_HEALTH].into_iter().collect();
    let mut up = thief.up().await.unwrap();
    let posing = |name: &str| {
        let key = ResourceKey::new(kind, "default", name);
        let posing = Resource { key, ..web.clone() }.with_label(labels::ZONE, "zone-1");
        posing.with_label(labels::NAMESPACE, "0")
    };
    let refused = up.offer(kind, vec![item(&posing("x"))]).await.unwrap().expect("it is not called so there");
    assert!(refused.contains("kuma.io/display-name") && refused.contains("take the label away"), "{refused}");
    // So it is called in Kubernetes, in the namespace `0`.
    assert_eq!(up.offer(kind, vec![item(&posing("web.0"))]).await.unwrap(), None);
    eventually("a note about it", || async {
        let overview = global.try_get("/zones/west/_overview").await?;
        let notes = overview["strait"]["notes"].to_string();
        let says = [
            "the zone does not get some MeshService",
            "zone-1.web.0",
            "of zone zone-10, which goes before it",
        ];
        if says.iter().all(|words| notes.contains(words)) { Ok(()) } else { Err(notes) }
    })
    .await;
    assert_eq!(web_in(&west, &global, "posing").await, ["zone-10"]);
    assert_eq!(up.say(kind, Vec::new(), vec!["web.0.default".to_owned()]).await.unwrap(), None);
    assert_eq!(web_in(&west, &global, "gone").await, ["zone-10"]);
    // What it keeps under the name is sent once nobody goes before it.
    assert_eq!(up.offer(kind, vec![item(&posing("web.0"))]).await.unwrap(), None);
    assert_eq!(owners.say(kind, Vec::new(), vec![format!("{}.default", web.name())]).await.unwrap(), None);
    eventually("the other one", || async {
        let shown = west.try_get(&of_web).await?;
        if shown["labels"]["kuma.io/zone"] == "zone-1" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_zone_that_lists_endless_names_is_sent_away_and_costs_little() {
    let (global, zones) = federation(1).await;
    let before = global.process.resident();
    let peer = KdsPeer::connect(&global, "talker").await;
    let long = || "n".repeat(1024 * 1024);
    let bare = || peer.first("Mesh", Peer::default());
    let held = |name: String, version: String| DeltaDiscoveryRequest {
        initial_resource_versions: HashMap::from([(name, version)]),
        ..bare()
    };
    let named = |names: Vec<String>| DeltaDiscoveryRequest { resource_names_subscribe: names, ..bare() };
    let excesses = [
        named(vec![long()]),
        named((0..9).map(|n| format!("{n}{}", long())).collect()),
        held(long(), "v".to_owned()),
        held("n".to_owned(), long()),
        DeltaDiscoveryRequest { type_url: long(), ..bare() },
    ];
    for excess in excesses {
        let mut down = peer.down(excess).await.unwrap();
        let status = down.end().await;
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().len() < 1024, "it does not get its names back");
    }
    // One name at a time, each as long as it may be: the stream as a whole has a limit.
    let mut down = peer.down(bare()).await.unwrap();
    for n in 0..80 {
        let many = (0..1000).map(|m| format!("{n}-{m}-{}", "n".repeat(1000))).collect();
        if down.requests.send(named(many)).await.is_err() {
            break;
        }
    }
    assert_eq!(down.end().await.code(), Code::ResourceExhausted);
    let cost = global.process.resident().saturating_sub(before);
    assert!(cost < BUDGET, "{cost} bytes more than before");
    // What a response repeats in every answer has a limit too.
    let mut up = peer.up().await.unwrap();
    let nonce = common::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse {
        type_url: "Dataplane".to_owned(),
        nonce: long(),
        ..Default::default()
    };
    up.responses.send(nonce).await.unwrap();
    let end = loop {
        match up.requests.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended with OK"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");

    global.apply(ALLOW_ALL);
    let zone = &zones[0];
    eventually("the policy in the other zone", || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
}

/// Opens an incremental ADS stream with these requests; how it ends.
async fn ads(zone: &Zone, token: &str, requests: Vec<DeltaDiscoveryRequest>) -> Status {
    let channel = dial(&format!("grpcs://{}", zone.dp_server), &zone.certificate()).await;
    let (sender, queue) = tokio::sync::mpsc::channel(requests.len());
    for request in requests {
        sender.send(request).await.unwrap();
    }
    let mut request = Request::new(ReceiverStream::new(queue));
    request.metadata_mut().insert("authorization", token.trim().parse().unwrap());
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let mut responses = match client.delta_aggregated_resources(request).await {
        Ok(responses) => responses.into_inner(),
        Err(status) => return status,
    };
    loop {
        match responses.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended with OK"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_proxy_that_subscribes_to_endless_names_is_sent_away_and_costs_little() {
    const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let (_global, zones) = federation(1).await;
    let zone = &zones[0];
    zone.apply(WEB);
    let token = zone.proxy_token("default", &["--name", "web"]).await;
    let before = zone.process.resident();
    let subscribe = |names: Vec<String>| DeltaDiscoveryRequest {
        node: Some(Node { id: "default.web".to_owned(), ..Node::default() }),
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: names,
        ..DeltaDiscoveryRequest::default()
    };
    let one = ads(zone, &token, vec![subscribe(vec!["n".repeat(1024 * 1024)])]).await;
    assert_eq!(one.code(), Code::ResourceExhausted, "{one}");
    assert!(one.message().len() < 1024);
    let many = (0..60).map(|n| {
        let names = (0..100).map(|m| format!("{n}-{m}-{}", "n".repeat(1000)));
        subscribe(names.collect())
    });
    let sum = ads(zone, &token, many.collect()).await;
    assert_eq!(sum.code(), Code::ResourceExhausted, "{sum}");
    let cost = zone.process.resident().saturating_sub(before);
    assert!(cost < BUDGET, "{cost} bytes more than before");
}
