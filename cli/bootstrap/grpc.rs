//! The bootstrap of a gRPC library, which names the agent beside the application instead of the zone.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::{Value, json};
use zone::generator::{
    FEATURE_GRPC,
    grpc::{CERTIFICATE_PROVIDER, SERVER_TEMPLATE},
};

use crate::grpc_agent::{CertificateFiles, DEFAULT_LISTEN};

/// Seconds after which a library looks at its files again.
const REFRESH: &str = "10s";

#[derive(Args)]
#[command(next_help_heading = "Applications without an Envoy")]
pub(crate) struct GrpcBootstrapArgs {
    /// Write what GRPC_XDS_BOOTSTRAP names, for an application beside which `straitctl grpc-agent` runs
    #[arg(long)]
    pub(crate) grpc: bool,
    /// Where the agent listens
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN, requires = "grpc")]
    agent: SocketAddr,
    /// Folder in which the agent keeps certificate, key and authorities
    #[arg(long, value_name = "FOLDER", requires = "grpc")]
    certificates: Option<PathBuf>,
}

impl GrpcBootstrapArgs {
    /// The document for the node of this name, which may bring its own resource.
    pub(crate) fn document(&self, mesh: &str, name: &str, resource: &str) -> anyhow::Result<Value> {
        let mut metadata = json!({ "features": [FEATURE_GRPC] });
        if !resource.trim().is_empty() {
            metadata["dataplane.resource"] = resource.into();
        }
        // Node's library insists on a locality, of which the zone needs none.
        let mut document = json!({
            "xds_servers": [{
                "server_uri": self.agent.to_string(),
                "channel_creds": [{ "type": "insecure" }],
                "server_features": ["xds_v3"],
            }],
            "node": { "id": format!("{mesh}.{name}"), "locality": {}, "metadata": metadata },
            "server_listener_resource_name_template": SERVER_TEMPLATE,
        });
        if let Some(folder) = &self.certificates {
            document["certificate_providers"] = json!({ CERTIFICATE_PROVIDER: watching(folder)? });
        }
        Ok(document)
    }
}

fn watching(folder: &Path) -> anyhow::Result<Value> {
    let folder = std::path::absolute(folder).with_context(|| format!("find {}", folder.display()))?;
    let CertificateFiles { identity, authorities } = CertificateFiles::in_folder(&folder);
    let path = |file: PathBuf| {
        let text = file.into_os_string().into_string();
        text.map_err(|path| anyhow!("{} is no text", path.display()))
    };
    // Of what is in the file each member takes what it is about.
    let identity = path(identity)?;
    Ok(json!({
        "plugin_name": "file_watcher",
        "config": {
            "certificate_file": identity,
            "private_key_file": identity,
            "ca_certificate_file": path(authorities)?,
            "refresh_interval": REFRESH,
        },
    }))
}
