//! Over real sockets, because a simulated network cannot tell whether the real one works.

use std::{sync::Arc, time::Duration};

use common::{
    kds::features,
    model::{Origin, kinds, labels},
    policy::mesh_timeout,
    rest::{ZoneHealth, ZoneStatusSource},
    runtime::http::Limits,
    tls::{KeyPairPem, Trust},
};
use global::kds::Kds;
use tokio::net::TcpListener;
use zone::kds::{Dial, Trusted, ZoneKdsSettings};

use crate::plane::{Plane, store};

pub const TIMEOUT: &[u8] = br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}"#;

pub async fn serve(plane: &mut Plane, kds: &Kds) -> Arc<dyn Dial> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (kds, stop) = (kds.clone(), plane.stop.clone());
    plane.tasks.spawn(async move { kds.serve(listener, None, Limits::default(), stop).await.unwrap() });
    Arc::new(Trusted::new(&format!("grpc://127.0.0.1:{port}"), &Trust::System).unwrap())
}

#[tokio::test]
async fn a_policy_goes_down_and_a_service_goes_up_and_across() {
    let mut global = Plane::start(store(1), "global", 1).await;
    let kds = global.kds();
    let dial = serve(&mut global, &kds).await;
    global.put(global.resource(&kinds::mesh::KIND, "", "default", Origin::Global)).await;
    let policy = global.resource(&mesh_timeout::KIND, "default", "default-timeout-global", Origin::Global);
    global.put(policy.with_spec(TIMEOUT)).await;

    let mut zones = Vec::new();
    for (number, name) in [(2, "zone-1"), (3, "zone-2")] {
        let mut zone = Plane::start(store(number), name, number as u64).await;
        // One of them compresses what it sends and asks for the same, the other does neither.
        let settings = ZoneKdsSettings { gzip: name == "zone-1", ..ZoneKdsSettings::new(name) };
        let link = zone.follow(settings, Arc::clone(&dial));
        zones.push((zone, link));
    }
    for (zone, _) in &zones {
        zone.until("the policy", |index| {
            index
                .find(&mesh_timeout::KIND, "default", "default-timeout-global-54dbd4c66zwbcf9c")
                .is_some_and(|r| r.label(labels::ORIGIN) == Some("global") && r.spec == TIMEOUT)
        })
        .await;
    }

    let (first, second) = (&zones[0].0, &zones[1].0);
    let own = first.resource(&kinds::mesh_service::KIND, "default", "redis", Origin::Zone("zone-1".into()));
    first.put(own).await;
    let services = |index: &common::store::index::Index| {
        let all = index.list(&kinds::mesh_service::KIND);
        all.map(|r| (r.display_name().to_owned(), r.label(labels::ZONE).map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    let forwarded = [("redis".to_owned(), Some("zone-1".to_owned()))];
    global.until("the service", |index| services(index) == forwarded).await;
    second.until("the service", |index| services(index) == forwarded).await;

    // Deleting it travels the same way.
    first.delete(first.index.current().list(&kinds::mesh_service::KIND).next().unwrap().key.clone()).await;
    second.until("no service", |index| services(index).is_empty()).await;

    let status = kds.zone_status("zone-1", &global.index.current()).unwrap();
    assert_eq!(status.status, ZoneHealth::Online);
    assert_eq!(zones[0].1.status().refusals.len(), 0);
    global.until("the insights", |index| index.count(&kinds::zone_insight::KIND) == 2).await;

    // A zone that stops says goodbye.
    zones[0].0.stop.cancel();
    let mut index = global.index.clone();
    while kds.zone_status("zone-1", &index.latest()).unwrap().status != ZoneHealth::Offline {
        tokio::time::timeout(Duration::from_secs(2), index.changed()).await.unwrap();
    }
}

#[tokio::test]
async fn the_same_over_tls() {
    let pair = KeyPairPem::self_signed(&["localhost".to_owned()]).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(pair.server_config(&["h2"]).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut global = Plane::start(store(1), "global", 1).await;
    let (kds, stop) = (global.kds(), global.stop.clone());
    let serving = kds.serve(listener, Some(acceptor), Limits::default(), stop);
    global.tasks.spawn(async move { serving.await.unwrap() });
    global.put(global.resource(&kinds::mesh::KIND, "", "default", Origin::Global)).await;
    let address = format!("grpcs://localhost:{port}");
    let trusting: Arc<dyn Dial> = Arc::new(Trusted::new(&address, &Trust::Roots(pair.certificate)).unwrap());
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    zone.follow(ZoneKdsSettings::new("zone-1"), trusting);
    zone.until("the mesh", |index| index.count(&kinds::mesh::KIND) == 1).await;

    let mut distrusting = Plane::start(store(3), "zone-2", 3).await;
    let link = distrusting
        .follow(ZoneKdsSettings::new("zone-2"), Arc::new(Trusted::new(&address, &Trust::System).unwrap()));
    while link.status().last_error.is_none() {
        tokio::task::yield_now().await;
    }
    let error = link.status().last_error.unwrap();
    assert!(error.contains("certificate"), "{error}");
    assert!(features::Features::ours().has(features::RESUME));
}
