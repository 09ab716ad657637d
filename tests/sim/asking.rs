//! Global asks its zones about their Envoys: those of its own kind, and those like Kuma's.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    envoy_admin::{AdminFormat, Ask, AskError, EnvoyAdmin},
    kds::features::HASH_SUFFIX,
    model::{Origin, ResourceKey, kinds},
    proto::kuma::mesh::v1alpha1::{StatsRequest, StatsResponse, stats_response},
    rest::{ZoneHealth, ZoneStatusSource},
    store::Store,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use zone::kds::ZoneKdsSettings;

use crate::{
    plane::{Plane, store},
    scripted::{Answering, Scripted},
    sockets::serve,
    world::{DATAPLANE, World},
};

const PATIENCE: Duration = Duration::from_secs(10);
const STATS: Ask = Ask::Stats { format: AdminFormat::Text, used_only: true };

impl World {
    /// The one dataplane global knows.
    async fn dataplane(&self) -> ResourceKey {
        self.global.until("the dataplane", |index| index.count(&kinds::dataplane::KIND) == 1).await;
        let index = self.global.index.current();
        index.list(&kinds::dataplane::KIND).next().unwrap().key.clone()
    }

    /// The answer, as soon as the zone can be asked.
    async fn answer(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        let asking = async {
            loop {
                match self.kds.ask(proxy, ask).await {
                    Err(AskError::ZoneAway { .. }) => tokio::task::yield_now().await,
                    answer => return answer,
                }
            }
        };
        timeout(PATIENCE, asking).await.expect("an answer")
    }
}

/// Envoys that repeat the question.
struct Echoing;

#[async_trait::async_trait]
impl EnvoyAdmin for Echoing {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        Ok(format!("{proxy}: {}", ask.path()).into())
    }
}

#[tokio::test]
async fn a_zone_is_asked_by_the_names_it_uses_itself() {
    let world = World::new().await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    zone.follow_with(ZoneKdsSettings::new("zone-1"), Arc::clone(&world.dial), Arc::new(Echoing));
    let dataplane = world.of_zone(&kinds::dataplane::KIND, "web-1", DATAPLANE);
    zone.put(common::model::Resource { origin: Origin::Zone("zone-1".into()), ..dataplane }).await;
    let proxy = world.dataplane().await;
    assert_ne!(&*proxy.name, "web-1", "global knows it by another name");
    for (ask, path) in [
        (Ask::ConfigDump { include_eds: true }, "/config_dump?include_eds"),
        (STATS, "/stats?usedonly"),
        (Ask::Clusters { format: AdminFormat::Json }, "/clusters?format=json"),
    ] {
        let answer = world.answer(&proxy, ask).await.unwrap();
        assert_eq!(answer, format!("Dataplane default/web-1: {path}"));
    }
}

#[tokio::test]
async fn a_question_finds_the_instance_of_global_where_the_zone_is() {
    let world = World::new().await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    zone.follow_with(ZoneKdsSettings::new("zone-1"), Arc::clone(&world.dial), Arc::new(Echoing));
    let dataplane = world.of_zone(&kinds::dataplane::KIND, "web-1", DATAPLANE);
    zone.put(common::model::Resource { origin: Origin::Zone("zone-1".into()), ..dataplane }).await;
    let proxy = world.dataplane().await;
    world.answer(&proxy, STATS).await.unwrap();

    let mut other = Plane::start(Arc::clone(&world.global.store), "other", 3).await;
    let kds = other.kds();
    let dial = serve(&mut other, &kds).await;
    let other = World { global: other, kds, dial };
    let answer = other.answer(&proxy, STATS).await.unwrap();
    assert_eq!(answer, "Dataplane default/web-1: /stats?usedonly");
    // An instance that is new knows within a moment that the zone is there.
    let status = other.kds.zone_status("zone-1", &other.global.index.current()).unwrap();
    assert_eq!(status.status, ZoneHealth::Online);
    assert_eq!(world.global.store.sessions("mail/envoys/").await.unwrap(), [], "every letter was taken");
}

/// A zone like Kuma's that has sent a dataplane and takes questions about its stats.
struct Asked {
    _up: Answering,
    questions: Streaming<StatsRequest>,
    answers: mpsc::Sender<StatsResponse>,
}

impl Asked {
    async fn new(zone: &Scripted, dataplane: common::model::Resource) -> Self {
        let mut up = zone.answer().await.unwrap();
        up.send("Dataplane", 1, &[dataplane], &[]).await;
        assert_eq!(up.verdict("Dataplane").await.error_detail, None);
        let (answers, queue) = mpsc::channel(8);
        let questions = zone.stats_answering(ReceiverStream::new(queue)).await.unwrap();
        Self { _up: up, questions, answers }
    }

