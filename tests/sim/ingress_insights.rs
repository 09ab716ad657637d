//! Whether the ingress of a zone is there, as the other zones see it.

use std::sync::Arc;

use common::{
    model::{Origin, Resource, kinds, transcode},
    proto::kuma::mesh::v1alpha1::ZoneIngressInsight,
    store::index::Index,
};
use zone::kds::ZoneKdsSettings;

use crate::{
    plane::{Plane, store},
    scripted::Scripted,
    world::World,
};

const INGRESS: &str = r#"{"networking":{"address":"10.0.0.1","port":10001,"advertisedAddress":"192.168.0.1",
    "advertisedPort":10001}}"#;

/// What a zone has seen of its ingress: so many responses, and whether it is still there.
fn insight(plane: &Plane, responses: u64, is_gone: bool) -> Resource {
    let gone = if is_gone { r#""disconnectTime":"2026-01-01T01:00:00Z","# } else { "" };
    let spec = format!(
        r#"{{"metadata":{{"version":"secret"}},"subscriptions":[
            {{"id":"before","connectTime":"2025-01-01T00:00:00Z","disconnectTime":"2025-01-02T00:00:00Z"}},
            {{"id":"now","connectTime":"2026-01-01T00:00:00Z",{gone}"controlPlaneInstanceId":"i",
              "status":{{"total":{{"responsesSent":"{responses}"}}}}}}]}}"#
    );
    of_zone(plane, &kinds::zone_ingress_insight::KIND, &spec)
}

fn of_zone(plane: &Plane, kind: &'static common::model::Kind, spec: &str) -> Resource {
    let spec = transcode::from_json(kind, &serde_json::from_str(spec).unwrap()).unwrap();
    plane.resource(kind, "", "ingress", Origin::Zone("zone-1".into())).with_spec(spec)
}

/// What stands of the ingress in `index`: the name and revision of its insight, and the insight.
fn seen(index: &Index) -> Option<(String, u64, ZoneIngressInsight)> {
    let ingress = index.list(&kinds::zone_ingress::KIND).next()?;
    let insight = index.find(&kinds::zone_ingress_insight::KIND, "", ingress.name())?;
    Some((insight.name().to_owned(), insight.revision, insight.spec::<ZoneIngressInsight>().unwrap()))
}

#[tokio::test]
async fn other_zones_hear_when_an_ingress_comes_and_goes_and_nothing_in_between() {
    let world = World::new().await;
    let mut planes = Vec::new();
    for (number, name) in [(2, "zone-1"), (3, "zone-2")] {
        let mut plane = Plane::start(store(number), name, 2).await;
        let _link = plane.follow(ZoneKdsSettings::new(name), Arc::clone(&world.dial));
        planes.push(plane);
    }
    let [owner, other] = &planes[..] else { unreachable!() };
    owner.put(of_zone(owner, &kinds::zone_ingress::KIND, INGRESS)).await;
    owner.put(insight(owner, 1, false)).await;
    other.until("the insight beside its ingress", |index| seen(index).is_some()).await;
    let (name, revision, told) = seen(&other.index.current()).unwrap();
    assert!(name.starts_with("ingress-"), "{name}");
    let [subscription] = &told.subscriptions[..] else { panic!("{told:?}") };
    assert_eq!((subscription.id.as_str(), &subscription.disconnect_time), ("now", &None));
    assert!(subscription.status.is_none() && told.metadata.is_none(), "{told:?}");

    // What is only counted stays with global; the policy that comes after it shows that it would have come.
    owner.put(insight(owner, 2, false)).await;
    let counted = |index: &Index| {
        let insight = index.list(&kinds::zone_ingress_insight::KIND).next();
        let insight = insight.and_then(|insight| insight.spec::<ZoneIngressInsight>().ok());
        insight.and_then(|i| i.subscriptions.last()?.status?.total).map(|total| total.responses_sent)
    };
    world.global.until("the count on global", |index| counted(index) == Some(2)).await;
    world.global.put(world.policy("after")).await;
    other.until("the policy", |index| index.count(&common::policy::mesh_timeout::KIND) == 1).await;
    assert_eq!(seen(&other.index.current()).unwrap().1, revision, "nothing was written");

    owner.put(insight(owner, 3, true)).await;
    other
        .until("its end", |index| {
            seen(index).is_some_and(|(_, _, told)| told.subscriptions[0].disconnect_time.is_some())
        })
        .await;
    assert_eq!(owner.index.current().count(&kinds::zone_ingress_insight::KIND), 1, "its own");
}

#[tokio::test]
async fn a_zone_of_kuma_is_sent_no_such_insight() {
    let world = World::new().await;
    let mut plane = Plane::start(store(2), "zone-1", 2).await;
    let _link = plane.follow(ZoneKdsSettings::new("zone-1"), Arc::clone(&world.dial));
    plane.put(of_zone(&plane, &kinds::zone_ingress::KIND, INGRESS)).await;
    plane.put(insight(&plane, 1, false)).await;
    world.global.until("the insight", |index| index.count(&kinds::zone_ingress_insight::KIND) == 1).await;
    let zone = Scripted::like_kumas(&world.dial, "zone-2").await;
    // It asks for none; were it to ask for all there is, it would get none either.
    let mut bare = zone.first("ZoneIngressInsight");
    bare.node = Some(common::kds::metadata::bare_node("zone-2"));
    let mut down = zone.ask(vec![bare]).await.unwrap();
    let answer = down.next().await;
    assert_eq!((answer.type_url.as_str(), answer.resources.len()), ("ZoneIngressInsight", 0));
}

#[tokio::test]
async fn a_global_that_has_none_leaves_none_behind() {
    let mut global = crate::kumas_global::KumasGlobal::start(true).await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    // What it was told of another zone by a global it followed before.
    let told = of_zone(&zone, &kinds::zone_ingress_insight::KIND, "{}");
    zone.put(Resource { origin: Origin::Global, ..told }).await;
    let own = insight(&zone, 1, false);
    let own = Resource { key: common::model::ResourceKey::global(own.kind(), "own"), ..own };
    zone.put(own).await;
    let _link = zone.follow(ZoneKdsSettings::new("zone-1"), Arc::clone(&global.dial));
    let _streams = global.accept().await;
    zone.until("its own alone", |index| {
        let all: Vec<_> = index.list(&kinds::zone_ingress_insight::KIND).map(|r| r.name()).collect();
        all == ["own"]
    })
    .await;
}
