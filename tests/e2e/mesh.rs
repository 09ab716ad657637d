//! The usual set-up: a mesh with mutual TLS over two zones.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use reqwest::StatusCode;
use serde_json::Value;

use crate::harness::{Echo, Envoy, Global, Options, Zone, addresses, envoy::admin_address, eventually, http};

/// A mesh with mutual TLS, without any permission.
pub const MESH: &str = "
type: Mesh
name: default
mtls:
  enabledBackend: ca-1
  backends: [{ name: ca-1, type: builtin }]
";

/// Everybody may call everybody.
pub const ALLOW_ALL: &str = "
type: MeshTrafficPermission
name: allow-all
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: Mesh }
      default: { action: Allow }
";

/// A dataplane with the service behind it and the Envoy before it.
pub struct Member {
    mesh: String,
    name: String,
    /// The sidecar.
    pub envoy: Envoy,
    _echo: Echo,
    /// Where the sidecar listens for the service.
    pub inbound: SocketAddr,
    /// Where its outbounds listen.
    pub outbounds: Vec<SocketAddr>,
}

/// What a dataplane looks like.
pub struct Shape<'a> {
    /// Its mesh.
    pub mesh: &'a str,
    /// Name of the dataplane and of the service behind it.
    pub name: &'a str,
    /// Its `kuma.io/service`.
    pub service: &'a str,
    /// Its `kuma.io/protocol`.
    pub protocol: &'a str,
    /// More tags, as YAML flow members.
    pub tags: &'a str,
    /// Services it calls: by their tag, or by a reference to a resource as a YAML flow mapping.
    pub calls: &'a [&'a str],
}

impl<'a> Shape<'a> {
    /// An HTTP service that calls `calls`.
    pub fn http(name: &'a str, service: &'a str, calls: &'a [&'a str]) -> Self {
        Self { mesh: "default", name, service, protocol: "http", tags: "", calls }
    }
}

impl Member {
    /// Registers the dataplane with its zone and starts service and sidecar.
    pub async fn join(zone: &Zone, shape: Shape<'_>) -> Self {
        Self::join_in(zone, shape, None).await
    }

    /// The same, with somebody beside the proxy whose folder this is.
    pub async fn join_in(zone: &Zone, shape: Shape<'_>, work_dir: Option<&Path>) -> Self {
        let folder = work_dir.map(|folder| ("workdir", folder.display().to_string()));
        Self::join_saying(zone, shape, "", &Vec::from_iter(folder)).await
    }

    /// The same, with these labels, as YAML flow members.
    pub async fn join_labelled(zone: &Zone, shape: Shape<'_>, labels: &str) -> Self {
        Self::join_saying(zone, shape, labels, &[]).await
    }

    /// The same, with more in what the Envoy says about itself.
    pub async fn join_saying(
        zone: &Zone,
        shape: Shape<'_>,
        labels: &str,
        metadata: &[(&str, String)],
    ) -> Self {
        let address = addresses::loopback();
        let (port, app) = (addresses::free_port(address), addresses::loopback());
        let app = SocketAddr::from((app, addresses::free_port(app)));
        let admin = admin_address();
        let client = addresses::loopback();
        let outbounds: Vec<SocketAddr> =
            shape.calls.iter().map(|_| SocketAddr::from((client, addresses::free_port(client)))).collect();
        let listed: String = std::iter::zip(shape.calls, &outbounds)
            .map(|(service, at)| {
                let (ip, port) = (at.ip(), at.port());
                let target = match service.starts_with('{') {
                    true => format!("backendRef: {service}"),
                    false => format!("tags: {{ kuma.io/service: {service} }}"),
                };
                format!("    - {{ address: {ip}, port: {port}, {target} }}\n")
            })
            .collect();
        let Shape { mesh, name, service, protocol, tags, .. } = shape;
        zone.apply(&format!(
            "
type: Dataplane
mesh: {mesh}
name: {name}
labels: {{ {labels} }}
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound:
    - port: {port}
      servicePort: {}
      serviceAddress: {}
      tags: {{ kuma.io/service: {service}, kuma.io/protocol: {protocol}{tags} }}
  outbound:
{listed}",
            admin.port(),
            app.port(),
            app.ip(),
        ));
        let echo = match protocol {
            "tcp" => Echo::tcp(name, app).await,
            _ => Echo::http(name, app).await,
        };
        let envoy = Envoy::sidecar_saying(zone, mesh, name, admin, metadata).await;
        let inbound = SocketAddr::from((address, port));
        Self { mesh: mesh.to_owned(), name: name.to_owned(), envoy, _echo: echo, inbound, outbounds }
    }

