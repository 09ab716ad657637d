//! Random identities that proxies are given, and who is believed besides the mesh.

use proptest::{option, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::compile::tests::fixture;

/// Perhaps an identity for everybody or for somebody, perhaps a trust domain of another zone.
pub(super) fn documents() -> impl Strategy<Value = Vec<Value>> {
    let selector = select(&["{}", r#"{"kuma.io/workload":"x"}"#][..]);
    let status = select(&["True", "False"][..]);
    let bundled = json!({"type": "Bundled", "bundled": {"insecureAllowSelfSigned": true, "autogenerate": {"enabled": true}}});
    let providers = [
        bundled,
        json!({"type": "Spire", "spire": {}}),
        json!({"type": "Extension", "extension": {"name": "x"}}),
    ];
    let identity = (selector, status, select(providers.to_vec())).prop_map(|(selector, status, provider)| {
        let labels: Value = serde_json::from_str(selector).unwrap();
        json!({"type": "MeshIdentity", "mesh": "demo", "name": "given",
            "spec": {"selector": {"dataplane": {"matchLabels": labels}}, "spiffeID": {"path": "/a"},
                "provider": provider},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": "a", "message": "b"}]}})
    });
    let domain = select(&["demo.zone-1.mesh.local", "demo.zone-2.mesh.local", "demo"][..]);
    let trust = domain.prop_map(|domain| {
        let bundle = json!({"type": "Pem", "pem": {"value": fixture::authority()}});
        json!({"type": "MeshTrust", "mesh": "demo", "name": "there", "labels": {"kuma.io/zone": "zone-2"},
            "spec": {"trustDomain": domain, "caBundles": [bundle]}})
    });
    (option::of(identity), option::of(trust))
        .prop_map(|(identity, trust)| identity.into_iter().chain(trust).collect())
}
