//! Who proxies are, and who vouches for that, while it changes under load.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    harness::{ControlPlane, Global, Zone, eventually, wait::within},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, ingress},
    resilience::Load,
};

/// Long enough for a busy machine on which proxies also wait until others have heard of something.
pub const LONG: Duration = Duration::from_secs(120);

/// Calls a TCP service without pause until dropped, each time over a connection of its own: so each call is a
/// handshake with whatever both sides show at that moment.
pub struct Handshakes {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Handshakes {
    /// Begins to call what is there.
    pub fn with(at: SocketAddr) -> Self {
        let (stop, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&good));
        let task = tokio::spawn(async move {
            let mut bad = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match ask(at).await {
                    Ok(()) => {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => bad.push(error),
                }
            }
            bad
        });
        Self { stop, good, task }
    }

    /// Waits until this many more went well.
    pub async fn more(&self, count: usize) {
        let goal = self.good.load(Ordering::Relaxed) + count;
        eventually("more good handshakes", || async move {
            let now = self.good.load(Ordering::Relaxed);
            if now >= goal { Ok(()) } else { Err(format!("{now} of {goal}")) }
        })
        .await;
    }

    /// Stops; none may have failed.
    pub async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let bad = self.task.await.unwrap();
        let good = self.good.load(Ordering::Relaxed);
        let some = &bad[..bad.len().min(5)];
        assert!(bad.is_empty(), "{} of {} handshakes failed: {some:?}", bad.len(), good + bad.len());
        println!("{good} handshakes, none failed");
    }
}

/// Calls a TCP service once.
pub async fn ask(at: SocketAddr) -> Result<(), String> {
    let connect = TcpStream::connect(at).await.map_err(|error| format!("connect: {error}"))?;
    let mut stream = BufReader::new(connect);
    stream.write_all(b"ping\n").await.map_err(|error| format!("write: {error}"))?;
    let mut said = String::new();
    for _ in 0..2 {
        stream.read_line(&mut said).await.map_err(|error| format!("read: {error}"))?;
    }
    if said.ends_with("ping\n") { Ok(()) } else { Err(format!("closed after {said:?}")) }
}

