//! `straitctl bootstrap`.

mod grpc;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use zone::generator::FEATURE_RUNTIME;

use crate::{
    ConnectionArgs,
    client::{ApiClient, ControlPlaneEndpoint},
    output,
};

#[derive(Args)]
pub(crate) struct BootstrapArgs {
    /// Address of the zone's server for proxies
    #[arg(long, value_name = "URL", default_value = "https://localhost:5678")]
    cp_address: String,
    /// Name of the resource that describes the proxy
    #[arg(long)]
    name: String,
    /// Mesh of a dataplane
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// What the proxy stands for
    #[arg(long, default_value = "dataplane")]
    proxy_type: BootstrapProxyType,
    /// File with the token of the proxy; Envoy reads it there when it starts
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Put the token itself into the bootstrap, for an Envoy that has no such file; whoever may see
    /// Envoy's configuration then sees it
    #[arg(long, requires = "token_file")]
    inline_token: bool,
    /// File with the resource, when the proxy brings its own
    #[arg(short, long, value_name = "FILE")]
    dataplane_file: Option<PathBuf>,
    /// Socket of the SPIRE agent beside the proxy, for a MeshIdentity that asks one; without it the zone says where
    /// agents are
    #[arg(long, value_name = "FILE")]
    spire_socket: Option<PathBuf>,
    #[command(flatten)]
    grpc: grpc::GrpcBootstrapArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BootstrapProxyType {
    Dataplane,
    Ingress,
    Egress,
}

impl BootstrapArgs {
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<()> {
        let read = |file: &Option<PathBuf>| match file {
            Some(file) => fs::read_to_string(file).with_context(|| format!("read {}", file.display())),
            None => Ok(String::new()),
        };
        if self.grpc.grpc {
            if self.proxy_type != BootstrapProxyType::Dataplane {
                bail!("an application with a gRPC library is a dataplane; leave out --proxy-type");
            }
            let document = self.grpc.document(&self.mesh, &self.name, &read(&self.dataplane_file)?)?;
            output::line(&serde_json::to_string_pretty(&document)?);
            return Ok(());
        }
        let token = read(&self.token_file)?;
        let credential = match &self.token_file {
            Some(file) if !self.inline_token => credential(file, &token)?,
            _ => String::new(),
        };
        let (proxy_type, mesh) = match self.proxy_type {
            BootstrapProxyType::Dataplane => ("dataplane", self.mesh.as_str()),
            BootstrapProxyType::Ingress => ("ingress", ""),
            BootstrapProxyType::Egress => ("egress", ""),
        };
        let socket = match &self.spire_socket {
            // Envoy reads it from wherever it is started.
            Some(socket) => text(&std::path::absolute(socket).context("find the socket of the agent")?)?,
            None => String::new(),
        };
        let body = json!({
            "mesh": mesh,
            "name": self.name,
            "proxyType": proxy_type,
            "dataplaneToken": token.trim(),
            "credentialFile": credential,
            "dataplaneResource": read(&self.dataplane_file)?,
            "caCert": read(&connection.ca_cert_file)?,
            "systemCaPath": system_ca().unwrap_or_default(),
            "features": [FEATURE_RUNTIME],
            "spireResources": { "socketPath": socket },
        });
        let endpoint = ControlPlaneEndpoint {
            url: self.cp_address.clone(),
            ca_cert_file: connection.ca_cert_file.clone(),
            skip_verify: connection.skip_verify,
            ..ControlPlaneEndpoint::default()
        };
        let client = ApiClient::new(endpoint, connection.api_timeout)?;
        let answer = client.send(Method::POST, "/bootstrap", Some(&body)).await?;
        if answer.status == StatusCode::NOT_FOUND && answer.body.is_empty() {
            bail!(
                "the zone knows no {proxy_type} {:?}; apply its resource in the zone first, or give it with \
                 --dataplane-file",
                self.name
            );
        }
        if answer.status == StatusCode::UNPROCESSABLE_ENTITY && self.token_file.is_none() {
            bail!("{}; `straitctl generate` makes a token, --token-file takes it", answer.body.trim());
        }
        output::text(&yaml(&answer.success()?.body)?);
        Ok(())
    }
}

/// The certificates this machine believes, by which an egress checks services outside the mesh that have no CA of
/// their own.
fn system_ca() -> Option<&'static str> {
    const PLACES: [&str; 6] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    PLACES.into_iter().find(|place| Path::new(place).is_file())
}

/// Where Envoy finds the token, which it shows byte for byte.
fn credential(file: &Path, token: &str) -> anyhow::Result<String> {
    if token != token.trim() {
        bail!(
            "{} holds white space around the token, which Envoy would show with it: write the token alone, as \
             `straitctl generate ... > FILE` does, or use --inline-token",
            file.display()
        );
    }
    let path = std::path::absolute(file).with_context(|| format!("find {}", file.display()))?;
    text(&path)
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| anyhow!("{} is no text", path.display()))
}

/// The document itself: the answer to a client of JSON wraps it.
fn yaml(body: &str) -> anyhow::Result<String> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let Ok(wrapped) = serde_json::from_str::<Value>(body) else { return Ok(body.to_owned()) };
    let encoded = wrapped["bootstrap"].as_str().context("the answer holds no bootstrap")?;
    let decoded = BASE64_STANDARD.decode(encoded).context("decode the bootstrap")?;
    String::from_utf8(decoded).context("decode the bootstrap")
}
