//! `straitctl proxy-status`: how far each proxy is with what it is sent, and where one differs from that.

mod difference;
mod row;

use anyhow::bail;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use self::{
    difference::DumpDifference,
    row::{ProxyStatusRow, TYPES},
};
use crate::{
    client::ApiClient,
    kinds::query,
    output::{self, Output},
    proxy::{ProxyPlace, read_dump},
    table,
};

#[derive(Args)]
pub(crate) struct ProxyStatusArgs {
    /// Only this one: where its Envoy has something else than the control plane holds for it
    name: Option<String>,
    /// Only those of this mesh
    #[arg(short, long)]
    mesh: Option<String>,
    /// Read what the Envoy has from a dump in this file, or from standard input for `-`
    #[arg(short, long, value_name = "FILE", requires = "name")]
    file: Option<String>,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

impl ProxyStatusArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match &self.name {
            None => self.list(client).await,
            Some(name) => self.compare(client, name).await,
        }
    }

    async fn list(&self, client: &ApiClient) -> anyhow::Result<()> {
        let rows = self.rows(client).await?;
        let document = output::list(&rows.iter().map(ProxyStatusRow::document).collect::<Vec<_>>());
        self.output.print(&document, || print(&rows))
    }

    /// Those that are connected: a zone knows each stream, global what zones tell about each proxy.
    async fn rows(&self, client: &ApiClient) -> anyhow::Result<Vec<ProxyStatusRow>> {
        let asked: Vec<_> = self.mesh.iter().map(|mesh| ("mesh", mesh.clone())).collect();
        let path = format!("/debug/syncz{}", query(&asked));
        let answer = client.send(Method::GET, &path, None).await?;
        if answer.status != StatusCode::NOT_FOUND {
            let streams: Vec<Value> = answer.success()?.json()?;
            return Ok(ProxyStatusRow::of_streams(&streams));
        }
        let mut all = Vec::new();
        for (list, member) in
            [("dataplanes", "dataplane"), ("zoneingresses", "zoneIngress"), ("zoneegresses", "zoneEgress")]
        {
            let overviews = client.list(&format!("/{list}/_overview")).await?;
            let of_mesh =
                |overview: &&Value| self.mesh.as_ref().is_none_or(|mesh| overview["mesh"] == **mesh);
            let rows = overviews.iter().filter(of_mesh);
            all.extend(rows.filter_map(|overview| ProxyStatusRow::of_overview(overview, member)));
        }
        Ok(all)
    }

    async fn compare(&self, client: &ApiClient, name: &str) -> anyhow::Result<()> {
        let place = ProxyPlace::find(client, name, self.mesh.as_deref()).await?;
        let held = place.held(client).await?;
        let envoy = match &self.file {
            Some(file) => read_dump(file)?,
            None => place.envoy(client).await?,
        };
        let all = difference::differences(&held, &envoy);
        let refused = envoy.refused.iter().map(|(name, details)| json!({ "name": name, "details": details }));
        let document = json!({
            "differences": all.iter().map(DumpDifference::document).collect::<Vec<_>>(),
            "refused": refused.collect::<Vec<_>>(),
        });
        self.output.print(&document, || all.iter().for_each(DumpDifference::print))?;
        for (name, details) in &envoy.refused {
            crate::output::note!("{name}: Envoy refused what it was last sent of it: {}", details.trim());
        }
        let differing: Vec<&str> = all.iter().filter(|one| !one.is_empty()).map(|one| one.title).collect();
        if !differing.is_empty() {
            bail!(
                "the Envoy of {name} has other {} than the control plane holds for it; ask again in a moment, and \
                 `straitctl proxy-status` says whether it refuses something",
                differing.join(", ").to_lowercase()
            );
        }
        Ok(())
    }
}

fn print(rows: &[ProxyStatusRow]) {
    if rows.is_empty() {
        crate::output::note!("no proxy is connected; `straitctl inspect dataplanes` shows those there are");
        return;
    }
    let mut headings = vec!["NAME", "ZONE"];
    headings.extend(TYPES.map(|(heading, _)| heading));
    headings.extend(["INSTANCE", "VERSION"]);
    table::print(&headings, rows.iter().map(ProxyStatusRow::cells).collect());
    for note in rows.iter().flat_map(ProxyStatusRow::notes) {
        crate::output::note!("{note}");
    }
}
