//! A real provider of OpenID Connect, and people who log in there.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use common::testing::needs;

use super::{Browser, Options, Process, addresses, control_plane::write, eventually};

/// A provider; it ends with this value. It is made before it is started, since control planes are told where it is.
pub struct RealProvider {
    library: PathBuf,
    address: SocketAddr,
    lives: u32,
    process: Option<Process>,
}

impl RealProvider {
    /// One whose ID tokens are good for so many seconds, where there is one on this machine.
    pub fn new(lives: u32) -> Option<Self> {
        let library = needs::openid_provider()?;
        let library = std::path::absolute(&library).expect("a folder has a path");
        let host = addresses::loopback();
        let address = SocketAddr::from((host, addresses::free_port(host)));
        Some(Self { library, address, lives, process: None })
    }

    /// As its tokens name it.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
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
        self.process = Some(Process::start("provider", Path::new("node"), &args));
        let url = format!("{}/jwks", self.issuer());
        eventually("the provider answers", || {
            let asked = reqwest::get(url.clone());
            async move { asked.await.map(drop).map_err(|error| error.to_string()) }
        })
        .await;
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
