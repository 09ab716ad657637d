//! `straitctl import`: puts what `straitctl export` wrote into a control plane.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use clap::Args;
use common::{
    model::kinds::{mesh, secret},
    token,
};
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
    /// Leave what is there by the same name as it is, and say so: to join two control planes. Who is known there is said
    /// by its own keys alone: those of the other are left out, but for dataplanes of meshes that are new
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
        let there = match self.keep_existing {
            true => Some(There::of(&client, meshes.iter().chain(&secrets).chain(&others).collect()).await?),
            false => None,
        };
        let fate = |document: &Checked| there.as_ref().map_or(Fate::Put, |there| there.fate(document));
        if !self.dry_run {
            for mesh in meshes.iter().filter(|mesh| fate(mesh) == Fate::Put) {
                begin(&client, mesh).await?;
            }
        }
        // In the order of the file, one by one: what comes later may rest on what came before.
        for document in secrets.iter().chain(&meshes).chain(&others) {
            let title = apply::title(document);
            match (fate(document), self.dry_run) {
                (Fate::Stays, _) => output::line(&format!("{title} is there and stays")),
                (Fate::LeftOut, _) => {
                    output::line(&format!("{title} is left out: whose tokens are good here is said already"));
                }
                (Fate::Put | Fate::PutNew, true) => output::line(&format!("{title} is valid and new")),
                (Fate::Put, false) => apply::put(&client, document).await?.print(),
                (Fate::PutNew, false) => match apply::put_new(&client, document).await? {
                    Some(made) => made.print(),
                    None => output::line(&format!("{title} is there by now and stays")),
                },
            }
        }
        Ok(())
    }
}

/// What becomes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is written, whatever is there.
    Put,
    /// It is written unless there is something by then.
    PutNew,
    /// What is there by its name stays.
    Stays,
    /// It would make tokens good that were made elsewhere.
    LeftOut,
}

/// What a control plane has already.
struct There {
    /// Titles of documents whose names are taken.
    taken: BTreeSet<String>,
    /// Names of meshes that are to be made.
    new_meshes: BTreeSet<String>,
}

impl There {
    async fn of(client: &ApiClient, documents: Vec<&Checked>) -> anyhow::Result<Self> {
        let found = stream::iter(documents)
            .map(async |document| {
                let path = kinds::item(document.kind, &document.mesh, &document.name);
                let known = client.send(Method::GET, &path, None).await?;
                if known.status == StatusCode::NOT_FOUND {
                    return Ok((document, false));
                }
                let known = known.success().with_context(|| apply::title(document))?;
                // An import that did not get further than that goes on.
                let is_begun = document.kind == &mesh::KIND && is_only_begun(&known.json()?);
                anyhow::Ok((document, !is_begun))
            })
            .buffered(PARALLEL);
        let found: Vec<(&Checked, bool)> = found.try_collect().await?;
        let new_meshes =
            found.iter().filter(|(document, is_taken)| document.kind == &mesh::KIND && !is_taken);
        Ok(Self {
            new_meshes: new_meshes.map(|(document, _)| document.name.clone()).collect(),
            taken: found
                .into_iter()
                .filter(|(_, is_taken)| *is_taken)
                .map(|(document, _)| apply::title(document))
                .collect(),
        })
    }

    fn fate(&self, document: &Checked) -> Fate {
        let is_new = |mesh: &str| self.new_meshes.contains(mesh);
        // Those that a new mesh gets by itself are the ones to replace.
        let is_made_with_mesh = document.kind == &secret::SECRET && is_new(&document.mesh);
        if self.taken.contains(&apply::title(document)) && !is_made_with_mesh {
            return Fate::Stays;
        }
        let judges = token::mesh_judged_by(&document.name, &document.mesh).filter(|_| is_secret(document));
        if judges.is_some_and(|mesh| !mesh.is_some_and(is_new)) {
            return Fate::LeftOut;
        }
        let is_new_mesh = document.kind == &mesh::KIND;
        if is_new_mesh || is_made_with_mesh { Fate::Put } else { Fate::PutNew }
    }
}

fn is_secret(document: &Checked) -> bool {
    document.kind == &secret::SECRET || document.kind == &secret::GLOBAL_SECRET
}

/// What a mesh has that is only begun, beside what every resource has.
const BEGUN: &str = "skipCreatingInitialPolicies";

/// Whether this mesh is as [`begin`] makes it.
fn is_only_begun(mesh: &Value) -> bool {
    let of_every_resource = ["type", "name", "labels", "creationTime", "modificationTime", "kri", "revision"];
    let own = mesh
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !of_every_resource.contains(&name.as_str()));
    own.eq([(&BEGUN.to_owned(), &json!(["*"]))])
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
    let mut body = json!({ "type": document.kind.name, "name": document.name, "labels": labels });
    body[BEGUN] = json!(["*"]);
    client.send(Method::PUT, &path, Some(&body)).await?.success().with_context(|| apply::title(document))?;
    Ok(())
}
