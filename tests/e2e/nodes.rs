//! Envoys that belong to no mesh: what somebody wrote reaches them, from a folder and over the API.

use std::{fs, net::SocketAddr, path::Path};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Echo, Envoy, Options, Zone,
    addresses::{free_port, loopback},
    envoy::admin_address,
    eventually, http,
};

/// The bootstrap of a node, which asks the zone at `server` for everything.
pub(crate) fn bootstrap(
    id: &str,
    api_type: &str,
    server: SocketAddr,
    admin: SocketAddr,
    secured: Option<(&Path, &str)>,
) -> String {
    let place =
        |at: SocketAddr| json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    let endpoint = json!({"lb_endpoints": [{"endpoint": {"address": place(server)}}]});
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let mut cluster = json!({
        "name": "zone", "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "zone", "endpoints": [endpoint]},
        "typed_extension_protocol_options": {
            options: {
                "@type": format!("type.googleapis.com/{options}"),
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
    });
    let mut service = json!({"envoy_grpc": {"cluster_name": "zone"}});
    if let Some((certificate, token)) = secured {
        let tls = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        cluster["transport_socket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": format!("type.googleapis.com/{tls}"),
                "common_tls_context": {"validation_context": {"trusted_ca": {"filename": certificate}}},
            },
        });
        service["initial_metadata"] = json!([{"key": "authorization", "value": token}]);
    }
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    json!({
        "node": {"id": id, "cluster": "front"},
        "admin": {"address": place(admin)},
        "dynamic_resources": {
            "lds_config": ads, "cds_config": ads,
            "ads_config": {"api_type": api_type, "transport_api_version": "V3", "grpc_services": [service]},
        },
        "static_resources": {"clusters": [cluster]},
    })
    .to_string()
}

/// A listener at `at` whose connections go to the cluster `backend`.
fn listener(at: SocketAddr) -> Value {
    let proxy = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "front", "cluster": "backend",
    });
    json!({
        "name": "front",
        "address": {"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}],
    })
}

pub(crate) fn cluster() -> Value {
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    json!({"name": "backend", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": {"eds_config": ads}})
}

pub(crate) fn endpoints(at: SocketAddr) -> Value {
    let place = json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    json!({"cluster_name": "backend", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}]})
}

pub(crate) fn config(name: &str, resources: Value) -> Value {
    let mut spec = json!({"nodes": [{"id": "front-*"}]});
    for (member, all) in resources.as_object().unwrap() {
        spec[member] = all.clone();
    }
    json!({"type": "EnvoyConfig", "name": name, "spec": spec})
}

/// Waits until who answers at `front` is `name`.
async fn answers(front: SocketAddr, name: &str) {
    eventually(&format!("{name} answers"), || async {
        let answer = reqwest::get(format!("http://{front}/")).await.map_err(|e| e.to_string())?;
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if text.contains(name) { Ok(()) } else { Err(text) }
    })
    .await;
}

async fn closed(front: SocketAddr) {
    eventually("nobody listens any more", || async move {
        match tokio::net::TcpStream::connect(front).await {
            Ok(_) => Err("somebody does"),
            Err(_) => Ok(()),
        }
    })
    .await;
}

/// Two services and a place for a listener.
pub(crate) async fn stage() -> ([SocketAddr; 2], [Echo; 2], SocketAddr) {
    let address = loopback();
    let [one, other, front] = [(); 3].map(|()| SocketAddr::from((address, free_port(address))));
    let echoes = [Echo::http("first-backend", one).await, Echo::http("second-backend", other).await];
    ([one, other], echoes, front)
}

