//! straitctl: the device flow, renewal, and what a token is good for.

use std::{
    os::unix::fs::PermissionsExt,
    panic::{AssertUnwindSafe, resume_unwind},
    path::PathBuf,
    process::Stdio,
};

use futures::FutureExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
};

use super::{audited, global, has, timeout};
use crate::harness::{Browser, Global, Options, RealProvider, Zone, control_plane::ControlPlane, eventually};

/// Somebody at a machine that is none of a control plane.
struct Workplace {
    home: TempDir,
}

impl Workplace {
    fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("config")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
        command
            .arg("--config-file")
            .arg(self.file())
            .args(args)
            .env("HOME", self.home.path())
            .kill_on_drop(true);
        command.stdin(Stdio::null()).current_dir(self.home.path());
        command
    }

    /// Gives success and all output.
    async fn run(&self, args: &[&str]) -> (bool, String) {
        let output = self.command(args).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    async fn says(&self, args: &[&str], words: &str) {
        let (ok, text) = self.run(args).await;
        assert!(ok && text.contains(words), "straitctl {args:?}: {text}");
    }

    /// Logs in, with the pages of the provider in `browser`.
    async fn log_in(
        &self,
        cp: &ControlPlane,
        name: &str,
        provider: &RealProvider,
        browser: &Browser,
        person: &str,
    ) -> String {
        let address = cp.url("");
        let mut command = self.command(&["login", "--address", &address, "--control-plane", name]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let place = loop {
            let line = said.next_line().await.unwrap().expect("it says where to log in");
            if let Some(place) = line.strip_prefix("Open ") {
                break place.to_owned();
            }
        };
        assert!(place.starts_with(&provider.issuer()), "{place}");
        browser.goto(&place).await;
        provider.agree(browser, person, |_, text| text.contains("Sign-in Success")).await;
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
        let mut rest = Vec::new();
        while let Some(line) = said.next_line().await.unwrap() {
            rest.push(line);
        }
        assert!(child.wait().await.unwrap().success(), "{out} {rest:?}");
        out
    }

    /// What the file keeps of a control plane.
    fn kept(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let all: Value = serde_norway::from_str(&text).unwrap();
        let mut planes = all["controlPlanes"].as_array().unwrap().iter();
        planes.find(|plane| plane["name"] == name).unwrap()["coordinates"]["apiServer"].clone()
    }

    fn token(&self, name: &str) -> String {
        self.kept(name)["authConf"]["token"].as_str().unwrap_or_default().to_owned()
    }
}

async fn status(cp: &ControlPlane, token: &str, path: &str) -> (u16, String) {
    let answer = reqwest::Client::new().get(cp.url(path)).bearer_auth(token).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn bob_logs_in(desk: &Workplace, global: &Global, provider: &RealProvider, browser: &Browser) {
    let said = desk.log_in(global, "work", provider, browser, "bob").await;
    assert!(
        said.contains("logged in to work as bob (everybody, mesh-system:openid, mesh-system:authenticated)"),
        "{said}"
    );
    let mode = std::fs::metadata(desk.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds tokens");
    desk.says(&["auth", "whoami"], "bob (everybody, mesh-system:openid, mesh-system:authenticated)").await;
    desk.says(&["auth", "can-i", "write", "meshtimeout", "by-bob"], "yes").await;
    assert!(!desk.run(&["auth", "can-i", "write", "meshtimeout", "of-others"]).await.0);
    let file = desk.home.path().join("timeout.yaml");
    std::fs::write(&file, timeout("by-bob")).unwrap();
    desk.says(&["apply", "-f", &file.display().to_string()], "by-bob").await;
    assert!(!desk.run(&["get", "globalsecrets"]).await.0, "he is no administrator");
    let log = audited(global, "bob").await;
    assert!(has(&log, "PUT", "/meshes/default/meshtimeouts/by-bob", "done"), "{log:?}");
    assert!(has(&log, "GET", "/globalsecrets", "refused"), "{log:?}");
}

/// The token runs out, and another is there; the old one is good for nothing.
async fn it_is_renewed(desk: &Workplace, global: &Global) {
    let before = desk.token("work");
    eventually("another token", || async {
        let (ok, text) = desk.run(&["auth", "whoami"]).await;
        let after = desk.token("work");
        if ok && text.contains("bob") && after != before { Ok(()) } else { Err(text) }
    })
    .await;
    eventually("the end of the old one", || async {
        let (code, text) = status(global, &before, "/who-am-i").await;
        if code == 401 && text.contains("expired") { Ok(()) } else { Err(text) }
    })
    .await;
}

/// What was made for another client is nobody here, whatever control plane that is one of.
async fn others_are_others(
    desk: &Workplace,
    global: &Global,
    zone: &Zone,
    provider: &RealProvider,
    browser: &Browser,
) {
    let said = desk.log_in(zone, "zone", provider, browser, "bob").await;
    assert!(said.contains("logged in to zone as bob"), "{said}");
    let token = desk.token("zone");
    assert_eq!(status(zone, &token, "/who-am-i").await.0, 200);
    let (code, text) = status(global, &token, "/who-am-i").await;
    assert!(code == 401 && text.contains("no client of this control plane"), "{text}");
    desk.says(&["logout"], "logged out of zone").await;
    assert_eq!(desk.kept("zone")["authConf"], Value::Null);
    desk.says(&["auth", "whoami"], "mesh-system:anonymous").await;
    let (ok, text) = desk.run(&["logout"]).await;
    assert!(!ok && text.contains("nobody has logged in to zone"), "{text}");
    desk.says(&["config", "control-planes", "use", "work"], "using work").await;
}

/// Without the provider, tokens are good as long as they say, others always, and nothing is renewed.
async fn the_provider_goes(
    desk: &Workplace,
    global: &Global,
    provider: &mut RealProvider,
    browser: &Browser,
) {
    desk.says(&["auth", "whoami"], "bob").await;
    provider.kill();
    eventually("the end of the login", || async {
        let (ok, text) = desk.run(&["auth", "whoami"]).await;
        let told =
            text.contains("could not be renewed") && text.contains("log in again with `straitctl login`");
        if !ok && told { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(
        global.straitctl(&["auth", "whoami"]).contains("mesh-system:admin"),
        "our own tokens need nobody"
    );
    // It comes back with other keys, which are asked for when somebody shows one of them.
    provider.start(&[global.url("")]).await;
    let said = desk.log_in(global, "work", provider, browser, "ann").await;
    assert!(said.contains("as ann (platform, everybody"), "{said}");
    desk.says(&["get", "globalsecrets"], "user-token-signing-key-1").await;
}

#[tokio::test]
async fn people_log_in_with_straitctl() {
    // Tokens are renewed ten seconds before their end.
    let Some(mut provider) = RealProvider::new(20) else { return };
    let folder = TempDir::new().unwrap();
    let global = global(&provider, folder.path()).await;
    let options: Options = provider.options(folder.path(), "somebody-else");
    let zone = Zone::alone("east", options).await;
    provider.start(&[global.url(""), zone.url("")]).await;
    let (desk, browser) = (Workplace::new(), Browser::start().await);
    let looking = async {
        bob_logs_in(&desk, &global, &provider, &browser).await;
        it_is_renewed(&desk, &global).await;
        others_are_others(&desk, &global, &zone, &provider, &browser).await;
        the_provider_goes(&desk, &global, &mut provider, &browser).await;
    };
    // A browser that nobody ends goes on without its driver.
    let outcome = AssertUnwindSafe(looking).catch_unwind().await;
    browser.quit().await;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}
