//! `straitctl check`: what is wrong with a control plane, its zones and meshes, and what to do about it.

mod line;
mod meshes;
mod ports;
mod process;
mod zones;

use std::{process::ExitCode, time::Duration};

use clap::Args;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::line::{CheckLine, CheckVerdict};
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
                finding.print();
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
        true => zones::of_global(client, &index).await,
        false => zones::of_zone(client).await,
    });
    findings.extend(meshes::look(client).await);
    findings
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