/// The URI names in the certificates that an Envoy shows to others.
pub async fn shown(member: &Member) -> Result<Vec<String>, String> {
    let all: Value = serde_json::from_str(&member.envoy.admin("/certs").await?).map_err(|e| e.to_string())?;
    let names = |certificate: &Value| {
        let names = certificate["cert_chain"][0]["subject_alt_names"].as_array().into_iter().flatten();
        names.filter_map(|name| name["uri"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    Ok(all["certificates"].as_array().into_iter().flatten().flat_map(names).collect())
}

/// Waits until the certificate of a proxy is from this backend, or by this identity.
pub async fn issued_by(zone: &Zone, proxy: &str, backend: &str) {
    within(LONG, &format!("a certificate of {backend} for {proxy}"), || async move {
        let insight = zone.try_get(&format!("/meshes/default/dataplane-insights/{proxy}")).await?;
        let by = insight["mTLS"]["issuedBackend"].as_str().unwrap_or_default().to_owned();
        if by.contains(backend) { Ok(()) } else { Err(insight["mTLS"].to_string()) }
    })
    .await;
}

/// Waits until a secret of the mesh is there whose name begins so.
pub async fn secret(at: &ControlPlane, name: &str) {
    eventually(name, || async move {
        let secrets = at.try_get("/meshes/default/secrets").await?;
        let items = secrets["items"].as_array().into_iter().flatten();
        let found =
            items.into_iter().any(|secret| secret["name"].as_str().is_some_and(|n| n.starts_with(name)));
        if found { Ok(()) } else { Err(secrets.to_string()) }
    })
    .await;
}

/// A TCP service that calls `calls`.
pub fn tcp<'a>(name: &'a str, service: &'a str, calls: &'a [&'a str]) -> Shape<'a> {
    Shape { mesh: "default", name, service, protocol: "tcp", tags: "", calls }
}

#[tokio::test]
async fn an_authority_is_rotated_without_plaintext_and_without_a_failed_handshake() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let _ingress = ingress(&global, &zones[1]).await;
    let _near = Member::join(&zones[0], tcp("near-1", "near", &[])).await;
    let _far = Member::join(&zones[1], tcp("far-1", "far", &[])).await;
    let client = Member::join(&zones[0], tcp("client-1", "client", &["near", "far"])).await;
    for at in &client.outbounds {
        eventually("a first answer", || ask(*at)).await;
    }
    let load: Vec<Handshakes> = client.outbounds.iter().map(|at| Handshakes::with(*at)).collect();
    let mesh = |enabled: &str, backends: &[&str]| {
        let listed: String =
            backends.iter().map(|name| format!("{{name: {name}, type: builtin}},")).collect();
        format!("{{type: Mesh, name: default, mtls: {{enabledBackend: {enabled}, backends: [{listed}]}}}}")
    };

    // At one go it would break off.
    let (done, _, error) = global.try_straitctl(&["apply", "-f", &file(&global, &mesh("ca-2", &["ca-2"]))]);
    assert!(!done && error.contains("first add"), "{error}");

    global.apply(&mesh("ca-1", &["ca-1", "ca-2"]));
    for zone in &zones {
        secret(zone, &common::issuing::certificate_secret("default", "ca-2", &zone.zone)).await;
    }
    global.apply(&mesh("ca-2", &["ca-1", "ca-2"]));
    issued_by(&zones[0], "near-1", "ca-2").await;
    issued_by(&zones[0], "client-1", "ca-2").await;
    issued_by(&zones[1], "far-1", "ca-2").await;
    for one in &load {
        one.more(20).await;
    }
    global.apply(&mesh("ca-2", &["ca-2"]));
    for zone in &zones {
        within(LONG, "one authority in the zone", || async move {
            let mesh = zone.try_get("/meshes/default").await?;
            let listed = mesh["mtls"]["backends"].as_array().map_or(0, Vec::len);
            if listed == 1 { Ok(()) } else { Err(mesh["mtls"].to_string()) }
        })
        .await;
    }
    for one in load {
        one.more(50).await;
        one.end().await;
    }
}

fn file(global: &Global, text: &str) -> String {
    let folder = global.admin_token_file().parent().unwrap().to_owned();
    crate::harness::control_plane::write(&folder, "asked.yaml", text).display().to_string()
}

#[tokio::test]
async fn plaintext_is_given_up_without_a_failed_request() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let mesh = |mode: &str| {
        format!(
            "{{type: Mesh, name: default, mtls: {{enabledBackend: ca-1, backends: [{{name: ca-1, type: builtin, mode: {mode}}}]}}}}"
        )
    };
    global.apply(&mesh("PERMISSIVE"));
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let _bytes = Member::join(&zones[0], tcp("bytes-1", "bytes", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend", "bytes"])).await;
    let client = &client;
    within(LONG, "TLS between them", || async move {
        let (_, seen) = client.call(0, "/").await?;
        let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
        if peer.contains("URI=spiffe://default/client") { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    eventually("a first answer", || ask(client.outbounds[1])).await;
    let plain = |at: SocketAddr| async move {
        let answer = reqwest::get(format!("http://{at}/")).await.map_err(|error| error.to_string())?;
        if answer.status() == StatusCode::OK { Ok(()) } else { Err(answer.status().to_string()) }
    };
    eventually("plaintext to the sidecar", || plain(backend.inbound)).await;
    let requests = Load::on(format!("http://{}/", client.outbounds[0]));
    let handshakes = Handshakes::with(client.outbounds[1]);
    requests.more(20).await;
    global.apply(&mesh("STRICT"));
    within(LONG, "no plaintext any more", || async {
        match plain(backend.inbound).await {
            Ok(()) => Err("plaintext is let in".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    requests.more(50).await;
    handshakes.more(20).await;
    handshakes.end().await;
    let bad = requests.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

/// Gives an identity to those with these labels.
pub fn given(selector: &str) -> String {
    format!(
        "
type: MeshIdentity
name: given
mesh: default
spec:
  selector: {{ dataplane: {{ matchLabels: {selector} }} }}
  provider:
    type: Bundled
    bundled: {{ insecureAllowSelfSigned: true, autogenerate: {{ enabled: true }} }}
"
    )
}

/// Everybody whose SPIFFE identity begins so may call.
pub fn permit(prefixes: &[&str]) -> String {
    let allow: String = prefixes
        .iter()
        .map(|prefix| format!("          - spiffeID: {{ type: Prefix, value: '{prefix}' }}\n"))
        .collect();
    format!(
        "
type: MeshTrafficPermission
name: members
mesh: default
spec:
  rules:
    - default:
        allow:
{allow}"
    )
}

/// Waits until the service `name` of zone 2 is in zone 1, and says how it is referred to.
pub async fn reference(zone: &Zone, name: &str, port: u16) -> String {
    eventually("the service of the other zone", || async move {
        let all = zone.try_get("/meshes/default/meshservices").await?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let found = items.any(|item| {
            item["labels"]["kuma.io/display-name"] == name && item["labels"]["kuma.io/zone"] == "zone-2"
        });
        if found { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
    format!(
        "{{ kind: MeshService, labels: {{ kuma.io/display-name: {name}, kuma.io/zone: zone-2 }}, port: {port} }}"
    )
}

#[tokio::test]
async fn identities_are_given_and_believed_across_zones() {
    let (global, zones) = federation(2).await;
    // Nothing but what MeshIdentity gives.
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&given("{}"));
    global.apply(&permit(&["spiffe://default.zone-1.mesh.local/workload/shop"]));
    let _ingress = ingress(&global, &zones[1]).await;
    let stock = Shape::http("stock-1", "stock", &[]);
    let stock = Member::join_labelled(&zones[1], stock, "kuma.io/workload: stock").await;
    let call = reference(&zones[0], "stock", stock.inbound.port()).await;
    let calls = [call.as_str()];
    let shop = Shape::http("shop-1", "shop", &calls);
    let shop = Member::join_labelled(&zones[0], shop, "kuma.io/workload: shop").await;
    let thief = Shape::http("thief-1", "thief", &calls);
    let thief = Member::join_labelled(&zones[0], thief, "kuma.io/workload: thief").await;

    let seen = shop.reaches(0, "stock-1").await;
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default.zone-1.mesh.local/workload/shop"), "{seen}");
    thief.gets(0, StatusCode::FORBIDDEN).await;
    let names = shown(&shop).await.unwrap();
    assert!(names.iter().all(|name| name == "spiffe://default.zone-1.mesh.local/workload/shop"), "{names:?}");
    issued_by(&zones[0], "shop-1", "kri_mid_default_").await;

    // Each zone keeps the key of its authority, and each says what it gave.
    let secrets = global.get("/meshes/default/secrets").await.to_string();
    assert!(!secrets.contains("given"), "{secrets}");
    for zone in &zones {
        let trusts = zone.get("/meshes/default/meshtrusts").await;
        assert_eq!(trusts["items"].as_array().map(Vec::len), Some(2), "{trusts}");
    }
    let service = zones[1].get("/meshes/default/meshservices/stock").await;
    let identities = service["spec"]["identities"].to_string();
    assert!(identities.contains("spiffe://default.zone-2.mesh.local/workload/stock"), "{service}");
    for member in [&stock, &shop] {
        let rejected = ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"];
        for stat in rejected {
            assert!(member.envoy.stat(stat).await.is_ok_and(|n| n == 0), "{stat}");
        }
    }
}

#[tokio::test]
async fn a_selector_moves_proxies_to_identities_of_their_own_without_a_failed_handshake() {
    let (global, zones) = federation(2).await;
    global.apply(&format!("{MESH}meshServices: {{ mode: Exclusive }}\n"));
    // Members of the mesh, and of the trust domain that is called after it and zone 1.
    global.apply(&permit(&["spiffe://default"]));
    global.apply(&given("{moves: first}"));
    let _ingress = ingress(&global, &zones[1]).await;
    let near = tcp("near-1", "near", &[]);
    let near = Member::join_labelled(&zones[0], near, "kuma.io/workload: near, moves: now").await;
    let far = tcp("far-1", "far", &[]);
    let far = Member::join_labelled(&zones[1], far, "kuma.io/workload: far, moves: now").await;
    let local = format!("{{ kind: MeshService, name: near, port: {} }}", near.inbound.port());
    let remote = reference(&zones[0], "far", far.inbound.port()).await;
    let calls = [local.as_str(), remote.as_str()];
    let client = tcp("client-1", "client", &calls);
    let client = Member::join_labelled(&zones[0], client, "kuma.io/workload: client, moves: now").await;
    for at in &client.outbounds {
        eventually("a first answer", || ask(*at)).await;
    }
    let load: Vec<Handshakes> = client.outbounds.iter().map(|at| Handshakes::with(*at)).collect();
    for one in &load {
        one.more(20).await;
    }

    global.apply(&given("{moves: now}"));
    issued_by(&zones[0], "near-1", "kri_mid_default_").await;
    issued_by(&zones[0], "client-1", "kri_mid_default_").await;
    issued_by(&zones[1], "far-1", "kri_mid_default_").await;
    for one in load {
        one.more(50).await;
        one.end().await;
    }
    let names = shown(&near).await.unwrap();
    assert!(names.iter().any(|name| name == "spiffe://default.zone-1.mesh.local/workload/near"), "{names:?}");
}
