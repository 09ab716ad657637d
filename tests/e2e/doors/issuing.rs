//! A zone that was stolen speaks for itself and for no other.

use std::{collections::BTreeSet, net::SocketAddr};

use base64::{Engine, prelude::BASE64_STANDARD};
use common::{
    issuing,
    kds::{
        features::{self, Features},
        metadata::Peer,
    },
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource as Item},
    tls::KeyPairPem,
};
use reqwest::{Client, Identity as ClientIdentity, Method, StatusCode};
use serde_json::{Value, json};
use zone::mesh::{Authority, AuthorityPem, Identity, WorkloadCertificate, WorkloadKey};

use crate::{
    harness::{
        Envoy, Global, Options, Zone, control_plane::ControlPlane, envoy::admin_address, eventually,
        kds_peer::KdsPeer,
    },
    mesh::{ALLOW_ALL, MESH, Member, Shape, ingress},
};

const ROOT: &str = "/meshes/default/secrets/default.ca-builtin-cert-ca-1";
const ROOT_KEY: &str = "/meshes/default/secrets/default.ca-builtin-key-ca-1";

async fn secret(of: &ControlPlane, path: &str) -> Result<String, String> {
    let secret = of.try_get(path).await?;
    let data = BASE64_STANDARD.decode(secret["data"].as_str().unwrap_or_default());
    String::from_utf8(data.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// What a thief finds in a zone.
pub(super) struct Loot {
    root: String,
    key: String,
    certificate: String,
}

impl Loot {
    pub(super) async fn of(zone: &Zone) -> Self {
        let own =
            format!("/meshes/default/secrets/{}", issuing::certificate_secret("default", "ca-1", &zone.zone));
        let certificate = eventually("the certificate of the zone", || secret(zone, &own)).await;
        let key = format!("/global-secrets/{}", issuing::KEY_SECRET);
        Self {
            root: secret(zone, ROOT).await.expect("the root is everywhere"),
            key: secret(zone, &key).await.expect("a zone has its key"),
            certificate,
        }
    }

    /// Signs for the service `backend` in `claimed`, with the DNS name of the zone `named`, or without one.
    pub(super) fn sign(&self, claimed: &str, named: Option<&str>) -> KeyPairPem {
        let (root, key) = (self.root.clone(), self.key.clone());
        let material = match named {
            Some(zone) => AuthorityPem { root, key, zone: Some((zone.to_owned(), self.certificate.clone())) },
            None => AuthorityPem { root: self.certificate.clone(), key, zone: None },
        };
        let authority =
            Authority::from_pem("ca-1", material, chrono::Duration::hours(1)).expect("it can sign");
        let tags = [("kuma.io/service", "backend"), ("kuma.io/zone", claimed)];
        let tags = tags.map(|(key, value)| (key.to_owned(), BTreeSet::from([value.to_owned()])));
        let identity = Identity { mesh: "default".to_owned(), tags: tags.into(), given: None };
        let workload = WorkloadKey::generate().expect("there is randomness");
        let now = common::runtime::Env::system("thief").now();
        let WorkloadCertificate { mut certificate, key, .. } =
            authority.issue(identity, &workload, now).expect("it signs");
        if named.is_none() {
            certificate.push_str(&self.certificate);
        }
        KeyPairPem { certificate, key }
    }
}

/// A server at `address` that shows `pair` and answers whatever it is asked.
async fn impostor(address: SocketAddr, pair: &KeyPairPem) -> Envoy {
    let admin = admin_address();
    let at = |to: SocketAddr| json!({ "socket_address": { "address": to.ip().to_string(), "port_value": to.port() } });
    let any = |of: &str, mut message: Value| {
        message["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{of}"));
        message
    };
    let tls = json!({ "common_tls_context": { "tls_certificates": [{
        "certificate_chain": { "inline_string": pair.certificate },
        "private_key": { "inline_string": pair.key },
    }] } });
    let answer = json!({ "status": 200, "body": { "inline_string": "impostor" } });
    let router = any("filters.http.router.v3.Router", json!({}));
    let http = json!({
        "stat_prefix": "impostor",
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [
            { "match": { "prefix": "/" }, "direct_response": answer },
        ] }] },
        "http_filters": [{ "name": "router", "typed_config": router }],
    });
    let manager = "filters.network.http_connection_manager.v3.HttpConnectionManager";
    let bootstrap = json!({
        "admin": { "address": at(admin) },
        "static_resources": { "listeners": [{ "name": "impostor", "address": at(address), "filter_chains": [{
            "transport_socket": {
                "name": "tls",
                "typed_config": any("transport_sockets.tls.v3.DownstreamTlsContext", tls),
            },
            "filters": [{ "name": "http", "typed_config": any(manager, http) }],
        }] }] },
    });
    Envoy::start("impostor", bootstrap.to_string(), admin).await
}

/// Calls the sidecar at `address` with this certificate.
pub(super) async fn call_as(pair: &KeyPairPem, address: SocketAddr) -> Option<StatusCode> {
    let pem = format!("{}{}", pair.certificate, pair.key);
    let identity = ClientIdentity::from_pem(pem.as_bytes()).expect("a good pair");
    let client = Client::builder().identity(identity).danger_accept_invalid_certs(true).http1_only();
    let client = client.build().expect("a client");
    client.get(format!("https://{address}/")).send().await.ok().map(|answer| answer.status())
}

