//! `straitctl audit`: who asked the control plane for what.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::{
    client::ApiClient,
    kinds,
    output::{self, Output},
    table,
};

#[derive(Args)]
#[command(
    after_help = "Shown are writes, looks at what only some may see, and what was refused; of this process, and as \
                        far back as it remembers. The setting apiServer.audit.file keeps all of it."
)]
pub(crate) struct Audit {
    /// Only requests of this user
    #[arg(long)]
    user: Option<String>,
    /// Only requests since this time, like 2026-01-31T12:00:00Z, or for so long, like 90m
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only requests about this type
    #[arg(long, value_name = "TYPE")]
    kind: Option<String>,
    /// Only requests that ended so
    #[arg(long)]
    outcome: Option<RequestOutcome>,
    /// Only so many, the newest ones
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    size: usize,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum RequestOutcome {
    Done,
    Refused,
    Failed,
}

impl Audit {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let mut query = vec![("size", self.size.to_string())];
        query.extend(self.user.map(|user| ("user", user)));
        query.extend(self.since.map(|since| ("since", since)));
        if let Some(word) = &self.kind {
            query.push(("kind", kinds::find(word)?.name.to_owned()));
        }
        query.extend(self.outcome.map(|outcome| {
            let text = match outcome {
                RequestOutcome::Done => "done",
                RequestOutcome::Refused => "refused",
                RequestOutcome::Failed => "failed",
            };
            ("outcome", text.to_owned())
        }));
        let items = client.page(&format!("/audit{}", kinds::query(&query))).await?;
        self.output.print(&output::list(&items), || match items.is_empty() {
            true => crate::output::note!("nothing was asked for"),
            false => print(&items),
        })
    }
}

fn print(items: &[Value]) {
    let row = |item: &Value| {
        let cells = ["user", "from", "outcome", "status", "revision", "method", "path"];
        let cells = cells.into_iter().map(|cell| table::text(&item[cell]));
        std::iter::once(table::age(&item["at"])).chain(cells).collect()
    };
    let headings = ["AGE", "USER", "FROM", "OUTCOME", "STATUS", "REVISION", "METHOD", "PATH"];
    table::print(&headings, items.iter().map(row).collect());
}
