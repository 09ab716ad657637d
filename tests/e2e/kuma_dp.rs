//! Whoever runs an Envoy as kuma-dp 2.14 does, in each of its roles: its bootstrap, whether it is ready, what it is told
//! while it runs, restarts of the zone, and that it leaves nothing behind. Played here word for word as far as the zone
//! can see it, by a real Envoy; and by an unmodified kuma-dp where `KUMA_DP` names one.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use common::testing::needs;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::{
    harness::{Global, Options, Zone, addresses, control_plane::write, eventually, process::Process},
    mesh::{ALLOW_ALL, federation_with},
};

/// What a proxy is there for.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Dataplane,
    Ingress,
    Egress,
}

const ROLES: [Role; 3] = [Role::Dataplane, Role::Ingress, Role::Egress];

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Dataplane => "dataplane",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Where its overview is.
    fn overview(self) -> String {
        match self {
            Self::Dataplane => "/meshes/default/dataplanes/beside-dataplane/_overview".to_owned(),
            Self::Ingress => "/zoneingresses/beside-ingress/_overview".to_owned(),
            Self::Egress => "/zoneegresses/beside-egress/_overview".to_owned(),
        }
    }

    /// Where what is seen of it stands in there.
    fn insight(self) -> &'static str {
        match self {
            Self::Dataplane => "dataplaneInsight",
            Self::Ingress => "zoneIngressInsight",
            Self::Egress => "zoneEgressInsight",
        }
    }
}

/// A proxy with somebody beside its Envoy.
struct Beside {
    role: Role,
    work_dir: TempDir,
    address: Ipv4Addr,
    /// Where an application beside it could be asked for names, by the proxy's word.
    dns: u16,
    readiness: u16,
    process: Process,
}

/// Where it listens and what it brings along.
struct Place {
    role: Role,
    work_dir: TempDir,
    address: Ipv4Addr,
    ports: [u16; 4],
    /// Where what comes in would be led to.
    inbound: u16,
    token: String,
}

impl Place {
    async fn of(role: Role, global: &Global, zone: &Zone) -> Self {
        let address = addresses::loopback();
        let token = match role {
            Role::Dataplane => zone.proxy_token("default", &["--name", "beside-dataplane"]).await,
            Role::Ingress | Role::Egress => {
                let args = ["generate", "zone-token", "--zone", &zone.zone, "--scope", role.name()];
                global.straitctl(&args).trim().to_owned()
            }
        };
        let ports = [address, address, address, Ipv4Addr::LOCALHOST].map(addresses::free_port);
        let inbound = addresses::free_port(Ipv4Addr::LOCALHOST);
        Self { role, work_dir: TempDir::new().unwrap(), address, ports, inbound, token }
    }

    /// The resource it brings along, as kuma-dp sends it: JSON in a text.
    fn resource(&self) -> Value {
        let (name, address, [port, ..]) = (self.name(), self.address, self.ports);
        match self.role {
            Role::Dataplane => json!({
                "type": "Dataplane", "mesh": "default", "name": name,
                "creationTime": "0001-01-01T00:00:00Z", "modificationTime": "0001-01-01T00:00:00Z",
                "networking": {
                    "address": address.to_string(),
                    "inbound": [{"port": port, "tags": {"kuma.io/service": "beside", "kuma.io/protocol": "http"}}],
                },
            }),
            Role::Ingress => json!({
                "type": "ZoneIngress", "name": name,
                "creationTime": "0001-01-01T00:00:00Z", "modificationTime": "0001-01-01T00:00:00Z",
                "networking": {
                    "address": address.to_string(), "port": port,
                    "advertisedAddress": address.to_string(), "advertisedPort": port,
                },
            }),
            Role::Egress => json!({
                "type": "ZoneEgress", "name": name,
                "creationTime": "0001-01-01T00:00:00Z", "modificationTime": "0001-01-01T00:00:00Z",
                "networking": {"address": address.to_string(), "port": port},
            }),
        }
    }

