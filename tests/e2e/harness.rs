//! Starts and watches the processes of a test.

pub mod addresses;
pub mod agent;
pub mod balancer;
pub mod browser;
pub mod budget;
pub mod control_plane;
pub mod echo;
pub mod envoy;
pub mod http;
pub mod kds_peer;
pub mod openid;
pub mod panics;
pub mod process;
pub mod relay;
pub mod root;
pub mod tally;
pub mod wait;

pub use agent::Agent;
pub use balancer::Balancer;
pub use browser::Browser;
pub use control_plane::{ControlPlane, Global, Options, Zone};
pub use echo::Echo;
pub use envoy::Envoy;
pub use kds_peer::KdsPeer;
pub use openid::RealProvider;
pub use process::Process;
pub use root::Root;
pub use wait::eventually;
