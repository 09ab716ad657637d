//! Proxies that have their identities from an agent beside them, and nothing of that from a control plane.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    harness::{Agent, Envoy, Root, Zone, eventually, wait::within},
    identity::{Handshakes, LONG, ask, issued_by, permit, secret, shown, tcp},
    mesh::{MESH, Member, Shape, federation},
    rotation::numbers,
};

const DOMAIN: &str = "example.org";

/// Those with these labels ask agents, which know them by their workload.
fn given(selector: &str) -> String {
    format!(
        "
type: MeshIdentity
name: attested
mesh: default
spec:
  selector: {{ dataplane: {{ matchLabels: {selector} }} }}
  spiffeID: {{ trustDomain: {DOMAIN}, path: '/{{{{ .Workload }}}}' }}
  provider: {{ type: Spire, spire: {{ agent: {{ timeout: 2s }} }} }}
"
    )
}

/// Waits until the zone says how the `MeshIdentity` is, and gives its conditions that hold.
async fn conditions(zone: &Zone) -> BTreeSet<String> {
    eventually("what the zone says of the identity", || async move {
        let all = zone.try_get("/meshes/default/meshidentities").await?;
        let conditions = all["items"][0]["status"]["conditions"].as_array().into_iter().flatten();
        let holds = conditions.filter(|one| one["status"] == "True");
        let holds: BTreeSet<String> =
            holds.filter_map(|one| one["type"].as_str().map(str::to_owned)).collect();
        if holds.contains("Ready") { Ok(holds) } else { Err(all.to_string()) }
    })
    .await
}

#[tokio::test]
async fn identities_come_from_an_agent_which_rotates_them_without_a_failed_handshake() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&given("{}"));
    global.apply(&permit(&["spiffe://example.org/shop", "spiffe://example.org/client"]));
    assert_eq!(conditions(zone).await, ["ProviderAvailable", "Ready"].map(str::to_owned).into());

    let (agent, first) = (Agent::start(), Root::of(DOMAIN));
    let ids =
        ["stock", "bytes", "shop", "thief", "client"].map(|workload| format!("spiffe://{DOMAIN}/{workload}"));
    let ids = ids.each_ref().map(String::as_str);
    agent.believe(&[(DOMAIN, &[first.certificate()])]);
    agent.give(&first, &ids);
    let join = async |shape: Shape<'_>| {
        let label = format!("kuma.io/workload: {}", shape.service);
        Member::join_saying(zone, shape, &label, &agent.metadata()).await
    };
    let stock = join(Shape::http("stock-1", "stock", &[])).await;
    let bytes = join(tcp("bytes-1", "bytes", &[])).await;
    let port = |member: &Member, name: &str| {
        format!("{{ kind: MeshService, name: {name}, port: {} }}", member.inbound.port())
    };
    let (to_stock, to_bytes) = (port(&stock, "stock"), port(&bytes, "bytes"));
    let shop = join(Shape::http("shop-1", "shop", &[&to_stock])).await;
    let thief = join(Shape::http("thief-1", "thief", &[&to_stock])).await;
    let client = join(tcp("client-1", "client", &[&to_bytes])).await;

    let seen = shop.reaches(0, "stock-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://example.org/shop"), "{seen}");
    thief.gets(0, StatusCode::FORBIDDEN).await;
    let plain = reqwest::get(format!("http://{}/", stock.inbound)).await;
    assert!(plain.is_err(), "nobody gets in without mesh TLS: {plain:?}");
    issued_by(zone, "stock-1", "kri_mid_default_").await;

    // As an operator says where the agent is.
    let token = zone.proxy_token("default", &["--name", "shop-1"]).await;
    let args = ["--name", "shop-1", "--spire-socket", "/run/spire/api.sock"];
    let bootstrap: Value = serde_norway::from_str(&Envoy::bootstrap(zone, &args, &token).await).unwrap();
    assert_eq!(bootstrap["node"]["metadata"]["spireAgent.socketPath"], "/run/spire/api.sock");

    // Of keys and certificates nothing is in the zone, nor in what it sends.
    let held = zone.get("/meshes/default/secrets").await.to_string();
    assert!(!held.contains("attested"), "{held}");
    let names = shown(&stock).await.unwrap();
    assert!(names.iter().all(|name| name == "spiffe://example.org/stock"), "{names:?}");

    // The agent moves on to another authority: it believes both, gives what the new one signed, and forgets the old one.
    eventually("a first answer", || ask(client.outbounds[0])).await;
    let load = Handshakes::with(client.outbounds[0]);
    load.more(20).await;
    let members = [&stock, &bytes, &shop, &client];
    let mut before = Vec::new();
    for member in members {
        before.push((member, numbers(member).await.unwrap()));
    }
    let second = Root::of(DOMAIN);
    agent.believe(&[(DOMAIN, &[first.certificate(), second.certificate()])]);
    for member in members {
        believed(member, 2).await;
    }
    agent.give(&second, &ids);
    for (member, before) in &before {
        within(LONG, "a certificate of the new authority", || async move {
            let now = numbers(member).await?;
            if !now.is_empty() && now.is_disjoint(before) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
    agent.believe(&[(DOMAIN, &[second.certificate()])]);
    for member in members {
        believed(member, 1).await;
    }
    load.more(50).await;
    load.end().await;
    shop.reaches(0, "stock-1").await;
    thief.gets(0, StatusCode::FORBIDDEN).await;
    for member in [&stock, &shop] {
        for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert!(member.envoy.stat(stat).await.is_ok_and(|n| n == 0), "{stat}");
        }
    }
}

/// Waits until an Envoy believes this many roots wherever it believes any.
async fn believed(member: &Member, roots: usize) {
    within(LONG, "the roots an Envoy believes", || async move {
        let all: Value =
            serde_json::from_str(&member.envoy.admin("/certs").await?).map_err(|e| e.to_string())?;
        let of_domain = |one: &&Value| one.to_string().contains("spiffe://example.org\"");
        let certificates = all["certificates"].as_array().into_iter().flatten();
        let roots_of: Vec<usize> = certificates
            .filter_map(|one| one["ca_cert"].as_array())
            .map(|certificates| certificates.iter().filter(of_domain).count())
            .filter(|count| *count > 0)
            .collect();
        let all_have = !roots_of.is_empty() && roots_of.iter().all(|count| *count == roots);
        if all_have { Ok(()) } else { Err(format!("{roots_of:?} of {all}")) }
    })
    .await;
}

/// Whoever has no agent shows nothing, lets nobody in, and does not talk in plaintext instead.
#[tokio::test]
async fn without_its_agent_a_proxy_neither_calls_nor_serves() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&given("{}"));
    global.apply(&permit(&["spiffe://example.org"]));
    conditions(zone).await;
    let (agent, root) = (Agent::start(), Root::of(DOMAIN));
    agent.believe(&[(DOMAIN, &[root.certificate()])]);
    agent.give(&root, &["spiffe://example.org/stock", "spiffe://example.org/lost"]);
    let nowhere = [("spireAgent.socketPath", "/nowhere/agent.sock".to_owned())];
    let stock = Shape::http("stock-1", "stock", &[]);
    let stock = Member::join_saying(zone, stock, "kuma.io/workload: stock", &agent.metadata()).await;
    let call = format!("{{ kind: MeshService, name: stock, port: {} }}", stock.inbound.port());
    let calls = [call.as_str()];
    let lost = Shape::http("lost-1", "lost", &calls);
    let lost = Member::join_saying(zone, lost, "kuma.io/workload: lost", &nowhere).await;
    lost.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
    let plain = reqwest::get(format!("http://{}/", lost.inbound)).await;
    assert!(plain.is_err(), "nobody gets in without mesh TLS: {plain:?}");

    // Once there is one it goes on by itself: nothing has to be sent anew.
    drop(lost);
    let found = Shape::http("lost-1", "lost", &calls);
    let found = Member::join_saying(zone, found, "kuma.io/workload: lost", &agent.metadata()).await;
    found.reaches(0, "stock-1").await;
}