    fn name(&self) -> String {
        format!("beside-{}", self.role.name())
    }

    /// The body of `POST /bootstrap`, with every member kuma-dp 2.14 sends, also those that are empty.
    fn request(&self, zone: &Zone) -> Value {
        let [_, dns, readiness, outbound] = self.ports;
        let of_dataplane = self.role == Role::Dataplane;
        let mut features = vec![
            "feature-tcp-accesslog-via-named-pipe",
            "feature-delta-grpc",
            "feature-otel-via-kuma-dp",
            "feature-strict-inbound-ports",
            "feature-reuse-port",
        ];
        if of_dataplane {
            features.extend(["feature-embedded-dns", "feature-transparent-proxy-in-dataplane-metadata"]);
        }
        let redirected = json!({
            "ipFamilyMode": "ipv4",
            "redirect": {"inbound": {"enabled": true, "port": self.inbound}, "outbound": {"enabled": true, "port": outbound},
                "dns": {"enabled": true, "port": dns}},
        });
        json!({
            "mesh": if of_dataplane { "default" } else { "" },
            "name": self.name(),
            "proxyType": self.role.name(),
            "dataplaneToken": self.token,
            "dataplaneTokenPath": "",
            "dataplaneResource": self.resource().to_string(),
            "version": {
                "kumaDp": {"version": "2.14.3", "gitTag": "v2.14.3", "gitCommit": "unknown", "buildDate": "unknown"},
                "envoy": {"version": "1.40.0", "build": "unknown/1.40.0/Clean/RELEASE/BoringSSL",
                    "kumaDpCompatible": true},
            },
            "caCert": std::fs::read_to_string(zone.certificate()).unwrap(),
            "dynamicMetadata": null,
            "dnsPort": if of_dataplane { dns } else { 0 },
            "readinessPort": readiness,
            "appProbeProxyDisabled": true,
            "operatingSystem": "linux",
            "features": features,
            "resources": {"maxHeapSizeBytes": 0},
            "workdir": self.work_dir.path(),
            "metricsResources": {"certPath": "", "keyPath": ""},
            "systemCaPath": "",
            "ipv6Enabled": false,
            "dataplaneConfig": of_dataplane.then_some(redirected),
            "spireResources": {"socketPath": ""},
        })
    }

    /// Runs an Envoy as kuma-dp does.
    async fn played(self, zone: &Zone) -> Beside {
        let authority = std::fs::read(zone.certificate()).unwrap();
        let authority = reqwest::Certificate::from_pem_bundle(&authority).unwrap();
        let client = Client::builder().tls_certs_only(authority).build().unwrap();
        let (client, url, body) =
            (&client, &format!("https://{}/bootstrap", zone.dp_server), &self.request(zone));
        let (answer, text) = eventually("a bootstrap", || async move {
            let request = client.post(url).header("accept", "application/json").json(body);
            let answer = request.send().await.map_err(|e| e.to_string())?;
            let (status, text) = (answer.status(), answer.text().await.map_err(|e| e.to_string())?);
            let read = serde_json::from_str::<Value>(&text);
            match status {
                StatusCode::OK => Ok((read.map_err(|e| e.to_string())?, text)),
                _ => Err(format!("{status}: {text}")),
            }
        })
        .await;
        let sidecar = &answer["kumaSidecarConfiguration"];
        assert_eq!(sidecar["networking"]["address"], self.address.to_string(), "{text}");
        assert_eq!(sidecar["metrics"]["aggregate"], json!([]), "kuma-dp takes no null for it");
        let bootstrap = STANDARD.decode(answer["bootstrap"].as_str().unwrap()).unwrap();
        let bootstrap = String::from_utf8(bootstrap).unwrap();
        let config = write(self.work_dir.path(), "bootstrap.yaml", &bootstrap).display().to_string();
        let envoy = needs::envoy().expect("end to end includes Envoy");
        let args = [
            "--config-path",
            &config,
            "--drain-time-s",
            "1",
            "--disable-hot-restart",
            "--log-level",
            "warning",
            "--concurrency",
            "1",
        ];
        let process = Process::start(&self.name(), &envoy, args);
        self.beside(process)
    }

