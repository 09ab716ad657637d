//! What breaks below a control plane, one file a fault: no acknowledged write is lost, no process dies that
//! was not killed, `/ready` tells the truth, and everything heals without a restart.

pub mod clock;
mod damage;
mod descriptors;
mod disk;
mod files;
mod kill;
pub mod machine;
mod postgres;
mod salvage;
mod stopped;
pub mod writers;

/// A number that a variable may raise for a longer run.
#[allow(clippy::disallowed_methods, reason = "tests have no configuration")]
fn knob(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |value| value.parse().expect("a knob is a number"))
}