pub(super) async fn federation() -> (Global, Vec<Zone>) {
    let global = Global::start().await;
    let mut zones = Vec::new();
    for name in ["zone-1", "zone-2"] {
        zones.push(Zone::start_with(&global, name, Options::default()).await);
    }
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    (global, zones)
}

#[tokio::test]
async fn a_stolen_zone_speaks_for_no_other() {
    let (global, zones) = federation().await;
    let (first, stolen) = (Loot::of(&zones[0]).await, Loot::of(&zones[1]).await);
    for zone in &zones {
        let (status, _) = zone.call(Method::GET, ROOT_KEY, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "the key of the root stays on global");
    }
    let root_key = secret(&global, ROOT_KEY).await.expect("global has it");
    assert_ne!(root_key, stolen.key);
    assert_ne!(first.key, stolen.key);

    // In zone 1 and from zone 1 to zone 2 all is as ever.
    let _ingress = ingress(&global, &zones[1]).await;
    let _inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend", "inventory"])).await;
    client.reaches(0, "backend-1").await;
    client.reaches(1, "inventory-1").await;

    // As a client: only what zone 1 signed comes from zone 1.
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    global.apply(
        "
type: MeshTrafficPermission
name: only-zone-1
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: MeshSubset, tags: { kuma.io/zone: zone-1 } }
      default: { action: Allow }
",
    );
    let own = first.sign("zone-1", Some("zone-1"));
    let stranger = stolen.sign("zone-2", Some("zone-2"));
    eventually("the permission", || async {
        // Before it is there everybody is let in.
        match (call_as(&stranger, backend.inbound).await, call_as(&own, backend.inbound).await) {
            (Some(StatusCode::FORBIDDEN), Some(StatusCode::OK)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for (named, expected) in [
        (Some("zone-2"), Some(StatusCode::FORBIDDEN)),
        (None, Some(StatusCode::FORBIDDEN)),
        (Some("zone-1"), None),
    ] {
        let forged = stolen.sign("zone-1", named);
        let got = call_as(&forged, backend.inbound).await;
        assert_eq!(got, expected, "as a client of zone 1 with a DNS name of {named:?}");
    }

    // As a server in the place of one of zone 1.
    let address = backend.inbound;
    drop(backend);
    let honest = impostor(address, &first.sign("zone-1", Some("zone-1"))).await;
    eventually("an answer under a certificate of zone 1", || async {
        match client.call(0, "/").await? {
            (StatusCode::OK, _) => Ok(()),
            (status, seen) => Err(format!("{status}: {seen}")),
        }
    })
    .await;
    drop(honest);
    for named in [Some("zone-1"), Some("zone-2"), None] {
        let impostor = impostor(address, &stolen.sign("zone-1", named)).await;
        let before = refusals(&client).await;
        eventually("a refusal of the forged certificate", || async {
            let (status, seen) = client.call(0, "/").await?;
            assert_ne!(seen, "impostor", "a certificate with a DNS name of {named:?} is believed");
            if refusals(&client).await > before { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        drop(impostor);
    }
}

/// How many certificates of the service `backend` the sidecar has refused.
async fn refusals(member: &Member) -> u64 {
    let mut sum = 0;
    for stat in ["fail_verify_san", "fail_verify_error"] {
        sum += member.envoy.stat(&format!("cluster.backend.ssl.{stat}")).await.unwrap_or_default();
    }
    sum
}

/// The secrets global sends to this peer when it says that it has no issuing key.
async fn secrets_sent_to(peer: &KdsPeer) -> Vec<(String, String)> {
    let features = Features::ours().without(features::RESUME).without(features::ISSUING);
    let node = Peer { features, ..Peer::default() }.node(&peer.caller.zone);
    let first = DeltaDiscoveryRequest { node: Some(node), ..peer.first("Secret", Peer::default()) };
    let mut down = peer.down(first).await.expect("the token is good");
    let sent = down.next().await.expect("the secrets of the mesh");
    let text = |item: Item| String::from_utf8_lossy(&item.resource.unwrap_or_default().value).into_owned();
    sent.resources.into_iter().map(|item| (item.name.clone(), text(item))).collect()
}

#[tokio::test]
async fn a_zone_does_not_get_the_key_of_the_mesh_by_hiding_that_it_has_its_own() {
    let (global, mut zones) = federation().await;
    Loot::of(&zones[0]).await;
    eventually("the request of the zone", || global.try_get("/global-secrets/zone-issuing-request.zone-1"))
        .await;

    // The thief of zone 1 comes as a zone of Kuma would, and one of Kuma comes for the first time.
    zones.remove(0).process.stop().await;
    let thief = KdsPeer::connect(&global, "zone-1").await;
    let sent = secrets_sent_to(&thief).await;
    let has = |sent: &[(String, String)], part: &str| sent.iter().any(|(name, _)| name.contains(part));
    assert!(has(&sent, "ca-builtin-cert") && has(&sent, "dataplane-token-signing-public-key"), "{sent:?}");
    assert!(!has(&sent, "ca-builtin-key") && !has(&sent, "dataplane-token-signing-key"), "{sent:?}");
    assert!(!sent.iter().any(|(_, data)| data.contains("PRIVATE KEY")), "{sent:?}");

    let kumas = KdsPeer::connect(&global, "zone-3").await;
    let sent = secrets_sent_to(&kumas).await;
    assert!(has(&sent, "ca-builtin-key") && has(&sent, "dataplane-token-signing-key"), "{sent:?}");
    assert!(!has(&sent, "dataplane-token-signing-public-key"), "{sent:?}");
}

/// What `inspect zones` says about who has the keys of the mesh.
async fn is_noted(global: &Global, zone: &str) -> Result<bool, String> {
    let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
    match overview["strait"]["status"].as_str() {
        Some("online") => {
            Ok(overview["strait"]["notes"].to_string().contains("got the keys of whole meshes"))
        }
        other => Err(format!("it is {other:?}")),
    }
}

#[tokio::test]
async fn a_zone_that_holds_the_keys_of_a_mesh_is_noted_and_no_other() {
    let (global, zones) = federation().await;
    Loot::of(&zones[0]).await;
    let kumas = KdsPeer::connect(&global, "zone-3").await;
    let first = kumas.first("Secret", Peer::default());
    let node = Peer { features: Features::default(), ..Peer::default() }.node("zone-3");
    let _stream =
        kumas.down(DeltaDiscoveryRequest { node: Some(node), ..first }).await.expect("it is let in");
    assert!(eventually("zone-3 is there", || is_noted(&global, "zone-3")).await);
    assert!(!eventually("zone-1 is there", || is_noted(&global, "zone-1")).await);

    // No zone has more than the others where all have the same.
    global.apply(&format!("{MESH}labels: {{ strait.io/issuing: mesh }}\n"));
    assert!(!eventually("zone-3 is there", || is_noted(&global, "zone-3")).await);
}

#[tokio::test]
async fn the_label_of_the_mesh_decides_whether_zones_have_its_root() {
    let (global, zones) = federation().await;
    Loot::of(&zones[0]).await;
    global.apply(&format!("{MESH}labels: {{ strait.io/issuing: mesh }}\n"));
    eventually("the key of the mesh in the zone", || secret(&zones[0], ROOT_KEY)).await;
    global.apply(&format!("{MESH}labels: {{ strait.io/issuing: zone }}\n"));
    eventually("no key of the mesh in the zone", || async {
        match zones[0].call(Method::GET, ROOT_KEY, None).await.0 {
            StatusCode::NOT_FOUND => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    let (status, _) = put_mesh(&global, "everybody").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn where_only_zones_with_keys_sign_nobody_else_gets_one_or_is_believed() {
    let (global, zones) = federation().await;
    Loot::of(&zones[0]).await;
    let stolen = Loot::of(&zones[1]).await;
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    global.apply(
        "
type: MeshTrafficPermission
name: only-zone-9
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: MeshSubset, tags: { kuma.io/zone: zone-9 } }
      default: { action: Allow }
",
    );
    // Nobody certified a zone of that name, so a URI name that any zone can sign is all there is to go by.
    let claims = stolen.sign("zone-9", Some("zone-2"));
    let answered = async |wanted: StatusCode| match call_as(&claims, backend.inbound).await {
        Some(status) if status == wanted => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually("who says to be in zone 9 is believed", || answered(StatusCode::OK)).await;
    global.apply(&format!("{MESH}labels: {{ strait.io/issuing: zone-only }}\n"));
    eventually("it has to be proven", || answered(StatusCode::FORBIDDEN)).await;

    let kumas = KdsPeer::connect(&global, "zone-3").await;
    let sent = secrets_sent_to(&kumas).await;
    assert!(sent.iter().any(|(name, _)| name.contains("ca-builtin-cert")), "{sent:?}");
    let is_key = |name: &str| name.contains("ca-builtin-key") || name.contains("token-signing");
    assert!(!sent.iter().any(|(name, data)| is_key(name) || data.contains("PRIVATE KEY")), "{sent:?}");
    let (status, _) = zones[0].call(Method::GET, ROOT_KEY, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

async fn put_mesh(global: &Global, issuing: &str) -> (StatusCode, Value) {
    let mesh = json!({ "type": "Mesh", "name": "m", "labels": { "strait.io/issuing": issuing } });
    global.call(Method::PUT, "/meshes/m", Some(mesh)).await
}

/// A session ends with its stream, so there is none before nothing can come in between.
#[tokio::test]
async fn a_zone_whose_request_is_refused_has_no_session() {
    let global = Global::start().await;
    let mut peer = KdsPeer::connect(&global, "zone-9").await;
    peer.caller.issuing_request = Some("this is no request".to_owned());
    let refused = peer.down(peer.first("Secret", Peer::default())).await.err().expect("that is no request");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    assert_ne!(global.zone_status("zone-9").await.unwrap(), "online");
}
