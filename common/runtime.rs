//! How a process lives: its clock and randomness, its tasks, its end.

mod env;
mod supervisor;

pub use env::{Clock, Entropy, Env, SystemClock};
pub use supervisor::{Supervisor, stop_signal};
