//! A real provider of OpenID Connect, and people who log in there.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use common::{testing::needs, tls::KeyPairPem};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::{Browser, Options, Process, addresses, control_plane::write, eventually};

/// A provider; it ends with this value. It is made before it is started, since control planes are told where it is.
pub struct RealProvider {
    library: PathBuf,
    address: SocketAddr,
    lives: u32,
    certificate: Option<TempDir>,
    process: Option<Process>,
}

impl RealProvider {
    /// One whose ID tokens are good for so many seconds, where there is one on this machine.
    pub fn new(lives: u32) -> Option<Self> {
        let library = needs::openid_provider()?;
        let library = std::path::absolute(&library).expect("a folder has a path");
        let host = addresses::loopback();
        let address = SocketAddr::from((host, addresses::free_port(host)));
        Some(Self { library, address, lives, certificate: None, process: None })
    }

    /// The same with TLS, by a certificate that nobody else vouches for.
    pub fn private(lives: u32) -> Option<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        let provider = Self::new(lives)?;
        let hosts = [provider.address.ip().to_string()];
        KeyPairPem::kept_in(folder.path(), "provider", &hosts).expect("a certificate can be made");
        Some(Self { certificate: Some(folder), ..provider })
    }

    /// A file of it that belongs to its certificate.
    fn file(&self, name: &str) -> Option<String> {
        Some(self.certificate.as_ref()?.path().join(name).display().to_string())
    }

    /// The roots of one that has its own.
    pub fn roots(&self) -> String {
        self.file("provider.crt").expect("it has a certificate")
    }

    /// As its tokens name it.
    pub fn issuer(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// What a control plane is told of it.
    pub fn options(&self, folder: &Path, cli: &str) -> Options {
        let secret = write(folder, "client-secret", "secret-of-the-page\n").display().to_string();
        let setting = |name: &str| format!("apiServer.authn.openIdConnect.{name}");
        Options::default()
            .with(&setting("issuer"), &self.issuer())
            .with(&setting("clientId"), "strait-page")
            .with(&setting("clientSecretFile"), &secret)
            .with(&setting("cliClientId"), cli)
    }

    /// Starts it, with keys of its own, for people who come back to these control planes.
    pub async fn start(&mut self, pages: &[String]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/oidc/provider.mjs");
        let mut args = vec![script.display().to_string(), self.library.display().to_string()];
        args.extend([self.address.ip().to_string(), self.address.port().to_string(), self.lives.to_string()]);
        args.extend(pages.iter().cloned());
        let files = [("CERTIFICATE", self.file("provider.crt")), ("KEY", self.file("provider.key"))];
        let environment: Vec<(String, String)> =
            files.into_iter().filter_map(|(name, file)| Some((name.to_owned(), file?))).collect();
        self.process = Some(Process::start_in("provider", Path::new("node"), &args, &environment));
        eventually("the provider listens", || TcpStream::connect(self.address)).await;
    }

    /// It is gone, and so is what it knew.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Goes through its pages in the name of `person`, and agrees to everything, until `is_done` by address and text.
    pub async fn agree(&self, browser: &Browser, person: &str, is_done: impl Fn(&str, &str) -> bool) {
        let script = format!(
            "if (document.readyState !== 'complete' || window.stepped) return ['', ''];
             if (location.origin === '{}') {{
               const name = document.querySelector('input[name=login]');
               if (name) {{ name.value = '{person}'; document.querySelector('input[name=password]').value = 'x'; }}
               const button = document.querySelector('.login-submit, button[autofocus]');
               if (button) {{ window.stepped = true; button.click(); return ['', '']; }}
             }}
             return [location.href, document.body.innerText];",
            self.issuer()
        );
        eventually(&format!("{person} is through at the provider"), || {
            let (script, is_done) = (&script, &is_done);
            async move {
                let at = browser.try_eval(script).await?;
                let (url, text) = (at[0].as_str().unwrap_or_default(), at[1].as_str().unwrap_or_default());
                if is_done(url, text) { Ok(()) } else { Err(at.to_string()) }
            }
        })
        .await;
    }
}
