//! `straitctl top`: zones and proxies as they are now, the worst first.

mod board;
mod screen;

use std::{io::IsTerminal, time::Duration};

use clap::{Args, ValueEnum};
use serde_json::Value;

use self::board::{Board, BoardTable};
use crate::{
    client::ApiClient,
    duration,
    inspect::{self, ZoneOverview},
    kinds::segment,
    table,
};

/// Shows zones and proxies as they are now, the worst first.
///
/// In a terminal it goes on until `q`; `Tab` turns to the other table, arrows and page keys move in it, and what is typed after
/// `/` chooses rows. Otherwise it prints both tables once.
#[derive(Args)]
pub(crate) struct Top {
    /// Begin with this table
    #[arg(value_enum, default_value = "zones")]
    what: TopTable,
    /// Only proxies of this mesh
    #[arg(short, long)]
    mesh: Option<String>,
    /// How long to wait before looking again
    #[arg(long, value_name = "INTERVAL", default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// Print both tables once
    #[arg(long)]
    once: bool,
}

/// The tables there are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopTable {
    /// Of global: its zones
    Zones,
    /// Dataplanes
    Proxies,
}

impl Top {
    pub(crate) async fn run(&self, client: &ApiClient) -> anyhow::Result<()> {
        if self.once || !std::io::stdout().is_terminal() {
            let board = self.look(client).await?;
            board.tables.iter().for_each(BoardTable::print);
            return Ok(());
        }
        let begins = usize::from(self.what == TopTable::Proxies);
        screen::show(async || self.look(client).await, begins, self.interval).await
    }

    async fn look(&self, client: &ApiClient) -> anyhow::Result<Board> {
        let index: Value = client.get("/").await?;
        let is_global = index["strait"]["mode"] != "zone";
        let zones = if is_global { client.list("/zones/_overview").await? } else { Vec::new() };
        let proxies = match &self.mesh {
            Some(mesh) => format!("/meshes/{}/dataplanes/_overview", segment(mesh)),
            None => "/dataplanes/_overview".to_owned(),
        };
        let proxies = client.list(&proxies).await?;
        let zones: Vec<ZoneOverview> = zones.iter().map(ZoneOverview::of).collect();
        let zones = zones.into_iter().map(|zone| (zone.trouble(), zone.row()));
        let zones = BoardTable::new("zones", &inspect::ZONE_HEADINGS, zones);
        let proxies = proxies.iter().map(|proxy| (inspect::trouble(proxy), inspect::proxy_row(proxy, true)));
        let proxies = BoardTable::new("proxies", &inspect::PROXY_HEADINGS, proxies);
        let tables = if is_global { vec![zones, proxies] } else { vec![proxies] };
        let title = format!("{} {}", table::text(&index["hostname"]), table::text(&index["instanceId"]));
        Ok(Board { title, tables })
    }
}
