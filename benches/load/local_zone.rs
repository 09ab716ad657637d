//! A zone on its own, started for a measurement: SQLite in a temporary folder, TLS and tokens as usual.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use reqwest::Client;
use tempfile::TempDir;
use tokio::time::sleep;

/// A running `strait-zone` without a global; it ends with this value.
pub struct StandaloneZone {
    child: Child,
    folder: TempDir,
    api: SocketAddr,
    dp_server: SocketAddr,
}

impl StandaloneZone {
    /// Starts `program` with more flags than it needs, as `--name value`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start; its log is shown.
    pub async fn start(program: &Path, flags: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = TempDir::new().context("make a temporary folder")?;
        let [api, diagnostics, dp_server] = free_ports().context("find free ports")?;
        let log = folder.path().join("log");
        let own = [
            ("general.workDir", folder.path().display().to_string()),
            ("apiServer.http.interface", Ipv4Addr::LOCALHOST.to_string()),
            ("apiServer.http.port", api.port().to_string()),
            ("apiServer.https.enabled", "false".to_owned()),
            // Nothing here is worth a token.
            ("apiServer.authn.localhostIsAdmin", "true".to_owned()),
            ("diagnostics.interface", Ipv4Addr::LOCALHOST.to_string()),
            ("diagnostics.serverPort", diagnostics.port().to_string()),
            ("dpServer.interface", Ipv4Addr::LOCALHOST.to_string()),
            ("dpServer.port", dp_server.port().to_string()),
            ("monitoringAssignmentServer.enabled", "false".to_owned()),
        ];
        let more = flags.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let flags = own.into_iter().chain(more).flat_map(|(name, value)| [format!("--{name}"), value]);
        let output = File::create(&log).context("make a file for its log")?;
        let child = Command::new(program)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share the file for its log")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut zone = Self { child, folder, api, dp_server };
        let (http, ready) = (Client::new(), format!("http://{diagnostics}/ready"));
        while !http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
            if !matches!(zone.child.try_wait(), Ok(None)) {
                bail!("{} ended at its start:\n{}", program.display(), zone.log());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(zone)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its REST API.
    pub fn api(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Where proxies connect to.
    pub fn dp_server(&self) -> String {
        format!("https://localhost:{}", self.dp_server.port())
    }

    /// The certificate it shows them.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("strait.crt")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for StandaloneZone {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn free_ports<const N: usize>() -> std::io::Result<[SocketAddr; N]> {
    // All are held until all are known, so that they differ.
    let mut held = Vec::new();
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for (address, listener) in addresses.iter_mut().zip(&held) {
        *address = listener.local_addr()?;
    }
    Ok(addresses)
}
