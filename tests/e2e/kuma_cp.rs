//! A mesh whose control planes are ours and Kuma's, in both directions, where `KUMA_CP` names an unmodified one. What
//! such control planes send is replayed in `tests/goldens` and played in `tests/sim`, always.

use std::{net::SocketAddr, path::Path};

use common::testing::needs;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, addresses, eventually, process::Process},
    mesh::ALLOW_ALL,
};

/// A control plane of Kuma's.
struct Theirs {
    _process: Process,
    _folder: TempDir,
    api: SocketAddr,
    /// Where zones connect to, when it is a global.
    kds: SocketAddr,
}

impl Theirs {
    async fn start(program: &Path, mode: &str, more: &[(&str, String)]) -> Self {
        let folder = TempDir::new().unwrap();
        let address = addresses::loopback();
        let at = || SocketAddr::from((address, addresses::free_port(address)));
        let (api, kds, diagnostics, inter, server) = (at(), at(), at(), at(), at());
        let usual = [
            ("KUMA_MODE", mode.to_owned()),
            ("KUMA_ENVIRONMENT", "universal".to_owned()),
            ("KUMA_STORE_TYPE", "memory".to_owned()),
            ("KUMA_GENERAL_WORK_DIR", folder.path().display().to_string()),
            ("HOME", folder.path().display().to_string()),
            ("KUMA_API_SERVER_HTTP_INTERFACE", address.to_string()),
            ("KUMA_API_SERVER_HTTP_PORT", api.port().to_string()),
            ("KUMA_API_SERVER_HTTPS_ENABLED", "false".to_owned()),
            ("KUMA_API_SERVER_AUTHN_TYPE", "adminClientCerts".to_owned()),
            ("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", kds.port().to_string()),
            ("KUMA_DIAGNOSTICS_SERVER_PORT", diagnostics.port().to_string()),
            ("KUMA_INTER_CP_SERVER_PORT", inter.port().to_string()),
            ("KUMA_DP_SERVER_PORT", server.port().to_string()),
        ];
        let more = more.iter().map(|(name, value)| (*name, value.clone()));
        let environment: Vec<(String, String)> =
            usual.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
        let process = Process::start_in(&format!("kuma-cp {mode}"), program, ["run"], &environment);
        let started = Self { _process: process, _folder: folder, api, kds };
        eventually("their API", || started.get("/")).await;
        started
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let request = Client::new().request(method, format!("http://{}{path}", self.api));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let (status, text) = (answer.status(), answer.text().await.map_err(|e| e.to_string())?);
        if status.is_success() {
            Ok(serde_json::from_str(&text).unwrap_or_default())
        } else {
            Err(format!("{status}: {text}"))
        }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        self.call(Method::GET, path, None).await
    }

    async fn put(&self, path: &str, body: Value) {
        let body = &body;
        eventually(&format!("PUT {path}"), || self.call(Method::PUT, path, Some(body))).await;
    }
}

/// Whether something in a list there has this label.
fn some(list: &Value, label: &str, value: &str) -> Result<Value, String> {
    let items = list["items"].as_array().into_iter().flatten();
    let found = items.into_iter().find(|item| item["labels"][label] == value);
    found.cloned().ok_or_else(|| list.to_string())
}

fn mesh(mode: &str) -> Value {
    json!({"type": "Mesh", "name": "default", "meshServices": {"mode": mode},
        "mtls": {"enabledBackend": "ca-1", "backends": [{"name": "ca-1", "type": "builtin"}]}})
}

/// What Kuma's zone owns: a proxy and, in a mesh with services, one of those.
fn dataplane(name: &str) -> Value {
    json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": {"address": "127.0.0.1",
        "inbound": [{"port": 8080, "tags": {"kuma.io/service": "theirs", "kuma.io/protocol": "http"}}]}})
}

const MODES: [&str; 4] = ["Disabled", "Everywhere", "ReachableBackends", "Exclusive"];

#[tokio::test]
async fn our_zone_below_their_global() {
    let Some(program) = needs::kuma_cp() else { return };
    let theirs = Theirs::start(&program, "global", &[]).await;
    // Only for the tokens it makes.
    let ours = Global::start().await;
    let options = Options::default()
        .with("multizone.zone.globalAddress", &format!("grpcs://{}", theirs.kds))
        .with("multizone.zone.kds.tlsSkipVerify", "true")
        .with("dpServer.authn.dpProxy.type", "none");
    let zone = Zone::start_with(&ours, "zone-1", options).await;
    for mode in MODES {
        theirs.put("/meshes/default", mesh(mode)).await;
        let zone = &zone;
        eventually("their mesh in our zone", || async move {
            let mesh = zone.try_get("/meshes/default").await?;
            if mesh["meshServices"]["mode"] == mode { Ok(()) } else { Err(mesh.to_string()) }
        })
        .await;
        zone.apply(&dataplane("ours-1").to_string());
        eventually("our proxy on their global", || async {
            some(&theirs.get("/meshes/default/dataplanes").await?, "kuma.io/zone", "zone-1")
        })
        .await;
        if mode != "Disabled" {
            eventually("our service on their global", || async {
                some(&theirs.get("/meshes/default/meshservices").await?, "kuma.io/zone", "zone-1")
            })
            .await;
        }
    }
    eventually("our zone online", || async {
        let shown = theirs.get("/zones/zone-1/_overview").await?;
        let newest = shown["zoneInsight"]["subscriptions"].as_array().and_then(|all| all.last().cloned());
        let rejected = newest
            .as_ref()
            .and_then(|s| s["status"]["total"]["responsesRejected"].as_str().map(str::to_owned));
        match rejected.as_deref() {
            None | Some("0") => Ok(()),
            Some(_) => Err(shown.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn their_zone_below_our_global() {
    let Some(program) = needs::kuma_cp() else { return };
    let ours = Global::start_with(Options::default().with("multizone.global.kds.auth", "none")).await;
    let own = Zone::start_with(&ours, "zone-1", Options::default()).await;
    let theirs = Theirs::start(
        &program,
        "zone",
        &[
            ("KUMA_MULTIZONE_ZONE_NAME", "zone-2".to_owned()),
            ("KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS", format!("grpcs://{}", ours.kds)),
            ("KUMA_MULTIZONE_ZONE_KDS_TLS_SKIP_VERIFY", "true".to_owned()),
        ],
    )
    .await;
    for mode in MODES {
        ours.apply(&mesh(mode).to_string());
        ours.apply(ALLOW_ALL);
        eventually("our mesh in their zone", || async {
            let mesh = theirs.get("/meshes/default").await?;
            if mesh["meshServices"]["mode"] == mode { Ok(()) } else { Err(mesh.to_string()) }
        })
        .await;
        theirs.put("/meshes/default/dataplanes/theirs-1", dataplane("theirs-1")).await;
        let ours = &ours;
        eventually("their proxy on our global", || async move {
            some(&ours.try_get("/meshes/default/dataplanes").await?, "kuma.io/zone", "zone-2")
        })
        .await;
        if mode != "Disabled" {
            let own = &own;
            eventually("their service in our zone", || async move {
                some(&own.try_get("/meshes/default/meshservices").await?, "kuma.io/zone", "zone-2")
            })
            .await;
        }
    }
    let (status, _) = ours.call(Method::GET, "/zones/zone-2", None).await;
    assert_eq!(status, StatusCode::OK);
}
