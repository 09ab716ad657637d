//! Redirected traffic, as a real Envoy sees it. Redirecting takes rules in the kernel; what matters to Envoy is only
//! that it learns the address a connection was meant for, and here it learns that from the first line of each
//! connection (PROXY protocol), by a patch of the listener where such connections arrive.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::{Duration, timeout},
};

use crate::{
    harness::{Echo, Envoy, Global, Zone, addresses, envoy::admin_address, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, egress, federation},
};

/// A client whose traffic is redirected.
pub(crate) struct Redirected {
    envoy: Envoy,
    /// Where what the workload sends arrives.
    outbound: SocketAddr,
    /// Where it asks for names.
    dns: SocketAddr,
}

const TOLD: &str = "
type: MeshProxyPatch
name: told
mesh: default
spec:
  targetRef: { kind: MeshSubset, tags: { kuma.io/service: client } }
  default:
    appendModifications:
      - listener:
          operation: Patch
          match: { name: 'outbound:passthrough:ipv4' }
          value: |
            listenerFilters:
              - name: envoy.filters.listener.proxy_protocol
                typedConfig:
                  '@type': type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol
";

impl Redirected {
    pub(crate) async fn join(zone: &Zone) -> Self {
        let address = addresses::loopback();
        // What comes in is taken at all addresses of the machine.
        let inbound = addresses::free_port(Ipv4Addr::UNSPECIFIED);
        let outbound = addresses::free_port(Ipv4Addr::LOCALHOST);
        let (port, dns) = (addresses::free_port(address), addresses::free_port(Ipv4Addr::LOCALHOST));
        let admin = admin_address();
        zone.apply(&format!(
            "
type: Dataplane
mesh: default
name: client-1
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound:
    - {{ port: {port}, serviceAddress: 127.0.0.1, tags: {{ kuma.io/service: client }} }}
  transparentProxying: {{ redirectPortInbound: {inbound}, redirectPortOutbound: {outbound}, ipFamilyMode: IPv4 }}
",
            admin.port(),
        ));
        let metadata = [("dataplane.dns.port", dns.to_string())];
        let envoy = Envoy::sidecar_saying(zone, "default", "client-1", admin, &metadata).await;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { envoy, outbound: at(outbound), dns: at(dns) }
    }

    /// What answers a request to `to`, whatever is there.
    async fn call(&self, to: SocketAddr) -> Result<String, String> {
        let asked = async {
            let mut stream = TcpStream::connect(self.outbound).await?;
            let said = format!(
                "PROXY TCP4 127.0.0.1 {} 1000 {}\r\nGET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
                to.ip(),
                to.port(),
                to.ip()
            );
            stream.write_all(said.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = timeout(Duration::from_secs(10), asked).await.map_err(|_| "no answer")?;
        match answer.map_err(|e| e.to_string())? {
            answer if answer.is_empty() => Err("the connection was closed".to_owned()),
            answer => Ok(answer),
        }
    }

    async fn reaches(&self, to: SocketAddr, name: &str) {
        eventually(&format!("{to} answers as {name}"), || async {
            let answer = self.call(to).await?;
            if answer.contains(name) { Ok(()) } else { Err(answer) }
        })
        .await;
    }

    async fn is_refused(&self, to: SocketAddr) {
        eventually(&format!("{to} is not reached"), || async {
            match self.call(to).await {
                Err(_) => Ok(()),
                Ok(answer) if answer.starts_with("HTTP/1.1 503") => Ok(()),
                Ok(answer) => Err(answer),
            }
        })
        .await;
    }

    /// The address a name stands for.
    async fn resolve(&self, name: &str) -> Result<Ipv4Addr, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|e| e.to_string())?;
        let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len()).expect("labels are short"));
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, 1, 0, 1]);
        socket.send_to(&question, self.dns).await.map_err(|e| e.to_string())?;
        let mut answer = [0; 512];
        let received = timeout(Duration::from_secs(2), socket.recv(&mut answer)).await;
        let length = received.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
        let answer = &answer[..length];
        let (code, count) = (answer[3] & 15, u16::from_be_bytes([answer[6], answer[7]]));
        match answer.last_chunk::<4>() {
            Some(address) if code == 0 && count == 1 => Ok(Ipv4Addr::from(*address)),
            _ => Err(format!("code {code}, {count} answers")),
        }
    }
}

async fn set_up() -> (Global, Vec<Zone>, Member, Redirected) {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    global.apply(TOLD);
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Redirected::join(&zones[0]).await;
    (global, zones, backend, client)
}