    async fn next(&mut self) -> StatsRequest {
        timeout(PATIENCE, self.questions.message()).await.expect("a question").unwrap().unwrap()
    }

    async fn say(&self, id: &str, result: stats_response::Result) {
        let response = StatsResponse { request_id: id.to_owned(), result: Some(result) };
        self.answers.send(response).await.unwrap();
    }
}

#[tokio::test]
async fn a_zone_of_kuma_is_asked_and_what_it_answers_beside_the_point_does_no_harm() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut asked = Asked::new(&zone, world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)).await;
    let proxy = world.dataplane().await;
    let stats = |text: &str| stats_response::Result::Stats(text.to_owned().into());

    let answering = async {
        let question = asked.next().await;
        let StatsRequest { resource_type, resource_mesh, resource_name, used_only, .. } = &question;
        assert_eq!((resource_type.as_str(), resource_mesh.as_str()), ("Dataplane", "default"));
        assert_eq!((resource_name.as_str(), *used_only), ("d", true));
        asked.say("made up", stats("nobody asked")).await;
        asked.say(&question.request_id, stats("a: 1")).await;
        // Said twice, as nobody should.
        asked.say(&question.request_id, stats("a: 2")).await;
    };
    let (answer, ()) = tokio::join!(world.answer(&proxy, STATS), answering);
    assert_eq!(answer.unwrap(), "a: 1");

    let answering = async {
        let question = asked.next().await;
        asked.say(&question.request_id, stats_response::Result::Error("no such proxy".to_owned())).await;
    };
    let (answer, ()) = tokio::join!(world.answer(&proxy, STATS), answering);
    assert_eq!(answer.unwrap_err().to_string(), "zone zone-1: no such proxy");

    // It does not take questions of another kind, and says so by not opening that stream.
    let error = world.kds.ask(&proxy, Ask::ConfigDump { include_eds: false }).await.unwrap_err();
    assert!(error.to_string().contains("it has not opened the stream for that"), "{error}");
}

#[tokio::test]
async fn the_end_of_such_a_stream_is_not_the_end_of_the_session() {
    let world = World::new().await;
    let mut zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.caller.session = Some("session".to_owned());
    let mut down = zone.ask(vec![zone.first("MeshTimeout")]).await.unwrap();
    let first = down.next().await;
    down.reply(&first, None).await;
    let mut asked = Asked::new(&zone, world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)).await;
    let proxy = world.dataplane().await;

    let (answers, queue) = mpsc::channel(8);
    let answering = async {
        asked.next().await;
        // Opened again before global can know that the old one is gone.
        let questions = zone.stats_answering(ReceiverStream::new(queue)).await.unwrap();
        (asked.questions, asked.answers) = (questions, answers);
        let question = asked.next().await;
        asked.say(&question.request_id, stats_response::Result::Stats(Bytes::from_static(b"again"))).await;
    };
    let (answer, ()) = tokio::join!(world.answer(&proxy, STATS), answering);
    assert_eq!(answer.unwrap(), "again", "who was left waiting may ask again at once");
    // The sync goes on as if nothing had happened.
    world.global.put(world.policy("p")).await;
    assert_eq!(down.next().await.resources.len(), 1);
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_with_what_to_do() {
    let world = World::new().await;
    let mut zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.caller.features = std::mem::take(&mut zone.caller.features).without(HASH_SUFFIX);
    let mut asked = Asked::new(&zone, world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)).await;
    let proxy = world.dataplane().await;
    assert_eq!(&*proxy.name, "zone-1.d");
    let answering = async {
        let question = asked.next().await;
        assert_eq!(question.resource_name, "d", "without the prefix it got here");
        asked.say(&question.request_id, stats_response::Result::Stats(Bytes::new())).await;
    };
    let (answer, ()) = tokio::join!(world.answer(&proxy, STATS), answering);
    assert_eq!(answer.unwrap(), "");

    let refused = async |proxy: &ResourceKey| world.kds.ask(proxy, STATS).await.unwrap_err().to_string();
    let unknown = ResourceKey::new(&kinds::dataplane::KIND, "default", "nobody");
    assert_eq!(refused(&unknown).await, "Dataplane default/nobody does not exist here");
    let ours = world.of_zone(&kinds::dataplane::KIND, "ours", DATAPLANE);
    let key = ours.key.clone();
    let revision = world.global.put(ours).await;
    world.global.index.wait_for(revision).await.unwrap();
    assert!(refused(&key).await.contains("apply it in its zone"));

    // It leaves.
    drop((asked, zone));
    let gone = async {
        loop {
            let error = refused(&proxy).await;
            if error.starts_with("zone zone-1 cannot be asked: it is not connected since 20") {
                return error;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, gone).await.unwrap().contains("ask its own control plane"));
}