#[tokio::test]
async fn a_selector_moves_proxies_to_their_agent_and_back_without_a_failed_handshake() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(&format!("{MESH}meshServices: {{ mode: Exclusive }}\n"));
    global.apply(&permit(&["spiffe://default", "spiffe://example.org"]));
    global.apply(&given("{asks: nobody}"));
    let (agent, root) = (Agent::start(), Root::of(DOMAIN));
    // Each side is told of the other: the mesh by a MeshTrust, the agent by those it is federated with.
    let bundle = serde_json::to_string(root.certificate()).unwrap();
    global.apply(&format!(
        "{{type: MeshTrust, mesh: default, name: attested, spec: {{trustDomain: {DOMAIN}, caBundles: [{{type: Pem, pem: {{value: \
         {bundle}}}}}]}}}}"
    ));
    let of_mesh = eventually("the root of the mesh", || async {
        let name = common::ca::certificate_secret("default", "ca-1");
        let held = global.try_get(&format!("/meshes/default/secrets/{name}")).await?;
        let data = held["data"].as_str().ok_or_else(|| held.to_string())?.to_owned();
        let pem =
            base64::Engine::decode(&base64::prelude::BASE64_STANDARD, data).map_err(|e| e.to_string())?;
        String::from_utf8(pem).map_err(|e| e.to_string())
    })
    .await;
    agent.believe(&[(DOMAIN, &[root.certificate()]), ("default", &[&of_mesh])]);
    agent.give(&root, &["spiffe://example.org/bytes", "spiffe://example.org/client"]);
    secret(zone, &common::ca::certificate_secret("default", "ca-1")).await;

    let label = |workload: &str| format!("kuma.io/workload: {workload}, asks: now");
    let bytes = tcp("bytes-1", "bytes", &[]);
    let bytes = Member::join_saying(zone, bytes, &label("bytes"), &agent.metadata()).await;
    let call = format!("{{ kind: MeshService, name: bytes, port: {} }}", bytes.inbound.port());
    let calls = [call.as_str()];
    let client = tcp("client-1", "client", &calls);
    let client = Member::join_saying(zone, client, &label("client"), &agent.metadata()).await;
    eventually("a first answer", || ask(client.outbounds[0])).await;
    let load = Handshakes::with(client.outbounds[0]);
    load.more(20).await;

    global.apply(&given("{asks: now}"));
    for name in ["bytes-1", "client-1"] {
        issued_by(zone, name, "kri_mid_default_").await;
    }
    load.more(50).await;
    let names = shown(&bytes).await.unwrap();
    assert!(names.iter().any(|name| name == "spiffe://example.org/bytes"), "{names:?}");
    global.apply(&given("{asks: nobody}"));
    for name in ["bytes-1", "client-1"] {
        issued_by(zone, name, "ca-1").await;
    }
    load.more(50).await;
    load.end().await;
}