#[tokio::test]
async fn a_service_is_called_by_its_name() {
    let (_global, zones, _backend, client) = set_up().await;
    let address = eventually("the address of backend.mesh", || client.resolve("backend.mesh")).await;
    assert_eq!(address.octets()[0], 240, "{address}");
    client.reaches(SocketAddr::from((address, 80)), "backend-1").await;
    assert!(client.resolve("nobody.mesh").await.is_err());

    // Another service does not move it.
    let _other = Member::join(&zones[0], Shape::http("another-1", "another", &[])).await;
    eventually("the address of another.mesh", || client.resolve("another.mesh")).await;
    assert_eq!(client.resolve("backend.mesh").await, Ok(address));
    let listeners = client.envoy.admin("/listeners").await.expect("the admin endpoint answers");
    assert!(listeners.contains(&format!("outbound:{address}:80")), "{listeners}");
}

#[tokio::test]
async fn what_is_outside_is_reached_as_far_as_a_policy_lets() {
    let (global, _zones, _backend, client) = set_up().await;
    let outside = || {
        let ip = addresses::loopback();
        SocketAddr::from((ip, addresses::free_port(ip)))
    };
    let (one, other) = (outside(), outside());
    let _one = Echo::http("one-outside", one).await;
    let _other = Echo::http("other-outside", other).await;
    client.reaches(one, "one-outside").await;
    client.reaches(other, "other-outside").await;

    let policy = |conf: &str| {
        global.apply(&format!(
            "{{type: MeshPassthrough, name: outside, mesh: default, spec: {{default: {conf}}}}}"
        ));
    };
    policy("{passthroughMode: None}");
    client.is_refused(one).await;
    client.is_refused(other).await;

    policy(&format!(
        "{{passthroughMode: Matched, appendMatch: [{{type: IP, value: {}, port: {}, protocol: tcp}}]}}",
        one.ip(),
        one.port()
    ));
    client.reaches(one, "one-outside").await;
    client.is_refused(other).await;

    policy("{passthroughMode: All}");
    client.reaches(other, "other-outside").await;
}

/// By the name that a generator makes, at an address of its own, past the egress.
#[tokio::test]
async fn a_service_outside_is_called_by_its_name() {
    let (global, mut zones, _backend, client) = set_up().await;
    global.apply(&format!("{MESH}meshServices: {{ mode: Everywhere }}\nrouting: {{ zoneEgress: true }}\n"));
    let ip = addresses::loopback();
    let at = SocketAddr::from((ip, addresses::free_port(ip)));
    let _outside = Echo::http("outside-1", at).await;
    let _egress = egress(&global, &zones[0]).await;
    global.apply(&format!(
        "
type: MeshExternalService
name: shop
mesh: default
spec:
  match: {{ port: 8080, protocol: http }}
  endpoints: [{{ address: {ip}, port: {} }}]
---
type: HostnameGenerator
name: outside
spec:
  selector: {{ meshExternalService: {{}} }}
  template: '{{{{ .DisplayName }}}}.outside.example'
",
        at.port()
    ));
    let named =
        eventually("the address of shop.outside.example", || client.resolve("shop.outside.example")).await;
    assert_eq!(named.octets()[0], 242, "{named}");
    assert_eq!(client.resolve("shop.extsvc.mesh.local").await, Ok(named), "by that of everybody too");
    client.reaches(SocketAddr::from((named, 8080)), "outside-1").await;

    // Neither a restart nor a store that is lost moves anybody.
    zones[0].process.kill();
    zones[0].start_again().await;
    eventually("the same address", || same(&client, named)).await;
    zones[0].process.kill();
    for file in ["strait.db", "strait.db-wal", "strait.db-shm"] {
        let _may_not_be_there = std::fs::remove_file(zones[0].folder.path().join(file));
    }
    zones[0].start_again().await;
    let zone = &zones[0];
    eventually("the service in the new store", || async move {
        let all = zone.try_get("/meshes/default/meshexternalservices").await?;
        let ip = all["items"][0]["status"]["vip"]["ip"]
            .as_str()
            .or(all["items"][0]["status"]["vips"][0]["ip"].as_str());
        if ip == Some(named.to_string().as_str()) { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
}

async fn same(client: &Redirected, address: Ipv4Addr) -> Result<(), String> {
    match client.resolve("shop.outside.example").await? {
        seen if seen == address => Ok(()),
        other => Err(format!("{other} instead of {address}")),
    }
}

#[tokio::test]
async fn a_virtual_outbound_gives_a_service_another_name_and_port() {
    let (global, _zones, _backend, client) = set_up().await;
    global.apply(
        "
type: VirtualOutbound
name: by-service
mesh: default
selectors: [{ match: { kuma.io/service: '*' } }]
conf:
  host: '{{.service}}.inside.example'
  port: '8080'
  parameters: [{ name: service, tagKey: kuma.io/service }]
",
    );
    let name = "backend.inside.example";
    let address = eventually("the address of that name", || client.resolve(name)).await;
    client.reaches(SocketAddr::from((address, 8080)), "backend-1").await;
}
