//! Two machines whose traffic the kernel redirects to their Envoys: network namespaces of this machine, joined by a wire,
//! with the rules that `kumactl install transparent-proxy` makes, as far as they matter here. Making one takes rights
//! that not everybody has; without them this says so and looks at nothing.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use common::testing::needs;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixListener},
    task::JoinHandle,
};

use crate::{
    harness::{Zone, control_plane::write, echo, eventually, process::Process},
    mesh::{ALLOW_ALL, federation},
};

/// Where what a workload sends and gets is led to, and where it asks for names, in each namespace alike.
const OUTBOUND: u16 = 15001;
const INBOUND: u16 = 15006;
const DNS: u16 = 15053;
/// Workloads run as nobody, which is how the kernel tells them from their Envoys.
const WORKLOAD: &str = "65534";

/// A machine of its own.
struct Machine {
    name: String,
    address: Ipv4Addr,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "delete", &self.name]).output();
        let _gone = fs::remove_dir_all(self.settings());
    }
}

fn ran(output: std::io::Result<Output>, what: &str) -> Result<String, String> {
    let output = output.map_err(|e| format!("{what}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn ip(args: &str) -> Result<String, String> {
    ran(Command::new("ip").args(args.split(' ')).output(), &format!("ip {args}"))
}

impl Machine {
    /// Two machines with a wire between them.
    fn pair() -> Result<[Self; 2], String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let run = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let machine = |n: u8| -> Result<Self, String> {
            let name = format!("strait-{run}-{n}");
            ip(&format!("netns add {name}"))?;
            let machine = Self { name, address: Ipv4Addr::new(10, 77, 0, n) };
            // Who is asked for names there is not there.
            let folder = machine.settings();
            let asked = "nameserver 10.77.0.250\noptions timeout:2 attempts:1\n";
            fs::create_dir_all(&folder)
                .and_then(|()| fs::write(folder.join("resolv.conf"), asked))
                .map_err(|e| format!("{}: {e}", folder.display()))?;
            Ok(machine)
        };
        let (one, other) = (machine(1)?, machine(2)?);
        ip(&format!("link add wire netns {} type veth peer name wire netns {}", one.name, other.name))?;
        for (machine, peer) in [(&one, &other), (&other, &one)] {
            let (name, address) = (&machine.name, machine.address);
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} address add {address}/24 dev wire"))?;
            ip(&format!("-n {name} link set wire up"))?;
            // Virtual addresses lead somewhere only by this.
            ip(&format!("-n {name} route add default via {}", peer.address))?;
            machine.redirect()?;
        }
        Ok([one, other])
    }

    /// What is found there in place of files of the same names in `/etc`.
    fn settings(&self) -> PathBuf {
        Path::new("/etc/netns").join(&self.name)
    }

    /// Leads what comes in to the Envoy, and what the workload sends and asks.
    fn redirect(&self) -> Result<(), String> {
        let admitted = "PREROUTING -i wire -p tcp -j REDIRECT --to-ports";
        let sent = format!("OUTPUT -m owner --uid-owner {WORKLOAD} ! -d 127.0.0.0/8 -p");
        for rule in [
            format!("{admitted} {INBOUND}"),
            format!("{sent} tcp -j REDIRECT --to-ports {OUTBOUND}"),
            format!("{sent} udp --dport 53 -j REDIRECT --to-ports {DNS}"),
        ] {
            let rule = format!("iptables -w -t nat -A {rule}");
            let words: Vec<&str> = rule.split(' ').collect();
            ran(self.command(&words).output(), &rule)?;
        }
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).args(words);
        command
    }

    /// Starts a program there.
    fn start(&self, name: &str, words: &[&str]) -> Process {
        let inside = ["netns", "exec", &self.name];
        Process::start(name, Path::new("ip"), inside.iter().chain(words))
    }

    /// What the workload there says of an address or a name.
    fn workload(&self, words: &[&str]) -> Result<String, String> {
        let user = ["setpriv", "--reuid", WORKLOAD, "--regid", WORKLOAD, "--clear-groups"];
        ran(self.command(&[&user, words].concat()).output(), &words.join(" "))
    }
}

/// What runs on a machine.
struct Inhabited {
    machine: Machine,
    _folder: TempDir,
    _processes: Vec<Process>,
    relay: JoinHandle<()>,
}

impl Drop for Inhabited {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

/// Passes on connections to a file, which namespaces share, to the server of the proxies.
fn relay(socket: &Path, to: SocketAddr) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).expect("the folder is ours");
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(to).await {
                    let _ended = copy_bidirectional(&mut from, &mut server).await;
                }
            });
        }
    })
}

