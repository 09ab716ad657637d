//! Traffic between a zone of ours and one of Kuma's, which is played here: over the real wire it says what such a zone says,
//! and behind its ingress it does what a sidecar of Kuma's does, by nothing but what it was told.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use common::{
    kds::{
        codec::{self, Item},
        metadata::Peer,
    },
    model::{
        Kind,
        kinds::{
            mesh_service::{self, MeshService},
            mesh_trust::{self, MeshTrust},
            zone_ingress,
        },
        labels,
    },
    proto::kuma::mesh::v1alpha1::ZoneIngress,
    registry,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zone::generator::sni;

use crate::{
    harness::{
        KdsPeer, Root, addresses, eventually,
        kds_peer::{Down, item},
    },
    identity::{given, permit, reference, tcp},
    mesh::{Member, federation, ingress},
};

const THEIRS: &str = "spiffe://default.zone-2.mesh.local/workload/bytes";
const OURS: &str = "spiffe://default.zone-1.mesh.local/workload/bytes";
const CLIENT: &str = "spiffe://default.zone-1.mesh.local/workload/client";

/// Asks a TCP service, and says who answered.
async fn says(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<String, String> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"ping\n").await.map_err(|error| format!("write: {error}"))?;
    let (mut name, mut echo) = (String::new(), String::new());
    stream.read_line(&mut name).await.map_err(|error| format!("read: {error}"))?;
    stream.read_line(&mut echo).await.map_err(|error| format!("read: {error}"))?;
    if echo == "ping\n" { Ok(name.trim().to_owned()) } else { Err(format!("closed after {name:?}")) }
}

async fn reaches(at: SocketAddr, expected: &str) {
    eventually(&format!("an answer of {expected}"), || async move {
        let stream = TcpStream::connect(at).await.map_err(|error| error.to_string())?;
        match says(stream).await? {
            name if name == expected => Ok(()),
            name => Err(name),
        }
    })
    .await;
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// Who believes these roots, as a sidecar does: by the SPIFFE identity, and no name of a host.
fn believing(roots: &str) -> Arc<dyn ClientCertVerifier> {
    let mut store = RootCertStore::empty();
    certificates(roots).into_iter().for_each(|root| store.add(root).unwrap());
    WebPkiClientVerifier::builder(Arc::new(store)).build().unwrap()
}

fn bears(certificate: &CertificateDer<'_>, id: &str) -> bool {
    certificate.windows(id.len()).any(|bytes| bytes == id.as_bytes())
}

/// Believes servers that show one of these identities.
#[derive(Debug)]
struct Identified {
    roots: Arc<dyn ClientCertVerifier>,
    ids: Vec<String>,
}

impl ServerCertVerifier for Identified {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.roots.verify_client_cert(leaf, between, now)?;
        let known = self.ids.iter().any(|id| bears(leaf, id));
        if known {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(TlsError::General("another one".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.roots.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.roots.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.roots.supported_verify_schemes()
    }
}

/// What a client said in its handshake: the server name, and the certificate it showed.
type Heard = Arc<Mutex<Vec<(String, CertificateDer<'static>)>>>;

/// A TCP service of Kuma's zone behind its sidecar, as its ingress passes on connections. It ends with the test.
fn serve(listener: TcpListener, root: &Root, roots: &str) -> Heard {
    let (chain, key) = root.sign(THEIRS);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut tls = ServerConfig::builder()
        .with_client_cert_verifier(believing(roots))
        .with_single_cert(certificates(&chain), key)
        .unwrap();
    tls.alpn_protocols = vec![b"kuma".to_vec()];
    let heard = Heard::default();
    let told = Arc::clone(&heard);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, told) = (acceptor.clone(), Arc::clone(&told));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let said = stream.get_ref().1;
                let leaf = said.peer_certificates().unwrap_or_default()[0].clone().into_owned();
                told.lock().unwrap().push((said.server_name().unwrap_or_default().to_owned(), leaf));
                let (read, mut write) = tokio::io::split(stream);
                let _gone = write.write_all(b"theirs\n").await;
                let _gone = tokio::io::copy(&mut BufReader::new(read), &mut write).await;
            });
        }
    });
    heard
}

