//! TLS from both ends: greetings the listeners must not take, and certificates of global that a zone must
//! not believe.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use common::tls::{KeyPairPem, Trust};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    chains::{CHAINS, Chain},
    http::Http,
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    process::Process,
    tally::{Class::Certificates, Tally},
};

/// What somebody says first.
pub enum Greeting {
    /// These bytes.
    Bytes(Vec<u8>),
    /// TLS, with this protocol and for this name.
    Tls(&'static str, &'static str),
    /// TLS, with a certificate nobody asked for.
    Certified,
}

const REFUSED: &[&str] = &["refused"];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A ClientHello of nothing but a version and one cipher.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let length = u8::try_from(body.len()).unwrap();
    let mut record = vec![0x16, version[0], version[1], 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    record
}

fn greetings() -> Vec<Case<Greeting>> {
    let bytes = |what: &'static str, bytes: &[u8]| {
        case(Certificates, what, Greeting::Bytes(bytes.to_vec()), REFUSED, &[])
    };
    let length = [0x16, 3, 1, 0xff, 0xff, 1, 0, 0, 0];
    vec![
        bytes("HTTP without TLS", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        bytes("HTTP/2 without TLS", PREFACE),
        bytes("words of another protocol", b"SSH-2.0-OpenSSH_9.9\r\n"),
        bytes("noise", &[0xa5; 4096]),
        bytes("a record longer than any", &length),
        bytes("an alert", &[0x15, 3, 3, 0, 2, 2, 40]),
        bytes("a greeting without a body", &[0x16, 3, 1, 0, 4, 1, 0, 0, 0]),
        bytes("data before a greeting", &[0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5]),
        bytes("SSL 3.0", &hello([3, 0])),
        bytes("TLS 1.0", &hello([3, 1])),
        bytes("TLS 1.1", &hello([3, 2])),
        bytes("TLS 1.2 without a good cipher", &hello([3, 3])),
        case(Certificates, "a protocol nobody speaks", Greeting::Tls("nonsense", "localhost"), REFUSED, &[]),
        case(Certificates, "another name", Greeting::Tls("h2", "evil.example"), &["served", "refused"], &[]),
        case(Certificates, "a certificate nobody asked for", Greeting::Certified, &["served"], &[]),
    ]
}

/// A listener that speaks TLS.
struct Listener {
    name: &'static str,
    address: SocketAddr,
}

impl Listener {
    async fn over_tls(&self, config: rustls::ClientConfig, name: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut stream = match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => stream,
            Err(error) => return Answer::new("refused", error.to_string()),
        };
        let _hung_up = stream.write_all(PREFACE).await;
        let mut heard = [0; 64];
        match timeout(Duration::from_secs(15), stream.read(&mut heard)).await {
            Ok(Ok(1..)) => Answer::new("served", ""),
            ended => Answer::new("refused", format!("{ended:?}")),
        }
    }
}

impl Front for Listener {
    type Input = Greeting;

    fn name(&self) -> &str {
        self.name
    }

    async fn send(&self, input: &Greeting) -> Answer {
        match input {
            Greeting::Bytes(bytes) => {
                let heard = Http::plain(self.name, &self.address.to_string()).exchange(bytes).await;
                // An alert of TLS, or nothing.
                let refused = heard.first().is_none_or(|first| *first == 0x15);
                Answer::new(if refused { "refused" } else { "answered" }, String::from_utf8_lossy(&heard))
            }
            Greeting::Tls(alpn, name) => {
                self.over_tls(Trust::Anyone.client_config(&[alpn]).unwrap(), name).await
            }
            Greeting::Certified => {
                let pair = KeyPairPem::self_signed(&["admin".to_owned()]).unwrap();
                let mut config = Trust::Anyone.client_config(&["h2"]).unwrap();
                let shown = pair.client_config(&pair.certificate).unwrap();
                config.client_auth_cert_resolver = shown.client_auth_cert_resolver;
                self.over_tls(config, "localhost").await
            }
        }
    }
}

/// What is tried on zones: each costs the start of a process.
const BY_ZONES: [&str; 6] = [
    "another authority",
    "self-signed",
    "expired",
    "not valid yet",
    "another address",
    "a certificate of clients",
];

fn chains() -> Vec<Case<&'static Chain>> {
    let says: &[&str] = &["connect to global", "certificate"];
    let chosen = CHAINS.iter().filter(|chain| BY_ZONES.contains(&chain.what));
    chosen.map(|chain| case(Certificates, chain.what, chain, REFUSED, says).hiding(&["panicked"])).collect()
}

/// A zone whose global shows such a certificate.
struct Following;

impl Front for Following {
    type Input = &'static Chain;

    fn name(&self) -> &str {
        "zones over TLS"
    }

    async fn send(&self, input: &&'static Chain) -> Answer {
        let (listener, made) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), input.made());
        let global = format!("grpcs://{}", listener.local_addr().unwrap());
        let folder = TempDir::new().unwrap();
        let authority = folder.path().join("authority.crt");
        std::fs::write(&authority, &made.authority).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(made.server_config(&["h2"])));
        let believed = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if acceptor.accept(stream).await.is_ok() {
                    return;
                }
            }
        };
        let (dir, authority) = (folder.path().display().to_string(), authority.display().to_string());
        let settings = [
            ("general.workDir", dir.as_str()),
            ("store.type", "memory"),
            ("apiServer.http.port", "0"),
            ("apiServer.https.enabled", "false"),
            ("diagnostics.serverPort", "0"),
            ("dpServer.port", "0"),
            ("monitoringAssignmentServer.port", "0"),
            ("multizone.zone.name", "zone-1"),
            ("multizone.zone.globalAddress", &global),
            ("multizone.zone.kds.rootCaFile", &authority),
        ];
        let args = settings.iter().map(|(name, value)| format!("--{name}={value}"));
        let process = Process::start("zone-1", env!("CARGO_BIN_EXE_strait-zone").as_ref(), args);
        let said = eventually("a word about the connection", || async {
            let log = process.log();
            if log.contains("connect to global") { Ok(log) } else { Err(log) }
        });
        tokio::select! {
            () = believed => Answer::new("believed", process.log()),
            log = said => Answer::new("refused", log),
        }
    }
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&greetings());
    all.join(&tally(&greetings()));
    all.join(&tally(&chains()));
    all
}

#[tokio::test]
async fn nobody_is_let_in_or_believed_without_a_right_handshake() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    let kds = Listener { name: "global KDS", address: global.kds };
    let proxies = Listener { name: "dp-server", address: zone.dp_server };
    all_right([
        run(&kds, &greetings(), &[&global.process]).await,
        run(&proxies, &greetings(), &[&zone.process]).await,
        run(&Following, &chains(), &[]).await,
    ]);
    let online = || async {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    };
    eventually("the zone is online", online).await;
}
