//! A relay process.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{Global, Options, addresses, eventually, process::Process};

/// A running relay.
pub struct Relay {
    /// The process.
    pub process: Process,
    /// Folder with its database and certificate.
    pub folder: TempDir,
    name: String,
    args: Vec<String>,
    /// Where zones connect.
    pub kds: SocketAddr,
    /// Where it tells how it is.
    pub diagnostics: SocketAddr,
}

impl Relay {
    /// A relay of `global` that proves itself with a token.
    pub async fn start(global: &Global, name: &str) -> Self {
        let token = global.straitctl(&["generate", "zone-token", "--zone", name, "--scope", "relay"]);
        let mut relay = Self::start_with_token(global, name, token.trim());
        relay.ready().await;
        relay
    }

    /// A relay that shows `token` and may not be let in.
    pub fn start_with_token(global: &Global, name: &str, token: &str) -> Self {
        let address = addresses::loopback();
        let free = || SocketAddr::from((address, addresses::free_port(address)));
        let (kds, diagnostics) = (free(), free());
        let folder = TempDir::new().expect("a temporary folder");
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, token).expect("the folder can be written");
        let flags = [
            ("general.workDir", folder.path().display().to_string()),
            ("diagnostics.interface", address.to_string()),
            ("diagnostics.serverPort", diagnostics.port().to_string()),
            ("multizone.relay.name", name.to_owned()),
            ("multizone.relay.globalAddress", global.kds_address()),
            ("multizone.relay.kds.rootCaFile", global.certificate().display().to_string()),
            ("multizone.relay.kds.tokenFile", token_file.display().to_string()),
            ("multizone.global.kds.interface", address.to_string()),
            ("multizone.global.kds.grpcPort", kds.port().to_string()),
        ];
        let args: Vec<String> =
            flags.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]).collect();
        let process = Process::start(name, Path::new(env!("CARGO_BIN_EXE_strait-relay")), &args);
        Self { process, folder, name: name.to_owned(), args, kds, diagnostics }
    }

    /// Waits until it has something to show.
    pub async fn ready(&mut self) {
        let url = format!("http://{}/ready", self.diagnostics);
        let (name, process) = (self.name.clone(), &mut self.process);
        eventually(&format!("{name} is ready"), || {
            assert!(process.runs(), "{name} ended at its start:\n{}", process.log());
            let asked = reqwest::get(url.clone());
            async move {
                let answer = asked.await.map_err(|e| e.to_string())?;
                let ready = answer.status().is_success();
                let text = answer.text().await.unwrap_or_default();
                if ready { Ok(()) } else { Err(text) }
            }
        })
        .await;
    }

    /// Starts it again on what it stored, after it ended.
    pub async fn start_again(&mut self) {
        self.process = Process::start(&self.name, Path::new(env!("CARGO_BIN_EXE_strait-relay")), &self.args);
        self.ready().await;
    }

    /// The certificate it made for itself.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("strait.crt")
    }

    /// What a zone is told so that it follows these relays, whose certificates are put together in `folder`.
    pub fn followed_by(relays: &[&Self], folder: &Path) -> Options {
        let read = |relay: &&Self| std::fs::read_to_string(relay.certificate()).expect("a certificate");
        let roots: String = relays.iter().map(read).collect();
        let file = folder.join("relays.crt");
        std::fs::write(&file, roots).expect("the folder can be written");
        let mut addresses = relays.iter().map(|relay| format!("grpcs://{}", relay.kds));
        let first = addresses.next().expect("there is a relay");
        let options = Options::default()
            .with("multizone.zone.globalAddress", &first)
            .with("multizone.zone.kds.rootCaFile", &file.display().to_string());
        let more: Vec<String> = addresses.collect();
        if more.is_empty() {
            options
        } else {
            options.with("multizone.zone.moreGlobalAddresses", &more.join(","))
        }
    }
}
