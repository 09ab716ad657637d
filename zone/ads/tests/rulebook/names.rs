//! Names that stand for something else than one resource of that name.

use common::proto::envoy::service::discovery::v3::ResourceLocator;
use tonic::Code;

use super::{
    super::{client::Protocol, harness::Zone},
    plane::{CDS, Door, Peer, Plane, Saying, VHDS, everywhere},
};
use crate::ads::auth::Credential;

#[tokio::test]
async fn s24_delta_a_virtual_host_is_asked_for_by_another_name() {
    let zone = Zone::start().await;
    for (at, door) in [Door::Aggregated, Door::Alone].into_iter().enumerate() {
        let hosts = [(VHDS, "r/some", "*.example")];
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &hosts);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        let told = peer.begin(VHDS, &["r/a.example"]).await;
        assert_eq!(
            (told.all().as_str(), &told.aliases[..]),
            ("r/some@*.example", &["r/a.example".to_owned()][..])
        );
        let told = peer.begin(VHDS, &["r/a.example", "r/b.test"]).await;
        assert_eq!((told.all().as_str(), &told.aliases[..]), ("r/b.test!", &["r/b.test".to_owned()][..]));
        plane.set(&[(VHDS, "r/late", "b.test")], &[]);
        let told = peer.take(VHDS).await;
        assert_eq!((told.all().as_str(), &told.aliases[..]), ("r/late@b.test", &["r/b.test".to_owned()][..]));
    }
    zone.stop().await;
}

#[tokio::test]
async fn s26_members_of_a_glob_come_and_go() {
    const GLOB: &str = "xdstp://x/T/a/*";
    const MEMBERS: [&str; 2] = ["xdstp://x/T/a/1", "xdstp://x/T/a/2"];
    let shown = MEMBERS.map(|name| format!("{name}@1"));
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let is_delta = protocol == Protocol::Delta;
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "xdstp://x/T/b/1", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        let told = peer.begin(CDS, &[GLOB]).await;
        assert_eq!(told.all(), if is_delta { format!("-{GLOB}") } else { String::new() }, "it is empty");
        assert_eq!(told.errors, if is_delta { vec![] } else { vec![(GLOB.to_owned(), Code::NotFound)] });
        plane.set(&[(CDS, MEMBERS[0], "1")], &[]);
        assert_eq!(peer.take(CDS).await.resources, shown[..1]);
        plane.set(&[(CDS, MEMBERS[1], "1")], &[]);
        assert_eq!(peer.take(CDS).await.resources, if is_delta { &shown[1..] } else { &shown[..] });
        plane.set(&[], &[(CDS, MEMBERS[0])]);
        let told = peer.take(CDS).await.all();
        assert_eq!(told, if is_delta { format!("-{}", MEMBERS[0]) } else { shown[1].clone() });
    }
    zone.stop().await;
}

#[tokio::test]
async fn r63_a_locator_is_answered_with_the_variant_for_its_parameters() {
    let zone = Zone::start_with(|config| config.requirement.node = Credential::None).await;
    let config = |name: &str, parameters: &str| {
        let cluster = format!("{{name: a, alt_stat_name: {name}}}");
        format!(
            "{{type: EnvoyConfig, name: {name}, spec: {{nodes: [{{id: '*'}}], parameters: {parameters}, clusters: [{cluster}]}}}}"
        )
    };
    for (at, (protocol, door)) in everywhere().enumerate() {
        zone.put(&config("any", "{}")).await;
        zone.put(&config("prod", "{env: prod}")).await;
        let mut peer = Peer::of(&zone, "", protocol, door, None).await;
        peer.node.id = format!("edge-{at}");
        let parameters = [("env", "prod"), ("color", "red")];
        let dynamic_parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let located = vec![ResourceLocator { name: "a".to_owned(), dynamic_parameters }];
        let saying = Saying { located: located.clone(), ..peer.wish(CDS, &[]) };
        peer.say(saying).await;
        for expected in ["a@prod for {env=prod}", "a@any"] {
            let told = peer.hear(CDS).await;
            assert_eq!(told.all(), expected, "{protocol:?} {door:?}");
            // In the state of the world an answer says again what is asked for.
            let located = if protocol == Protocol::Sotw { located.clone() } else { Vec::new() };
            let answer = Saying { located, ..peer.answer(CDS, None) };
            peer.say(answer).await;
            zone.put(&config("prod", "{env: test}")).await;
        }
    }
    zone.stop().await;
}
