//! Single stories in the simulated network.

use std::time::Duration;

use chrono::DateTime;
use common::{
    model::{Resource, ResourceKey, kinds},
    policy::mesh_timeout,
    rest::ZoneHealth,
};

use crate::{
    federation::{Federation, ZONES},
    network::GLOBAL,
    oracle::resources,
    plane::Plane,
};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: &str = r#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}"#;

fn policies(federation: &mut Federation, count: usize) {
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    for n in 0..count {
        federation.put(GLOBAL, &mesh_timeout::KIND, "default", &format!("p{n}"), TIMEOUT.into());
    }
}

/// Thirty policies of global and a service of zone 1, known wherever they belong.
fn in_sync(seed: u64) -> Federation {
    let mut federation = Federation::new(seed);
    policies(&mut federation, 30);
    federation.put(
        "zone-1",
        &kinds::mesh_service::KIND,
        "default",
        "s",
        br#"{"ports":[{"port":80}]}"#.to_vec(),
    );
    federation.converge(10 * SECOND);
    federation
}

fn held(federation: &Federation, zone: &str) -> usize {
    resources(&federation.store(zone)).iter().filter(|r| r.kind() == &mesh_timeout::KIND).count()
}

/// With the settings of a fresh installation.
fn patient(seed: u64) -> Federation {
    let mut federation = Federation::with_settings(seed, Plane::settings());
    policies(&mut federation, 1);
    federation.converge(10 * SECOND);
    for zone in ZONES {
        federation.until_health(zone, ZoneHealth::Online, SECOND);
    }
    federation
}

#[test]
fn a_zone_that_stops_is_offline_at_once() {
    let mut federation = patient(1);
    federation.terminate("zone-1");
    let took = federation.until_health("zone-1", ZoneHealth::Offline, 2 * SECOND);
    assert!(took < 2 * SECOND);
    assert_eq!(federation.health("zone-2").0, ZoneHealth::Online);
}

#[test]
fn a_zone_that_is_killed_is_offline_within_thirty_seconds() {
    let mut federation = patient(2);
    federation.crash("zone-1", false);
    federation.until_health("zone-1", ZoneHealth::Offline, 30 * SECOND);
    federation.bounce("zone-1");
    federation.until_health("zone-1", ZoneHealth::Online, 30 * SECOND);
}

#[test]
fn a_zone_that_falls_silent_is_first_unknown_then_offline() {
    let mut federation = patient(3);
    federation.sim.partition(GLOBAL, "zone-1");
    federation.until_health("zone-1", ZoneHealth::Unknown, 11 * SECOND);
    federation.until_health("zone-1", ZoneHealth::Offline, 20 * SECOND);
    assert_eq!(federation.health("zone-2").0, ZoneHealth::Online);
    federation.sim.repair(GLOBAL, "zone-1");
    federation.until_health("zone-1", ZoneHealth::Online, 45 * SECOND);
    federation.converge(10 * SECOND);
}

#[test]
fn a_zone_that_answers_is_never_called_anything_but_online() {
    let mut federation = patient(4);
    let since = federation.health("zone-1").1;
    for n in 0..60 {
        let name = format!("p{}", n % 3);
        federation.put(
            GLOBAL,
            &mesh_timeout::KIND,
            "default",
            &name,
            TIMEOUT.replace("20s", &format!("{n}0s")).into(),
        );
        federation.run_for(SECOND);
    }
    assert_eq!(federation.health("zone-1"), (ZoneHealth::Online, since));
}

/// The database of a running process fails over to a standby that was behind, and is past its old end before the process
/// reads on. Peers that are connected think that it has all they sent.
#[test]
fn what_a_store_lost_under_its_process_comes_again_from_whom_it_was() {
    for (seed, host, other) in [(61, "zone-1", GLOBAL), (62, GLOBAL, "zone-1")] {
        let mut federation = in_sync(seed);
        let put = |federation: &mut Federation, owner, name: &str| match owner {
            GLOBAL => federation.put(GLOBAL, &mesh_timeout::KIND, "default", name, TIMEOUT.into()),
            zone => {
                let spec = br#"{"ports":[{"port":80}]}"#.to_vec();
                federation.put(zone, &kinds::mesh_service::KIND, "default", name, spec);
            }
        };
        let behind = federation.store(host).copy();
        put(&mut federation, other, "lost");
        federation.converge(10 * SECOND);
        federation.store(host).go_back_to(&behind);
        for n in 0..20 {
            put(&mut federation, host, &format!("instead-{n}"));
        }
        assert!(!federation.differences().is_empty());
        federation.converge(60 * SECOND);
    }
}

