//! Takes rollouts from wave to wave.
//!
//! What is to be done follows from the run, as the index shows it, from how zones stand and from what queries say
//! ([`machine`]); one replica does it ([`driver`]), and writes each step as long as nobody else wrote one. So nothing is
//! lost with a process, and a step is made once.

mod driver;
mod kept;
mod machine;
mod prometheus;
mod queries;

pub(crate) use driver::RolloutDriver;
pub(crate) use prometheus::PromClient;
