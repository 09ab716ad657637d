//! The ports of a control plane: whether they can be reached from here, and how long their certificates are good.

use std::time::Duration;

use chrono::TimeDelta;
use common::{
    checks::{CheckLine, SOON},
    runtime::{Clock, SystemClock, http::PeerCertificate},
    tls::Trust,
};
use reqwest::{redirect::Policy, tls::TlsInfo};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use crate::client::ApiClient;

const ABOUT: &str = "ports";
/// For one port.
const PATIENCE: Duration = Duration::from_secs(5);

/// A port that the settings name.
struct CheckedPort {
    /// What it is for.
    what: &'static str,
    number: u64,
    tls: bool,
}

pub(super) async fn look(client: &ApiClient) -> Vec<CheckLine> {
    let Ok(config) = client.get::<Value>("/config").await else {
        return vec![CheckLine::warning(ABOUT, "which ports there are is in settings that may not be seen")];
    };
    let host = client.host();
    let mut findings = Vec::new();
    for port in ports(&config) {
        findings.push(match port.tls {
            true => certificate(&host, &port).await,
            false => connection(&host, &port).await,
        });
    }
    findings
}

fn ports(config: &Value) -> Vec<CheckedPort> {
    let (api, kds) = (&config["apiServer"], &config["multizone"]["global"]["kds"]);
    let dp_server = &config["dpServer"];
    let candidates = [
        ("API", &api["http"]["port"], api["http"]["enabled"] == true, false),
        ("API over TLS", &api["https"]["port"], api["https"]["enabled"] == true, true),
        ("diagnostics", &config["diagnostics"]["serverPort"], true, false),
        ("sync with zones", &kds["grpcPort"], true, kds["tlsEnabled"] != false),
        ("proxies", &dp_server["port"], true, dp_server["plaintext"] != true),
    ];
    let there = candidates.into_iter().filter(|(_, number, is_on, _)| *is_on && number.is_u64());
    there
        .map(|(what, number, _, tls)| CheckedPort { what, number: number.as_u64().unwrap_or_default(), tls })
        .filter(|port| port.number != 0)
        .collect()
}

async fn connection(host: &str, port: &CheckedPort) -> CheckLine {
    let CheckedPort { what, number, .. } = port;
    let address = format!("{host}:{number}");
    match timeout(PATIENCE, TcpStream::connect(&address)).await {
        Ok(Ok(_connected)) => CheckLine::ok(ABOUT, format!("{what}: {address} is reached")),
        Ok(Err(error)) => unreachable(port, &address, &error.to_string()),
        Err(_elapsed) => unreachable(port, &address, "no answer"),
    }
}

fn unreachable(port: &CheckedPort, address: &str, why: &str) -> CheckLine {
    CheckLine::warning(ABOUT, format!("{}: {address} is not reached from here: {why}", port.what))
        .but("see whether it is meant to be, and which firewall is in between")
}

async fn certificate(host: &str, port: &CheckedPort) -> CheckLine {
    let CheckedPort { what, number, .. } = port;
    let address = format!("{host}:{number}");
    let certificate = match shown_at(&address).await {
        Ok(certificate) => certificate,
        Err(error) => return unreachable(port, &address, &error),
    };
    let Some(certificate) = certificate else {
        return CheckLine::warning(ABOUT, format!("{what}: {address} shows no certificate that can be read"));
    };
    let left = certificate.valid_until - SystemClock.now();
    let found = format!("{what}: the certificate of {address} is good until {}", certificate.valid_until);
    let renew = "put a new certificate in place of the old one and start again; one that the control plane made for \
                 itself (strait.crt and strait.key in its work folder) is made anew when both files are gone";
    if left <= TimeDelta::zero() {
        CheckLine::failure(ABOUT, format!("{found}, and that is over")).but(renew)
    } else if left < SOON {
        CheckLine::warning(ABOUT, found).but(renew)
    } else {
        CheckLine::ok(ABOUT, found)
    }
}

/// The certificate at an address, whoever vouches for it: nothing secret is sent there.
async fn shown_at(address: &str) -> Result<Option<PeerCertificate>, String> {
    let trust = Trust::from_settings(None, true).map_err(|error| error.to_string())?;
    let tls = trust.client_config(&["h2", "http/1.1"]).map_err(|error| error.to_string())?;
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .tls_info(true)
        .redirect(Policy::none())
        .no_proxy()
        .timeout(PATIENCE)
        .build()
        .map_err(|error| error.to_string())?;
    // Any answer will do.
    let answer = client.get(format!("https://{address}/")).send().await;
    let answer = answer.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let info = answer.extensions().get::<TlsInfo>();
    let der = info.and_then(TlsInfo::peer_certificate).map(|der| CertificateDer::from(der.to_vec()));
    Ok(der.and_then(|der| PeerCertificate::read(&der)))
}
