//! What a stolen zone does not get by lying about itself: neither by a new name, nor by leaving names out.

use common::{
    kds::metadata::Peer, model::kinds::secret::SECRET, proto::kuma::system::v1alpha1::KumaCpVersion,
};
use reqwest::StatusCode;

use super::issuing::{Loot, call_as, federation};
use crate::{
    harness::{Global, KdsPeer, eventually},
    mesh::{Member, Shape},
};

const ROOT_KEY: &str = "ca-builtin-key-ca-1";

/// The secrets that a zone gets which behaves like Kuma's.
async fn secrets_without_own_key(global: &Global, zone: &str) -> Vec<String> {
    let peer = KdsPeer::connect(global, zone).await;
    let itself = Peer {
        version: KumaCpVersion { version: "2.14.3".to_owned(), ..KumaCpVersion::default() },
        config: String::new(),
        instance: "thief".to_owned(),
        features: Default::default(),
    };
    let mut first = peer.first(SECRET.name, itself.clone());
    // As zones of Kuma do, it says nothing of signing.
    first.node = Some(Peer { features: peer.caller.features.clone(), ..itself }.node(zone));
    let mut down = peer.down(first).await.expect("a stream");
    let answer = down.next().await.expect("an answer");
    answer.resources.into_iter().map(|resource| resource.name).collect()
}

#[tokio::test]
async fn a_deleted_zone_that_comes_back_as_one_of_kuma_gets_no_key_of_a_mesh() {
    let (global, mut zones) = federation().await;
    Loot::of(&zones[0]).await;
    drop(zones.remove(0));
    eventually("the zone is gone", || async {
        match global.call(reqwest::Method::DELETE, "/zones/zone-1", None).await {
            (StatusCode::OK | StatusCode::NOT_FOUND, _) => Ok(()),
            (status, why) => Err(format!("{status}: {why}")),
        }
    })
    .await;
    let stolen = secrets_without_own_key(&global, "zone-1").await;
    assert!(!stolen.is_empty(), "it is let in again");
    assert!(!stolen.iter().any(|name| name.contains(ROOT_KEY)), "{stolen:?}");
    // A zone of Kuma that never had a key of its own can work.
    let kumas = secrets_without_own_key(&global, "kuma-1").await;
    assert!(kumas.iter().any(|name| name.contains(ROOT_KEY)), "{kumas:?}");
}

#[tokio::test]
async fn a_denied_zone_does_not_get_in_by_leaving_out_where_it_is() {
    let (global, zones) = federation().await;
    let (stolen, honest) = (Loot::of(&zones[0]).await, Loot::of(&zones[1]).await);
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    global.apply(
        "
type: MeshTrafficPermission
name: not-zone-1
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: Mesh }
      default: { action: Allow }
    - targetRef: { kind: MeshSubset, tags: { kuma.io/zone: zone-1 } }
      default: { action: Deny }
",
    );
    let backend = Member::join(&zones[1], Shape::http("backend-1", "backend", &[])).await;
    let own = honest.sign("zone-2", Some("zone-2"));
    eventually("the permission", || async {
        match call_as(&own, backend.inbound).await {
            Some(StatusCode::OK) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for (claimed, named) in [
        ("zone-1", Some("zone-1")),
        ("zone-1", None),
        ("zone-2", Some("zone-1")),
        ("zone-2", None),
        ("zone-9", None),
    ] {
        let got = call_as(&stolen.sign(claimed, named), backend.inbound).await;
        assert_eq!(got, Some(StatusCode::FORBIDDEN), "claims {claimed} with a DNS name of {named:?}");
    }
}
