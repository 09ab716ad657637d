//! What an operator sees inside a zone: with real Envoys of both protocols, and a node of no mesh.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    doors::ads_peer::{Stream, channel, node},
    harness::{
        Envoy, Global, Options, Zone, addresses, control_plane::write, envoy::admin_address, eventually, http,
    },
    mesh::{ALLOW_ALL, MESH, Member, Shape},
};

/// What is served to the node.
const EDGE: &str =
    "{type: EnvoyConfig, name: edge, spec: {nodes: [{id: edge-1}], clusters: [{name: of-edge}]}}";

/// The names in a list of a dump, which stand in this member of its entries.
fn names(dump: &Value, section: &str, list: &str, path: &str) -> BTreeSet<String> {
    let configs = dump["configs"].as_array().into_iter().flatten();
    let mut of = configs.filter(|one| one["@type"].as_str().is_some_and(|kind| kind.ends_with(section)));
    let found = of.next().unwrap_or(&Value::Null)[list].as_array().cloned().unwrap_or_default();
    let name = |entry: &Value| Some(entry.pointer(path)?.as_str()?.to_owned());
    found.iter().filter_map(name).collect()
}

/// Waits until a proxy has taken what it was sent of a type, and gives what is told about it.
async fn synced(zone: &Zone, proxy: &str, of: &str) -> Value {
    eventually(&format!("{of} of {proxy} are taken"), || async move {
        let all = zone.try_get("/debug/syncz").await?;
        let mut items = all.as_array().cloned().unwrap_or_default().into_iter();
        let item = items.find(|item| item["proxy"] == proxy).ok_or_else(|| all.to_string())?;
        let (sent, taken) = (&item[format!("{of}_sent")], &item[format!("{of}_acked")]);
        if sent == taken && sent != "" { Ok(item) } else { Err(item.to_string()) }
    })
    .await
}

/// Compares what the zone says an Envoy has with what it has.
async fn same_as_dumped(zone: &Zone, proxy: &str, envoy: &Envoy) {
    eventually(&format!("the Envoy of {proxy} has what the zone holds"), || async move {
        let told = zone.try_get(&format!("/debug/config_dump?proxyID={proxy}")).await?;
        let has: Value =
            serde_json::from_str(&envoy.admin("/config_dump").await?).map_err(|e| e.to_string())?;
        let pairs = [
            (
                names(&told, "ClustersConfigDump", "dynamicActiveClusters", "/cluster/name"),
                names(&has, "ClustersConfigDump", "dynamic_active_clusters", "/cluster/name"),
            ),
            (
                names(&told, "ListenersConfigDump", "dynamicListeners", "/activeState/listener/name"),
                names(&has, "ListenersConfigDump", "dynamic_listeners", "/active_state/listener/name"),
            ),
            (
                names(&told, "SecretsConfigDump", "dynamicActiveSecrets", "/name"),
                names(&has, "SecretsConfigDump", "dynamic_active_secrets", "/name"),
            ),
        ];
        let is_same = pairs.iter().all(|(told, has)| told == has && !has.is_empty());
        if is_same { Ok(()) } else { Err(format!("{pairs:?}")) }
    })
    .await;
}

/// A client of `backend` whose Envoy is told what differs.
async fn delta(zone: &Zone) -> (Envoy, SocketAddr) {
    let (address, admin) = (addresses::loopback(), admin_address());
    let outbound = SocketAddr::from((address, addresses::free_port(address)));
    let port = addresses::free_port(address);
    zone.apply(&format!(
        "
type: Dataplane
mesh: default
name: delta-1
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound: [{{ port: {port}, servicePort: 1, tags: {{ kuma.io/service: delta, kuma.io/protocol: http }} }}]
  outbound: [{{ address: {address}, port: {}, tags: {{ kuma.io/service: backend }} }}]
",
        admin.port(),
        outbound.port()
    ));
    (Envoy::incremental_sidecar(zone, "default", "delta-1", admin).await, outbound)
}

