//! What was wrong in other control planes and shows only where bytes flow.

use common::proto::google::protobuf::{Struct, Value, value::Kind};
use tokio::time::timeout;

use super::{
    super::{
        client::BOTH,
        harness::{PATIENCE, Zone},
    },
    plane::{CDS, Door, EDS, Peer, Plane, everywhere},
};
use crate::ads::auth::Credential;

/// Nothing of what a node said before it went decides what it gets when it is back.
#[tokio::test]
async fn b12_who_comes_back_with_other_metadata_is_served_by_these() {
    let zone = Zone::start_with(|config| config.requirement.node = Credential::None).await;
    for region in ["eu", "us"] {
        let selector = format!("{{metadata: {{region: {region}}}}}");
        zone.put(&format!(
            "{{type: EnvoyConfig, name: {region}, spec: {{nodes: [{selector}], clusters: [{{name: in-{region}}}]}}}}"
        ))
        .await;
    }
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut peer = Peer::of(&zone, "", protocol, door, None).await;
        peer.node.id = format!("edge-{at}");
        for region in ["eu", "us", "eu"] {
            let text = Value { kind: Some(Kind::StringValue(region.to_owned())) };
            let fields = [("region".to_owned(), text)].into();
            peer.node.metadata = Some(Struct { fields });
            let expected = format!("in-{region}");
            let mut told = peer.begin(CDS, &[]).await;
            // Until it was noticed that the stream before is gone, what is on its way may be for that.
            while told.resources != [&*expected] {
                told = peer.take(CDS).await;
            }
            peer.hang_up();
        }
    }
    zone.stop().await;
}

/// Both sides have more to say than fits on the way, and the client does not read.
#[tokio::test]
async fn b25_who_talks_without_reading_is_heard_and_then_told_everything() {
    let zone = Zone::start().await;
    let content = "x".repeat(4000);
    let clusters: Vec<String> = (0..1000).map(|n| format!("cluster-{n:03}")).collect();
    let resources: Vec<_> = clusters.iter().map(|name| (CDS, &**name, &*content)).collect();
    let asked: Vec<String> = (0..100).map(|n| format!("{n:0>900}")).collect();
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let plane = Plane::having(&zone, &format!("node-{at}"), &resources);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        let talking = async {
            peer.want(CDS, &[]).await;
            for n in 0..asked.len() {
                let names: Vec<&str> = asked[..=n].iter().map(String::as_str).collect();
                peer.want(EDS, &names).await;
            }
            plane.heard(&peer).await;
        };
        timeout(PATIENCE, talking).await.expect("it is heard although it does not read");
        let (mut endpoints, mut came) = (0, 0);
        while endpoints < asked.len() || came < clusters.len() {
            let told = peer.any().await;
            match told.type_url == EDS {
                true => endpoints += told.resources.len() + told.removed.len(),
                false => came += told.resources.len(),
            }
        }
    }
    zone.stop().await;
}
