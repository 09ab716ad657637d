//! `straitctl check`: what is wrong with a control plane, its zones and meshes, and what to do about it.

mod ports;
mod process;

use std::{process::ExitCode, time::Duration};

use clap::Args;
use common::{
    checks::{CheckLine, CheckVerdict, meshes, rollouts, zones},
    runtime::{Clock, SystemClock},
};
use console::Style;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    client::ApiClient,
    duration,
    output::{self, Output},
};

/// Looks through a control plane for what is wrong, and says what to do.
///
/// Each line is ok, a warning or a failure. Ends with 0 when nothing is wrong, with 1 after warnings and with 2 after
/// failures, as monitoring programs expect it.
#[derive(Args)]
pub(crate) struct Check {
    /// Look again every so often, until stopped
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "10s", require_equals = true,
          value_parser = duration)]
    watch: Option<Duration>,
    /// Leave out what is ok
    #[arg(long, short)]
    quiet: bool,
    /// Form of the answer
    #[arg(long, short, default_value = "table")]
    output: Output,
}

impl Check {
    /// Looks once, or until somebody stops the program.
    pub(crate) async fn run(
        &self,
        connect: impl Fn() -> anyhow::Result<ApiClient>,
    ) -> anyhow::Result<ExitCode> {
        loop {
            let findings = look(&connect()?).await;
            self.print(&findings)?;
            let Some(pause) = self.watch else { return Ok(code(&findings)) };
            sleep(pause).await;
        }
    }

    fn print(&self, findings: &[CheckLine]) -> anyhow::Result<()> {
        let shown = || findings.iter().filter(|finding| !self.quiet || finding.verdict != CheckVerdict::Ok);
        let document = json!({"checks": shown().collect::<Vec<_>>(), "verdict": worst(findings)});
        self.output.print(&document, || {
            let mut about = None;
            for finding in shown() {
                if about != Some(finding.about) {
                    output::line(finding.about);
                    about = Some(finding.about);
                }
                print(finding);
            }
            output::line(&summary(findings));
        })
    }
}

/// Everything there is to find. A control plane that does not answer is one of it.
async fn look(client: &ApiClient) -> Vec<CheckLine> {
    let index: Value = match client.get("/").await {
        Ok(index) => index,
        Err(error) => return vec![CheckLine::failure("control plane", format!("{error:#}"))],
    };
    let is_global = index["strait"]["mode"] != "zone";
    let mut findings = process::look(client, &index).await;
    findings.extend(ports::look(client).await);
    findings.extend(match is_global {
        true => of_zones(client, &index).await,
        false => of_global(client).await,
    });
    if is_global {
        findings.extend(of_rollouts(client).await);
    }
    findings.extend(of_meshes(client).await);
    findings
}

async fn of_zones(client: &ApiClient, index: &Value) -> Vec<CheckLine> {
    match client.get::<Value>("/sync").await {
        Ok(overview) => zones::of_global(&overview, index, SystemClock.now()),
        Err(error) => vec![CheckLine::failure("zones", format!("{error:#}"))],
    }
}

async fn of_global(client: &ApiClient) -> Vec<CheckLine> {
    let answer = match client.send(Method::GET, "/strait/link", None).await {
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
            return zones::of_zone(None, SystemClock.now());
        }
        Ok(answer) => answer.success().and_then(|answer| answer.json::<Value>()),
        Err(error) => Err(error),
    };
    match answer {
        Ok(link) => zones::of_zone(Some(&link), SystemClock.now()),
        Err(error) => vec![CheckLine::failure("global", format!("{error:#}"))],
    }
}

async fn of_rollouts(client: &ApiClient) -> Vec<CheckLine> {
    // A global of Kuma has none.
    client.list("/rollout-insights").await.map(|runs| rollouts::of(&runs)).unwrap_or_default()
}

async fn of_meshes(client: &ApiClient) -> Vec<CheckLine> {
    match (client.list("/meshes").await, client.list("/mesh-insights").await) {
        (Ok(meshes), Ok(insights)) => meshes::of(&meshes, &insights),
        (Err(error), _) | (_, Err(error)) => vec![CheckLine::failure("meshes", format!("{error:#}"))],
    }
}

/// As a line, and another for what to do.
fn print(line: &CheckLine) {
    let (sign, style) = match line.verdict {
        CheckVerdict::Ok => ("ok     ", Style::new().green()),
        CheckVerdict::Warning => ("warning", Style::new().yellow()),
        CheckVerdict::Failure => ("failure", Style::new().red()),
    };
    // The colours are ours, the words may be somebody else's.
    output::styled_line(&format!("  {}  ", style.apply_to(sign)), &line.found);
    if !line.remedy.is_empty() {
        output::styled_line("           ", &format!("-> {}", line.remedy));
    }
}

fn worst(findings: &[CheckLine]) -> CheckVerdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(CheckVerdict::Ok)
}

fn code(findings: &[CheckLine]) -> ExitCode {
    ExitCode::from(match worst(findings) {
        CheckVerdict::Ok => 0,
        CheckVerdict::Warning => 1,
        CheckVerdict::Failure => 2,
    })
}

fn summary(findings: &[CheckLine]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (warnings, failures) = (count(CheckVerdict::Warning), count(CheckVerdict::Failure));
    match (warnings, failures) {
        (0, 0) => "nothing is wrong".to_owned(),
        _ => format!("{failures} failed, {warnings} warned, {} ok", count(CheckVerdict::Ok)),
    }
}
