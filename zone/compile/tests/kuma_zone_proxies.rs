//! Replays recorded configurations of a mesh whose ingress and egress are listeners of its own proxies, from the folder
//! that `GOLDENS_DIR` names.

use std::fs;

use common::testing::needs;
use serde_json::Value;

use super::{
    fixture::{self, Fixture},
    kuma::{ByName, applied_in_the_zone, compared, generated, made_changes, recorded, recorded_changes},
};
use crate::{
    compile::scratch,
    generator::{ProxyMetadata, Sidecar},
};

/// The zone in which the cases were recorded, but for who vouches for its proxies.
const ZONE: &str = include_str!("kuma_zone_proxies.yaml");

const PROXIES: [&str; 5] = [
    "zone-proxy-demo-client",
    "zone-proxy-test-server",
    "zone-proxy-test-server-no-reusable-ports",
    "zone-proxy-ingress",
    "zone-proxy-egress",
];

/// What was recorded lacks the secrets with certificates and keys. One is to be there, under the identifier by which
/// everything else, which is compared, refers to it.
fn without_own_certificate(mut all: ByName) -> ByName {
    let own = all.keys().filter(|name| name.contains("Secret kri_mid_")).cloned().collect::<Vec<_>>();
    assert_eq!(
        own,
        [
            "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret kri_mid_envoyconfig-zoneproxies_kuma-3__identity_"
        ]
    );
    all.retain(|name, _| !own.contains(name));
    all
}

/// Here a client also traces what it asks of services outside the mesh. What policies change in there, which was recorded
/// beside it, has that as well.
fn is_of_tracing(difference: &str) -> bool {
    difference.contains("Listener outbound:IP_REDACTED:80/filterChains/0/filters/0/typedConfig/tracing: ")
        && difference.ends_with(" instead of null")
}

/// What the zone says of its own identities.
fn trust() -> Value {
    serde_json::json!({
        "type": "MeshTrust", "mesh": "envoyconfig-zoneproxies", "name": "identity",
        "labels": {"kuma.io/origin": "zone", "kuma.io/zone": "kuma-3"},
        "spec": {
            "trustDomain": "envoyconfig-zoneproxies.kuma-3.mesh.local",
            "caBundles": [{"type": "Pem", "pem": {"value": fixture::authority()}}],
        },
    })
}

fn metadata(proxy: &str) -> ProxyMetadata {
    let mut features = vec!["feature-strict-inbound-ports"];
    if !proxy.ends_with("no-reusable-ports") {
        features.push("feature-reuse-port");
    }
    ProxyMetadata {
        features: features.into_iter().map(str::to_owned).collect(),
        ipv6: false,
        work_dir: "/tmp".to_owned(),
        ..ProxyMetadata::default()
    }
}

#[test]
fn edges_of_a_mesh_get_what_was_recorded() {
    let Some(goldens) = needs::goldens() else { return };
    let (mut passed, mut failures) = (0, Vec::new());
    for folder in fs::read_dir(goldens.join("envoy-zoneproxies")).unwrap() {
        let folder = folder.unwrap().path();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap();
            let Some(case) = file.strip_suffix(".input.yaml") else { continue };
            let tried = fs::read_to_string(&path).unwrap();
            let zone = |is_tried| {
                let policies = applied_in_the_zone(&tried, is_tried);
                Fixture::parse_in("kuma-3", &format!("{ZONE}\n---\n{}\n---\n{policies}", trust()))
            };
            let fixture = zone(false);
            let before = zone(true).with_identities_of(&fixture);
            for proxy in PROXIES {
                let golden = folder.join(format!("{case}.{proxy}.golden.json"));
                let golden: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
                let sidecar = Sidecar { metadata: metadata(proxy), ..fixture.sidecar(proxy) };
                let made = scratch::sidecar(&sidecar, &fixture.meshes[0]).unwrap();
                let real = Sidecar { dataplane: before.sidecar(proxy).dataplane, ..sidecar };
                let real = scratch::sidecar(&real, &before.meshes[0]).unwrap();
                let ours =
                    (without_own_certificate(generated(&made.set)), made_changes(&real.set, &made.set));
                let mut found = compared(&ours, &(recorded(&golden), recorded_changes(&golden)));
                found.retain(|difference| !is_of_tracing(difference));
                if found.is_empty() {
                    passed += 1;
                } else {
                    let of = folder.file_name().unwrap().display();
                    failures.push(format!("{of}/{case}, {proxy}:\n  {}", found.join("\n  ")));
                }
            }
        }
    }
    println!("{passed} recorded configurations equal ours");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(passed > 0);
}
