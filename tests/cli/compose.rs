//! `docker-compose.yml` against the programs it runs: the real binaries read its environment and run its
//! scripts, in folders that show of the volumes what the service mounts.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use common::{
    config::{Config, leaves},
    document::Document,
    model::kinds::zone_ingress,
    proto::kuma::mesh::v1alpha1 as mesh,
    tls::KeyPairPem,
};
use global::config::GlobalConfig;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tempfile::TempDir;
use zone::config::ZoneConfig;

use super::Global;

const HOME: &str = "/home/strait";
/// What the image brings beside the shell, and the address where the zone of a proxy answers.
const PROGRAMS: [&str; 6] = ["strait-global", "strait-zone", "straitctl", "echo-service", "envoy", "curl"];
const DP_SERVER: &str = "https://$ZONE:5678";

#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
    volumes: BTreeMap<String, Value>,
}

/// A key that is not here has no check here yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    image: String,
    #[serde(default)]
    build: Value,
    #[serde(default)]
    init: bool,
    restart: String,
    hostname: Option<String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    depends_on: BTreeMap<String, BTreeMap<String, String>>,
    network_mode: Option<String>,
    #[serde(default)]
    ports: Vec<String>,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default)]
    healthcheck: Value,
}

impl Service {
    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// The service whose network it has, when that is not its own.
    fn network(&self) -> Option<&str> {
        self.network_mode
            .as_ref()
            .map(|mode| mode.strip_prefix("service:").expect("the network of a service"))
    }

    fn script(&self) -> Option<String> {
        let [shell, flags, script] = self.command.as_slice() else { return None };
        (shell == "/bin/sh" && flags == "-ec").then(|| script.replace("$$", "$"))
    }

    fn is_proxy(&self) -> bool {
        self.environment.contains_key("PROXY")
    }
}