/// What global passes on to a zone of Kuma's.
struct PassedOn {
    down: Down,
    zone: String,
    all: Vec<(&'static Kind, Item)>,
}

impl PassedOn {
    async fn of(peer: &KdsPeer, kinds: &[&Kind]) -> Self {
        let mut asked = kinds.iter().map(|kind| peer.first(kind.name, Peer::default()));
        let down = peer.down(asked.next().unwrap()).await.unwrap();
        for first in asked {
            down.requests.send(first).await.unwrap();
        }
        Self { down, zone: peer.caller.zone.clone(), all: Vec::new() }
    }

    /// What zone-1 has of this kind, once that fits.
    async fn find(&mut self, kind: &Kind, fits: impl Fn(&Item) -> bool) -> Item {
        let ours = |(of, item): &&(&Kind, Item)| {
            of.name == kind.name
                && item.labels.get(labels::ZONE).is_some_and(|zone| zone == "zone-1")
                && fits(item)
        };
        loop {
            // The newest version of it.
            if let Some((_, item)) = self.all.iter().rev().find(ours) {
                return item.clone();
            }
            let response = self.down.next().await.unwrap();
            self.down.accept(&self.zone, &response).await;
            let kind = registry::by_name(&response.type_url).unwrap();
            let items =
                response.resources.iter().map(|one| codec::decode(kind, one.resource.as_ref().unwrap()));
            self.all.extend(items.map(|item| (kind, item.unwrap())));
        }
    }
}

fn spec<S: serde::de::DeserializeOwned>(item: &Item) -> S {
    serde_json::from_slice(&item.spec).unwrap()
}

/// A call of a workload of Kuma's zone through an ingress, as a sidecar makes it.
struct Call<'a> {
    ingress: SocketAddr,
    server_name: &'a str,
    /// Who is believed, and who is to answer.
    roots: &'a str,
    ids: &'a [String],
}

impl Call<'_> {
    /// Calls as who has this certificate and key; says who answered.
    async fn made_by(&self, (chain, key): &(String, String)) -> Result<String, String> {
        let verifier = Identified { roots: believing(self.roots), ids: self.ids.to_vec() };
        let mut tls = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(
                certificates(chain),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"kuma".to_vec()];
        let host = ServerName::try_from(self.server_name.to_owned()).unwrap();
        let stream = TcpStream::connect(self.ingress).await.map_err(|error| format!("connect: {error}"))?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(host, stream).await;
        says(stream.map_err(|error| format!("handshake: {error}"))?).await
    }
}

