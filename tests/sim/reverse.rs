//! What global asks about the Envoys of a zone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    envoy_admin::{Ask, AskError, EnvoyAdmin},
    kds::{
        order,
        reverse::{AT_ONCE, Answer},
    },
    model::{Origin, ResourceKey, kinds},
    proto::kuma::mesh::v1alpha1::{AdminOutputFormat, ClustersRequest, StatsRequest, XdsConfigRequest},
};
use tokio::{sync::Semaphore, time::timeout};
use tonic::Status;
use zone::kds::ZoneKdsSettings;

use crate::{
    kumas_global::{Call, Down, KumasGlobal, Stats, Up},
    plane::{Plane, store},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Envoys that repeat the question. One called `slow` waits until it is let go, one called `stuck` for
/// ever, and one called `wordy` says too much.
struct Echoing {
    slow: Semaphore,
    longest: usize,
}

#[async_trait::async_trait]
impl EnvoyAdmin for Echoing {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        match &*proxy.name {
            "slow" => self.slow.acquire().await.unwrap().forget(),
            "stuck" => std::future::pending().await,
            "wordy" => return Ok(vec![b'a'; self.longest].into()),
            "gone" => return Err(AskError::NotConnected(proxy.clone())),
            _ => {}
        }
        Ok(format!("{proxy}: {}", ask.path()).into())
    }
}

impl<I: Into<Answer>, O> Call<I, O> {
    async fn question(&self, request: O) {
        self.outbound.send(Ok(request)).await.unwrap();
    }

    async fn answer(&mut self) -> (String, Result<Bytes, String>) {
        let answer = timeout(PATIENCE, self.inbound.message()).await.expect("an answer").unwrap().unwrap();
        let Answer { id, result } = answer.into();
        (id, result)
    }
}

struct World {
    global: KumasGlobal,
    zone: Plane,
    envoys: Arc<Echoing>,
}

impl World {
    async fn new(knows_reverse_calls: bool, answer_within: Duration) -> Self {
        let global = KumasGlobal::start(knows_reverse_calls).await;
        let mut zone = Plane::start(store(2), "zone-1", 2).await;
        let backoff = (Duration::from_millis(10), Duration::from_millis(50));
        let settings = ZoneKdsSettings { backoff, answer_within, ..ZoneKdsSettings::new("zone-1") };
        let envoys = Arc::new(Echoing { slow: Semaphore::new(0), longest: settings.max_message });
        zone.follow_with(settings, Arc::clone(&global.dial), Arc::clone(&envoys) as Arc<dyn EnvoyAdmin>);
        Self { global, zone, envoys }
    }

    async fn stats(&mut self) -> Stats {
        timeout(PATIENCE, self.global.stats.recv()).await.expect("the stream").unwrap()
    }

    /// Shows that the sync streams of this connection still do their work.
    async fn syncs(&self, down: &mut Down, up: &mut Up) {
        let opening = down.opening(order::requested_by_zone().len()).await;
        let answer = down.send(&opening[0].type_url, 1, &[], &[]).await;
        assert_eq!(answer.error_detail, None);
        let own =
            self.zone.resource(&kinds::mesh_service::KIND, "default", "redis", Origin::Zone("zone-1".into()));
        self.zone.put(own).await;
        up.ask("zone-1", "MeshService").await;
        assert_eq!(up.next().await.type_url, "MeshService");
    }
}

fn of(name: &str, id: &str) -> StatsRequest {
    StatsRequest {
        request_id: id.to_owned(),
        resource_type: "Dataplane".to_owned(),
        resource_name: name.to_owned(),
        resource_mesh: "default".to_owned(),
        format: AdminOutputFormat::Text.into(),
        used_only: true,
    }
}

