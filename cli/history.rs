//! What became of resources: `straitctl history`, `diff` and `undo`.

mod diff;
mod undo;

use anyhow::bail;
use clap::Args;
use common::model::Kind;
use reqwest::Method;
use serde_json::Value;

pub(crate) use self::{diff::Diff, undo::Undo};
use crate::{
    client::ApiClient,
    kinds,
    output::{self, Output},
    table,
};

/// Changes in one answer.
const PAGE: usize = 1_000;

#[derive(Args)]
#[command(after_help = "Without a type, the changes to all resources are shown.")]
pub(crate) struct History {
    /// Type: argument, path, type name or short name
    #[arg(requires = "name")]
    r#type: Option<String>,
    /// Name
    name: Option<String>,
    /// Mesh; `default` for one resource, all for none
    #[arg(short, long)]
    mesh: Option<String>,
    /// Only changes by this author, as it is shown: `user ann`, `zone east`
    #[arg(long, conflicts_with = "type")]
    author: Option<String>,
    /// Only changes since this time, like 2026-01-31T12:00:00Z, or for so long, like 90m
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only so many, the newest ones
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    size: usize,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

impl History {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let mut query: Vec<(&str, String)> = Vec::new();
        let path = match (&self.r#type, &self.name) {
            (Some(word), Some(name)) => past_of(kinds::find(word)?, self.mesh(), name),
            _ => {
                query.extend(self.mesh.iter().map(|mesh| ("mesh", mesh.clone())));
                "/history".to_owned()
            }
        };
        query.extend(self.author.iter().map(|author| ("author", author.clone())));
        query.extend(self.since.iter().map(|since| ("since", since.clone())));
        let (items, known_after) = changes(client, &path, query, self.size).await?;
        let reaches = items.last().and_then(|oldest| oldest["revision"].as_u64());
        self.output.print(&output::list(&items), || match items.is_empty() {
            true => crate::output::note!("nothing that is kept changed"),
            false => print(&items),
        })?;
        if reaches.is_some_and(|oldest| oldest <= known_after) {
            crate::output::note!("up to revision {known_after}, some changes may not be kept any more");
        }
        Ok(())
    }

    fn mesh(&self) -> &str {
        self.mesh.as_deref().unwrap_or("default")
    }
}

/// Path of the history of one resource.
fn past_of(kind: &Kind, mesh: &str, name: &str) -> String {
    format!("{}/_history", kinds::item(kind, mesh, name))
}

/// The resource as it was at `revision`.
pub(crate) async fn at(
    client: &ApiClient,
    kind: &Kind,
    mesh: &str,
    name: &str,
    revision: u64,
) -> anyhow::Result<Value> {
    client.get(&format!("{}/{revision}", past_of(kind, mesh, name))).await
}

/// The newest `size` changes, and the revision up to which there may be others.
async fn changes(
    client: &ApiClient,
    path: &str,
    query: Vec<(&str, String)>,
    size: usize,
) -> anyhow::Result<(Vec<Value>, u64)> {
    let (mut items, mut known_after) = (Vec::new(), 0);
    let mut before: Option<u64> = None;
    while items.len() < size {
        let mut query = query.clone();
        query.push(("size", (size - items.len()).min(PAGE).to_string()));
        query.extend(before.map(|before| ("before", before.to_string())));
        let mut page: Value = client.get(&format!("{path}{}", kinds::query(&query))).await?;
        let Value::Array(found) = page["items"].take() else { bail!("the answer has no items") };
        items.extend(found);
        known_after = page["knownAfter"].as_u64().unwrap_or(0);
        before = page["next"].as_u64();
        if before.is_none() {
            break;
        }
    }
    Ok((items, known_after))
}

fn print(items: &[Value]) {
    let row = |item: &Value| {
        let kind = item["type"].as_str().unwrap_or("-");
        let place = match item["mesh"].as_str() {
            Some(mesh) => format!("{mesh}/{}", table::text(&item["name"])),
            None => table::text(&item["name"]),
        };
        let cells = [table::text(&item["revision"]), table::age(&item["at"]), table::text(&item["author"])];
        cells.into_iter().chain([table::text(&item["op"]), kind.to_owned(), place]).collect()
    };
    table::print(&["REVISION", "AGE", "AUTHOR", "CHANGE", "TYPE", "NAME"], items.iter().map(row).collect());
}

/// Sends a question about undoing.
async fn ask_undo(client: &ApiClient, body: &Value) -> anyhow::Result<Value> {
    client.send(Method::POST, "/history/undo", Some(body)).await?.success()?.json()
}
