//! Several of each on one Postgres: two instances of global behind a balancer, two replicas of a zone, real Envoys.

use std::{sync::Arc, time::Duration};

use common::{kds::metadata::Peer, testing::postgres::Cluster};
use reqwest::Method;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    faults::writers::{Book, Writers},
    harness::{Balancer, Global, KdsPeer, Zone, eventually, wait::within},
    mesh::{ALLOW_ALL, MESH, Member, Shape},
    postgres::through,
};

/// Another replica does what the one that was killed did, and everybody can see it.
const TAKEOVER: Duration = Duration::from_secs(15);

struct Replicated {
    cluster: Cluster,
    _balancer: Balancer,
    globals: [Global; 2],
    zones: [Zone; 2],
}

impl Replicated {
    async fn new() -> Self {
        let cluster = Cluster::start().await.unwrap();
        let port = cluster.connection("global").port;
        Self::through(cluster, port).await
    }

    /// On a database that is reached at this port.
    async fn through(cluster: Cluster, port: u16) -> Self {
        let options = through(&cluster, "global", port);
        let first = Global::start_with(options.clone()).await;
        let pair = [("tlsCertFile", "strait.crt"), ("tlsKeyFile", "strait.key")];
        let options = pair.into_iter().fold(options, |options, (setting, file)| {
            let file = first.folder.path().join(file).display().to_string();
            options.with(&format!("multizone.global.kds.{setting}"), &file)
        });
        let globals = [first, Global::start_with(options).await];
        let balancer = Balancer::before(&[globals[0].kds, globals[1].kds]).await;
        let address = format!("grpcs://localhost:{}", balancer.port());
        let options = through(&cluster, "zone", port).with("multizone.zone.globalAddress", &address);
        let leader = Zone::start_with(&globals[0], "zone-1", options.clone()).await;
        stands(&leader, "connected").await;
        let standby = Zone::start_with(&globals[0], "zone-1", options).await;
        stands(&standby, "standby").await;
        globals[0].apply(MESH);
        Self { cluster, _balancer: balancer, globals, zones: [leader, standby] }
    }

    /// What every instance of global says about the zone.
    async fn statuses(&self) -> Vec<Result<String, String>> {
        let mut all = Vec::new();
        for global in &self.globals {
            all.push(global.zone_status("zone-1").await);
        }
        all
    }

    async fn online_everywhere(&self) {
        eventually("online at both instances", || async {
            let all = self.statuses().await;
            if all.iter().all(|one| one.as_deref() == Ok("online")) {
                Ok(())
            } else {
                Err(format!("{all:?}"))
            }
        })
        .await;
    }
}

