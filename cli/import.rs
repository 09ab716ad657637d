//! `straitctl import`: puts what `straitctl export` wrote into a control plane.

use anyhow::{Context, bail};
use clap::Args;
use common::model::kinds::{mesh, secret};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    apply,
    client::ApiClient,
    documents::{self, Checked},
    kinds, output,
};

/// Creates or updates everything in the files of an export, in an order in which it works: a mesh comes without the
/// authority and the policies a new one would get, then its secrets, then as it is, and the keys by which users are
/// known come last. From then on tokens of the exported control plane are good, and others are not.
#[derive(Args)]
pub(crate) struct Import {
    /// File, folder, address, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    file: Vec<String>,
    /// Check the documents and send nothing
    #[arg(long)]
    dry_run: bool,
}

impl Import {
    pub(crate) async fn run(self, client: impl Fn() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
        let documents = documents::load(&self.file, &[], "default").await?;
        if let Some(document) = documents.iter().find(|d| d.kind.read_only || d.kind.is_insight) {
            bail!("{} is written by control planes only: leave it out", document.kind.name);
        }
        let (meshes, rest): (Vec<_>, Vec<_>) = documents.into_iter().partition(|d| d.kind == &mesh::KIND);
        let (secrets, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|d| d.kind == &secret::SECRET);
        if self.dry_run {
            let all = meshes.iter().chain(&secrets).chain(&others);
            all.for_each(|document| output::line(&format!("{} is valid", apply::title(document))));
            return Ok(());
        }
        let client = client()?;
        for mesh in &meshes {
            begin(&client, mesh).await?;
        }
        // In the order of the file, one by one: what comes later may rest on what came before.
        for document in secrets.iter().chain(&meshes).chain(&others) {
            apply::put(&client, document).await?.print();
        }
        Ok(())
    }
}

/// Makes a mesh that is not there yet, with nothing of its own: its secrets need it, and it needs them.
async fn begin(client: &ApiClient, document: &Checked) -> anyhow::Result<()> {
    let path = kinds::item(document.kind, "", &document.name);
    let known = client.send(Method::GET, &path, None).await?;
    if known.status != StatusCode::NOT_FOUND {
        known.success().with_context(|| apply::title(document))?;
        return Ok(());
    }
    let labels = document.json.get("labels").cloned().unwrap_or(Value::Object(serde_json::Map::new()));
    let body = json!({
        "type": document.kind.name, "name": document.name, "labels": labels, "skipCreatingInitialPolicies": ["*"],
    });
    client.send(Method::PUT, &path, Some(&body)).await?.success().with_context(|| apply::title(document))?;
    Ok(())
}
