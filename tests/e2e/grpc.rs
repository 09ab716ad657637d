//! Applications with a gRPC library and no Envoy: the real libraries over a real zone.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use common::testing::needs;
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, addresses, control_plane::write, eventually, process::Process},
    mesh::federation,
};

/// Answers in a row by which it is judged who answers.
const WINDOW: usize = 30;

/// A mesh without mutual TLS.
const PLAIN: &str = "{ type: Mesh, name: default }";

/// Lets in one client, by the identity in its certificate.
const ONE_CLIENT: &str = "
type: MeshTrafficPermission
name: one-client
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: MeshService, name: client-1 }
      default: { action: Allow }
";

/// The name of `web` that an outbound gives it.
const BY_OUTBOUND: &str = "xds:///web:8080";
/// The one it has for everybody.
const BY_HOST_NAME: &str = "xds:///web.mesh:80";
/// The same by way of an authority that the bootstrap names.
const BY_AUTHORITY: &str = "xds://mesh/web.mesh:80";

/// What is built of the folder `go` beside this file.
const GO_PROGRAM: &str = "go-peer";

/// The command that runs one of the programs beside this file.
fn program(name: &str) -> (PathBuf, Vec<String>) {
    let libraries = needs::grpc_libraries();
    if let Some(role) = name.strip_suffix(".go") {
        return (libraries.join(GO_PROGRAM), vec![role.to_owned()]);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/grpc").join(name);
    let script = script.display().to_string();
    if name.ends_with(".js") {
        let modules = std::path::absolute(&libraries).expect("a folder has a path").display().to_string();
        (PathBuf::from("node"), vec![script, modules])
    } else {
        (libraries.join("venv/bin/python"), vec!["-u".to_owned(), script])
    }
}

/// An application with the agent beside it.
struct App {
    process: Process,
    _agent: Process,
    _folder: TempDir,
}

impl App {
    /// Starts agent and application for a dataplane that the zone has.
    async fn start(zone: &Zone, name: &str, script: &str, args: &[&str], encrypted: bool) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let agent_at =
            SocketAddr::from((Ipv4Addr::LOCALHOST, addresses::free_port(Ipv4Addr::LOCALHOST))).to_string();
        let certificates = folder.path().join("certificates");
        let files = certificates.display().to_string();
        let agent = agent(zone, name, &agent_at, folder.path(), &files).await;
        if encrypted {
            let all = ["identity.pem", "authorities.pem"].map(|file| certificates.join(file));
            eventually(&format!("the certificate of {name}"), || async {
                if all.iter().all(|file| file.exists()) { Ok(()) } else { Err(agent.log()) }
            })
            .await;
        }
        let document = zone.straitctl(&[
            "bootstrap",
            "--grpc",
            "--name",
            name,
            "--agent",
            &agent_at,
            "--certificates",
            &files,
        ]);
        let mut document: serde_json::Value = serde_json::from_str(&document).expect("a bootstrap");
        document["authorities"] = serde_json::json!({"mesh": {}});
        let bootstrap = write(folder.path(), "grpc.json", &document.to_string()).display().to_string();
        let environment = [("GRPC_XDS_BOOTSTRAP".to_owned(), bootstrap)];
        let (program, before) = program(script);
        let args = before.into_iter().chain(args.iter().map(|arg| (*arg).to_owned()));
        let process = Process::start_in(name, &program, args, &environment);
        Self { process, _agent: agent, _folder: folder }
    }

    /// A server of `service` at an address of its own.
    async fn serve(zone: &Zone, name: &str, service: &str, encrypted: bool) -> Self {
        Self::serve_with(zone, "server.py", name, service, encrypted).await
    }

    /// The same with this program.
    async fn serve_with(zone: &Zone, script: &str, name: &str, service: &str, encrypted: bool) -> Self {
        let address = addresses::loopback();
        let port = addresses::free_port(address);
        zone.apply(&format!(
            "
type: Dataplane
mesh: default
name: {name}
networking:
  address: {address}
  inbound:
    - port: {port}
      tags: {{ kuma.io/service: {service}, kuma.io/protocol: grpc }}
"
        ));
        let app = Self::start(zone, name, script, &[name, &format!("{address}:{port}")], encrypted).await;
        eventually(&format!("{name} listens"), || tokio::net::TcpStream::connect((address, port))).await;
        app
    }

    /// A client that calls `web` by this name.
    async fn call(zone: &Zone, name: &str, (script, target): (&str, &str), encrypted: bool) -> Self {
        let outbounds = match target {
            BY_OUTBOUND => "[{ port: 8080, tags: { kuma.io/service: web } }]",
            _ => "[]",
        };
        zone.apply(&format!(
            "
type: Dataplane
mesh: default
name: {name}
networking:
  address: {}
  inbound:
    - port: 9
      tags: {{ kuma.io/service: {name} }}
  outbound: {outbounds}
",
            addresses::loopback()
        ));
        Self::start(zone, name, script, &[target], encrypted).await
    }

    /// Waits until exactly these answer.
    async fn is_answered_by(&self, names: &[&str]) {
        let wanted: BTreeSet<&str> = names.iter().copied().collect();
        eventually(&format!("answers of {names:?} alone"), || async {
            let log = self.process.log();
            let lines: Vec<&str> = log.lines().rev().take(WINDOW).collect();
            let who: BTreeSet<&str> =
                lines.iter().map(|line| line.strip_prefix("answer ").unwrap_or(line)).collect();
            if lines.len() == WINDOW && who == wanted { Ok(()) } else { Err(format!("{who:?}")) }
        })
        .await;
    }
}