impl Inhabited {
    /// A workload that answers as `service`-1 on port 8080, and its Envoy.
    async fn by(machine: Machine, zone: &Zone, service: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let name = format!("{service}-1");
        let address = machine.address;
        zone.apply(&format!(
            "
type: Dataplane
mesh: default
name: {name}
networking:
  address: {address}
  inbound: [{{ port: 8080, tags: {{ kuma.io/service: {service}, kuma.io/protocol: http }} }}]
  transparentProxying: {{ redirectPortInbound: {INBOUND}, redirectPortOutbound: {OUTBOUND}, ipFamilyMode: IPv4 }}
"
        ));
        let token = zone.proxy_token("default", &["--name", &name]).await;
        let token = write(folder.path(), "token", &token).display().to_string();
        let (server, ca) = (format!("https://{}", zone.dp_server), zone.certificate().display().to_string());
        let bootstrap = zone.straitctl(&[
            "bootstrap",
            "--cp-address",
            &server,
            "--ca-cert-file",
            &ca,
            "--token-file",
            &token,
            "--mesh",
            "default",
            "--name",
            &name,
        ]);
        let mut bootstrap: Value = serde_norway::from_str(&bootstrap).unwrap();
        let socket = folder.path().join("server.sock");
        let relay = relay(&socket, zone.dp_server);
        bootstrap["node"]["metadata"]["dataplane.dns.port"] = DNS.to_string().into();
        let clusters = bootstrap["staticResources"]["clusters"].as_array_mut().unwrap();
        let ads = clusters.iter_mut().find(|cluster| cluster["name"] == "ads_cluster").unwrap();
        ads["type"] = "STATIC".into();
        ads["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"] =
            serde_json::json!({"pipe": {"path": socket}});
        let config = write(folder.path(), "bootstrap.json", &bootstrap.to_string()).display().to_string();
        let envoy = needs::envoy().expect("end to end includes Envoy").display().to_string();
        let envoy = [
            envoy.as_str(),
            "-c",
            &config,
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "warning",
        ];
        let echo = echo::program().display().to_string();
        let echo = machine.start(&name, &[&echo, "--listen", "0.0.0.0:8080", "--name", &name]);
        let envoy = machine.start(&format!("Envoy of {name}"), &envoy);
        Self { machine, _folder: folder, _processes: vec![echo, envoy], relay }
    }

    /// GETs `url` as the workload; gives what was said, and by which address it went.
    fn get(&self, url: &str) -> Result<(Value, Ipv4Addr), String> {
        let shown = ["-w", "\\n%{remote_ip}"];
        let text =
            self.machine.workload(&[&["curl", "-fsS", "--max-time", "5"], &shown[..], &[url]].concat())?;
        let (body, address) = text.rsplit_once('\n').ok_or("nothing was said")?;
        let read = serde_json::from_str(body).map_err(|_| text.clone())?;
        Ok((read, address.parse().map_err(|_| text.clone())?))
    }
}

#[tokio::test]
async fn the_kernel_leads_traffic_to_envoys_and_they_know_where_it_was_meant_for() {
    let [one, other] = match Machine::pair() {
        Ok(machines) => machines,
        Err(reason) => {
            return needs::left_out(&format!("no traffic is redirected by the kernel here: {reason}"));
        }
    };
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let outside = other.start(
        "outside",
        &[&echo::program().display().to_string(), "--listen", "0.0.0.0:9090", "--name", "outside-1"],
    );
    let backend = Inhabited::by(other, &zones[0], "backend").await;
    let client = Inhabited::by(one, &zones[0], "client").await;
    let (backend, client) = (&backend, &client);

    // By a name that nobody but Envoy knows, at an address that nobody has.
    let (seen, address) = eventually("the backend", || async move {
        let (seen, address) = client.get("http://backend.mesh/")?;
        if seen["service"] == "backend-1" { Ok((seen, address)) } else { Err(seen.to_string()) }
    })
    .await;
    assert_eq!(address.octets()[0], 240, "{address}");
    let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(peer.contains("URI=spiffe://default/client"), "the two Envoys know each other: {seen}");

    // What is no service goes where it was meant for, past both of them.
    let url = &format!("http://{}:9090/", backend.machine.address);
    let (seen, _) = eventually("somebody outside the mesh", || async move { client.get(url) }).await;
    assert_eq!(seen["service"], "outside-1", "{seen}");
    drop(outside);

    // Who comes to a service without a certificate comes to its Envoy all the same.
    let direct = format!("http://{}:8080/", backend.machine.address);
    let plain = client.machine.command(&["curl", "-sS", "--max-time", "5", &direct]);
    let plain = ran({ plain }.output(), "a client past its own Envoy");
    assert!(plain.is_err(), "mutual TLS is asked for on the way in: {plain:?}");
}
