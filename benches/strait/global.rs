//! A global process to measure.

use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::{StreamExt, stream};
use reqwest::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

/// Requests under way while policies are loaded.
const LOADERS: usize = 16;

/// A running `strait-global` on SQLite, without TLS and tokens, like the floor it is compared to.
pub struct MeasuredGlobal {
    child: Child,
    _folder: TempDir,
    http: Client,
    api: SocketAddr,
    kds: SocketAddr,
    diagnostics: SocketAddr,
}

impl MeasuredGlobal {
    /// Starts it and waits until it is ready.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let [api, kds, diagnostics] = free_ports();
        let mut child = Command::new(env!("CARGO_BIN_EXE_strait-global"))
            .args(["--general.workDir", &folder.path().display().to_string()])
            .args([
                "--apiServer.http.interface",
                "127.0.0.1",
                "--apiServer.http.port",
                &api.port().to_string(),
            ])
            .args(["--apiServer.https.enabled", "false", "--diagnostics.interface", "127.0.0.1"])
            .args(["--diagnostics.serverPort", &diagnostics.port().to_string()])
            .args(["--multizone.global.kds.interface", "127.0.0.1"])
            .args(["--multizone.global.kds.grpcPort", &kds.port().to_string()])
            .args(["--multizone.global.kds.tlsEnabled", "false", "--multizone.global.kds.auth", "none"])
            .args(["--apiServer.authn.localhostIsAdmin", "true"])
            // All zones come from one address here, thousands of them at once, and nobody tells who they are.
            .args(["--general.connections.unknown", "16384"])
            .args(["--general.connections.unknownPerAddress", "8192"])
            .env("RUST_LOG", "warn")
            .stderr(Stdio::piped())
            .spawn()
            .expect("strait-global starts");
        let log = child.stderr.take().expect("stderr is piped");
        std::thread::spawn(move || {
            BufReader::new(log).lines().map_while(Result::ok).for_each(|l| eprintln!("  {l}"))
        });
        let http = Client::new();
        let ready = format!("http://{diagnostics}/ready");
        while !http.get(&ready).send().await.is_ok_and(|r| r.status().is_success()) {
            assert!(matches!(child.try_wait(), Ok(None)), "strait-global ended at its start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { child, _folder: folder, http, api, kds, diagnostics }
    }

    /// Its REST API.
    pub fn api(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where zones connect to.
    pub fn kds(&self) -> String {
        format!("http://{}", self.kds)
    }

    /// Waits until nothing was written for this long: what it notes of zones that came must not count as work at rest.
    pub async fn comes_to_rest(&self, quiet: Duration) {
        let url = format!("http://{}/metrics", self.diagnostics);
        let (mut seen, mut since) = (String::new(), Instant::now());
        while since.elapsed() < quiet {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let answer = self.http.get(&url).send().await.expect("diagnostics answer");
            let text = answer.text().await.expect("metrics are text");
            let revision = text.lines().find(|line| line.starts_with("store_revision"));
            let revision = revision.expect("global tells its revision");
            if seen != revision {
                (seen, since) = (revision.to_owned(), Instant::now());
            }
        }
    }

    /// Writes policy number `n`; `value` makes it differ from before.
    pub async fn put_policy(&self, n: usize, value: usize) {
        let name = format!("policy-{n}");
        let default = json!({"connectionTimeout": "5s", "idleTimeout": format!("{}s", value + 1)});
        let body = json!({
            "type": "MeshTimeout", "mesh": "default", "name": name,
            "spec": {"to": [{"targetRef": {"kind": "MeshService", "name": name}, "default": default}]},
        });
        let url = format!("http://{}/meshes/default/meshtimeouts/{name}", self.api);
        let answer = self.http.put(url).json(&body).send().await.expect("REST answers");
        assert!(answer.status().is_success(), "PUT {name}: {}", answer.status());
    }

    /// Writes policies 0 to `count`.
    pub async fn load_policies(&self, count: usize) {
        stream::iter(0..count).map(|n| self.put_policy(n, 0)).buffer_unordered(LOADERS).collect::<()>().await;
    }
}

impl Drop for MeasuredGlobal {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn free_ports<const N: usize>() -> [SocketAddr; N] {
    // All are held until all are known, so that they differ.
    let held: [TcpListener; N] = std::array::from_fn(|_| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports")
    });
    held.map(|l| l.local_addr().expect("a bound listener has an address"))
}