#[tokio::test]
async fn an_operator_sees_what_each_client_of_a_zone_has() {
    let zone = Zone::alone("zone-1", Options::default()).await;
    zone.apply(MESH);
    zone.apply(ALLOW_ALL);
    let backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let (delta, outbound) = delta(&zone).await;
    zone.apply(EDGE);
    let args =
        ["generate", "user-token", "--name", "edge-1", "--group", "mesh-system:node", "--valid-for", "1h"];
    let token = zone.straitctl(&args).trim().to_owned();
    let mut edge = Stream::open(channel(&zone).await, node("edge-1", None), Some(&token)).await.unwrap();
    edge.take().await.unwrap();

    for of in ["cluster", "listener"] {
        synced(&zone, "default.backend-1", of).await;
        synced(&zone, "default.delta-1", of).await;
    }
    synced(&zone, "default.delta-1", "endpoint").await;
    let of_edge = synced(&zone, "edge-1", "cluster").await;
    assert_eq!((&of_edge["proxy_type"], &of_edge["listener_sent"]), (&json!("node"), &json!("")));
    same_as_dumped(&zone, "default.backend-1", &backend.envoy).await;
    same_as_dumped(&zone, "default.delta-1", &delta).await;

    let clusters = zone.get("/debug/cdsz?proxyID=edge-1").await;
    assert_eq!(clusters["configs"][0]["name"], "of-edge");
    let endpoints = zone.get("/debug/edsz?proxyID=default.delta-1").await;
    assert!(endpoints.to_string().contains(&backend.inbound.ip().to_string()), "{endpoints}");
    assert_eq!(zone.get("/debug/connections").await["totalClients"], 3);
    let watching = zone.get("/debug/adsz?proxyID=default.delta-1").await;
    let watches = &watching["clients"][0]["watches"];
    assert_eq!(
        watches["type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"],
        json!(["backend"])
    );
    let shards = zone.get("/debug/endpointShardz").await;
    let shard = &shards["backend"]["default"]["Shards"]["Universal/zone-1"][0];
    assert_eq!(shard["Addresses"][0], backend.inbound.ip().to_string());
    let instances = zone.get("/debug/instancesz").await;
    assert_eq!(instances["default.backend-1"][0]["Service"]["hostname"], "backend");
    let services = zone.get("/debug/registryz").await.to_string();
    assert!(services.contains("\"backend\"") && services.contains("spiffe://default/delta"), "{services}");
    assert_eq!(zone.get("/debug/mesh").await["mtls"]["enabledBackend"], "ca-1");

    strangers_see_nothing(&zone).await;
    tables(&zone, &delta, outbound).await;
    comes_back(&zone, &delta).await;
    every_probe_is_told(&zone).await;
    drop(backend);
}

async fn strangers_see_nothing(zone: &Zone) {
    let stranger = http::client();
    let listed = zone.get("/debug/list").await;
    let paths: Vec<String> = serde_json::from_value(listed).unwrap();
    for path in paths.iter().map(String::as_str).chain(["/debug"]) {
        let asked = stranger.get(zone.url(path)).header("x-forwarded-for", "10.0.0.9").send().await.unwrap();
        assert_eq!(asked.status(), StatusCode::FORBIDDEN, "{path}");
        let wrong = stranger.get(zone.url(path)).bearer_auth("x.y.z").send().await.unwrap();
        assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let path = zone.url("/debug/force_disconnect?proxyID=delta-1");
    let asked = stranger.post(path).header("x-forwarded-for", "10.0.0.9").send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::FORBIDDEN);
}

/// What the commands print about the same.
async fn tables(zone: &Zone, envoy: &Envoy, outbound: SocketAddr) {
    let status = zone.straitctl(&["proxy-status"]);
    let heading: Vec<&str> = status.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["NAME", "ZONE", "CDS", "LDS", "EDS", "RDS", "ECDS", "INSTANCE", "VERSION"]);
    let row = status.lines().find(|line| line.starts_with("default.delta-1")).unwrap_or_default();
    assert!(row.contains("zone-1") && row.matches("SYNCED").count() >= 3, "{status}");
    let same = zone.straitctl(&["proxy-status", "delta-1"]);
    assert_eq!(same, "Clusters Match\nListeners Match\nRoutes Match\n");
    let same = zone.straitctl(&["proxy-status", "default.backend-1"]);
    assert_eq!(same, "Clusters Match\nListeners Match\nRoutes Match\n");

    let show = |args: &[&str]| zone.straitctl(&[&["proxy-config"][..], args].concat());
    let port = outbound.port().to_string();
    let listeners = show(&["listener", "delta-1", "--port", &port]);
    assert_eq!(listeners.lines().count(), 2, "{listeners}");
    assert!(
        listeners.starts_with("NAME") && listeners.contains(&format!("outbound:{outbound}")),
        "{listeners}"
    );
    let clusters = show(&["cluster", "delta-1", "--direction", "outbound", "--fqdn", "backend"]);
    assert!(clusters.contains("outbound") && clusters.contains("EDS"), "{clusters}");
    let endpoints = show(&["endpoint", "delta-1", "--cluster", "backend", "--status", "healthy"]);
    assert!(endpoints.contains("HEALTHY") && endpoints.contains("OK"), "{endpoints}");
    assert!(show(&["route", "delta-1"]).starts_with("NAME"));
    let secrets = show(&["secret", "delta-1"]);
    let identity = secrets.lines().find(|line| line.starts_with("identity_cert")).unwrap_or_default();
    assert!(identity.contains("Cert Chain") && identity.contains("true"), "{secrets}");
    let bootstrap: Value = serde_json::from_str(&show(&["bootstrap", "delta-1"])).unwrap();
    assert_eq!(bootstrap["node"]["id"], "default.delta-1");
    let all: Value = serde_json::from_str(&show(&["all", "delta-1", "-o", "json"])).unwrap();
    assert!(all["clusters"].as_array().is_some_and(|all| !all.is_empty()), "{all}");

    // From a file it is the same.
    let dump = envoy.admin("/config_dump?include_eds").await.unwrap();
    let file = write(zone.folder.path(), "dump.json", &dump).display().to_string();
    assert_eq!(show(&["listener", "--file", &file, "--port", &port]), listeners);
    assert!(show(&["endpoint", "-f", &file, "--cluster", "backend"]).contains("HEALTHY"));

    // Of a node nobody knows more than what it is sent.
    let (ok, _, told) = zone.try_straitctl(&["proxy-config", "cluster", "edge-1"]);
    assert!(!ok && told.contains("--held"), "{told}");
    assert!(show(&["cluster", "edge-1", "--held"]).contains("of-edge"));
    let (ok, _, told) = zone.try_straitctl(&["proxy-config", "cluster", "nobody"]);
    assert!(!ok && told.contains("straitctl proxy-status"), "{told}");
}

