//! Replays the golden cases and prints one line per family. Fails on a case that fails without being
//! listed in `known-gaps.txt`, and on a listed one that passes, so that the list stays short and true.

mod kds_sync;
mod mesh_contexts;
#[path = "../plane.rs"]
mod plane;

use std::{fs, path::Path, process::ExitCode, sync::Arc};

use common::{
    rest::Mounted,
    runtime::Env,
    store::index::IndexReader,
    testing::{
        goldens::{Outcome, policy_matchers, policy_rules, rest_crud, rest_inspect, rest_validation},
        needs,
    },
};
use tokio::sync::watch;
use zone::ads::{debug, preview::Previews};

type Runner = fn(&Path) -> Vec<Outcome>;

/// Folder of a family and what runs its cases.
const FAMILIES: &[(&str, Runner)] = &[
    ("rest-api/crud", rest_crud),
    ("rest-api/inspect", |dir| rest_inspect(dir, proxies)),
    ("rest-validation", rest_validation),
    ("policy-rules", policy_rules),
    ("policy-matchers", policy_matchers),
    ("kds-sync", kds_sync::kds_sync),
    ("mesh-context-hash", mesh_contexts::mesh_contexts),
];

/// What a zone shows of its proxies, of which none is connected.
fn proxies(index: &IndexReader, env: &Env) -> Mounted {
    let previews = Previews::new(
        "default".into(),
        Arc::default(),
        index.clone(),
        watch::Sender::default().subscribe(),
        env.clone(),
    );
    debug::routes(Arc::default(), previews)
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(dir) = needs::goldens() else {
        println!("passed 0, failed 0, skipped all of {} families", FAMILIES.len());
        return ExitCode::SUCCESS;
    };
    let gaps = match Gaps::read(&root.join("tests/goldens/known-gaps.txt")) {
        Ok(gaps) => gaps,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:<20} {:>7} {:>7} {:>8}", "FAMILY", "PASSED", "FAILED", "SKIPPED");
    let mut complaints = Vec::new();
    for (family, run) in FAMILIES {
        let tally = Tally::of(family, run(&dir.join(family)), &gaps, &mut complaints);
        println!("{family:<20} {:>7} {:>7} {:>8}", tally.passed, tally.failed, tally.skipped);
    }
    for complaint in &complaints {
        println!("\n{complaint}");
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Listed as a known gap.
    skipped: usize,
}

impl Tally {
    fn of(family: &str, outcomes: Vec<Outcome>, gaps: &Gaps, complaints: &mut Vec<String>) -> Self {
        let mut tally = Self::default();
        if outcomes.is_empty() {
            complaints.push(format!("{family}: no case found"));
        }
        for (case, outcome) in outcomes {
            let name = format!("{family}/{case}");
            match (outcome, gaps.contain(&name)) {
                (Ok(()), false) => tally.passed += 1,
                (Err(_), true) => tally.skipped += 1,
                (Ok(()), true) => {
                    tally.passed += 1;
                    complaints.push(format!("{name} passes: take it off the list of known gaps"));
                }
                (Err(error), false) => {
                    tally.failed += 1;
                    complaints.push(format!("{name} fails: {error}"));
                }
            }
        }
        tally
    }
}

/// Lines `family/case: reason`; a `*` at the end of the case stands for any rest.
struct Gaps(Vec<String>);

impl Gaps {
    fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let gaps = lines.map(|line| match line.split_once(": ") {
            Some((case, reason)) if !reason.trim().is_empty() => Ok(case.to_owned()),
            _ => Err(format!("{}: {line:?} has no reason", path.display())),
        });
        gaps.collect::<Result<_, _>>().map(Self)
    }

    fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|gap| match gap.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == gap,
        })
    }
}
