//! How a process lives: its clock and randomness, its tasks, its listeners, its end.

mod env;
pub mod http;
mod listen;
mod offload;
mod open_files;
mod private;
pub mod service_manager;
mod supervisor;
mod told;

pub use env::{Clock, Entropy, Env, SystemClock};
pub use listen::{Accept, BindError, bind};
pub use offload::Offload;
pub use open_files::OpenFiles;
pub use private::warn_if_open;
pub use supervisor::{Supervisor, stop_signal};
pub use told::ToldNowAndThen;
