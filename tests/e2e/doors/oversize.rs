//! One item, or one word, that is too large: it stays alone with that.

use common::{
    kds::metadata::Peer,
    model::kinds,
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DeltaDiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
            },
        },
        google::protobuf::{Duration, Struct, Timestamp, Value as ProtoValue, value::Kind as Json},
        kuma::{
            mesh::v1alpha1::{
                Dataplane, DataplaneInsight, DiscoverySubscription,
                dataplane::networking::inbound::ServiceProbe,
            },
            system::v1alpha1::KumaCpVersion,
        },
    },
};
use prost::{Message, encoding::bytes};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

use crate::{
    harness::{
        Global, KdsPeer, Options, Zone,
        control_plane::ControlPlane,
        eventually,
        kds_peer::{dial, item, with_spec},
    },
    mesh::{ALLOW_ALL, federation, federation_with},
};

const MIB: usize = 1024 * 1024;
const ADDRESS: &str = r#"{"networking": {"address": "10.9.9.9", "port": 10001}}"#;

/// A dataplane of this name.
fn dataplane(name: &str) -> String {
    format!(
        "
type: Dataplane
mesh: default
name: {name}
networking:
  address: 127.0.0.9
  inbound: [{{ port: 80, servicePort: 8080, tags: {{ kuma.io/service: web }} }}]
"
    )
}

