//! What a global may ask a zone for in answer to a ping: a time that no clock can add to now, and one that is hardly any.

use std::{sync::Arc, time::Duration};

use common::{
    kds::{headers::Upstream, order},
    proto::google::protobuf,
};
use tokio::time::timeout;
use uuid::Uuid;
use zone::kds::{MoveTarget, ZoneKdsSettings};

use crate::{
    kumas_global::{Down, KumasGlobal, PingAnswer, Up},
    plane::{NoEnvoys, Plane, store},
};

const ZONE: &str = "zone-1";
const INTERVALS: [(i64, i32); 2] = [(i64::MAX, i32::MAX), (0, 1)];

fn every((seconds, nanos): (i64, i32), shows: Option<Upstream>) -> Option<PingAnswer> {
    Some(PingAnswer { interval: protobuf::Duration { seconds, nanos }, shows })
}

/// The next connection of a zone, which was told that there is nothing of any type and took that.
async fn followed(global: &mut KumasGlobal) -> (Down, Up) {
    let (mut down, up) = global.accept().await;
    let opening = down.opening(order::requested_by_zone().len()).await;
    for (nonce, request) in (1..).zip(opening) {
        let answer = down.send(&request.type_url, nonce, &[], &[]).await;
        assert_eq!(answer.error_detail, None, "{}", request.type_url);
    }
    (down, up)
}

#[tokio::test]
async fn a_zone_outlives_the_global_that_it_follows() {
    for interval in INTERVALS {
        let mut global = KumasGlobal::answering(every(interval, None)).await;
        let mut zone = Plane::start(store(2), ZONE, 2).await;
        let _link = zone.follow(ZoneKdsSettings::new(ZONE), Arc::clone(&global.dial));
        let (_down, _up) = followed(&mut global).await;
    }
}

#[tokio::test]
async fn a_zone_outlives_a_global_that_it_only_looks_at() {
    for interval in INTERVALS {
        let shown = Upstream { store_id: Uuid::from_u128(7), epoch: 1, revision: 1 };
        let mut other = KumasGlobal::answering(every(interval, Some(shown))).await;
        let mut global = KumasGlobal::start(true).await;
        let mut zone = Plane::start(store(2), ZONE, 2).await;
        let connector =
            zone.connector(ZoneKdsSettings::new(ZONE), Arc::clone(&global.dial), Arc::new(NoEnvoys));
        let (moves, stop) = (connector.moves(), zone.stop.clone());
        zone.tasks.spawn(async move { connector.run(None, stop).await });
        let (mut down, _up) = followed(&mut global).await;

        let (to, skip_verify) = (other.address.clone(), false);
        moves.begin(MoveTarget { to, token: None, ca_cert: None, skip_verify }).await.unwrap();
        let look = timeout(Duration::from_secs(10), other.down.recv()).await.expect("a look").unwrap();
        let answer = down.send("Mesh", 900, &[], &[]).await;
        assert_eq!(answer.error_detail, None, "the one it follows is heard as before");
        drop(look);
    }
}
