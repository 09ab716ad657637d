//! How a process lives: its clock and randomness, its tasks, its listeners, its end.

mod env;
pub mod http;
mod listen;
mod offload;
pub mod process;
mod supervisor;

pub use env::{Clock, Entropy, Env, SystemClock};
pub use listen::{BindError, accept, bind};
pub use offload::Offload;
pub use supervisor::{Supervisor, stop_signal};