    /// Runs the kuma-dp at `program`.
    fn real(self, zone: &Zone, program: &Path) -> Beside {
        let folder = self.work_dir.path();
        let token = write(folder, "token", &self.token).display().to_string();
        let resource = write(folder, "resource.json", &self.resource().to_string()).display().to_string();
        let (ca, envoy) =
            (zone.certificate().display().to_string(), needs::envoy().expect("end to end includes Envoy"));
        let (server, envoy) = (format!("https://{}", zone.dp_server), envoy.display().to_string());
        let mut args =
            vec!["run", "--cp-address", &server, "--ca-cert-file", &ca, "--dataplane-token-file", &token];
        args.extend(["--dataplane-file", &resource, "--binary-path", &envoy, "--dns-enabled=false"]);
        if self.role != Role::Dataplane {
            args.extend(["--proxy-type", self.role.name()]);
        }
        let folder = folder.display().to_string();
        let readiness = self.ports[2].to_string();
        let environment = [
            ("KUMA_DATAPLANE_RUNTIME_WORK_DIR", folder.as_str()),
            ("KUMA_DATAPLANE_RUNTIME_CONFIG_DIR", &folder),
            ("KUMA_DATAPLANE_RUNTIME_SOCKET_DIR", &folder),
            ("KUMA_READINESS_PORT", &readiness),
            ("HOME", &folder),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let process = Process::start_in(&self.name(), program, args, &environment);
        self.beside(process)
    }

    fn beside(self, process: Process) -> Beside {
        let Self { role, work_dir, address, ports: [_, dns, readiness, _], .. } = self;
        Beside { role, work_dir, address, dns, readiness, process }
    }
}

impl Beside {
    /// GETs a path of a socket in its folder; gives status, tag and body.
    async fn ask(
        &self,
        socket: &str,
        path: &str,
        tag: Option<&str>,
    ) -> Result<(u16, String, String), String> {
        let socket: PathBuf = self.work_dir.path().join(socket);
        let known = tag.map(|tag| format!("If-None-Match: {tag}\r\n")).unwrap_or_default();
        let asked = async {
            let mut stream = UnixStream::connect(&socket).await?;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{known}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = asked.await.map_err(|e| format!("{}: {e}", socket.display()))?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        let tag =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("etag: ").map(str::to_owned));
        let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => body.split("\r\n").skip(1).step_by(2).collect(),
            false => body.to_owned(),
        };
        Ok((status, tag.unwrap_or_default(), body))
    }

    /// What it is told at `path`, once that `is`; gives it with its tag.
    async fn told(&self, path: &str, is: impl Fn(&Value) -> bool) -> (Value, String) {
        let is = &is;
        eventually(&format!("what is told at {path}"), || async move {
            let (status, tag, body) = self.ask("kuma-mesh-metric-config.sock", path, None).await?;
            let read: Value = serde_json::from_str(&body).unwrap_or_default();
            if status == 200 && is(&read) { Ok((read, tag)) } else { Err(format!("{status} {body}")) }
        })
        .await
    }

    /// Its Envoy is live, by its admin endpoint in the work folder.
    async fn is_ready(&self) {
        eventually("Envoy is live", || async {
            match self.ask("kuma-envoy-admin.sock", "/ready", None).await? {
                (200, _, body) if body.contains("LIVE") => Ok(()),
                (status, _, body) => Err(format!("{status} {body}")),
            }
        })
        .await;
    }