#[tokio::test]
async fn workloads_of_both_kinds_of_zones_call_each_other_by_their_identities() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    global.apply(&given("{}"));
    global.apply(&permit(&[THEIRS, CLIENT]));
    let _ingress = ingress(&global, zone).await;
    let bytes = tcp("bytes-1", "bytes", &[]);
    let bytes = Member::join_labelled(zone, bytes, "kuma.io/workload: bytes").await;
    let port = bytes.inbound.port();
    global.apply(&format!(
        "
type: MeshMultiZoneService
name: everywhere
mesh: default
spec:
  selector: {{ meshService: {{ matchLabels: {{ kuma.io/display-name: bytes }} }} }}
  ports: [{{ port: {port}, appProtocol: tcp }}]
"
    ));

    // What zone-2 is told of zone-1: whom to believe, what it serves and where.
    let peer = KdsPeer::connect(&global, "zone-2").await;
    let mut told = PassedOn::of(&peer, &[&mesh_trust::KIND, &mesh_service::KIND, &zone_ingress::KIND]).await;
    let trust: MeshTrust = spec(&told.find(&mesh_trust::KIND, |_| true).await);
    assert_eq!(trust.trust_domain, "default.zone-1.mesh.local");
    let roots: String = trust.ca_bundles.into_iter().filter_map(|one| one.pem).map(|pem| pem.value).collect();

    // What zone-2 says of itself.
    let root = Root::of("default.zone-2.mesh.local");
    let listener = TcpListener::bind(SocketAddr::from((addresses::loopback(), 0))).await.unwrap();
    let at = listener.local_addr().unwrap();
    let heard = serve(listener, &root, &roots);
    let pem = serde_json::to_string(root.certificate()).unwrap();
    let (ip, at_port) = (at.ip(), at.port());
    let said = [
        (
            &mesh_trust::KIND,
            "given",
            format!(
                r#"{{"trustDomain": "default.zone-2.mesh.local", "caBundles": [{{"type": "Pem", "pem": {{"value": {pem}}}}}]}}"#
            ),
        ),
        (
            &mesh_service::KIND,
            "bytes",
            format!(
                r#"{{"state": "Available", "selector": {{"dataplaneTags": {{"kuma.io/service": "bytes"}}}},
                "ports": [{{"port": {port}, "targetPort": {port}, "appProtocol": "tcp"}}],
                "identities": [{{"type": "ServiceTag", "value": "bytes"}}, {{"type": "SpiffeID", "value": "{THEIRS}"}}]}}"#
            ),
        ),
        (
            &zone_ingress::KIND,
            "ingress",
            format!(
                r#"{{"networking": {{"address": "{ip}", "port": {at_port}, "advertisedAddress": "{ip}",
                "advertisedPort": {at_port}}}}}"#
            ),
        ),
    ];
    let mut up = peer.up().await.unwrap();
    for (kind, name, text) in said {
        let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
        let refused = up.offer(kind, vec![item(&peer.honest(kind, mesh, name, &text))]).await.unwrap();
        assert_eq!(refused, None, "{}", kind.name);
    }

    // From ours to theirs, by the service of their zone and by that of both.
    let local = format!("{{ kind: MeshService, name: bytes, port: {port} }}");
    let remote = reference(zone, "bytes", port).await;
    let both = format!("{{ kind: MeshMultiZoneService, name: everywhere, port: {port} }}");
    let calls = [local.as_str(), &remote, &both];
    let client =
        Member::join_labelled(zone, tcp("client-1", "client", &calls), "kuma.io/workload: client").await;
    reaches(client.outbounds[0], "bytes-1").await;
    reaches(client.outbounds[1], "theirs").await;
    let (asked, leaf) = heard.lock().unwrap().last().cloned().unwrap();
    assert!(bears(&leaf, CLIENT));
    assert_eq!(asked, sni::of_resource("bytes", port.into(), "default", "ms"));

    // And from theirs to ours, through the ingress: who is permitted, and nobody else.
    let is_served =
        |item: &Item| spec::<MeshService>(item).identities.iter().any(|identity| identity.value == OURS);
    let service: MeshService = spec(&told.find(&mesh_service::KIND, is_served).await);
    let spiffe = service.identities.into_iter().filter(|identity| identity.r#type == "SpiffeID");
    let ids: Vec<String> = spiffe.map(|identity| identity.value).collect();
    assert_eq!(ids, [OURS]);
    let door = told.find(&zone_ingress::KIND, |_| true).await;
    let door: ZoneIngress = prost::Message::decode(&*door.spec).unwrap();
    let door = door.networking.unwrap();
    let door = format!("{}:{}", door.advertised_address, door.advertised_port).parse().unwrap();
    let (member, stranger) =
        (root.sign(THEIRS), root.sign("spiffe://default.zone-2.mesh.local/workload/stranger"));
    let forged = Root::of("default.zone-2.mesh.local").sign(THEIRS);
    for (name, kind) in [("bytes", "ms"), ("everywhere", "mzms")] {
        let server_name = &sni::of_resource(name, port.into(), "default", kind);
        let call = Call { ingress: door, server_name, roots: &roots, ids: &ids };
        eventually("an answer of ours", || async {
            match call.made_by(&member).await? {
                name if name == "bytes-1" => Ok(()),
                name => Err(name),
            }
        })
        .await;
        for wrong in [&stranger, &forged] {
            assert!(call.made_by(wrong).await.is_err(), "it is let in by {server_name}");
        }
    }

    // Once ours is gone theirs answers for both.
    drop(bytes);
    zone.straitctl(&["delete", "dataplane", "bytes-1"]);
    reaches(client.outbounds[2], "theirs").await;
}
