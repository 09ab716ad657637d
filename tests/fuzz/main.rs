//! Replays what fuzzing starts from and what it found, with mutations of it: every entrance for bytes from
//! outside takes anything.
//!
//! `FUZZ_RUNS` sets how many mutations each target gets; `FUZZ_SEEDS` names a folder to write the seeds to,
//! for `make fuzz`, which searches on with libFuzzer. What it finds goes into `tests/fuzz/found/<target>`.

#![allow(unreachable_pub, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests take their options from the environment")]

mod corpus;
mod mutate;
mod targets;

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use corpus::Corpus;
use mutate::Mutations;
use targets::Target;

/// Mutations of each target in a usual run.
const RUNS: u64 = 3_000;

static CORPUS: LazyLock<Corpus> = LazyLock::new(Corpus::gather);

/// Inputs that broke something once.
fn found(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/found").join(target.name);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

fn replay(name: &str) {
    let target = targets::named(name).unwrap_or_else(|| panic!("there is no target {name}"));
    let seeds = (target.seeds)(&CORPUS);
    assert!(!seeds.is_empty(), "{name} has nothing to start from");
    if let Some(folder) = env::var_os("FUZZ_SEEDS") {
        write_out(&PathBuf::from(folder).join(name), &seeds);
    }
    let found = found(target);
    for input in seeds.iter().chain(&found) {
        run(target, input);
    }
    let runs = env::var("FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("FUZZ_RUNS is a number"));
    let runs = runs / target.costs;
    let mut mutations = Mutations::of(&seeds, 1);
    for _ in 0..runs {
        run(target, &mutations.next());
    }
    println!("{name}: {} seeds, {} found before, {runs} mutations", seeds.len(), found.len());
}

/// Runs one input; one that breaks something is kept, and named.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let path = env::temp_dir().join(format!("{}-broken", target.name));
        let _best_effort = fs::write(&path, input);
        eprintln!("{} broke; the input is in {}", target.name, path.display());
        std::panic::resume_unwind(panic);
    }
}

fn write_out(folder: &Path, seeds: &[Vec<u8>]) {
    fs::create_dir_all(folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("{number:04}")), seed).unwrap();
    }
}

#[test]
fn documents() {
    replay("documents");
}

#[test]
fn dumps() {
    replay("dumps");
}

#[test]
fn sync_items() {
    replay("sync-items");
}

#[test]
fn attribution() {
    replay("attribution");
}

#[test]
fn sync_requests() {
    replay("sync-requests");
}

#[test]
fn sync_responses() {
    replay("sync-responses");
}

#[test]
fn sync_v1() {
    replay("sync-v1");
}

#[test]
fn ads_requests() {
    replay("ads-requests");
}

#[test]
fn ads_nodes() {
    replay("ads-nodes");
}

#[test]
fn parts() {
    replay("parts");
}

#[test]
fn tokens() {
    replay("tokens");
}

#[test]
fn words() {
    replay("words");
}

#[test]
fn settings() {
    replay("settings");
}

#[test]
fn bootstraps() {
    replay("bootstraps");
}

#[test]
fn request_heads() {
    replay("request-heads");
}

#[test]
fn sync_headers() {
    replay("sync-headers");
}

#[test]
fn insights() {
    replay("insights");
}

#[test]
fn store_files() {
    replay("store-files");
}

#[test]
fn every_target_is_replayed() {
    let here = include_str!("main.rs");
    for target in targets::ALL {
        assert!(here.contains(&format!("replay(\"{}\")", target.name)), "{} is not replayed", target.name);
    }
}