/// Waits until a replica stands so with global: `connected` or `standby`.
async fn stands(replica: &Zone, how: &str) {
    eventually(&format!("a replica that is {how}"), || async move {
        let link = replica.try_get("/strait/link").await?;
        if link[how] == true { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
}

/// The permission for everybody is at this replica, or is not.
async fn permits(replica: &Zone, is_there: bool) {
    within(TAKEOVER, "the permission at a replica", || async move {
        let list = replica.try_get("/meshes/default/meshtrafficpermissions").await?.to_string();
        if list.contains("allow-all") == is_there { Ok(()) } else { Err(list) }
    })
    .await;
}

#[tokio::test]
async fn any_replica_serves_anybody_and_finds_whom_it_is_asked_about() {
    let world = Replicated::new().await;
    let [near, far] = &world.globals;
    // The zone is with one instance of global; what is applied at the other one reaches Envoys at both replicas.
    far.apply(ALLOW_ALL);
    let _backend = Member::join(&world.zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&world.zones[1], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    world.online_everywhere().await;

    // Each instance, and each replica, shows the stats of each Envoy, wherever the Envoy and its zone are connected.
    for proxy in ["backend-1", "client-1"] {
        for global in [near, far] {
            let found = eventually("the dataplane on global", || async move {
                let list = global.try_get("/meshes/default/dataplanes").await?;
                let mut items = list["items"].as_array().into_iter().flatten();
                let found = items.find(|item| item["labels"]["kuma.io/display-name"] == proxy);
                found.and_then(|item| Some(item["name"].as_str()?.to_owned())).ok_or(list.to_string())
            })
            .await;
            asked(&global.cp, &format!("/meshes/default/dataplanes/{found}/stats?usedonly=false")).await;
        }
        for zone in &world.zones {
            asked(&zone.cp, &format!("/meshes/default/dataplanes/{proxy}/stats?usedonly=false")).await;
        }
    }
}

/// The replica that has the stream of a zone offers again what it refused, whichever is asked.
#[tokio::test]
async fn a_refusal_is_offered_again_through_any_replica() {
    let world = Replicated::new().await;
    let [near, far] = &world.globals;
    near.apply("type: MeshTimeout\nmesh: default\nname: mine\nspec: {to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 7s}}]}");
    let peer = KdsPeer::connect(near, "picky").await;
    let mut down = peer.down(peer.first("MeshTimeout", Peer::default())).await.unwrap();
    let (accepts, mut decides) = watch::channel(false);
    let answering = async move {
        while let Ok(response) = down.next().await {
            let mine = response.resources.iter().find(|item| item.name.contains("mine"));
            match mine.filter(|_| !*decides.borrow_and_update()) {
                Some(mine) => down.refuse("picky", &response, &mine.name, "no room").await,
                None => down.accept("picky", &response).await,
            }
        }
    };
    let asking = async {
        eventually("the other replica knows of the refusal", || async {
            let refused = far.try_get("/zones/picky/_overview").await?["strait"]["refused"].clone();
            if refused.to_string().contains("no room") { Ok(()) } else { Err(refused.to_string()) }
        })
        .await;
        eventually("it is offered again, in vain", || async {
            let (status, answer) =
                far.call(Method::POST, "/strait/zones/picky/offer?kind=MeshTimeout", None).await;
            if status.as_u16() == 202 { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
        accepts.send_replace(true);
        eventually("it is offered again and taken", || async {
            let _or_taken_already = far.call(Method::POST, "/strait/zones/picky/offer", None).await;
            let refused = near.try_get("/zones/picky/_overview").await?["strait"]["refused"].clone();
            if refused.is_null() { Ok(()) } else { Err(refused.to_string()) }
        })
        .await;
    };
    tokio::select! {
        () = asking => {}
        () = answering => panic!("the way down of the zone ended"),
    }
}

/// Stats of an Envoy, through whoever has it.
async fn asked(cp: &crate::harness::ControlPlane, path: &str) {
    eventually("the stats of an Envoy", || async move {
        let (status, stats) = cp.call(Method::GET, path, None).await;
        let stats = stats.as_str().map_or_else(|| stats.to_string(), str::to_owned);
        if status.is_success() && stats.contains("server.live") {
            Ok(())
        } else {
            Err(format!("{status}: {stats}"))
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_leader_of_a_zone_does_is_taken_over() {
    let mut world = Replicated::new().await;
    world.globals[0].apply("{type: Mesh, name: default, meshServices: {mode: Everywhere}}");
    let dataplane = |name: &str, port: u16| {
        json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": { "address": "127.0.0.1",
            "inbound": [{ "port": port, "tags": { "kuma.io/service": name } }] } })
    };
    let standby = &world.zones[1];
    let put = async |name: &str, port| {
        let path = format!("/meshes/default/dataplanes/{name}");
        let (status, body) = standby.call(Method::PUT, &path, Some(dataplane(name, port))).await;
        assert!(status.is_success(), "{status}: {body}");
    };
    put("before", 1).await;
    let service = async |zone: &Zone, name: &str, within_time: Duration| {
        within(within_time, "a service", || async {
            zone.try_get(&format!("/meshes/default/meshservices/{name}")).await.map(drop)
        })
        .await;
    };
    service(standby, "before", TAKEOVER).await;

    world.zones[0].process.kill();
    // Everything that only a leader does: services of what comes, what goes up, what comes down.
    let standby = &world.zones[1];
    let put = async |name: &str, port| {
        let path = format!("/meshes/default/dataplanes/{name}");
        let (status, body) = standby.call(Method::PUT, &path, Some(dataplane(name, port))).await;
        assert!(status.is_success(), "{status}: {body}");
    };
    put("after", 2).await;
    world.globals[1].apply(ALLOW_ALL);
    tokio::join!(
        service(standby, "after", TAKEOVER),
        permits(standby, true),
        within(TAKEOVER, "the dataplane on global", || async {
            let list = world.globals[1].try_get("/meshes/default/dataplanes").await?.to_string();
            if list.contains("\"after\"") { Ok(()) } else { Err(list) }
        }),
    );
    world.online_everywhere().await;
}

/// Looks at what an instance says about the zone until it is told to stop, and gives everything else than `online`.
async fn watch(global: &Global, stop: &CancellationToken) -> Vec<String> {
    let mut seen = Vec::new();
    while !stop.is_cancelled() {
        match global.zone_status("zone-1").await {
            Ok(status) if status == "online" => {}
            Ok(status) => seen.push(status),
            // One that is away says nothing wrong.
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}

#[tokio::test]
async fn a_rolling_restart_loses_no_write_and_shows_no_zone_as_gone() {
    let mut world = Replicated::new().await;
    world.globals[0].apply(ALLOW_ALL);
    let _backend = Member::join(&world.zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&world.zones[1], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    world.online_everywhere().await;
    let load = crate::resilience::Load::on(format!("http://{}/", client.outbounds[0]));
    let book = Arc::new(Book::default());
    let writers = Writers::on(&world.globals[1], &book, 0);
    writers.more(20).await;

    // Global, while somebody watches and writes at the other instance.
    let stop = CancellationToken::new();
    let [first, second] = &mut world.globals;
    let restarted = async {
        assert!(first.process.stop().await.success());
        writers.more(20).await;
        first.start_again().await;
        writers.more(20).await;
        let first = &*first;
        eventually("the zone at the instance that is back", || async {
            let status = first.zone_status("zone-1").await?;
            if status == "online" { Ok(()) } else { Err(status) }
        })
        .await;
        stop.cancel();
    };
    let (seen, ()) = tokio::join!(watch(second, &stop), restarted);
    assert_eq!(seen, Vec::<String>::new(), "the zone moved to another instance");

    // The zone, its leader first.
    let stop = CancellationToken::new();
    let [leader, standby] = &mut world.zones;
    let restarted = async {
        assert!(leader.process.stop().await.success());
        stands(standby, "connected").await;
        leader.start_again().await;
        stands(leader, "standby").await;
        writers.more(20).await;
        stop.cancel();
    };
    let (seen, ()) = tokio::join!(watch(&world.globals[1], &stop), restarted);
    assert_eq!(seen, Vec::<String>::new(), "a replica of the zone took over from another");
    writers.end().await;
    world.globals[0].ready().await;
    catches_up(&world.globals[0], &world.globals[1]).await;
    book.check(&world.globals[0]).await;
    assert_eq!(book.refused(), 0, "nobody who wrote at the other instance noticed");
    load.more(20).await;
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

/// Waits until `instance` has read what was acknowledged at `other`.
async fn catches_up(instance: &Global, other: &Global) {
    let head = other.get("/sync").await["revision"].as_u64().unwrap();
    eventually("the instance that was not written to has caught up", || async {
        let sync = instance.try_get("/sync").await?;
        if sync["revision"].as_u64() >= Some(head) { Ok(()) } else { Err(sync["revision"].to_string()) }
    })
    .await;
}

/// Lets `disturb` do what it wants with the database while somebody calls, writes and watches: nothing that was
/// acknowledged is lost, and nobody says that the zone is gone.
async fn withstands(world: &Replicated, disturb: impl AsyncFnOnce(&Writers)) {
    world.globals[0].apply(ALLOW_ALL);
    let _backend = Member::join(&world.zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&world.zones[1], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    world.online_everywhere().await;
    let load = crate::resilience::Load::on(format!("http://{}/", client.outbounds[0]));
    let book = Arc::new(Book::default());
    let writers = Writers::on(&world.globals[1], &book, 0);
    writers.more(40).await;
    let stop = CancellationToken::new();
    let disturbed = async {
        disturb(&writers).await;
        stop.cancel();
    };
    let [first, second] = &world.globals;
    let (one, other, ()) = tokio::join!(watch(first, &stop), watch(second, &stop), disturbed);
    assert_eq!((one, other), (vec![], vec![]), "the zone was there all the time");
    writers.end().await;
    catches_up(first, second).await;
    for global in &world.globals {
        book.check(global).await;
    }
    load.more(20).await;
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

#[tokio::test]
async fn a_database_that_dies_and_comes_back_loses_no_write_and_no_zone() {
    let world = Replicated::new().await;
    withstands(&world, async |writers| {
        for _ in 0..2 {
            world.cluster.crash().unwrap();
            writers.refused(4).await;
            eventually("the server runs again", || async {
                world.cluster.revive().map_err(|error| error.to_string())
            })
            .await;
            writers.more(40).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_that_ends_all_connections_again_and_again_loses_no_write_and_no_zone() {
    let world = Replicated::new().await;
    withstands(&world, async |writers| {
        for _ in 0..10 {
            world.cluster.end_connections().unwrap();
            writers.more(10).await;
        }
    })
    .await;
}

/// On several threads: the balancer has to go on while this one waits for a command.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_standby_takes_over_loses_no_write_and_no_zone() {
    let primary = Cluster::start().await.unwrap();
    // Before the copy is made, or there would be nobody yet to wait for.
    let ports = ["global", "zone"].map(|database| primary.connection(database).port);
    let standby = primary.standby().await.unwrap();
    let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let database = Balancer::before(&[at(ports[0]), at(standby.port())]).await;
    let world = Replicated::through(primary, database.port()).await;
    withstands(&world, async |writers| {
        world.cluster.crash().unwrap();
        writers.refused(4).await;
        standby.promote().unwrap();
        writers.more(40).await;
    })
    .await;
}