#[tokio::test]
async fn a_folder_of_files_configures_an_envoy_without_mesh_or_token() {
    let ([one, other], _echoes, front) = stage().await;
    let folder = TempDir::new().unwrap();
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    write(
        "front.json",
        &config("front", json!({"listeners": [listener(front)], "clusters": [cluster()]})).to_string(),
    );
    fs::create_dir(folder.path().join("endpoints")).unwrap();
    let backend = |at| config("backend", json!({"endpoints": [endpoints(at)]})).to_string();
    write("endpoints/backend.yaml", &backend(one));
    let options = Options::default()
        .with("resources", &folder.path().display().to_string())
        .with("dpServer.plaintext", "true")
        .with("dpServer.authn.node.type", "none");
    let zone = Zone::alone("zone-1", options).await;
    assert!(zone.process.log().contains("runs without TLS"), "plain text is warned of");
    let admin = admin_address();
    let _envoy =
        Envoy::start("front-1", bootstrap("front-1", "GRPC", zone.dp_server, admin, None), admin).await;
    answers(front, "first-backend").await;

    write("endpoints/backend.yaml", &backend(other));
    answers(front, "second-backend").await;

    write(
        "endpoints/backend.yaml",
        "type: EnvoyConfig\nname: backend\nspec: {nodes: [{id: '*'}], endpoints: [{}]}\n",
    );
    let told = |expected: &'static str| {
        let zone = &zone;
        async move {
            let state = zone.try_get("/strait/resources").await?["state"]["files"].to_string();
            if state.contains(expected) { Ok(()) } else { Err(state) }
        }
    };
    eventually("the broken file is told", || told("spec.endpoints[0].cluster_name: must not be empty")).await;
    answers(front, "second-backend").await;
    let anybody = reqwest::get(zone.url("/strait/resources")).await.unwrap();
    assert_eq!(anybody.status(), StatusCode::FORBIDDEN, "problems quote what only some may read");
    let metrics = zone.metrics().await;
    let broken = metrics.lines().find(|line| line.starts_with("resource_files") && line.contains("broken"));
    assert!(broken.is_some_and(|line| line.ends_with(" 1")), "{broken:?}");

    // What a file says is changed there and nowhere else.
    let (status, answer) = zone.call(Method::DELETE, "/envoyconfigs/front", None).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{answer}");
    assert!(answer.to_string().contains("front.json"), "{answer}");

    write("endpoints/backend.yaml", &backend(one));
    answers(front, "first-backend").await;
    fs::remove_file(folder.path().join("front.json")).unwrap();
    closed(front).await;
}

#[tokio::test]
async fn resources_applied_one_by_one_configure_an_envoy_that_shows_its_token() {
    let ([one, other], _echoes, front) = stage().await;
    let zone = Zone::alone("zone-1", Options::default()).await;
    let args =
        ["generate", "user-token", "--name", "front-1", "--group", "mesh-system:node", "--valid-for", "1h"];
    let token = zone.straitctl(&args).trim().to_owned();
    let by_node = http::client().put(zone.url("/meshes/taken")).bearer_auth(&token);
    let refused = by_node.json(&json!({"type": "Mesh", "name": "taken"})).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN, "the token of a node writes nothing");
    zone.apply(&config("endpoints-of-backend", json!({"endpoints": [endpoints(one)]})).to_string());
    zone.apply(&config("front", json!({"listeners": [listener(front)]})).to_string());
    let admin = admin_address();
    let certificate = zone.certificate();
    let secured = Some((&*certificate, &*token));
    let _envoy =
        Envoy::start("front-1", bootstrap("front-1", "DELTA_GRPC", zone.dp_server, admin, secured), admin)
            .await;
    // The cluster comes after the listener that uses it.
    zone.apply(&config("cluster-of-backend", json!({"clusters": [cluster()]})).to_string());
    answers(front, "first-backend").await;
    zone.apply(&config("endpoints-of-backend", json!({"endpoints": [endpoints(other)]})).to_string());
    answers(front, "second-backend").await;
    zone.straitctl(&["delete", "envoyconfig", "front"]);
    closed(front).await;
    let told = zone.get("/envoyconfigs").await;
    assert_eq!(told["total"], 2, "{told}");
}