/// Waits until the zone has this many policies that let through.
async fn permissions(zone: &Zone, count: usize) {
    eventually("the policies in the zone", || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list["total"] == count { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
}

/// Waits until global shows this many dataplanes.
async fn dataplanes(global: &Global, count: usize) {
    eventually("the dataplanes on global", || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        if list["total"] == count { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
}

/// Waits for a note of this zone on global with all these words.
async fn note(global: &Global, zone: &str, words: &[&str]) {
    eventually(&format!("a note about {zone}"), || async move {
        let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
        let notes = overview["strait"]["notes"].to_string();
        if words.iter().all(|word| notes.contains(word)) { Ok(()) } else { Err(notes) }
    })
    .await;
}

#[tokio::test]
async fn an_item_larger_than_it_can_be_sent_on_is_refused_alone() {
    let (global, zones) = federation(2).await;
    let before = global.process.resident();
    let peer = KdsPeer::connect(&global, "heavy").await;
    let mut up = peer.up().await.unwrap();
    let kind = &kinds::zone_ingress::KIND;
    let (large, small) = (peer.honest(kind, "", "large", ADDRESS), peer.honest(kind, "", "small", ADDRESS));
    // In an unknown field, which is kept and sent on: up to the last byte a message holds.
    let padded = |length: usize| {
        let mut spec = large.spec.to_vec();
        bytes::encode(99, &vec![b'x'; length], &mut spec);
        with_spec(item(&large), spec)
    };
    for length in [9 * MIB + 900 * 1024, 8 * MIB, 5 * MIB] {
        let refused = up.offer(kind, vec![padded(length), item(&small)]).await.unwrap();
        let refused = refused.expect("it is not taken");
        assert!(refused.starts_with(large.name()) && refused.contains("bytes, more than the"), "{refused}");
        assert!(!refused.contains(small.name()), "only the large one: {refused}");
    }
    note(&global, "heavy", &["global refused ZoneIngress", "bytes, more than the"]).await;
    // The largest that is taken goes on to all other zones.
    assert_eq!(up.offer(kind, vec![padded(4 * MIB - 4096)]).await.unwrap(), None);
    global.apply(ALLOW_ALL);
    for zone in &zones {
        permissions(zone, 1).await;
        eventually("both ingresses in the zone", || async move {
            let list = zone.try_get("/zoneingresses").await?;
            if list["total"] == 2 { Ok(()) } else { Err(list["total"].to_string()) }
        })
        .await;
        assert_eq!(global.zone_status(&zone.zone).await.unwrap(), "online");
    }
    let cost = global.process.resident().saturating_sub(before);
    assert!(cost < 512 * MIB as u64, "{cost} bytes more than before");
}

#[tokio::test]
async fn an_item_of_countless_parts_costs_little_and_is_refused_alone() {
    let (global, _zones) = federation(1).await;
    let before = global.process.resident();
    let peer = KdsPeer::connect(&global, "crumbs").await;
    let mut up = peer.up().await.unwrap();
    let inbound = r#"{"networking": {"address": "10.9.9.9", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;
    let kind = &kinds::dataplane::KIND;
    let (good, bad) =
        (peer.honest(kind, "default", "good", inbound), peer.honest(kind, "default", "bad", inbound));
    // Empty inbounds, two bytes each.
    let crumbs = |count: usize| {
        let mut spec = bad.spec.to_vec();
        bytes::encode(1, &[0x0a, 0x00].repeat(count), &mut spec);
        with_spec(item(&bad), spec)
    };
    for count in [4_000_000, 125_000] {
        let refused =
            up.offer(kind, vec![crumbs(count), item(&good)]).await.unwrap().expect("it is not taken");
        assert!(refused.starts_with(bad.name()) && !refused.contains(good.name()), "{refused}");
        assert!(refused.len() <= 17 * 1024, "{} bytes of reasons", refused.len());
    }
    let cost = global.process.resident().saturating_sub(before);
    assert!(cost < 256 * MIB as u64, "{cost} bytes more than before");
    dataplanes(&global, 1).await;
}

#[tokio::test]
async fn what_json_cannot_say_closes_no_list() {
    let global = Global::start().await;
    let peer = KdsPeer::connect(&global, "odd").await;
    let mut up = peer.up().await.unwrap();
    let inbound = r#"{"networking": {"address": "10.9.9.9", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;
    let (of_proxy, of_insight) = (&kinds::dataplane::KIND, &kinds::dataplane_insight::KIND);
    let (proxy, insight) =
        (peer.honest(of_proxy, "default", "odd", inbound), peer.honest(of_insight, "default", "odd", "{}"));
    let mut probed = Dataplane::decode(&proxy.spec[..]).unwrap();
    probed.networking.as_mut().unwrap().inbound[0].service_probe = Some(ServiceProbe {
        interval: Some(Duration { seconds: i64::MAX, nanos: i32::MIN }),
        ..Default::default()
    });
    let connect_time = Some(Timestamp { seconds: i64::MAX, nanos: 0 });
    let number = ProtoValue { kind: Some(Json::NumberValue(f64::NAN)) };
    let told = DataplaneInsight {
        subscriptions: vec![DiscoverySubscription { id: "1".to_owned(), connect_time, ..Default::default() }],
        metadata: Some(Struct { fields: [("number".to_owned(), number)].into_iter().collect() }),
        ..Default::default()
    };
    let items = vec![with_spec(item(&proxy), probed.encode_to_vec())];
    assert_eq!(up.offer(of_proxy, items).await.unwrap(), None);
    let items = vec![with_spec(item(&insight), told.encode_to_vec())];
    assert_eq!(up.offer(of_insight, items).await.unwrap(), None);
    eventually("the overview", || async {
        let list = global.try_get("/dataplanes/_overview").await?;
        let told = &list["items"][0]["dataplaneInsight"]["subscriptions"][0]["connectTime"];
        let is_shown = told.as_str().is_some_and(|time| time.starts_with("9999-"));
        if is_shown { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let list = global.get("/meshes/default/dataplane-insights").await;
    assert_eq!(list["items"][0]["metadata"], json!({ "number": null }), "{list}");
    let list = global.straitctl(&["get", "dataplanes", "-o", "json"]);
    assert!(list.contains("serviceProbe"), "{list}");
}

#[tokio::test]
async fn what_is_nested_too_deeply_for_readers_is_refused_alone() {
    let global = Global::start().await;
    let peer = KdsPeer::connect(&global, "deep").await;
    let mut up = peer.up().await.unwrap();
    let spec = r#"{"selector": {"dataplaneTags": {"kuma.io/service": "web"}}, "ports": [{"port": 80, "targetPort": 80}]}"#;
    let kind = &kinds::mesh_service::KIND;
    let (good, bad) = (peer.honest(kind, "default", "good", spec), peer.honest(kind, "default", "bad", spec));
    let mut nested = String::from_utf8(bad.spec.to_vec()).unwrap();
    nested.insert_str(1, &format!("\"odd\":{}{},", "[".repeat(124), "]".repeat(124)));
    let items = vec![with_spec(item(&bad), nested.into_bytes()), item(&good)];
    let refused = up.offer(kind, items).await.unwrap().expect("it is not taken");
    assert!(refused.starts_with(bad.name()) && refused.contains("nested too deeply"), "{refused}");
    eventually("the other one", || async {
        let list = global.try_get("/meshes/default/meshservices").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    assert!(global.straitctl(&["get", "meshservices"]).contains("good"));
}

/// A policy of about 180 bytes for each of its rules.
fn timeout(name: &str, rules: usize) -> Value {
    let target = json!({"kind": "MeshService", "name": "x".repeat(100)});
    let rule = json!({"targetRef": target, "default": {"idleTimeout": "20s"}});
    json!({"type": "MeshTimeout", "mesh": "default", "name": name, "spec": {"to": vec![rule; rules]}})
}

/// Waits until a control plane has the policy of this name.
async fn has_timeout(cp: &ControlPlane, name: &str) {
    eventually(&format!("the policy {name}"), || async move {
        let list = cp.try_get("/meshes/default/meshtimeouts").await?;
        let arrived = |item: &Value| item["labels"]["kuma.io/display-name"] == name;
        let found = list["items"].as_array().into_iter().flatten().any(arrived);
        if found { Ok(()) } else { Err(list["total"].to_string()) }
    })
    .await;
}

async fn put(cp: &ControlPlane, policy: Value) -> StatusCode {
    let path = format!("/meshes/default/meshtimeouts/{}", policy["name"].as_str().unwrap());
    cp.call(Method::PUT, &path, Some(policy)).await.0
}

#[tokio::test]
async fn what_global_cannot_put_into_a_message_is_withheld_alone_and_noted() {
    let small = Options::default().with("multizone.global.kds.maxMsgSize", "600000");
    let (global, zones) = federation_with(1, small, Options::default()).await;
    let zone = &zones[0];
    assert!(put(&global, timeout("large", 3000)).await.is_success());
    let says = ["the zone does not get some MeshTimeout", "MeshTimeout default/large", "make it smaller"];
    note(&global, "zone-1", &says).await;
    global.apply(ALLOW_ALL);
    permissions(zone, 1).await;
    assert_eq!(global.zone_status("zone-1").await.unwrap(), "online");
    let metrics = global.metrics().await;
    let counted = |line: &str| {
        line.starts_with("kds_resources_withheld_total{") && line.contains("resource_type=\"MeshTimeout\"")
    };
    assert!(metrics.lines().any(counted), "{metrics}");

    assert!(put(&global, timeout("large", 3)).await.is_success());
    has_timeout(zone, "large").await;
    assert_eq!(put(&global, timeout("large", 20_000)).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn what_a_zone_cannot_put_into_a_message_is_withheld_alone_and_noted() {
    let small = Options::default().with("multizone.zone.kds.maxMsgSize", "600000");
    let (global, zones) = federation_with(1, Options::default(), small).await;
    let zone = &zones[0];
    let of_zone = |name: &str, rules: usize| {
        let mut policy = timeout(name, rules);
        policy["labels"] = json!({"kuma.io/origin": "zone"});
        policy
    };
    assert!(put(zone, of_zone("large", 3000)).await.is_success());
    assert!(put(zone, of_zone("small", 3)).await.is_success());
    has_timeout(&global, "small").await;
    eventually("what the zone withholds", || async move {
        let link = zone.try_get("/strait/link").await?;
        let withheld = link["withheld"]["MeshTimeout"].as_str().unwrap_or_default().to_owned();
        if withheld.contains("MeshTimeout default/large") { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    assert!(put(zone, of_zone("large", 4)).await.is_success());
    has_timeout(&global, "large").await;
    assert_eq!(global.zone_status("zone-1").await.unwrap(), "online");
}

#[tokio::test]
async fn what_a_proxy_says_about_itself_never_outgrows_its_insight() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    zone.apply(&dataplane("web"));
    dataplanes(&global, 1).await;
    let token = zone.proxy_token("default", &["--name", "web"]).await;
    let text = |text: String| ProtoValue { kind: Some(Json::StringValue(text)) };
    let object = |fields: Vec<(&str, ProtoValue)>| {
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        ProtoValue { kind: Some(Json::StructValue(Struct { fields })) }
    };
    for length in [11 * MIB, 2 * MIB, 30 * 1024] {
        let version = object(vec![("kumaDp", object(vec![("version", text("9".repeat(length)))]))]);
        let metadata = Struct { fields: [("version".to_owned(), version)].into_iter().collect() };
        let request = DeltaDiscoveryRequest {
            node: Some(Node { id: "default.web".to_owned(), metadata: Some(metadata), ..Node::default() }),
            type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        assert!(request.encoded_len() > length);
        let channel = dial(&format!("grpcs://{}", zone.dp_server), &zone.certificate()).await;
        let mut request = Request::new(ReceiverStream::new({
            let (sender, queue) = tokio::sync::mpsc::channel(1);
            sender.send(request).await.unwrap();
            // The stream stays open for as long as the zone lets it.
            tokio::spawn(async move { sender.closed().await });
            queue
        }));
        request.metadata_mut().insert("authorization", token.trim().parse().unwrap());
        let mut client = AggregatedDiscoveryServiceClient::new(channel).max_encoding_message_size(16 * MIB);
        // Whether so much is let in at all is for the zone to say.
        if let Ok(responses) = client.delta_aggregated_resources(request).await {
            let _first_or_refusal = responses.into_inner().message().await;
        }
        let name = format!("after-{length}");
        zone.apply(&dataplane(&name));
        eventually("what came after it on global", || async {
            let list = global.try_get("/meshes/default/dataplanes").await?;
            let arrived = |item: &Value| item["labels"]["kuma.io/display-name"] == *name;
            if list["items"].as_array().into_iter().flatten().any(arrived) {
                Ok(())
            } else {
                Err(list.to_string())
            }
        })
        .await;
    }
    let (global, shown) = (&global, "dataplaneInsight");
    let overview = eventually("the insight on global", || async move {
        let all = global.try_get("/meshes/default/dataplanes/_overview").await?;
        let seen = all["items"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|item| item[shown]["subscriptions"][0].is_object());
        if seen { Ok(all.to_string()) } else { Err(all.to_string()) }
    })
    .await;
    assert!(overview.len() < 256 * 1024, "{} bytes", overview.len());
    assert_eq!(global.zone_status("zone-1").await.unwrap(), "online");
}

#[tokio::test]
async fn what_a_zone_says_about_itself_never_outgrows_its_insight() {
    let (global, zones) = federation(1).await;
    let before = global.process.resident();
    let peer = KdsPeer::connect(&global, "boaster").await;
    for _ in 0..3 {
        let long = || "9".repeat(2 * MIB);
        let version = KumaCpVersion { version: long(), git_tag: long(), ..KumaCpVersion::default() };
        let boast = Peer { version, instance: long(), config: long(), ..Peer::default() };
        let mut down = peer.down(peer.first("Mesh", boast)).await.unwrap();
        let first = down.next().await.unwrap();
        down.accept("boaster", &first).await;
        let insight = eventually("the insight of the zone", || async {
            let insight = global.try_get("/zones/boaster/_overview").await?;
            let version = &insight["zoneInsight"]["subscriptions"][0]["version"]["kumaCp"]["version"];
            if version.is_string() { Ok(insight.to_string()) } else { Err(insight.to_string()) }
        })
        .await;
        assert!(insight.len() < 64 * 1024, "{} bytes", insight.len());
    }
    let cost = global.process.resident().saturating_sub(before);
    assert!(cost < 256 * MIB as u64, "{cost} bytes more than before");
    global.apply(ALLOW_ALL);
    permissions(&zones[0], 1).await;
}