#[tokio::test]
async fn a_zone_opens_all_three_streams_and_answers_on_each() {
    let mut world = World::new(true, PATIENCE).await;
    let (_down, _up) = world.global.accept().await;
    let mut stats = world.stats().await;
    let mut dumps = timeout(PATIENCE, world.global.dumps.recv()).await.unwrap().unwrap();
    let mut clusters = timeout(PATIENCE, world.global.clusters.recv()).await.unwrap().unwrap();
    for headers in [&stats.headers, &dumps.headers, &clusters.headers] {
        assert_eq!(headers.get("client-id").unwrap(), "zone-1");
        assert_eq!(headers.get("kds-version").unwrap(), "v3");
    }
    let text = |text: &str| Ok(Bytes::from(text.to_owned()));

    stats.question(of("web-1", "s")).await;
    assert_eq!(stats.answer().await, ("s".to_owned(), text("Dataplane default/web-1: /stats?usedonly")));
    dumps
        .question(XdsConfigRequest {
            request_id: "d".to_owned(),
            resource_type: "ZoneIngress".to_owned(),
            resource_name: "in-1".to_owned(),
            include_eds: true,
            ..XdsConfigRequest::default()
        })
        .await;
    assert_eq!(dumps.answer().await, ("d".to_owned(), text("ZoneIngress in-1: /config_dump?include_eds")));
    clusters
        .question(ClustersRequest {
            request_id: "c".to_owned(),
            resource_type: "ZoneEgress".to_owned(),
            resource_name: "out-1".to_owned(),
            format: AdminOutputFormat::Json.into(),
            ..ClustersRequest::default()
        })
        .await;
    assert_eq!(clusters.answer().await, ("c".to_owned(), text("ZoneEgress out-1: /clusters?format=json")));
}

#[tokio::test]
async fn every_question_is_answered_once_whatever_becomes_of_it() {
    let mut world = World::new(true, PATIENCE).await;
    let mut stats = world.stats().await;
    // A slow one does not hold up the next, and asked again meanwhile it is still one question.
    stats.question(of("slow", "1")).await;
    stats.question(of("slow", "1")).await;
    stats.question(of("web-1", "2")).await;
    assert_eq!(stats.answer().await.0, "2");
    world.envoys.slow.add_permits(2);
    assert_eq!(stats.answer().await.0, "1");

    let refused = async |stats: &mut Stats, id: &str, part: &str| {
        let (answered, result) = stats.answer().await;
        let reason = result.unwrap_err();
        assert_eq!(answered, id);
        assert!(reason.contains(part), "{reason}");
    };
    stats.question(of("gone", "3")).await;
    refused(&mut stats, "3", "Dataplane default/gone is not connected").await;
    stats.question(StatsRequest { resource_type: "Secret".to_owned(), ..of("web-1", "4") }).await;
    refused(&mut stats, "4", "\"Secret\" has no Envoy").await;
    stats.question(of("wordy", "5")).await;
    refused(&mut stats, "5", "fit in a message").await;

    for number in 0..=AT_ONCE {
        stats.question(of("stuck", &format!("stuck-{number}"))).await;
    }
    refused(&mut stats, &format!("stuck-{AT_ONCE}"), "ask again").await;
}

#[tokio::test]
async fn an_envoy_that_does_not_answer_in_time_is_an_answer_too() {
    let mut world = World::new(true, Duration::from_millis(20)).await;
    let mut stats = world.stats().await;
    stats.question(of("stuck", "1")).await;
    let (id, result) = stats.answer().await;
    assert_eq!(id, "1");
    assert!(result.unwrap_err().contains("no answer within 20ms"));
    stats.question(of("web-1", "2")).await;
    assert!(stats.answer().await.1.is_ok());
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_beside_the_sync_streams() {
    let mut world = World::new(true, PATIENCE).await;
    let (mut down, mut up) = world.global.accept().await;
    for end in [Some(Status::cancelled("off")), Some(Status::invalid_argument("what?")), None] {
        let stats = world.stats().await;
        if let Some(status) = end {
            stats.outbound.send(Err(status)).await.unwrap();
        }
    }
    let mut stats = world.stats().await;
    stats.question(of("web-1", "1")).await;
    assert_eq!(stats.answer().await.0, "1");
    world.syncs(&mut down, &mut up).await;
    assert!(world.global.down.try_recv().is_err(), "the zone connected once");
}

#[tokio::test]
async fn a_global_that_knows_no_reverse_calls_is_followed_all_the_same() {
    let mut world = World::new(false, PATIENCE).await;
    let (mut down, mut up) = world.global.accept().await;
    world.syncs(&mut down, &mut up).await;
    assert!(world.global.down.try_recv().is_err(), "the zone connected once");
}