#[test]
fn coming_back_writes_nothing() {
    let mut federation = in_sync(5);
    let synced = |federation: &Federation, host| {
        let all = resources(&federation.store(host));
        let mut all: Vec<_> = all
            .iter()
            .filter(|r| r.kind().name != "ZoneInsight")
            .map(|r| (r.key.clone(), r.revision))
            .collect();
        all.sort();
        all
    };
    let before = [GLOBAL, "zone-1", "zone-2"].map(|host| synced(&federation, host));
    let dials = federation.dials();
    federation.crash(GLOBAL, false);
    federation.run_for(5 * SECOND);
    federation.bounce(GLOBAL);
    federation.run_for(10 * SECOND);
    federation.crash("zone-1", false);
    federation.bounce("zone-1");
    federation.converge(10 * SECOND);
    assert!(federation.dials() >= dials + 3, "nobody reconnected");
    let after = [GLOBAL, "zone-1", "zone-2"].map(|host| synced(&federation, host));
    assert_eq!(before, after);
}

#[test]
fn a_zone_serves_on_without_its_global() {
    let mut federation = Federation::new(6);
    policies(&mut federation, 5);
    federation.converge(10 * SECOND);
    federation.crash(GLOBAL, false);
    federation.run_for(5 * SECOND);
    federation.crash("zone-1", false);
    federation.bounce("zone-1");
    federation.put(
        "zone-1",
        &kinds::mesh_service::KIND,
        "default",
        "s",
        br#"{"ports":[{"port":80}]}"#.to_vec(),
    );
    federation.run_for(30 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 5);
    assert!(!federation.link("zone-1").status().connected);
    federation.bounce(GLOBAL);
    federation.converge(10 * SECOND);
}

#[test]
fn a_global_that_forgot_everything_is_not_obeyed_until_an_operator_says_so() {
    let mut federation = in_sync(7);
    federation.crash(GLOBAL, true);
    federation.bounce(GLOBAL);
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    federation.run_for(20 * SECOND);
    for zone in ZONES {
        assert_eq!(held(&federation, zone), 30, "{zone} obeyed");
        let status = federation.link(zone).status();
        assert!(status.held_back.is_some_and(|why| why.contains("store")), "{zone} does not say why");
    }
    for zone in ZONES {
        federation.link(zone).approve();
    }
    federation.converge(20 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 0);
    // What the zone owns is back on the new global.
    assert!(federation.differences().is_empty());
}

/// A zone that followed another global before, as one of Kuma's: it holds what was global's, and has no
/// history to compare.
#[test]
fn what_was_held_back_stays_held_back_across_reconnects() {
    let mut federation = Federation::new(10);
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    federation.crash("zone-1", false);
    for n in 0..30 {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", &format!("p{n}"));
        federation.plant("zone-1", Resource::new(key, DateTime::UNIX_EPOCH).with_spec(TIMEOUT));
    }
    federation.bounce("zone-1");
    for _ in 0..3 {
        federation.run_for(10 * SECOND);
        assert_eq!(held(&federation, "zone-1"), 30, "zone-1 obeyed");
        let status = federation.link("zone-1").status();
        assert!(status.held_back.is_some_and(|why| why.contains("MeshTimeout")), "zone-1 does not say why");
        federation.crash("zone-1", false);
        federation.bounce("zone-1");
    }
    // What comes after it is taken.
    federation.run_for(10 * SECOND);
    federation.put(GLOBAL, &mesh_timeout::KIND, "default", "new", TIMEOUT.into());
    federation.run_for(10 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 31);
    federation.crash("zone-1", false);
    federation.bounce("zone-1");
    federation.run_for(10 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 31);
    federation.link("zone-1").approve();
    federation.converge(20 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 1);
}

#[test]
fn many_named_deletes_are_obeyed() {
    let mut federation = Federation::new(8);
    policies(&mut federation, 60);
    federation.converge(10 * SECOND);
    federation.crash("zone-1", false);
    for n in 0..50 {
        federation.delete(GLOBAL, &mesh_timeout::KIND, "default", &format!("p{n}"));
    }
    federation.bounce("zone-1");
    federation.converge(10 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 10);
}

#[test]
fn a_large_state_arrives_in_parts() {
    let mut federation = Federation::new(9);
    policies(&mut federation, 0);
    for n in 0..1500 {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", &format!("p{n}"));
        let filler = "x".repeat(1000);
        let policy = Resource::new(key, DateTime::UNIX_EPOCH)
            .with_spec(TIMEOUT.as_bytes().to_vec())
            .with_label("filler", &filler);
        federation.put_resource(GLOBAL, policy);
    }
    federation.converge(30 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 1500);
    // And a zone that starts over takes it the same way.
    federation.crash("zone-1", true);
    federation.bounce("zone-1");
    federation.converge(30 * SECOND);
    assert_eq!(held(&federation, "zone-1"), 1500);
}
