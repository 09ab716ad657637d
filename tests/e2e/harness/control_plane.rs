//! A global or a zone process.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use reqwest::{Client, Method, StatusCode, header};
use serde_json::Value;
use tempfile::TempDir;

use super::{addresses, http, process::Process, wait::eventually};

/// What differs from the usual set-up.
#[derive(Clone, Default)]
pub struct Options {
    /// More flags, as `--name value`. They replace the usual ones of the same name.
    pub flags: Vec<(String, String)>,
    /// More variables in the environment.
    pub environment: Vec<(String, String)>,
    /// A command that starts the program in its place, such as `env` with variables.
    pub launcher: Vec<String>,
}

impl Options {
    /// Of a global for which a zone that says nothing for two seconds is lost.
    pub fn impatient() -> Self {
        let health = "multizone.global.kds.zoneHealthCheck";
        Self::default()
            .with(&format!("{health}.pollInterval"), "500ms")
            .with(&format!("{health}.timeout"), "2s")
    }

    /// The same with one more flag.
    pub fn with(mut self, flag: &str, value: &str) -> Self {
        self.flags.push((flag.to_owned(), value.to_owned()));
        self
    }

    /// The same, started by a command that then becomes the program.
    pub fn by(mut self, launcher: &[&str]) -> Self {
        self.launcher = launcher.iter().map(|word| (*word).to_owned()).collect();
        self
    }
}

impl Options {
    /// The same with one more variable in the environment.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The flags of a command line: these, where the options do not say otherwise, and those of the options.
    fn over(&self, usual: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
        let is_replaced = |flag: &str| self.flags.iter().any(|(replacing, _)| replacing == flag);
        let usual = usual.into_iter().filter(|(flag, _)| !is_replaced(flag));
        let all = usual.map(|(flag, value)| (flag.to_owned(), value)).chain(self.flags.iter().cloned());
        all.flat_map(|(flag, value)| [format!("--{flag}"), value]).collect()
    }
}

/// What global and zone have in common.
pub struct ControlPlane {
    /// The process.
    pub process: Process,
    /// Folder with its database and certificate; lives as long as this value.
    pub folder: TempDir,
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    name: String,
    /// Where its REST API listens.
    pub api: SocketAddr,
    /// Where its diagnostics listen.
    pub diagnostics: SocketAddr,
}