    /// Its overview, once what is seen of it `is` so.
    async fn seen(&self, zone: &Zone, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let (is, role) = (&is, self.role);
        eventually(what, || async move {
            let overview = zone.try_get(&role.overview()).await?;
            let newest =
                overview[role.insight()]["subscriptions"].as_array().and_then(|all| all.last().cloned());
            if newest.is_some_and(|newest| is(&newest)) { Ok(overview) } else { Err(overview.to_string()) }
        })
        .await
    }
}

fn online(subscription: &Value) -> bool {
    subscription["connectTime"].is_string() && subscription["disconnectTime"].is_null()
}

const METRICS: &str = "
type: MeshMetric
mesh: default
name: beside
spec:
  targetRef: { kind: Mesh }
  default:
    applications: [{ path: /app, port: 8080 }]
    backends: [{ type: Prometheus, prometheus: { port: 5670, path: /stats } }]
";

/// Everything the zone owes a proxy, whoever is beside it.
async fn behaves(global: &Global, zone: &mut Zone, mut beside: Beside, played: bool) {
    beside.is_ready().await;
    let overview = beside.seen(zone, "a proxy that is online", online).await;
    let version = &overview[beside.role.insight()]["subscriptions"][0]["version"];
    assert!(
        version["kumaDp"]["version"].as_str().is_some_and(|v| v.starts_with("2.14") || !played),
        "{overview}"
    );
    if beside.role == Role::Dataplane {
        global.apply(METRICS);
        let path = |told: &Value| told["observability"]["metrics"]["applications"][0]["path"].clone();
        let (_, tag) = beside.told("/meshmetric", |told| path(told) == "/app").await;
        let known = beside.ask("kuma-mesh-metric-config.sock", "/meshmetric", Some(&tag)).await;
        assert_eq!(known.unwrap().0, 304, "who has it is told nothing twice");
        if played {
            let names = |told: &Value| told["records"].to_string().contains("beside.mesh");
            beside.told("/dns", names).await;
        }
        zone.process.kill();
        zone.start_again().await;
        global.apply(&METRICS.replace("path: /app", "path: /other"));
        beside.told("/meshmetric", |told| path(told) == "/other").await;
        assert!(beside.dns > 0 && beside.readiness > 0 && beside.address.is_loopback());
    } else {
        zone.process.kill();
        zone.start_again().await;
    }
    beside.seen(zone, "a proxy that is online again", online).await;
    beside.is_ready().await;
    // It says goodbye, and what it brought along goes with it.
    let ended = beside.process.stop().await;
    assert!(ended.success() || ended.code().is_some(), "{ended}");
    let (role, at) = (beside.role, &*zone);
    eventually("a proxy that left", || async move {
        let (status, overview) = at.call(reqwest::Method::GET, &role.overview(), None).await;
        if status == StatusCode::NOT_FOUND { Ok(()) } else { Err(overview.to_string()) }
    })
    .await;
}

async fn zone_of_proxies() -> (Global, Zone) {
    let zone = Options::default().with("xdsServer.dataplaneDeregistrationDelay", "200ms");
    let (global, zones) = federation_with(1, Options::default(), zone).await;
    global.apply(ALLOW_ALL);
    (global, zones.into_iter().next().unwrap())
}

#[tokio::test]
async fn an_envoy_is_run_as_kuma_dp_runs_it() {
    let (global, mut zone) = zone_of_proxies().await;
    for role in ROLES {
        let beside = Place::of(role, &global, &zone).await.played(&zone).await;
        behaves(&global, &mut zone, beside, true).await;
    }
}

#[tokio::test]
async fn an_unmodified_kuma_dp_runs_its_envoy() {
    let Some(program) = needs::kuma_dp() else { return };
    let (global, mut zone) = zone_of_proxies().await;
    for role in ROLES {
        let beside = Place::of(role, &global, &zone).await.real(&zone, &program);
        behaves(&global, &mut zone, beside, false).await;
    }
}
