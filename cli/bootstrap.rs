//! `straitctl bootstrap`.

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    Connection,
    client::{Client, Endpoint},
    output,
};

#[derive(Args)]
pub(crate) struct Bootstrap {
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
    proxy_type: ProxyType,
    /// File with the token of the proxy
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the resource, when the proxy brings its own
    #[arg(short, long, value_name = "FILE")]
    dataplane_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProxyType {
    Dataplane,
    Ingress,
    Egress,
}

impl Bootstrap {
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<()> {
        let read = |file: &Option<PathBuf>| match file {
            Some(file) => fs::read_to_string(file).with_context(|| format!("read {}", file.display())),
            None => Ok(String::new()),
        };
        let (proxy_type, mesh) = match self.proxy_type {
            ProxyType::Dataplane => ("dataplane", self.mesh.as_str()),
            ProxyType::Ingress => ("ingress", ""),
            ProxyType::Egress => ("egress", ""),
        };
        let body = json!({
            "mesh": mesh,
            "name": self.name,
            "proxyType": proxy_type,
            "dataplaneToken": read(&self.token_file)?.trim(),
            "dataplaneResource": read(&self.dataplane_file)?,
            "caCert": read(&connection.ca_cert_file)?,
        });
        let endpoint = Endpoint {
            url: self.cp_address.clone(),
            ca_cert_file: connection.ca_cert_file.clone(),
            skip_verify: connection.skip_verify,
            ..Endpoint::default()
        };
        let client = Client::new(endpoint, connection.api_timeout)?;
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

/// The document itself: the answer to a client of JSON wraps it.
fn yaml(body: &str) -> anyhow::Result<String> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let Ok(wrapped) = serde_json::from_str::<Value>(body) else { return Ok(body.to_owned()) };
    let encoded = wrapped["bootstrap"].as_str().context("the answer holds no bootstrap")?;
    let decoded = BASE64_STANDARD.decode(encoded).context("decode the bootstrap")?;
    String::from_utf8(decoded).context("decode the bootstrap")
}
