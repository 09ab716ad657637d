//! `straitctl get`.

use anyhow::bail;
use clap::{Args, ValueEnum};
use common::model::Kind;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{client::Client, kinds, table};

#[derive(Args)]
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
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Yaml,
    Json,
}

impl Get {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let (items, document) = match &self.name {
            Some(name) => {
                let item = self.item(client, kind, name).await?;
                (vec![item.clone()], item)
            }
            None => {
                let items = self.list(client, kind).await?;
                (items.clone(), json!({ "total": items.len(), "items": items, "next": null }))
            }
        };
        match self.output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&document)?),
            Output::Yaml => print!("{}", serde_norway::to_string(&document)?),
            Output::Table if items.is_empty() => eprintln!("there is no {} {}", kind.name, self.place(kind)),
            Output::Table => print_table(kind, &items),
        }
        Ok(())
    }

    async fn item(&self, client: &Client, kind: &Kind, name: &str) -> anyhow::Result<Value> {
        let answer = client.send(Method::GET, &kinds::item(kind, &self.mesh, name), None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            let title = kinds::title(kind, &self.mesh, name);
            bail!("there is no {title}; `straitctl get {}` lists what there is", kind.path);
        }
        answer.success()?.json()
    }

    async fn list(&self, client: &Client, kind: &Kind) -> anyhow::Result<Vec<Value>> {
        let mut path =
            if self.all_meshes { format!("/{}", kind.path) } else { kinds::collection(kind, &self.mesh) };
        if let Some(filter) = &self.filter {
            path.push_str(&format!("?name={filter}"));
        }
        client.list(&path).await
    }

    fn place(&self, kind: &Kind) -> String {
        match kind.is_mesh_scoped() && !self.all_meshes {
            true => format!("in mesh {}", self.mesh),
            false => "here".to_owned(),
        }
    }
}

fn print_table(kind: &Kind, items: &[Value]) {
    let special: Vec<&str> = match kind.name {
        "Mesh" => vec!["MTLS"],
        "Dataplane" => vec!["SERVICES", "ADDRESS"],
        _ => vec![],
    };
    let mut headings = if kind.is_mesh_scoped() { vec!["MESH", "NAME"] } else { vec!["NAME"] };
    headings.extend(&special);
    headings.extend(["ORIGIN", "AGE"]);
    let row = |item: &Value| {
        let mut row = if kind.is_mesh_scoped() { vec![table::text(&item["mesh"])] } else { vec![] };
        row.push(table::text(&item["name"]));
        match kind.name {
            "Mesh" => row.push(table::text(&item["mtls"]["enabledBackend"])),
            "Dataplane" => row.extend([services(item), table::text(&item["networking"]["address"])]),
            _ => {}
        }
        row.extend([origin(item), table::age(&item["modificationTime"])]);
        row
    };
    table::print(&headings, items.iter().map(row).collect());
}

/// Who owns a resource, seen from the control plane that was asked.
fn origin(item: &Value) -> String {
    let labels = &item["labels"];
    match labels["kuma.io/zone"].as_str().filter(|zone| !zone.is_empty()) {
        Some(zone) => format!("zone {zone}"),
        None => table::text(&labels["kuma.io/origin"]),
    }
}

/// The services of a dataplane.
pub(crate) fn services(dataplane: &Value) -> String {
    let networking = &dataplane["networking"];
    let inbounds = networking["inbound"].as_array().into_iter().flatten();
    let tags = inbounds.map(|i| &i["tags"]).chain([&networking["gateway"]["tags"]]);
    let mut services: Vec<&str> = tags.filter_map(|t| t["kuma.io/service"].as_str()).collect();
    services.dedup();
    if services.is_empty() { "-".to_owned() } else { services.join(", ") }
}
