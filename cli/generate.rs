//! `straitctl generate`.

use std::{collections::BTreeMap, io::IsTerminal};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand, ValueEnum};
use common::token;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{client::ApiClient, output};

#[derive(Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(Subcommand)]
enum GenerateCommand {
    /// A token for the proxies or the control plane of a zone
    #[command(name = "zone-token")]
    Zone {
        /// Zone; any zone when absent
        #[arg(long, default_value = "")]
        zone: String,
        /// What the bearer may be: ingress, egress, cp (the zone control plane), relay (the relay of that name); may be repeated
        #[arg(long, default_values = ["ingress", "egress"], value_delimiter = ',')]
        scope: Vec<String>,
        /// Of a relay: a zone it may carry, or the beginning of names of zones with a * behind; may be repeated, any when
        /// absent
        #[arg(long, value_name = "ZONE", value_delimiter = ',')]
        carries: Vec<String>,
        /// How long it is valid, like 24h; ten years when absent
        #[arg(long, default_value = "")]
        valid_for: String,
    },
    /// A token for a dataplane
    #[command(name = "dataplane-token")]
    Dataplane {
        /// Name of the dataplane; any when absent
        #[arg(long, default_value = "")]
        name: String,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
        /// A tag the dataplane must have; may be repeated
        #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
        tag: Vec<String>,
        /// dataplane; ingress or egress for a dataplane that brings such a listener of its mesh
        #[arg(long, default_value = "dataplane")]
        proxy_type: String,
        /// Workload the dataplane must belong to
        #[arg(long, default_value = "")]
        workload: String,
        /// How long it is valid, like 24h; ten years when absent
        #[arg(long, default_value = "")]
        valid_for: String,
    },
    /// A token for a user of the API
    #[command(name = "user-token")]
    User {
        /// Name of the user
        #[arg(long)]
        name: String,
        /// Group of the user; may be repeated
        #[arg(long, value_delimiter = ',')]
        group: Vec<String>,
        /// How long it is valid, like 24h
        #[arg(long)]
        valid_for: String,
    },
    /// A key to sign tokens with, for the data of a secret; asks no control plane
    #[command(name = "signing-key")]
    SigningKey {
        /// As the data of a secret holds it, or as text
        #[arg(long, default_value = "pem-base64")]
        format: KeyFormat,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum KeyFormat {
    PemBase64,
    Pem,
}

impl Generate {
    pub(crate) async fn run(self, client: impl Fn() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
        let made = match self.what.request()? {
            GenerateRequest::Token(path, body) => {
                client()?.send(Method::POST, path, Some(&body)).await?.success()?.body
            }
            GenerateRequest::Key(format) => {
                let pem = token::new_signing_key()?.pem().to_owned();
                match format {
                    KeyFormat::Pem => pem,
                    KeyFormat::PemBase64 => BASE64_STANDARD.encode(pem),
                }
            }
        };
        // A file gets the token alone, a person a whole line.
        if std::io::stdout().is_terminal() {
            output::line(&made)
        } else {
            output::text(&made)
        }
        Ok(())
    }
}

/// What it takes to make something.
enum GenerateRequest {
    /// A post to this path of the control plane.
    Token(&'static str, Value),
    /// Nothing from outside.
    Key(KeyFormat),
}

impl GenerateCommand {
    fn request(self) -> anyhow::Result<GenerateRequest> {
        let (path, body) = match self {
            Self::SigningKey { format } => return Ok(GenerateRequest::Key(format)),
            Self::Zone { zone, scope, carries, valid_for } => {
                let mut asked = json!({ "zone": zone, "scope": scope, "validFor": valid_for });
                if !carries.is_empty() {
                    asked["carries"] = json!(carries);
                }
                ("/tokens/zone", asked)
            }
            Self::Dataplane { name, mesh, tag, proxy_type, workload, valid_for } => (
                "/tokens/dataplane",
                json!({
                    "name": name,
                    "mesh": mesh,
                    "tags": tags(&tag)?,
                    "type": proxy_type,
                    "workload": workload,
                    "validFor": valid_for,
                }),
            ),
            Self::User { name, group, valid_for } => {
                ("/tokens/user", json!({ "name": name, "groups": group, "validFor": valid_for }))
            }
        };
        Ok(GenerateRequest::Token(path, body))
    }
}

fn tags(pairs: &[String]) -> anyhow::Result<BTreeMap<&str, Vec<&str>>> {
    let mut tags: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pair in pairs {
        let parts = pair.split_once('=');
        let (key, value) = parts.ok_or_else(|| anyhow::anyhow!("tag {pair:?} is not KEY=VALUE"))?;
        tags.entry(key).or_default().push(value);
    }
    Ok(tags)
}
