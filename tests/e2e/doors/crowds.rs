//! Those who have shown who they are, or need not, and take all the places there are.

use std::{net::IpAddr, sync::Arc, time::Duration};

use common::{
    kds::carrier::Carrier,
    proto::{
        envoy::service::discovery::v3::DiscoveryRequest,
        strait::relay::v1alpha1::{
            RelayFollowRequest, RelayReport, relay_service_client::RelayServiceClient,
        },
    },
};
use futures::{StreamExt, future::join_all, stream};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use super::ads_peer::{CDS, Stream, channel, join, node, token};
use crate::{
    harness::{
        Options, Zone, addresses,
        budget::{Before, Budget},
        eventually, http,
        kds_peer::dial,
        relay::Relay,
        wait::PATIENCE,
    },
    mesh::federation_with,
    recover::{LATE, has},
};

/// Streams of one proxy, as SECURITY.md says.
const PER_PROXY: usize = 128;
const BUDGET: Budget = Budget { memory: 256 << 20, log: 256 << 10 };

fn apply_two(zone: &Zone) {
    for name in ["greedy", "honest"] {
        zone.apply(&format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.1, inbound: [{{port: 80, \
             servicePort: 8080, serviceAddress: 127.0.0.1, tags: {{kuma.io/service: {name}}}}}]}}}}"
        ));
    }
}

