//! libFuzzer on one of the targets of `tests/fuzz`: the one that `FUZZ_TARGET` names.

#![no_main]
#![allow(dead_code, unreachable_pub, reason = "seeds are written by the tests")]

#[path = "../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "../tests/fuzz/targets.rs"]
mod targets;

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static targets::Target> = LazyLock::new(|| {
    let name = env::var("FUZZ_TARGET").unwrap_or_default();
    targets::named(&name).unwrap_or_else(|| {
        let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        panic!("FUZZ_TARGET={name:?} is none of {}", names.join(", "))
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
