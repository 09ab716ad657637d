//! `straitctl get`.

use anyhow::bail;
use clap::Args;
use common::model::{Kind, labels};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{
    client::ApiClient,
    history, kinds,
    output::{self, Output},
    table,
};

#[derive(Args)]
#[command(after_help = kinds::help())]
pub(crate) struct Get {
    /// Type: argument, path, type name or short name
    r#type: String,
    /// Name; all of the type when absent
    name: Option<String>,
    /// Mesh
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// All meshes
    #[arg(short = 'A', long, conflicts_with = "name")]
    all_meshes: bool,
    /// Only names that contain this
    #[arg(long, value_name = "TEXT", conflicts_with = "name")]
    filter: Option<String>,
    /// Only so many; all when absent
    #[arg(long, value_name = "NUMBER", conflicts_with = "name")]
    size: Option<usize>,
    /// Only from this place in the list on
    #[arg(long, value_name = "NUMBER", conflicts_with = "name")]
    offset: Option<usize>,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION", requires = "name")]
    revision: Option<u64>,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

impl Get {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let (items, document) = match &self.name {
            Some(name) => {
                let item = self.item(client, kind, name).await?;
                (vec![item.clone()], item)
            }
            None => {
                let items = self.list(client, kind).await?;
                let document = output::list(&items);
                (items, document)
            }
        };
        self.output.print(&document, || match items.is_empty() {
            true => crate::output::note!("there is no {}{}", kind.name, self.place(kind)),
            false => print_table(kind, &items),
        })
    }

    async fn item(&self, client: &ApiClient, kind: &Kind, name: &str) -> anyhow::Result<Value> {
        if let Some(revision) = self.revision {
            return history::at(client, kind, &self.mesh, name, revision).await;
        }
        let answer = client.send(Method::GET, &kinds::item(kind, &self.mesh, name), None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            let title = kinds::title(kind, &self.mesh, name);
            bail!("there is no {title}; `straitctl get {}` lists what there is", kind.path);
        }
        answer.success()?.json()
    }

    async fn list(&self, client: &ApiClient, kind: &Kind) -> anyhow::Result<Vec<Value>> {
        let mut path =
            if self.all_meshes { format!("/{}", kind.path) } else { kinds::collection(kind, &self.mesh) };
        let mut filters: Vec<(&str, String)> =
            self.filter.iter().map(|text| ("name", text.clone())).collect();
        if self.size.is_none() && self.offset.is_none() {
            path.push_str(&kinds::query(&filters));
            return client.list(&path).await;
        }
        filters.extend(self.size.map(|size| ("size", size.to_string())));
        filters.extend(self.offset.map(|offset| ("offset", offset.to_string())));
        path.push_str(&kinds::query(&filters));
        client.page(&path).await
    }

    fn place(&self, kind: &Kind) -> String {
        match (kind.is_mesh_scoped(), self.all_meshes) {
            (true, false) => format!(" in mesh {}", self.mesh),
            (true, true) => " in any mesh".to_owned(),
            (false, _) => String::new(),
        }
    }
}

fn print_table(kind: &Kind, items: &[Value]) {
    let mut headings = if kind.is_mesh_scoped() { vec!["MESH", "NAME"] } else { vec!["NAME"] };
    headings.extend(kind.columns.iter().map(|column| column.heading));
    headings.extend(["ORIGIN", "AGE"]);
    let row = |item: &Value| {
        let mut row = if kind.is_mesh_scoped() { vec![table::text(&item["mesh"])] } else { vec![] };
        row.push(table::text(&item["name"]));
        row.extend(kind.columns.iter().map(|column| table::text(&(column.value)(item))));
        row.extend([origin(item), table::age(&item["modificationTime"])]);
        row
    };
    table::print(&headings, items.iter().map(row).collect());
}

/// Who owns a resource, seen from the control plane that was asked.
fn origin(item: &Value) -> String {
    let own = &item["labels"];
    match own[labels::ZONE].as_str().filter(|zone| !zone.is_empty()) {
        Some(zone) => format!("zone {zone}"),
        None => table::text(&own[labels::ORIGIN]),
    }
}