async fn agent(zone: &Zone, name: &str, listen: &str, folder: &Path, certificates: &str) -> Process {
    let token = zone.proxy_token("default", &["--name", name]).await;
    let token = write(folder, "token", &token).display().to_string();
    let (server, ca) = (format!("https://{}", zone.dp_server), zone.certificate().display().to_string());
    let args = [
        "grpc-agent",
        "--cp-address",
        &server,
        "--ca-cert-file",
        &ca,
        "--token-file",
        &token,
        "--listen",
        listen,
        "--name",
        name,
        "--certificates",
        certificates,
    ];
    let agent = Process::start(&format!("agent of {name}"), Path::new(env!("CARGO_BIN_EXE_straitctl")), args);
    eventually(&format!("the agent of {name} listens"), || tokio::net::TcpStream::connect(listen)).await;
    agent
}

/// A global and a zone with a mesh of which nobody encrypts anything.
async fn plain() -> (Global, Zone) {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    global.apply(PLAIN);
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    (global, zone)
}

/// All calls of `web` go to `api`.
const MOVED: &str = "
type: MeshHTTPRoute
name: moved
mesh: default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: web }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default:
            backendRefs: [{ kind: MeshService, name: api, weight: 1 }]
";

/// Balances, fails over, and follows a route.
async fn follows(client: (&str, &str)) {
    let (global, zone) = plain().await;
    let mut first = App::serve(&zone, "web-1", "web", false).await;
    let _second = App::serve(&zone, "web-2", "web", false).await;
    let _other = App::serve(&zone, "api-1", "api", false).await;
    let client = App::call(&zone, "client-1", client, false).await;
    client.is_answered_by(&["web-1", "web-2"]).await;
    first.process.kill();
    client.is_answered_by(&["web-2"]).await;
    global.apply(MOVED);
    client.is_answered_by(&["api-1"]).await;
}

#[tokio::test]
async fn python_balances_fails_over_and_follows_a_route() {
    follows(("client.py", BY_OUTBOUND)).await;
}

#[tokio::test]
async fn node_balances_fails_over_and_follows_a_route() {
    if !needs::grpc_libraries().join("node_modules").is_dir() {
        return println!("there is no gRPC library for Node here: nothing was looked at");
    }
    follows(("client.js", BY_HOST_NAME)).await;
}

#[tokio::test]
async fn python_calls_by_way_of_an_authority() {
    let (_global, zone) = plain().await;
    let _server = App::serve(&zone, "web-1", "web", false).await;
    let client = App::call(&zone, "client-1", ("client.py", BY_AUTHORITY), false).await;
    client.is_answered_by(&["web-1"]).await;
}

/// Whether there is a program with the library for Go; it is said if not.
fn is_go_here() -> bool {
    let is_here = needs::grpc_libraries().join(GO_PROGRAM).is_file();
    if !is_here {
        println!("there is no gRPC library for Go here: nothing was looked at");
    }
    is_here
}

#[tokio::test]
async fn go_balances_fails_over_and_follows_a_route() {
    if is_go_here() {
        follows(("client.go", BY_HOST_NAME)).await;
    }
}

#[tokio::test]
async fn go_calls_go_with_mutual_tls_as_permissions_say() {
    if is_go_here() {
        is_permitted("server.go", "client.go").await;
    }
}

#[tokio::test]
async fn python_calls_python_with_mutual_tls_as_permissions_say() {
    is_permitted("server.py", "client.py").await;
}

/// Calls with certificates, which are answered once somebody permits it.
async fn is_permitted(server: &str, client: &str) {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    let _server = App::serve_with(zone, server, "web-1", "web", true).await;
    let client = App::call(zone, "client-1", (client, BY_OUTBOUND), true).await;
    eventually("a call that is not permitted", || async {
        let log = client.process.log();
        let last = log.lines().last().unwrap_or_default().to_owned();
        if last.starts_with("failure PERMISSION_DENIED") { Ok(()) } else { Err(last) }
    })
    .await;
    // In plaintext nobody is known by a certificate, so whom this lets in has shown one.
    global.apply(ONE_CLIENT);
    client.is_answered_by(&["web-1"]).await;
}
