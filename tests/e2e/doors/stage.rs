//! A global, a zone, and every port of theirs that a stranger can reach; with a client that behaves, whom the
//! attack must not touch, and budgets for what the attack may cost.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpSocket,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    Global, Options, Zone, addresses, control_plane::ControlPlane, eventually, relay::Relay,
};

/// Longest a client that behaves waits, on a machine that is busy with the attack as well.
const PATIENCE: Duration = Duration::from_secs(45);

pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A port.
#[derive(Clone)]
pub struct Door {
    /// Its name in metrics.
    pub name: &'static str,
    pub of: &'static str,
    pub address: SocketAddr,
    pub http1: bool,
    tls: Option<Arc<ClientConfig>>,
    diagnostics: SocketAddr,
}

impl Door {
    /// A connection from `source`, before TLS.
    pub async fn tcp(&self, source: Ipv4Addr) -> std::io::Result<tokio::net::TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((source, 0)))?;
        socket.connect(self.address).await
    }

    /// The same with hardly any room on this side for what is not read.
    pub async fn narrow(&self, source: Ipv4Addr) -> std::io::Result<tokio::net::TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        socket.bind(SocketAddr::from((source, 0)))?;
        socket.connect(self.address).await
    }

    /// A connection on which this protocol was agreed.
    pub async fn dial(&self, source: Ipv4Addr, alpn: &[u8]) -> std::io::Result<Box<dyn Io>> {
        let tcp = self.tcp(source).await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let mut tls = ClientConfig::clone(tls);
        tls.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::from(self.address.ip());
        Ok(Box::new(TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?))
    }

    pub fn tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What a client that behaves does: connect, ask, and get an answer.
    pub async fn served(&self, source: Ipv4Addr) -> Result<Duration, String> {
        let started = Instant::now();
        let asked = async {
            if self.http1 {
                let mut io = self.dial(source, b"http/1.1").await.map_err(|e| format!("connect: {e}"))?;
                io.write_all(b"GET /healthy HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                    .await
                    .map_err(|e| format!("ask: {e}"))?;
                let mut answer = [0; 9];
                io.read_exact(&mut answer).await.map_err(|e| format!("read: {e}"))?;
                return if &answer == b"HTTP/1.1 " { Ok(()) } else { Err(format!("{answer:?}")) };
            }
            let io = self.dial(source, b"h2").await.map_err(|e| format!("connect: {e}"))?;
            let (mut client, connection) =
                h2::client::handshake(io).await.map_err(|e| format!("greet: {e}"))?;
            let driver = tokio::spawn(connection);
            let request = http::Request::post("http://a/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck")
                .header("content-type", "application/grpc")
                .body(())
                .expect("a request");
            let (response, _) = client.send_request(request, true).map_err(|e| format!("ask: {e}"))?;
            let response = response.await.map_err(|e| format!("answer: {e}"));
            driver.abort();
            response.map(|_| ())
        };
        match timeout(PATIENCE, asked).await {
            Ok(Ok(())) => Ok(started.elapsed()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }

    /// A counter of its process, of all reasons or of one.
    pub async fn refused(&self, reason: Option<&str>) -> u64 {
        let text = reqwest::get(format!("http://{}/metrics", self.diagnostics)).await;
        let text = text.expect("metrics answer").text().await.expect("metrics are text");
        let listener = format!("listener=\"{}\"", self.name);
        let reason = reason.map(|reason| format!("reason=\"{reason}\"")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("connections_refused_total{"));
        let fit = lines.filter(|line| line.contains(&listener) && line.contains(&reason));
        fit.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// The ports of a relay.
pub fn doors_of(relay: &Relay) -> [Door; 2] {
    let diagnostics = Door {
        name: "diagnostics",
        of: "relay",
        address: relay.diagnostics,
        http1: true,
        tls: None,
        diagnostics: relay.diagnostics,
    };
    let tls = Some(trusting(&relay.certificate()));
    let kds = Door { name: "kds", address: relay.kds, http1: false, tls, ..diagnostics.clone() };
    [diagnostics, kds]
}

/// Both processes.
pub struct Stage {
    pub global: Global,
    pub zone: Zone,
}

impl Stage {
    /// Both with these flags, and with the sync between them running.
    pub async fn set(flags: &[(&str, &str)]) -> Self {
        let options =
            flags.iter().fold(Options::default(), |options, (flag, value)| options.with(flag, value));
        let global = Global::start_with(options.clone()).await;
        let zone = Zone::start_with(&global, "zone-1", options).await;
        eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
        Self { global, zone }
    }

    /// Every port.
    pub fn doors(&self) -> Vec<Door> {
        let plain = |name, of, cp: &ControlPlane, address| Door {
            name,
            of,
            address,
            http1: true,
            tls: None,
            diagnostics: cp.diagnostics,
        };
        let encrypted = |name, of, cp: &ControlPlane, address, http1, roots: &Path| Door {
            tls: Some(trusting(roots)),
            http1,
            ..plain(name, of, cp, address)
        };
        let (global, zone) = (&self.global, &self.zone);
        vec![
            plain("api", "global", global, global.api),
            plain("diagnostics", "global", global, global.diagnostics),
            encrypted("kds", "global", global, global.kds, false, &global.certificate()),
            plain("api", "zone", zone, zone.api),
            plain("diagnostics", "zone", zone, zone.diagnostics),
            encrypted("dp_server", "zone", zone, zone.dp_server, true, &zone.certificate()),
        ]
    }

    /// What both use now.
    pub fn cost(&self) -> Cost {
        let of = |cp: &ControlPlane| (resident(cp.process.id()), cp.process.log_bytes());
        Cost { global: of(&self.global), zone: of(&self.zone) }
    }

    /// Both run, the sync too, and neither took more than this since `before`.
    pub async fn stands(&mut self, before: Cost, memory: u64, log: usize) {
        assert!(self.global.process.runs() && self.zone.process.runs());
        let after = self.cost();
        for (name, (rss, written), (rss_before, written_before)) in
            [("global", after.global, before.global), ("zone", after.zone, before.zone)]
        {
            let grown = rss.saturating_sub(rss_before) >> 20;
            println!("{name}: {grown} MiB more memory, {} bytes of log", written - written_before);
            assert!(grown <= memory, "{name} grew by {grown} MiB");
            assert!(written - written_before <= log, "{name} wrote {} bytes", written - written_before);
        }
        let global = &self.global;
        eventually("the zone is online", || async move {
            let status = global.zone_status("zone-1").await?;
            if status == "online" { Ok(()) } else { Err(status) }
        })
        .await;
    }
}

/// Memory in bytes and log in bytes, of each.
#[derive(Clone, Copy)]
pub struct Cost {
    global: (u64, usize),
    zone: (u64, usize),
}

/// Memory of a process, in bytes.
pub fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("memory is told");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib << 10
}

/// Files a process has open.
pub fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs").count()
}

fn trusting(roots: &Path) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(roots).expect("the certificate is there") {
        store.add(root.expect("it is PEM")).expect("it is a certificate");
    }
    Arc::new(ClientConfig::builder().with_root_certificates(store).with_no_client_auth())
}

/// Clients that behave, one at each door, from an address of their own, for as long as this lives.
pub struct Watching {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<Result<Duration, String>>>,
    asked: Arc<AtomicUsize>,
}

impl Watching {
    pub fn start(doors: &[Door]) -> Self {
        let (stop, asked) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let tasks = doors.iter().cloned().map(|door| {
            let (stop, asked, source) = (stop.clone(), Arc::clone(&asked), addresses::loopback());
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while !stop.is_cancelled() {
                    let took = door.served(source).await;
                    let took = took.map_err(|error| format!("{} of {}: {error}", door.name, door.of))?;
                    longest = longest.max(took);
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(longest)
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks, asked }
    }

    /// Every one of them was served each time.
    pub async fn was_served(self) {
        self.stop.cancel();
        let mut longest = Duration::ZERO;
        for task in self.tasks {
            longest = longest.max(task.await.expect("a client does not panic").expect("a client is served"));
        }
        println!(
            "healthy clients: {} requests, the longest took {longest:?}",
            self.asked.load(Ordering::Relaxed)
        );
    }
}

/// Reads until the other side closes; whether that happened within `limit`.
pub async fn closed_within(io: &mut (impl AsyncRead + Unpin), limit: Duration) -> bool {
    let mut buffer = vec![0; 16 << 10];
    timeout(limit, async { while matches!(io.read(&mut buffer).await, Ok(read) if read > 0) {} })
        .await
        .is_ok()
}
