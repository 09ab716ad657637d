//! `straitctl undo`: takes changes back, after it was shown what that means.

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::{ask_undo, diff::lines};
use crate::{
    client::ApiClient,
    output::{self, Output},
    sync::WaitFor,
    table,
};

#[derive(Args)]
#[command(
    after_help = "Changes that control planes and files made are left alone: they would make them again. \
                        What secrets held is not kept, so they do not come back."
)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["revision", "since"]))]
pub(crate) struct Undo {
    /// Take back what changed with this revision
    #[arg(long, value_name = "REVISION")]
    revision: Option<u64>,
    /// Take back everything after this revision, since this time, like 2026-01-31T12:00:00Z, or of so long, like 90m
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Do it, rather than only show it
    #[arg(long)]
    yes: bool,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
    #[command(flatten)]
    wait: WaitFor,
}

impl Undo {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let mut body = json!({ "dryRun": !self.yes });
        if let Some(revision) = self.revision {
            body["revision"] = revision.into();
        }
        if let Some(since) = &self.since {
            body["since"] = since.as_str().into();
        }
        let plan = ask_undo(client, &body).await?;
        let mut shown = Ok(());
        self.output.print(&plan, || shown = show(&plan))?;
        shown?;
        if plan["steps"].as_array().is_none_or(Vec::is_empty) {
            bail!("there is nothing to take back");
        }
        let Some(revision) = plan["revision"].as_u64() else {
            crate::output::note!("nothing was changed; --yes does it");
            return Ok(());
        };
        crate::output::note!("done, with revision {revision}");
        self.wait.wait(client, Some(revision), "the changes were taken back").await
    }
}

fn show(plan: &Value) -> anyhow::Result<()> {
    for step in plan["steps"].as_array().into_iter().flatten() {
        let undone: Vec<String> =
            step["undoes"].as_array().into_iter().flatten().map(Value::to_string).collect();
        output::line(&format!(
            "{} {} (revision {})",
            table::text(&step["op"]),
            title(step),
            undone.join(", ")
        ));
        output::text(&lines(&step["now"], &step["then"], "now", "then")?);
    }
    for left in plan["left"].as_array().into_iter().flatten() {
        crate::output::note!("left alone: {}: {}", title(left), table::text(&left["reason"]));
    }
    Ok(())
}

fn title(item: &Value) -> String {
    let [kind, name] = ["type", "name"].map(|member| table::text(&item[member]));
    match item["mesh"].as_str() {
        Some(mesh) => format!("{kind} {mesh}/{name}"),
        None => format!("{kind} {name}"),
    }
}
