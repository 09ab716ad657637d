//! `straitctl import`: puts what `straitctl export` wrote into a control plane.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use clap::Args;
use common::model::kinds::{mesh, secret};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    apply,
    client::ApiClient,
    documents::{self, Checked},
    kinds, output,
};

/// Questions at once.
const PARALLEL: usize = 8;

/// Creates or updates everything in the files of an export, in an order in which it works: a mesh comes without the
/// authority and the policies a new one would get, then its secrets, then as it is, and the keys by which users are
/// known come last. From then on tokens of the exported control plane are good, and others are not.
#[derive(Args)]
pub(crate) struct Import {
    /// File, folder, address, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    file: Vec<String>,
    /// Check the documents and send nothing; with --keep-existing, say which of them are there
    #[arg(long)]
    dry_run: bool,
    /// Leave what is there by the same name as it is, and say so: to join two control planes. The keys that are there stay,
    /// so everybody who is known there still is
    #[arg(long)]
    keep_existing: bool,
}

impl Import {
    pub(crate) async fn run(self, client: impl Fn() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
        let documents = documents::load(&self.file, &[], "default").await?;
        if let Some(document) = documents.iter().find(|d| d.kind.read_only || d.kind.is_insight) {
            bail!("{} is written by control planes only: leave it out", document.kind.name);
        }
        let (meshes, rest): (Vec<_>, Vec<_>) = documents.into_iter().partition(|d| d.kind == &mesh::KIND);
        let (secrets, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|d| d.kind == &secret::SECRET);
        if self.dry_run && !self.keep_existing {
            let all = meshes.iter().chain(&secrets).chain(&others);
            all.for_each(|document| output::line(&format!("{} is valid", apply::title(document))));
            return Ok(());
        }
        let client = client()?;
        // Asked before anything is made: a new mesh gets secrets by itself, and those are the ones to replace.
        let existing = if self.keep_existing {
            existing(&client, secrets.iter().chain(&meshes).chain(&others)).await?
        } else {
            BTreeSet::new()
        };
        let is_new = |document: &&Checked| !existing.contains(&apply::title(document));
        if !self.dry_run {
            for mesh in meshes.iter().filter(is_new) {
                begin(&client, mesh).await?;
            }
        }
        // In the order of the file, one by one: what comes later may rest on what came before.
        for document in secrets.iter().chain(&meshes).chain(&others) {
            let title = apply::title(document);
            match (existing.contains(&title), self.dry_run) {
                (true, _) => output::line(&format!("{title} is there and stays")),
                (false, true) => output::line(&format!("{title} is valid and new")),
                (false, false) => apply::put(&client, document).await?.print(),
            }
        }
        Ok(())
    }
}

/// The titles of those `documents` whose names are taken in the control plane.
async fn existing(
    client: &ApiClient,
    documents: impl Iterator<Item = &Checked>,
) -> anyhow::Result<BTreeSet<String>> {
    let titles = stream::iter(documents)
        .map(async |document| {
            let path = kinds::item(document.kind, &document.mesh, &document.name);
            let known = client.send(Method::GET, &path, None).await?;
            if known.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            known.success().with_context(|| apply::title(document))?;
            anyhow::Ok(Some(apply::title(document)))
        })
        .buffered(PARALLEL);
    titles.try_filter_map(async |title| Ok(title)).try_collect().await
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
