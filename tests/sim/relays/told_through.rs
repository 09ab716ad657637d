//! What a relay tells its zones of their global and global of its zones, beside what these share.

use common::{kds::proxies::ProxyProgress, rest::ProxyProgressSource};
use global::recovery::Recovery;
use tokio::sync::watch;

use super::*;

#[tokio::test]
async fn zones_below_a_relay_go_on_with_global_in_another_history_and_write_nothing() {
    let global = global().await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let (plane, link) = zone(1, "zone-1", &[&relay]).await;
    global.plane.put(global.policy("t")).await;
    plane.until("the policy", |index| index.count(&mesh_timeout::KIND) == 1).await;
    let before = synced(&plane);
    let (kds, store) = (Arc::new(global.kds.clone()), Arc::clone(&global.plane.store) as Arc<dyn Store>);
    let recovery =
        Recovery::new(kds, store, global.plane.index.clone(), global.plane.env.clone(), Vec::new());
    let next = recovery.raise_epoch().await.unwrap();
    eventually("the next epoch in the zone", || {
        let status = link.status();
        assert_eq!(status.held_back, None);
        let epoch = status.upstream.map(|upstream| upstream.epoch);
        (status.connected && epoch == Some(next.epoch)).then_some(())
    })
    .await;
    assert_eq!(synced(&plane), before, "a history that goes on is no reason to write");
    let written = global.plane.put(global.policy("u")).await;
    plane.until("a policy after it", |index| index.count(&mesh_timeout::KIND) == 2).await;
    eventually("an answer for it", || (global.status("zone-1").down.acked >= written).then_some(())).await;
}

/// Three proxies that have everything.
struct ThreeProxies(watch::Sender<()>);

impl ProxyProgressSource for ThreeProxies {
    fn proxy_progress(&self) -> ProxyProgress {
        ProxyProgress { acked: u64::MAX, connected: 3, ..ProxyProgress::default() }
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}

#[tokio::test]
async fn global_is_told_over_a_relay_how_far_proxies_are() {
    let global = global().await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let mut plane = Plane::start(store(100), "zone-1", 1).await;
    let connector =
        plane.connector(settings("zone-1"), Arc::clone(&relay.dial) as Arc<dyn Dial>, Arc::new(NoEnvoys));
    let connector = connector.with_proxies(Arc::new(ThreeProxies(watch::Sender::new(()))));
    let stop = plane.stop.clone();
    plane.tasks.spawn(async move { connector.run(None, stop).await });
    let written = global.plane.put(global.policy("t")).await;
    let proxies = eventually("proxies that have the policy", || {
        global.status("zone-1").proxies.filter(|proxies| proxies.acked >= written)
    })
    .await;
    assert_eq!((proxies.connected, proxies.behind), (3, 0));
    assert_eq!(global.status("zone-1").relay.as_deref(), Some("relay-1"));
}

#[tokio::test]
async fn where_secrets_go_only_to_zones_that_run_their_mesh_a_relay_gets_nothing() {
    let global =
        global_with(GlobalKdsSettings { secrets_where_run: true, ..GlobalKdsSettings::default() }).await;
    let relay = relay(1, &global.dial, &store(2)).await;
    // It comes by itself once no relay has anything for it.
    let (plane, link) = zone(1, "zone-1", &[&relay, &global]).await;
    plane.until("the mesh", |index| index.count(&kinds::mesh::KIND) == 1).await;
    eventually("zone-1 online", || (global.status("zone-1").status == ZoneHealth::Online).then_some(()))
        .await;
    assert!(link.status().connected);
    assert_eq!(global.status("zone-1").relay, None);
    assert_eq!(relay.plane.index.current().count(&kinds::mesh::KIND), 0);
}
