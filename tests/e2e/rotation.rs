//! Authorities that an operator brings, of a mesh and of a `MeshIdentity`, are replaced under load: the new one is believed
//! besides the old one, then it signs, then the old one goes.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::Duration;
use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    runtime::{Clock, SystemClock},
};
use serde_json::{Value, json};

use crate::{
    harness::{Global, Zone, eventually, wait::within},
    identity::{Handshakes, LONG, ask, issued_by, permit, reference, secret, tcp},
    mesh::{ALLOW_ALL, Member, federation, ingress},
};

/// Brings an authority: its certificate and key are the secrets `<name>-cert` and `<name>-key` of the mesh, in all zones.
async fn bring(global: &Global, zones: &[Zone], name: &str) {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let root = ca::create_root("default", &key, Duration::days(1), SystemClock.now()).unwrap();
    for (half, text) in [("cert", &root.certificate), ("key", &root.key)] {
        let data = STANDARD.encode(text);
        global.apply(&format!("{{type: Secret, mesh: default, name: {name}-{half}, data: {data}}}"));
        for zone in zones {
            secret(zone, &format!("{name}-{half}")).await;
        }
    }
}

/// The mesh, one of whose backends signs.
fn mesh(enabled: &str, backends: &[&str]) -> String {
    let conf = |name: &str| format!("{{cert: {{secret: {name}-cert}}, key: {{secret: {name}-key}}}}");
    let listed: String = backends
        .iter()
        .map(|name| format!("{{name: {name}, type: provided, conf: {}}},", conf(name)))
        .collect();
    format!("{{type: Mesh, name: default, mtls: {{enabledBackend: {enabled}, backends: [{listed}]}}}}")
}

