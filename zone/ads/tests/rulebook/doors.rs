//! The services of single types: which there are, and what they say where a zone has nothing.

use common::xds::envoy;
use tonic::Code;

use super::{
    super::{
        client::{BOTH, Protocol},
        harness::{Zone, dataplane},
    },
    plane::{CDS, Door, Plane, Saying},
};

/// Service, end of its methods, type, and whether it exists in both variants.
const NOTHING_HERE: [(&str, &str, &str, bool); 4] = [
    ("route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", envoy::SCOPED_ROUTE, true),
    ("route.v3.VirtualHostDiscoveryService", "VirtualHosts", envoy::VIRTUAL_HOST, false),
    ("endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", envoy::LB_ENDPOINT, false),
    ("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", envoy::EXTENSION_CONFIG, true),
];

#[tokio::test]
async fn r36_types_a_zone_has_nothing_of_are_answered_with_nothing() {
    let zone = Zone::start().await;
    let plane = Plane::having(&zone, "node", &[(CDS, "A", "1")]);
    for protocol in BOTH {
        for (service, suffix, type_url, is_sotw) in NOTHING_HERE {
            let variant = if protocol == Protocol::Sotw { "Stream" } else { "Delta" };
            let method = format!("/envoy.service.{service}/{variant}{suffix}");
            let mut peer = plane.peer(protocol, Door::Alone).await;
            // The type goes without saying.
            let saying = Saying { type_url: String::new(), ..peer.wish(type_url, &["missing"]) };
            if protocol == Protocol::Sotw && !is_sotw {
                let refused = peer.open_refused(&method).await;
                assert_eq!(refused, Code::Unimplemented, "{method}");
                continue;
            }
            peer.say_to(&method, saying).await;
            let told = peer.next_of(&method).await.unwrap();
            assert_eq!(told.type_url, type_url);
            // Without the configuration of its filter an Envoy would refuse traffic.
            let told_so = match type_url {
                _ if protocol == Protocol::Sotw => "",
                envoy::EXTENSION_CONFIG => "",
                // Of hosts it is said with an empty resource; this one is all of a route configuration.
                envoy::VIRTUAL_HOST => "missing/!",
                _ => "-missing",
            };
            assert_eq!(told.all(), told_so, "{method}");
        }
    }
    zone.stop().await;
}

/// What the zone generates comes through these doors as through the aggregated one.
#[tokio::test]
async fn r27_generated_clusters_and_listeners_come_through_their_own_services() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &["backend"])).await;
    zone.put(&dataplane("backend-1", "127.0.0.3", "backend", &[])).await;
    for protocol in BOTH {
        let token = zone.token_for("web-1");
        let mut seen = Vec::new();
        for door in [Door::Aggregated, Door::Alone] {
            let mut peer = super::plane::Peer::of(&zone, "web-1", protocol, door, Some(&token)).await;
            let mut told = Vec::new();
            for (type_url, names) in [
                (CDS, &[][..]),
                (super::plane::EDS, &["backend"]),
                (super::plane::LDS, &[]),
                (super::plane::RTDS, &["missing"]),
            ] {
                told.push(peer.raw(type_url, names).await);
            }
            seen.push(told);
        }
        assert_eq!(seen[0], seen[1], "{protocol:?}");
        assert!(seen[0].iter().take(3).all(|names| !names.is_empty()), "{seen:?}");
    }
    zone.stop().await;
}