#[tokio::test]
async fn a_proxy_has_so_many_streams_and_others_are_served() {
    let (_global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    apply_two(zone);
    let greedy = token(zone, &["--name", "greedy"]).await;
    let honest = token(zone, &["--name", "honest"]).await;
    let before = Before::of(&zone.process);
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..4 {
        let channel = channel(zone).await;
        let open = async || {
            let node = node("default.greedy", None);
            let mut stream = Stream::open(channel.clone(), node, Some(&greedy)).await?;
            stream.admitted().await.map(|()| stream)
        };
        // A few at a time: a connection has no more that have not shown who they are.
        let streams: Vec<_> = stream::iter(0..PER_PROXY / 2).map(|_| open()).buffered(4).collect().await;
        for stream in streams {
            match stream {
                Ok(stream) => held.push(stream),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                    assert!(status.message().contains("this proxy has as many streams"), "{status:?}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((held.len(), refused), (PER_PROXY, PER_PROXY));
    let serves =
        join(zone, node("default.honest", None), Some(&honest)).await.expect("it has places of its own");
    let metrics = zone.metrics().await;
    let counted = metrics
        .lines()
        .find(|l| l.starts_with("xds_streams_refused_total{") && l.contains(r#"reason="proxy""#));
    assert!(counted.is_some_and(|line| line.ends_with(&format!(" {PER_PROXY}"))), "{counted:?}");
    println!("{}", before.spent(BUDGET).expect("little"));
    // A place is free again when its stream ends.
    held.pop();
    eventually("there is room for one", || async {
        let again = join(zone, node("default.greedy", None), Some(&greedy)).await;
        again.map(drop).map_err(|status| status.to_string())
    })
    .await;
    drop(serves);
}

/// Streams of one stolen proxy that ask for everything, and answer nothing.
const IDLERS: usize = 96;
/// How often each says something that answers nothing: before others would go on without it.
const NOISE: Duration = Duration::from_millis(10);
/// What anybody else is told comes within this.
const SOON: Duration = Duration::from_secs(10);

/// Asks for clusters and does not answer; once it has some, it says again and again what is out of date.
async fn idle(mut stream: Stream, has_some: Arc<Notify>) {
    if stream.hear().await.is_err() {
        return;
    }
    has_some.notify_one();
    let stale =
        DiscoveryRequest { type_url: CDS.to_owned(), response_nonce: "99".to_owned(), ..Default::default() };
    let mut noise = interval(NOISE);
    loop {
        noise.tick().await;
        if stream.say(stale.clone()).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_proxy_that_answers_nothing_keeps_nobody_from_his_configuration() {
    let (_global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    apply_two(zone);
    let greedy = token(zone, &["--name", "greedy", "--tag", "kuma.io/service=greedy"]).await;
    let honest = token(zone, &["--name", "honest", "--tag", "kuma.io/service=honest"]).await;
    let before = Before::of(&zone.process);
    let greedy_node = || node("default.greedy", None);
    let mut connections = Vec::new();
    for _ in 0..2 {
        let channel = channel(zone).await;
        // From then on its connection may have many.
        let mut known = Stream::open(channel.clone(), greedy_node(), Some(&greedy)).await.unwrap();
        known.admitted().await.unwrap();
        connections.push((channel, known));
    }
    let (mut idlers, has_some) = (JoinSet::new(), Arc::new(Notify::new()));
    for n in 0..IDLERS {
        let (channel, _) = &connections[n % connections.len()];
        let stream = Stream::open(channel.clone(), greedy_node(), Some(&greedy)).await.unwrap();
        idlers.spawn(idle(stream, Arc::clone(&has_some)));
    }
    timeout(PATIENCE, has_some.notified()).await.expect("one of them has its turn");
    for _ in 0..3 {
        let served = timeout(SOON, join(zone, node("default.honest", None), Some(&honest))).await;
        served.expect("it is told soon").expect("it is let in");
    }
    idlers.abort_all();
    println!("{IDLERS} answered nothing: {}", before.spent(BUDGET).expect("little"));
}

/// Clients that wait for news of whom to collect metrics from, and from how many addresses.
const WAITING: usize = 600;
const SOURCES: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_waits_for_news_of_metrics_keeps_nobody_from_them() {
    let address = addresses::loopback();
    let port = addresses::free_port(address).to_string();
    let options = Options::default()
        .with("monitoringAssignmentServer.enabled", "true")
        .with("monitoringAssignmentServer.interface", &address.to_string())
        .with("monitoringAssignmentServer.port", &port);
    let (_global, zones) = federation_with(1, Options::default(), options).await;
    let url = format!("http://{address}:{port}/v3/discovery:monitoringassignments");
    let clients: Vec<_> = (0..SOURCES)
        .map(|_| {
            // A connection that nobody uses makes way first.
            let fresh = http::builder().pool_max_idle_per_host(0);
            fresh.local_address(IpAddr::V4(addresses::loopback())).build().unwrap()
        })
        .collect();
    let ask = async |client: usize, version: &str, wait: &str| {
        let asked = json!({"version_info": version, "node": {"id": "prometheus"}, "resource_names": [],
            "type_url": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment", "response_nonce": ""});
        let answer = clients[client].post(format!("{url}?fetch-timeout={wait}")).json(&asked).send().await?;
        Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
    };
    let (status, answer) = ask(0, "", "1s").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let version = answer["version_info"].as_str().unwrap();
    let before = Before::of(&zones[0].process);
    let crowd = join_all((0..WAITING).map(|n| ask(1 + n % (SOURCES - 1), version, "20s")));
    let honest = async {
        for _ in 0..20 {
            let begin = Instant::now();
            let (status, _) = ask(0, "another", "20s").await.expect("it is let in");
            assert_eq!(status, 200);
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        }
    };
    let (answers, ()) = tokio::join!(crowd, honest);
    // Those of one address that wait longest make way for others, as everywhere; nobody is told anything wrong.
    let answered: Vec<u16> = answers.into_iter().filter_map(|answer| Some(answer.ok()?.0)).collect();
    assert!(answered.iter().all(|status| matches!(status, 304 | 503)), "{answered:?}");
    println!("{WAITING} waited, {} till the end: {}", answered.len(), before.spent(BUDGET).expect("little"));
}

/// Streams that the bearer of a relay's token opens.
const FOLLOWERS: usize = 200;

#[tokio::test]
async fn the_token_of_a_relay_makes_global_follow_up_one_stream() {
    let (global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let token = global.straitctl(&["generate", "zone-token", "--zone", "relay-9", "--scope", "relay"]);
    let carrier = Carrier {
        relay: "relay-9".to_owned(),
        session: "s".to_owned(),
        token: Some(token.trim().to_owned()),
    };
    let relay = Relay::start(&global, "relay-1").await;
    let channel = dial(&global.kds_address(), &global.certificate()).await;
    let mut client = RelayServiceClient::new(channel);
    let (_reports, queue) = mpsc::channel::<RelayReport>(1);
    let mut request = Request::new(ReceiverStream::new(queue));
    carrier.write(request.metadata_mut());
    let _questions = client.attend(request).await.expect("its token is good");
    let before = Before::of(&global.process);
    let mut follows = Vec::new();
    for _ in 0..FOLLOWERS {
        let (requests, queue) = mpsc::channel(4);
        let mut request = Request::new(ReceiverStream::new(queue));
        carrier.write(request.metadata_mut());
        // Each begins to say what it holds, and does not end.
        let held = RelayFollowRequest { max_message: 1 << 20, ..RelayFollowRequest::default() };
        requests.send(held).await.unwrap();
        if let Ok(states) = client.follow(request).await {
            follows.push((requests, states.into_inner()));
        }
    }
    let (last, mut states) = follows.pop().expect("the last one follows");
    for (_, states) in &mut follows {
        let ended = timeout(PATIENCE, states.message()).await.expect("an end");
        assert!(!matches!(ended, Ok(Some(_))), "it follows as well");
    }
    last.send(RelayFollowRequest { held_complete: true, ..RelayFollowRequest::default() }).await.unwrap();
    let state = timeout(PATIENCE, states.message()).await.unwrap().unwrap().unwrap();
    assert!(state.resources.iter().any(|one| one.r#type == "Mesh"), "{state:?}");
    println!("{FOLLOWERS} followed: {}", before.spent(BUDGET).expect("little"));
    // Everybody else is as before.
    global.apply(LATE);
    has(&zones[0], "late").await;
    drop(relay);
}
