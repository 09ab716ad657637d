//! What is wrong with a federation, and what to do about it, found out from what the API answers: `straitctl check` asks
//! over the network, the page in the process.

mod line;
pub mod meshes;
pub mod rollouts;
pub mod zones;

pub use self::line::{CheckLine, CheckVerdict, SOON};
