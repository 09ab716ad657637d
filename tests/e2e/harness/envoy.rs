//! A real Envoy.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use common::testing::needs;
use tempfile::TempDir;

use super::{Zone, addresses, control_plane::write, process::Process, wait::eventually};

/// A running Envoy that got its bootstrap from a zone.
pub struct Envoy {
    process: Process,
    _folder: TempDir,
    /// Its admin endpoint, for this machine.
    pub admin: SocketAddr,
}

/// End to end there is nothing to leave out.
fn program() -> PathBuf {
    needs::envoy().expect("end to end includes Envoy")
}

/// Envoys of one machine share memory segments by this number.
fn base_id() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (std::process::id() * 100 + NEXT.fetch_add(1, Ordering::Relaxed)).to_string()
}

impl Envoy {
    /// Sends its process a signal by name.
    pub fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// The sidecar of a dataplane.
    pub async fn sidecar(zone: &Zone, mesh: &str, name: &str, admin: SocketAddr) -> Self {
        Self::sidecar_saying(zone, mesh, name, admin, &[]).await
    }

    /// The same, with more in what it says about itself.
    pub async fn sidecar_saying(
        zone: &Zone,
        mesh: &str,
        name: &str,
        admin: SocketAddr,
        metadata: &[(&str, String)],
    ) -> Self {
        let say = |document: &mut serde_json::Value| {
            for (key, value) in metadata {
                document["node"]["metadata"][key] = value.as_str().into();
            }
        };
        Self::sidecar_with(zone, mesh, name, admin, say).await
    }

    /// The same, which is told what differs instead of all there is.
    pub async fn incremental_sidecar(zone: &Zone, mesh: &str, name: &str, admin: SocketAddr) -> Self {
        let say = |document: &mut serde_json::Value| {
            document["dynamicResources"]["adsConfig"]["apiType"] = "DELTA_GRPC".into();
        };
        Self::sidecar_with(zone, mesh, name, admin, say).await
    }

    async fn sidecar_with(
        zone: &Zone,
        mesh: &str,
        name: &str,
        admin: SocketAddr,
        adjust: impl FnOnce(&mut serde_json::Value),
    ) -> Self {
        let token = match zone.kept_token(name) {
            Some(token) => token,
            None => zone.proxy_token(mesh, &["--name", name]).await,
        };
        let bootstrap = Self::bootstrap(zone, &["--mesh", mesh, "--name", name], &token).await;
        let mut document: serde_json::Value = serde_norway::from_str(&bootstrap).expect("a bootstrap");
        adjust(&mut document);
        Self::start(name, document.to_string(), admin).await
    }

    /// The proxy of a zone ingress.
    pub async fn ingress(zone: &Zone, token: &str, name: &str, admin: SocketAddr) -> Self {
        let bootstrap = Self::bootstrap(zone, &["--proxy-type", "ingress", "--name", name], token).await;
        Self::start(name, bootstrap, admin).await
    }

    /// The proxy of a zone egress.
    pub async fn egress(zone: &Zone, token: &str, name: &str, admin: SocketAddr) -> Self {
        let bootstrap = Self::bootstrap(zone, &["--proxy-type", "egress", "--name", name], token).await;
        Self::start(name, bootstrap, admin).await
    }

    /// The bootstrap of a proxy, as an operator gets it.
    pub async fn bootstrap(zone: &Zone, args: &[&str], token: &str) -> String {
        let token_file = write(zone.folder.path(), &format!("proxy-token-{}", base_id()), token);
        let (server, ca) = (format!("https://{}", zone.dp_server), zone.certificate());
        let (token_file, ca) = (token_file.display().to_string(), ca.display().to_string());
        let fixed =
            ["bootstrap", "--cp-address", &server, "--ca-cert-file", &ca, "--token-file", &token_file];
        let all: Vec<&str> = fixed.iter().chain(args).copied().collect();
        zone.straitctl(&all)
    }

    /// Any Envoy.
    pub async fn start(name: &str, bootstrap: String, admin: SocketAddr) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let config = write(folder.path(), "bootstrap.yaml", &bootstrap).display().to_string();
        let base_id = base_id();
        let args = ["-c", &config, "--base-id", &base_id, "--concurrency", "1", "--log-level", "warning"];
        let process = Process::start(name, &program(), args);
        let envoy = Self { process, _folder: folder, admin };
        eventually(&format!("Envoy {name} is live"), || envoy.admin("/ready")).await;
        envoy
    }

    /// GETs a path of its admin listener.
    pub async fn admin(&self, path: &str) -> Result<String, String> {
        let answer = reqwest::get(format!("http://{}{path}", self.admin)).await.map_err(|e| e.to_string())?;
        let (status, text) = (answer.status(), answer.text().await.map_err(|e| e.to_string())?);
        if status.is_success() { Ok(text) } else { Err(format!("{status}: {text}")) }
    }

    /// One counter or gauge.
    pub async fn stat(&self, name: &str) -> Result<u64, String> {
        let text = self.admin(&format!("/stats?filter=^{name}$")).await?;
        let value = text.split(": ").nth(1).ok_or_else(|| format!("no stat {name}"))?;
        value.trim().parse().map_err(|_| format!("{name} is {value:?}"))
    }
}

/// A fresh admin address.
pub fn admin_address() -> SocketAddr {
    let address = Ipv4Addr::LOCALHOST;
    SocketAddr::from((address, addresses::free_port(address)))
}