    /// The same with an Envoy that knows nothing yet.
    pub async fn with_fresh_envoy(self, zone: &Zone) -> Self {
        let Self { mesh, name, envoy, _echo, inbound, outbounds } = self;
        let admin = envoy.admin;
        drop(envoy);
        let envoy = Envoy::sidecar(zone, &mesh, &name, admin).await;
        Self { mesh, name, envoy, _echo, inbound, outbounds }
    }

    /// Calls the `n`th service it was told to call.
    pub async fn call(&self, n: usize, path: &str) -> Result<(StatusCode, Value), String> {
        let url = format!("http://{}{path}", self.outbounds[n]);
        let answer = http::client().get(url).send().await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Waits until the `n`th service answers, as the dataplane of this name.
    pub async fn reaches(&self, n: usize, name: &str) -> Value {
        eventually(&format!("an answer of {name}"), || async move {
            match self.call(n, "/").await? {
                (StatusCode::OK, seen) if seen["service"] == name => Ok(seen),
                (status, seen) => Err(format!("{status}: {seen}")),
            }
        })
        .await
    }

    /// Waits until the `n`th service answers with this status.
    pub async fn gets(&self, n: usize, expected: StatusCode) {
        eventually(&format!("status {expected}"), || async move {
            match self.call(n, "/").await? {
                (status, _) if status == expected => Ok(()),
                (status, seen) => Err(format!("{status}: {seen}")),
            }
        })
        .await;
    }
}

/// Starts the ingress of a zone.
pub async fn ingress(global: &Global, zone: &Zone) -> Envoy {
    let address = addresses::loopback();
    ingress_called(global, zone, address, &address.to_string()).await
}

/// The same at this address, which others find by this name.
pub async fn ingress_called(global: &Global, zone: &Zone, address: Ipv4Addr, advertised: &str) -> Envoy {
    let port = addresses::free_port(address);
    let admin = admin_address();
    let name = format!("ingress-{}", zone.zone);
    zone.apply(&format!(
        "
type: ZoneIngress
name: {name}
networking:
  address: {address}
  port: {port}
  advertisedAddress: {advertised}
  advertisedPort: {port}
  admin: {{ port: {} }}
",
        admin.port()
    ));
    let token = global.straitctl(&["generate", "zone-token", "--zone", &zone.zone, "--scope", "ingress"]);
    Envoy::ingress(zone, token.trim(), &name, admin).await
}

/// Starts the egress of a zone.
pub async fn egress(global: &Global, zone: &Zone) -> Envoy {
    let address: Ipv4Addr = addresses::loopback();
    let port = addresses::free_port(address);
    let admin = admin_address();
    let name = format!("egress-{}", zone.zone);
    zone.apply(&format!(
        "
type: ZoneEgress
name: {name}
networking:
  address: {address}
  port: {port}
  admin: {{ port: {} }}
",
        admin.port()
    ));
    let token = global.straitctl(&["generate", "zone-token", "--zone", &zone.zone, "--scope", "egress"]);
    Envoy::egress(zone, token.trim(), &name, admin).await
}

/// A global with this many zones, all online, and the mesh `default` with mutual TLS in all of them.
pub async fn federation(zones: usize) -> (Global, Vec<Zone>) {
    federation_with(zones, Options::default(), Options::default()).await
}

/// The same with more flags.
pub async fn federation_with(zones: usize, global: Options, zone: Options) -> (Global, Vec<Zone>) {
    let global = Global::start_with(global).await;
    let mut started = Vec::new();
    for n in 1..=zones {
        started.push(Zone::start_with(&global, &format!("zone-{n}"), zone.clone()).await);
    }
    global.apply(MESH);
    for zone in &started {
        eventually("the CA of the mesh in the zone", || async move {
            let secrets = zone.try_get("/meshes/default/secrets").await?;
            let names: Vec<_> =
                secrets["items"].as_array().into_iter().flatten().map(|s| &s["name"]).collect();
            let own = common::issuing::certificate_secret("default", "ca-1", &zone.zone);
            if names.iter().any(|n| *n == own.as_str()) { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }
    (global, started)
}