impl ControlPlane {
    async fn start(
        name: &str,
        program: &str,
        folder: TempDir,
        flags: impl IntoIterator<Item = (&'static str, String)>,
        options: Options,
        address: Ipv4Addr,
    ) -> Self {
        // The HTTP client of the tests speaks TLS only with a provider of cryptography. Set by the first.
        let _set_before = rustls::crypto::ring::default_provider().install_default();
        let (api, diagnostics) = (addresses::free_port(address), addresses::free_port(address));
        let (api, diagnostics) = (SocketAddr::from((address, api)), SocketAddr::from((address, diagnostics)));
        let usual = [
            ("general.workDir", folder.path().display().to_string()),
            ("apiServer.http.interface", address.to_string()),
            ("apiServer.http.port", api.port().to_string()),
            ("apiServer.https.enabled", "false".to_owned()),
            ("diagnostics.interface", address.to_string()),
            ("diagnostics.serverPort", diagnostics.port().to_string()),
        ];
        let all = options.over(usual.into_iter().chain(flags));
        let environment = options.environment;
        let mut words = options.launcher.into_iter().chain([program.to_owned()]);
        let program = PathBuf::from(words.next().expect("there is a program"));
        let all: Vec<String> = words.chain(all).collect();
        let process = Process::start_in(name, &program, &all, &environment);
        let name = name.to_owned();
        let mut started = Self { process, folder, program, args: all, environment, name, api, diagnostics };
        started.ready().await;
        started
    }

    /// Waits until `/ready` says so.
    pub async fn ready(&mut self) {
        let url = self.ready_url();
        let name = self.name.clone();
        let process = &mut self.process;
        eventually(&format!("{name} is ready"), || {
            assert!(process.runs(), "{name} ended at its start:\n{}", process.log());
            let asked = reqwest::get(url.clone());
            async move {
                let answer = asked.await.map_err(|e| e.to_string())?;
                if answer.status().is_success() {
                    Ok(())
                } else {
                    Err(answer.text().await.unwrap_or_default())
                }
            }
        })
        .await;
    }

    /// What it is started with.
    pub fn command(&self) -> (&Path, &[String]) {
        (&self.program, &self.args)
    }

    /// Address of `/ready`.
    pub fn ready_url(&self) -> String {
        format!("http://{}/ready", self.diagnostics)
    }

    /// What `/ready` says: nothing when ready, else the reasons.
    pub async fn not_ready(&self) -> Option<String> {
        let answer = reqwest::get(self.ready_url()).await;
        let answer = answer.unwrap_or_else(|e| panic!("/ready of {}: {e}", self.name));
        let ready = answer.status().is_success();
        let text = answer.text().await.expect("a body is text");
        (!ready).then_some(text)
    }

    /// Whether `/healthy` says so.
    pub async fn healthy(&self) -> bool {
        let answer = reqwest::get(format!("http://{}/healthy", self.diagnostics)).await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Starts the same process again, after it ended.
    pub async fn start_again(&mut self) {
        self.process = Process::start_in(&self.name, &self.program, &self.args, &self.environment);
        self.ready().await;
    }

    /// The flag it is started with from the next time on; `None`: without it.
    pub fn set(&mut self, flag: &str, value: Option<&str>) {
        let flag = format!("--{flag}");
        if let Some(at) = self.args.iter().position(|arg| *arg == flag) {
            self.args.drain(at..=at + 1);
        }
        self.args.extend(value.into_iter().flat_map(|value| [flag.clone(), value.to_owned()]));
    }

    /// Address of a path of its diagnostics.
    pub fn diagnostics_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.diagnostics)
    }