fn compose() -> Compose {
    let mut yaml: serde_norway::Value = serde_norway::from_str(&repository("docker-compose.yml")).unwrap();
    // What is merged may itself have something to merge.
    let mut before = serde_norway::Value::Null;
    while before != yaml {
        before = yaml.clone();
        yaml.apply_merge().unwrap();
    }
    serde_norway::from_value(yaml).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn repository(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The settings a control plane has with the environment of its service, checked as at its start.
fn settings<C: Config + DeserializeOwned>(service: &Service, binary: &str) -> C {
    let known = leaves(&serde_json::to_value(C::default()).unwrap());
    let known: BTreeSet<String> = known.iter().map(|leaf| leaf.variable("STRAIT")).collect();
    for name in service.environment.keys() {
        assert!(known.contains(name), "{name} is no setting of {}", service.program());
    }
    let output = Command::new(binary).arg("--print-config").env_clear().envs(&service.environment).output();
    let Output { status, stdout, stderr } = output.unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let settings: C = serde_norway::from_slice(&stdout).unwrap();
    settings.validate().unwrap();
    settings
}

#[test]
fn services_name_what_exists() {
    let compose = compose();
    let dockerfile = repository("Dockerfile");
    let mut published = BTreeSet::new();
    let mut mounted = BTreeSet::new();
    for (name, service) in &compose.services {
        for (other, condition) in &service.depends_on {
            let other = compose.services.get(other).unwrap_or_else(|| panic!("{name} waits for {other}"));
            match condition["condition"].as_str() {
                "service_healthy" => assert!(other.healthcheck["test"].is_array(), "{name} waits for health"),
                "service_completed_successfully" => {
                    assert_eq!(other.restart, "no", "{name} waits for its end")
                }
                other => panic!("{name} waits for {other}"),
            }
        }
        if let Some(network) = service.network() {
            let owner = compose.services.get(network).unwrap_or_else(|| panic!("{name} has no network"));
            assert!(owner.network().is_none() && owner.init, "{name} shares what {network} does not have");
            assert!(
                service.ports.is_empty() && service.hostname.is_none(),
                "{name} has no network of its own"
            );
        }
        for port in &service.ports {
            assert!(
                published.insert(port.split(':').next().unwrap().to_owned()),
                "{name} publishes {port} again"
            );
        }
        for volume in service.volumes.iter().map(|v| v.split(':').next().unwrap()) {
            let exists = compose.volumes.contains_key(volume) || root().join(volume).is_dir();
            assert!(exists, "{name} mounts {volume}");
            mounted.insert(volume);
        }
        if let Some(script) = service.script().filter(|script| script.contains("straitctl generate")) {
            administrates(&compose, service, &script);
        }
        if service.image == "strait-demo" {
            let target = service.build["target"].as_str().unwrap();
            assert!(dockerfile.contains(&format!(" AS {target}\n")), "{name} builds {target}");
            let known = PROGRAMS.contains(&service.program()) || service.script().is_some();
            assert!(known, "{name} runs {:?}", service.command);
        }
    }
    assert!(compose.volumes.keys().all(|v| mounted.contains(v.as_str())), "a volume nobody mounts");
    assert!(PROGRAMS.iter().all(|program| dockerfile.contains(program)), "the image has all programs");
}

/// A script that makes tokens reads the administrator's in the folder of the control plane it is beside.
fn administrates(compose: &Compose, service: &Service, script: &str) {
    let beside = &compose.services[service.network().unwrap()];
    let folder = &beside.environment["STRAIT_GENERAL_WORK_DIR"];
    let named = script.lines().find_map(|line| line.strip_prefix("export STRAIT_GENERAL_WORK_DIR="));
    assert_eq!(*folder, format!("{HOME}/{}", named.unwrap()));
    let mounted = beside.volumes.iter().find(|volume| volume.ends_with(folder.as_str())).unwrap();
    assert!(service.volumes.contains(&format!("{mounted}:ro")), "{:?}", service.volumes);
}

/// Listening sockets of a service.
fn ports(compose: &Compose, service: &Service) -> Vec<u32> {
    match service.program() {
        "strait-global" => {
            let it: GlobalConfig = settings(service, env!("CARGO_BIN_EXE_strait-global"));
            let api = [it.api_server.http.port, it.api_server.https.port];
            [&api[..], &[it.diagnostics.server_port, it.multizone.global.kds.grpc_port]].concat()
        }
        "strait-zone" => {
            let it: ZoneConfig = settings(service, env!("CARGO_BIN_EXE_strait-zone"));
            let api = [it.api_server.http.port, it.api_server.https.port];
            [&api[..], &[it.diagnostics.server_port, it.dp_server.port]].concat()
        }
        "echo-service" => vec![service.command[2].rsplit(':').next().unwrap().parse().unwrap()],
        _ if service.is_proxy() => return proxy_ports(compose, service),
        _ => Vec::new(),
    }
    .into_iter()
    .map(u32::from)
    .collect()
}

/// Those of an Envoy, whose resource must fit where it runs.
fn proxy_ports(compose: &Compose, service: &Service) -> Vec<u32> {
    let (proxy, kind) = (&service.environment["PROXY"], &service.environment["TYPE"]);
    let zone = &compose.services[&service.environment["ZONE"]];
    assert_eq!(zone.hostname.as_ref(), Some(&service.environment["ZONE"]), "its certificate names its host");
    let at: ZoneConfig = settings(zone, env!("CARGO_BIN_EXE_strait-zone"));
    assert!(DP_SERVER.ends_with(&format!(":{}", at.dp_server.port)));

    let yaml = repository(&format!("examples/containers/{proxy}.yaml"));
    let document = Document::parse(&serde_norway::from_str(&yaml).unwrap()).unwrap();
    let spec = document.kind.normalize(&document.spec).unwrap();
    assert!(document.kind.validate(&spec).unwrap().is_empty(), "{proxy} is valid");
    assert_eq!(&document.name, proxy);
    let resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
    let host = service.network().unwrap_or(proxy);
    let admin = 9901;
    if kind == "ingress" {
        assert_eq!(resource.kind(), &zone_ingress::KIND);
        let networking = resource.spec::<mesh::ZoneIngress>().unwrap().networking.unwrap();
        assert_eq!([&networking.address, &networking.advertised_address], [host, host]);
        return vec![networking.port, admin];
    }
    let networking = resource.spec::<mesh::Dataplane>().unwrap().networking.unwrap();
    assert_eq!(networking.address, host);
    let behind = ports(compose, &compose.services[host]);
    for inbound in &networking.inbound {
        assert_eq!(inbound.service_address, "127.0.0.1");
        assert!(behind.contains(&inbound.service_port), "{proxy} stands before {behind:?}");
    }
    let inbounds = networking.inbound.iter().map(|i| i.port);
    inbounds.chain(networking.outbound.iter().map(|o| o.port)).chain([admin]).collect()
}

#[test]
fn what_shares_a_network_has_ports_of_its_own() {
    let compose = compose();
    let mut taken: BTreeSet<(&str, u32)> = BTreeSet::new();
    for (name, service) in &compose.services {
        let network = service.network().unwrap_or(name);
        for port in ports(&compose, service) {
            assert!(
                taken.insert((network, port)),
                "{name}: port {port} is taken in the network of {network}"
            );
        }
    }
    let proxies = compose.services.values().filter(|s| s.is_proxy()).count();
    assert_eq!(
        proxies,
        fs::read_dir(root().join("examples/containers")).unwrap().count(),
        "one for each example"
    );
}

/// Volumes, and for each service a folder in which it sees what it mounts.
struct Machine {
    folder: TempDir,
    compose: Compose,
}

impl Machine {
    fn new() -> Self {
        let (folder, compose) = (TempDir::new().unwrap(), compose());
        for volume in compose.volumes.keys() {
            fs::create_dir_all(folder.path().join("volumes").join(volume)).unwrap();
        }
        for (name, service) in &compose.services {
            for volume in &service.volumes {
                let mut parts = volume.split(':');
                let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
                let from = match from.strip_prefix("./") {
                    Some(path) => root().join(path),
                    None => folder.path().join("volumes").join(from),
                };
                let to = folder.path().join(name).join(to.trim_start_matches('/'));
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                symlink(from, to).unwrap();
            }
        }
        Self { folder, compose }
    }

    /// What a path inside the service is outside.
    fn inside(&self, service: &str, path: &str) -> PathBuf {
        self.folder.path().join(service).join(path.trim_start_matches('/'))
    }

    /// Runs the script of a service.
    fn run(&self, name: &str, straitctl_address: &str, replace: (&str, &str)) -> (bool, String) {
        let service = &self.compose.services[name];
        let own = self.folder.path().join(name).display().to_string();
        let script = service.script().unwrap();
        assert!(script.contains(replace.0), "{name}: {script}");
        let script = script.replace(replace.0, replace.1).replace(" /tmp/", &format!(" {own}/"));
        let script = script.replace(" /examples/", &format!(" {own}/examples/"));
        let straitctl = Path::new(env!("CARGO_BIN_EXE_straitctl")).parent().unwrap();
        let output = Command::new("/bin/sh")
            .args(["-ec", &script])
            .env_clear()
            .envs(&service.environment)
            .env("PATH", format!("{}:/usr/bin:/bin", straitctl.display()))
            .env("HOME", &own)
            .env("STRAITCTL_ADDRESS", straitctl_address)
            .current_dir(self.inside(name, HOME))
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The files of a volume.
    fn files(&self, volume: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(self.folder.path().join("volumes").join(volume)).unwrap();
        entries.map(|e| e.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preparation_leaves_what_the_others_read() {
    let global = Global::start(&[]).await;
    let address = format!("http://{}", global.address);
    let machine = Machine::new();
    let services = &machine.compose.services;
    let nothing = ("", "");
    for (name, service) in services {
        if let Some(folder) = service.environment.get("STRAIT_GENERAL_WORK_DIR") {
            let hosts = [service.hostname.clone().unwrap()];
            KeyPairPem::kept_in(&machine.inside(name, folder), "strait", &hosts).unwrap();
        }
    }
    for preparation in ["prepare-zones", "prepare-proxies"] {
        let (ok, said) = machine.run(preparation, &address, nothing);
        assert!(ok, "{preparation}: {said}");
    }

    for (name, service) in services {
        let files = service.environment.iter().filter(|(setting, _)| setting.ends_with("_FILE"));
        for path in files.map(|(_, path)| machine.inside(name, path)) {
            assert!(path.exists(), "{name} reads {}", path.display());
        }
        if service.is_proxy() {
            // As far as one gets without a zone: arguments parsed and files read.
            let (ok, said) = machine.run(name, &address, (DP_SERVER, "https://127.0.0.1:1"));
            assert!(!ok && said.contains("127.0.0.1:1"), "{name}: {said}");
        }
    }

    let written = ["for-zones", "for-proxies"].map(|volume| machine.files(volume));
    for (path, content) in written.iter().flatten() {
        assert!(!content.is_empty() && path.extension().is_some_and(|e| e != "new"), "{}", path.display());
    }
    // Global is away at the second start: what was written before is not lost.
    for (preparation, before) in ["prepare-zones", "prepare-proxies"].iter().zip(&written) {
        let (ok, said) = machine.run(preparation, "http://127.0.0.1:1", nothing);
        assert!(!ok && said.contains("127.0.0.1:1"), "{preparation}: {said}");
        let volume = before.keys().next().unwrap().parent().unwrap().file_name().unwrap().to_str().unwrap();
        let after = machine.files(volume);
        assert!(before.iter().all(|(path, content)| after[path] == *content), "{preparation}");
    }
}