/// Waits until all zones know this many backends.
async fn backends(zones: &[Zone], count: usize) {
    for zone in zones {
        within(LONG, "the backends of the mesh in the zone", || async move {
            let mesh = zone.try_get("/meshes/default").await?;
            let listed = mesh["mtls"]["backends"].as_array().map_or(0, Vec::len);
            if listed == count { Ok(()) } else { Err(mesh["mtls"].to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn an_authority_brought_for_a_mesh_is_rotated_without_a_failed_handshake() {
    let (global, zones) = federation(2).await;
    global.apply("{type: Mesh, name: default}");
    global.apply(ALLOW_ALL);
    for name in ["own-1", "own-2"] {
        bring(&global, &zones, name).await;
    }
    global.apply(&mesh("own-1", &["own-1"]));
    let _ingress = ingress(&global, &zones[1]).await;
    let _near = Member::join(&zones[0], tcp("near-1", "near", &[])).await;
    let _far = Member::join(&zones[1], tcp("far-1", "far", &[])).await;
    let client = Member::join(&zones[0], tcp("client-1", "client", &["near", "far"])).await;
    let members = [(&zones[0], "near-1"), (&zones[0], "client-1"), (&zones[1], "far-1")];
    for (zone, name) in members {
        issued_by(zone, name, "own-1").await;
    }
    for at in &client.outbounds {
        eventually("a first answer", || ask(*at)).await;
    }
    let load: Vec<Handshakes> = client.outbounds.iter().map(|at| Handshakes::with(*at)).collect();

    global.apply(&mesh("own-1", &["own-1", "own-2"]));
    backends(&zones, 2).await;
    global.apply(&mesh("own-2", &["own-1", "own-2"]));
    for (zone, name) in members {
        issued_by(zone, name, "own-2").await;
    }
    for one in &load {
        one.more(20).await;
    }
    global.apply(&mesh("own-2", &["own-2"]));
    backends(&zones, 1).await;
    for one in load {
        one.more(50).await;
        one.end().await;
    }
}

/// Gives everybody an identity from the authority of this name.
fn given_by(name: &str) -> String {
    format!(
        "
type: MeshIdentity
name: given
mesh: default
spec:
  selector: {{ dataplane: {{ matchLabels: {{}} }} }}
  provider:
    type: Bundled
    bundled:
      insecureAllowSelfSigned: true
      ca:
        certificate: {{ type: Secret, secretRef: {{ kind: Secret, name: {name}-cert }} }}
        privateKey: {{ type: Secret, secretRef: {{ kind: Secret, name: {name}-key }} }}
"
    )
}

/// The numbers of the certificates by which an Envoy shows who its workload is.
pub async fn numbers(member: &Member) -> Result<BTreeSet<String>, String> {
    let all: Value = serde_json::from_str(&member.envoy.admin("/certs").await?).map_err(|e| e.to_string())?;
    let shown = all["certificates"].as_array().into_iter().flatten().map(|one| &one["cert_chain"][0]);
    let of_workload = shown.filter(|one| one["subject_alt_names"].to_string().contains("spiffe://"));
    let numbers = of_workload.filter_map(|one| one["serial_number"].as_str().map(str::to_owned));
    Ok(numbers.collect())
}

/// The `MeshTrust` that this zone made of its identity.
async fn own_trust(zone: &Zone) -> Value {
    eventually("what the zone says of its identity", || async move {
        let all = zone.try_get("/meshes/default/meshtrusts").await?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let own = items.find(|trust| trust["labels"]["kuma.io/zone"] == zone.zone.as_str()).cloned();
        own.ok_or_else(|| all.to_string())
    })
    .await
}

#[tokio::test]
async fn an_authority_brought_for_an_identity_is_rotated_without_a_failed_handshake() {
    let (global, zones) = federation(2).await;
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&permit(&["spiffe://default"]));
    for name in ["own-1", "own-2"] {
        bring(&global, &zones, name).await;
    }
    global.apply(&given_by("own-1"));
    let _ingress = ingress(&global, &zones[1]).await;
    let near = Member::join_labelled(&zones[0], tcp("near-1", "near", &[]), "kuma.io/workload: near").await;
    let far = Member::join_labelled(&zones[1], tcp("far-1", "far", &[]), "kuma.io/workload: far").await;
    let local = format!("{{ kind: MeshService, name: near, port: {} }}", near.inbound.port());
    let remote = reference(&zones[0], "far", far.inbound.port()).await;
    let calls = [local.as_str(), remote.as_str()];
    let client = tcp("client-1", "client", &calls);
    let client = Member::join_labelled(&zones[0], client, "kuma.io/workload: client").await;
    for at in &client.outbounds {
        eventually("a first answer", || ask(*at)).await;
    }
    let load: Vec<Handshakes> = client.outbounds.iter().map(|at| Handshakes::with(*at)).collect();
    let mut before = Vec::new();
    for member in [&near, &far, &client] {
        before.push((member, numbers(member).await.unwrap()));
    }

    global.apply(&given_by("own-2"));
    for (member, before) in &before {
        within(LONG, "a certificate of the new authority", || async move {
            let now = numbers(member).await?;
            if !now.is_empty() && now.is_disjoint(before) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
    for one in &load {
        one.more(20).await;
    }
    // Now nobody shows anything of the old one, which each zone has listed first.
    for zone in &zones {
        let mut trust = own_trust(zone).await;
        let bundles = trust["spec"]["caBundles"].as_array_mut().unwrap();
        assert_eq!(bundles.len(), 2, "both are believed until somebody takes one out: {bundles:?}");
        bundles.remove(0);
        let only = json!({"type": "MeshTrust", "mesh": "default", "name": trust["name"],
            "labels": trust["labels"], "spec": trust["spec"]});
        zone.apply(&only.to_string());
    }
    let there = &zones[1].zone;
    within(LONG, "one authority of the other zone", || async {
        let all = zones[0].try_get("/meshes/default/meshtrusts").await?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let theirs = items.find(|trust| trust["labels"]["kuma.io/zone"] == there.as_str());
        let bundles = theirs.and_then(|trust| trust["spec"]["caBundles"].as_array()).map_or(0, Vec::len);
        if bundles == 1 { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
    for one in load {
        one.more(50).await;
        one.end().await;
    }
}
