//! `straitctl apply`.

use anyhow::{Context, bail};
use clap::Args;
use common::model::kinds::mesh;
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use serde::Deserialize;

use crate::{
    client::{ApiAnswer, ApiClient},
    documents::{self, Checked},
    kinds, output,
    rollout::Begin,
    sync::WaitFor,
};

/// From this many documents on, a bar shows how far it is.
const BAR_FROM: usize = 20;
/// Requests at once.
const PARALLEL: usize = 8;

#[derive(Args)]
pub(crate) struct Apply {
    /// File, folder, address, or - for standard input; may be repeated
    #[arg(short, long = "file", required = true, value_name = "PATH")]
    file: Vec<String>,
    /// Replaces {{ NAME }} in the documents; may be repeated
    #[arg(short, long = "var", value_name = "NAME=VALUE", value_parser = variable)]
    var: Vec<(String, String)>,
    /// Mesh of documents that name none
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// Check the documents and send nothing; with --rollout, show what it would do
    #[arg(long)]
    dry_run: bool,
    /// Send it out in the waves of this rollout, all of it together
    #[arg(long, value_name = "NAME")]
    rollout: Option<String>,
    #[command(flatten)]
    wait: WaitFor,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PutAnswer {
    warnings: Vec<String>,
}

impl Apply {
    pub(crate) async fn run(self, client: impl Fn() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
        let documents = documents::load(&self.file, &self.var, &self.mesh).await?;
        if let Some(rollout) = &self.rollout {
            let resources = documents.iter().map(|document| {
                let mut resource = document.json.clone();
                if document.kind.is_mesh_scoped() {
                    resource["mesh"] = document.mesh.as_str().into();
                }
                resource
            });
            let resources = resources.collect();
            let begin = Begin { rollout, resources, deletes: Vec::new(), dry_run: self.dry_run };
            for document in &documents {
                document.warnings.iter().for_each(|warning| crate::output::note!("warning: {warning}"));
            }
            return begin.run(&client()?, &self.wait).await;
        }
        if self.dry_run {
            for document in &documents {
                let line = format!("{} is valid", title(document));
                Message { line, warnings: document.warnings.clone(), revision: None }.print();
            }
            return Ok(());
        }
        let client = client()?;
        let bar = bar(documents.len());
        let meshes = documents.iter().take_while(|d| d.kind == &mesh::KIND).count();
        let (meshes, rest) = documents.split_at(meshes);
        let (done, newest) = (std::cell::Cell::new(0), std::cell::Cell::new(None));
        let outcome = async {
            for (documents, parallel) in [(meshes, 1), (rest, PARALLEL)] {
                let puts = stream::iter(documents).map(|document| put(&client, document)).buffered(parallel);
                puts.try_for_each(async |message| {
                    done.set(done.get() + 1);
                    newest.set(newest.get().max(message.revision));
                    bar.inc(1);
                    bar.suspend(|| message.print());
                    Ok(())
                })
                .await?;
            }
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        bar.finish_and_clear();
        let left = documents.len() - done.get();
        outcome.with_context(|| match left {
            1 => "1 document was not applied".to_owned(),
            left => format!("{left} of {} documents were not applied", documents.len()),
        })?;
        self.wait.wait(&client, newest.get(), "everything is applied").await
    }
}

fn bar(total: usize) -> ProgressBar {
    if total < BAR_FROM {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} documents, {eta} left");
    ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What became of one document.
pub(crate) struct Message {
    line: String,
    warnings: Vec<String>,
    revision: Option<u64>,
}

impl Message {
    pub(crate) fn print(&self) {
        output::line(&self.line);
        for warning in &self.warnings {
            crate::output::note!("warning: {warning}");
        }
    }
}

pub(crate) async fn put(client: &ApiClient, document: &Checked) -> anyhow::Result<Message> {
    let path = kinds::item(document.kind, &document.mesh, &document.name);
    message(document, client.send(Method::PUT, &path, Some(&document.json)).await?)
}

/// The same of what must not be there yet; nothing when it is.
pub(crate) async fn put_new(client: &ApiClient, document: &Checked) -> anyhow::Result<Option<Message>> {
    let path = kinds::item(document.kind, &document.mesh, &document.name);
    let answer = client.put_new(&path, &document.json).await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return Ok(None);
    }
    message(document, answer).map(Some)
}

fn message(document: &Checked, answer: ApiAnswer) -> anyhow::Result<Message> {
    if answer.status == StatusCode::NOT_FOUND && document.kind.is_mesh_scoped() {
        let mesh = &document.mesh;
        bail!(
            "{}: there is no mesh {mesh:?} here; create it on global, or name another with mesh",
            title(document)
        );
    }
    let answer = answer.success().with_context(|| title(document))?;
    let verb = if answer.status == StatusCode::CREATED { "created" } else { "updated" };
    let mut warnings = document.warnings.clone();
    let of_server = answer.json::<PutAnswer>().unwrap_or_default().warnings;
    warnings.extend(of_server.into_iter().filter(|warning| !document.warnings.contains(warning)));
    Ok(Message { line: format!("{} {verb}", title(document)), warnings, revision: answer.revision })
}

pub(crate) fn title(document: &Checked) -> String {
    kinds::title(document.kind, &document.mesh, &document.name)
}