/// An Envoy that an operator disconnects is there again with another connection.
async fn comes_back(zone: &Zone, envoy: &Envoy) {
    let connection = async || -> Result<String, String> {
        let all = zone.try_get("/debug/connections?proxyID=default.delta-1").await?;
        let id = all["clients"][0]["connectionId"].as_str().map(str::to_owned);
        id.ok_or_else(|| all.to_string())
    };
    let before = connection().await.unwrap();
    let path = format!("/debug/force_disconnect?proxyID={before}");
    let (status, answer) = zone.call(Method::POST, &path, None).await;
    assert_eq!((status, &answer["disconnected"]), (StatusCode::OK, &json!(1)), "{answer}");
    eventually("another connection", || async {
        let now = connection().await?;
        if now == before { Err(now) } else { Ok(()) }
    })
    .await;
    eventually("the Envoy says so too", || async {
        let connected = envoy.stat("control_plane.connected_state").await?;
        if connected == 1 { Ok(()) } else { Err(connected.to_string()) }
    })
    .await;
}

async fn every_probe_is_told(zone: &Zone) {
    let answer = reqwest::get(zone.ready_url()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let told: Value = answer.json().await.unwrap();
    assert_eq!((&told["ready"], &told["waitingFor"]), (&json!(true), &json!([])));
    for part in ["start", "store"] {
        assert_eq!(told["probes"][part]["ready"], true, "{told}");
        assert!(told["probes"][part]["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{told}");
    }
}

#[tokio::test]
async fn who_refuses_or_does_not_answer_is_told_in_the_status_of_proxies() {
    let global = Global::start().await;
    let flags = Options::default().with("xdsServer.dataplaneStatusFlushInterval", "1s");
    let zone = Zone::start_with(&global, "zone-1", flags).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let (address, admin) = (addresses::loopback(), admin_address());
    let taken = TcpListener::bind((address, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    zone.apply(&format!(
        "
type: Dataplane
mesh: default
name: web
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound: [{{ port: {port}, servicePort: 1, serviceAddress: 127.0.0.1, tags: {{ kuma.io/service: web }} }}]
",
        admin.port()
    ));
    let _envoy = Envoy::sidecar(&zone, "default", "web", admin).await;
    zone.apply(&crate::bad_input::ads::dataplane("silent"));
    let token = zone.proxy_token("default", &["--name", "silent"]).await;
    // It reads what it is sent and says nothing to it.
    let _silent =
        Stream::open(channel(&zone).await, node("default.silent", None), Some(&token)).await.unwrap();

    let row = |table: &str, name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split("   ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    let is = |row: &[String], states: [&str; 2]| row.get(2..4).is_some_and(|cells| cells == states);
    let bind = format!("cannot bind '{address}:{port}'");
    eventually("the refusal in the zone", || async {
        let (_, table, notes) = zone.try_straitctl(&["proxy-status"]);
        let (web, silent) = (row(&table, "default.web"), row(&table, "default.silent"));
        let is_told =
            is(&web, ["SYNCED", "ERROR"]) && is(&silent, ["STALE", "NOT SENT"]) && notes.contains(&bind);
        if is_told { Ok(()) } else { Err(format!("{table}{notes}")) }
    })
    .await;
    eventually("the same on global", || async {
        let (_, table, notes) = global.try_straitctl(&["proxy-status"]);
        let web = row(&table, "default.web");
        let is_told = web.get(1) == Some(&"zone-1".to_owned()) && web.get(3) == Some(&"ERROR".to_owned());
        if is_told && notes.contains(&bind) { Ok(()) } else { Err(format!("{table}{notes}")) }
    })
    .await;
    let (ok, differences, told) = zone.try_straitctl(&["proxy-status", "web"]);
    assert!(!ok && differences.contains("Listeners Don't Match"), "{differences}{told}");
    assert!(
        differences.contains(&format!("- inbound:{address}:{port}: the Envoy has none")),
        "{differences}"
    );
    assert!(told.contains(&bind), "{told}");

    let named = eventually("the proxy on global", || async {
        let (_, table, _) = global.try_straitctl(&["proxy-status"]);
        let name = row(&table, "default.web").first().cloned();
        name.ok_or(table)
    })
    .await;
    let listeners = global.straitctl(&["proxy-config", "listener", &named]);
    assert!(listeners.starts_with("NAME"), "{listeners}");
    drop(taken);
}
