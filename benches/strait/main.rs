//! `make bench`: what the control plane costs, each figure beside a floor measured in the same run.
//!
//! The machine is shared and noisy, so a time means little and a ratio more. `BENCH=p6` runs one scenario,
//! `BENCH_SCALE=0.1` shrinks the counts.

mod cpu;
mod floor;
mod sample;

fn main() {}
