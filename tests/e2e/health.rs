//! Workloads that are probed by their own sidecars.

use std::{collections::BTreeSet, net::SocketAddr};

use crate::{
    harness::{Echo, Envoy, Zone, addresses, envoy::admin_address, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// A dataplane with a probe, and where its workload is to be.
async fn probed(zone: &Zone, name: &str) -> (Envoy, SocketAddr) {
    let (address, app) = (addresses::loopback(), addresses::loopback());
    let (port, app) = (addresses::free_port(address), SocketAddr::from((app, addresses::free_port(app))));
    let admin = admin_address();
    zone.apply(&format!(
        "
type: Dataplane
mesh: default
name: {name}
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound:
    - port: {port}
      servicePort: {}
      serviceAddress: {}
      serviceProbe: {{ interval: 0.2s, timeout: 1s, healthyThreshold: 1, unhealthyThreshold: 2, tcp: {{}} }}
      tags: {{ kuma.io/service: backend, kuma.io/protocol: http }}
",
        admin.port(),
        app.port(),
        app.ip(),
    ));
    (Envoy::sidecar(zone, "default", name, admin).await, app)
}

async fn is(zone: &Zone, name: &str, state: &str) {
    let path = format!("/meshes/default/dataplanes/{name}");
    eventually(&format!("{name} is {state}"), || async {
        let dataplane = zone.try_get(&path).await?;
        let found = dataplane["networking"]["inbound"][0]["state"].as_str().unwrap_or("Ready").to_owned();
        if found == state { Ok(()) } else { Err(found) }
    })
    .await;
}

/// Who answers a client in a row of calls.
async fn answers(client: &Member) -> Result<BTreeSet<String>, String> {
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let (status, said) = client.call(0, "/").await?;
        if !status.is_success() {
            return Err(format!("{status}: {said}"));
        }
        seen.insert(said["service"].as_str().unwrap_or_default().to_owned());
    }
    Ok(seen)
}

async fn answered_by(client: &Member, names: &[&str]) {
    let expected: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("answers of {names:?}"), || async {
        let seen = answers(client).await?;
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_probe_takes_a_sick_instance_out_and_back_in() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let (_first, first_app) = probed(zone, "backend-1").await;
    let (_second, second_app) = probed(zone, "backend-2").await;
    let client = Member::join(zone, Shape::http("client-1", "client", &["backend"])).await;
    is(zone, "backend-1", "NotReady").await;

    let first = Echo::http("backend-1", first_app).await;
    let _second_echo = Echo::http("backend-2", second_app).await;
    is(zone, "backend-1", "Ready").await;
    is(zone, "backend-2", "Ready").await;
    answered_by(&client, &["backend-1", "backend-2"]).await;

    drop(first);
    is(zone, "backend-1", "NotReady").await;
    answered_by(&client, &["backend-2"]).await;

    let _first = Echo::http("backend-1", first_app).await;
    is(zone, "backend-1", "Ready").await;
    answered_by(&client, &["backend-1", "backend-2"]).await;
}