    /// Address of a path of its REST API.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.api)
    }

    /// The Prometheus text.
    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.diagnostics);
        reqwest::get(url).await.expect("metrics answer").text().await.expect("metrics are text")
    }

    /// Where it keeps the token of its administrator.
    pub fn admin_token_file(&self) -> PathBuf {
        self.folder.path().join("admin-user-token")
    }

    /// The token of its administrator.
    pub fn admin_token(&self) -> String {
        let file = self.admin_token_file();
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    /// A client that is its administrator, unless it makes none.
    pub fn admin(&self) -> Client {
        let mut headers = header::HeaderMap::new();
        if self.admin_token_file().exists() {
            let bearer = format!("Bearer {}", self.admin_token());
            headers.insert(header::AUTHORIZATION, bearer.parse().expect("a token fits into a header"));
        }
        http::builder().default_headers(headers).build().expect("a client")
    }

    /// Calls REST as administrator; the body is JSON or null.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = self.admin().request(method, self.url(path));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer = request.send().await.unwrap_or_else(|e| panic!("{} {path}: {e}", self.name));
        let status = answer.status();
        let text = answer.text().await.expect("a body is text");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// GETs REST; panics unless the answer is a success.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert!(status.is_success(), "GET {path} on {}: {status} {body}", self.name);
        body
    }

    /// GETs REST, as a condition to wait on.
    pub async fn try_get(&self, path: &str) -> Result<Value, String> {
        let answer = self.admin().get(self.url(path)).send().await.map_err(|e| e.to_string())?;
        let (status, text) = (answer.status(), answer.text().await.map_err(|e| e.to_string())?);
        if !status.is_success() {
            return Err(format!("{status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|e| e.to_string())
    }

    /// Applies YAML documents with straitctl; panics with its output when it refuses.
    pub fn apply(&self, yaml: &str) {
        let file = self.folder.path().join("apply.yaml");
        std::fs::write(&file, yaml).expect("the folder can be written");
        self.straitctl(&["apply", "-f", &file.display().to_string()]);
    }

    /// Runs straitctl against this process; panics when it fails. Gives its standard output.
    pub fn straitctl(&self, args: &[&str]) -> String {
        let (ok, out, err) = self.try_straitctl(args);
        assert!(ok, "straitctl {args:?} on {}:\n{out}\n{err}", self.name);
        out
    }

    /// Runs straitctl against this process, and ends it when nobody waits for it any more. Gives success and
    /// standard error.
    pub async fn straitctl_within(&self, args: &[&str]) -> (bool, String) {
        let running = tokio::process::Command::new(env!("CARGO_BIN_EXE_straitctl"))
            .args(["--address", &format!("http://{}", self.api)])
            .args(args)
            .env("HOME", self.folder.path())
            .env("STRAIT_GENERAL_WORK_DIR", self.folder.path())
            .kill_on_drop(true)
            .output();
        let output = running.await.expect("straitctl runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs `straitctl check` against this process. Gives its exit code, and what it found.
    pub fn check(&self) -> (i32, serde_json::Value) {
        let output = straitctl(self.api, self.folder.path(), &["check", "-o", "json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let found = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no document: {output:?}"));
        (output.status.code().expect("it ends by itself"), found)
    }

    /// Runs straitctl against this process. Gives success, standard output, standard error.
    pub fn try_straitctl(&self, args: &[&str]) -> (bool, String, String) {
        try_straitctl(self.api, self.folder.path(), args)
    }
}

/// Runs straitctl on the machine of the control plane whose API and work folder these are.
fn try_straitctl(api: SocketAddr, folder: &Path, args: &[&str]) -> (bool, String, String) {
    let output = straitctl(api, folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn straitctl(api: SocketAddr, folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(["--address", &format!("http://{api}")])
        .args(args)
        .env("HOME", folder)
        .env("STRAIT_GENERAL_WORK_DIR", folder)
        .output()
        .expect("straitctl runs")
}

/// A running global.
pub struct Global {
    /// The process and its REST API.
    pub cp: ControlPlane,
    /// Where zones connect to.
    pub kds: SocketAddr,
}

impl std::ops::Deref for Global {
    type Target = ControlPlane;
    fn deref(&self) -> &ControlPlane {
        &self.cp
    }
}

impl std::ops::DerefMut for Global {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        &mut self.cp
    }
}

impl Global {
    /// One global on SQLite.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// One global with more flags.
    pub async fn start_with(options: Options) -> Self {
        let address = addresses::loopback();
        let kds = SocketAddr::from((address, addresses::free_port(address)));
        let flags = [
            ("multizone.global.kds.interface", address.to_string()),
            ("multizone.global.kds.grpcPort", kds.port().to_string()),
        ];
        let folder = TempDir::new().expect("a temporary folder");
        let program = env!("CARGO_BIN_EXE_strait-global");
        let cp = ControlPlane::start("global", program, folder, flags, options, address).await;
        Self { cp, kds }
    }

    /// The certificate it made for itself.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("strait.crt")
    }

    /// Where zones connect to.
    pub fn kds_address(&self) -> String {
        format!("grpcs://{}", self.kds)
    }

    /// The status global shows for a zone: `online`, `unknown`, `offline`.
    pub async fn zone_status(&self, zone: &str) -> Result<String, String> {
        let overview = self.try_get(&format!("/zones/{zone}/_overview")).await?;
        let status = overview["strait"]["status"].as_str().map(str::to_owned);
        status.ok_or_else(|| format!("no status in {overview}"))
    }
}

/// A running zone.
pub struct Zone {
    /// The process and its REST API.
    pub cp: ControlPlane,
    /// Where proxies connect to.
    pub dp_server: SocketAddr,
    /// Its name.
    pub zone: String,
    /// REST API of its global, and the folder of that.
    global: (SocketAddr, PathBuf),
}

impl std::ops::Deref for Zone {
    type Target = ControlPlane;
    fn deref(&self) -> &ControlPlane {
        &self.cp
    }
}

impl std::ops::DerefMut for Zone {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        &mut self.cp
    }
}

impl Zone {
    /// A zone of `global` that proves itself with a zone token.
    pub async fn start_with(global: &Global, name: &str, options: Options) -> Self {
        let token = global.straitctl(&["generate", "zone-token", "--zone", name, "--scope", "cp"]);
        Self::start_with_token(global, name, token.trim(), options).await
    }

    /// A zone that shows `token`.
    pub async fn start_with_token(global: &Global, name: &str, token: &str, options: Options) -> Self {
        let address = addresses::loopback();
        let dp_server = SocketAddr::from((address, addresses::free_port(address)));
        let folder = TempDir::new().expect("a temporary folder");
        let token_file = folder.path().join("zone-token");
        std::fs::write(&token_file, token).expect("the folder can be written");
        let flags = [
            ("multizone.zone.name", name.to_owned()),
            ("multizone.zone.globalAddress", global.kds_address()),
            ("multizone.zone.kds.rootCaFile", global.certificate().display().to_string()),
            ("multizone.zone.kds.tokenFile", token_file.display().to_string()),
            ("dpServer.interface", address.to_string()),
            ("dpServer.port", dp_server.port().to_string()),
            // Who asks for it says so.
            ("monitoringAssignmentServer.enabled", "false".to_owned()),
        ];
        let program = env!("CARGO_BIN_EXE_strait-zone");
        let cp = ControlPlane::start(name, program, folder, flags, options, address).await;
        Self { cp, dp_server, zone: name.to_owned(), global: (global.api, global.folder.path().to_owned()) }
    }

    /// A zone that follows no global.
    pub async fn alone(name: &str, options: Options) -> Self {
        let address = addresses::loopback();
        let dp_server = SocketAddr::from((address, addresses::free_port(address)));
        let folder = TempDir::new().expect("a temporary folder");
        let flags = [
            ("multizone.zone.name", name.to_owned()),
            ("dpServer.interface", address.to_string()),
            ("dpServer.port", dp_server.port().to_string()),
            // Who asks for it says so.
            ("monitoringAssignmentServer.enabled", "false".to_owned()),
        ];
        let program = env!("CARGO_BIN_EXE_strait-zone");
        let cp = ControlPlane::start(name, program, folder, flags, options, address).await;
        let global = (cp.api, cp.folder.path().to_owned());
        Self { cp, dp_server, zone: name.to_owned(), global }
    }

    /// A token for a proxy here, made on global and given once the zone can check it.
    pub async fn proxy_token(&self, mesh: &str, more: &[&str]) -> String {
        let keys = format!("/meshes/{mesh}/secrets?size=1000");
        eventually("the key that checks tokens", || async {
            let secrets = self.try_get(&keys).await?.to_string();
            if secrets.contains("dataplane-token-signing-") { Ok(()) } else { Err(secrets) }
        })
        .await;
        let args = [&["generate", "dataplane-token", "--mesh", mesh][..], more].concat();
        let (api, folder) = &self.global;
        let (ok, token, error) = try_straitctl(*api, folder, &args);
        assert!(ok, "straitctl {args:?} on global: {error}");
        token.trim().to_owned()
    }

    /// Makes the tokens of proxies that will join while global is away.
    pub async fn keep_tokens(&self, names: &[&str]) {
        for name in names {
            let token = self.proxy_token("default", &["--name", name]).await;
            write(self.folder.path(), &format!("kept-{name}.token"), &token);
        }
    }

    /// The token that was made before for this proxy, if it was.
    pub fn kept_token(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(format!("kept-{name}.token"))).ok()
    }

    /// The certificate it shows to proxies.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("strait.crt")
    }
}

/// Writes `text` to a file of this name in `folder`.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}
