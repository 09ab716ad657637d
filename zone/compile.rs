//! From meshes and proxies to Envoy configuration: where generator and policies are put together.
//!
//! ```text
//!  MeshChange ──► what follows from it ──► parts, each compiled once ──► sets of parts ──► proxies
//! ```
//!
//! Proxies that the same policies select see the same outside world: they have one [profile]. What calling
//! a destination takes under a profile (a listener, clusters, their endpoints) is a *part*, made once and
//! shared by every proxy of the profile that calls it. Proxies that call the same have one *set* of parts.
//! Only inbounds, secrets and the listener of the admin endpoint are a proxy's own.
//!
//! Nothing here knows a clock, a socket or a thread but those of the pool that compiles.
//!
//! [profile]: crate::policy

mod admission;
mod behind;
mod compiler;
mod credentials;
mod departure;
mod door;
mod exposure;
mod follow;
mod follow_legacy;
mod front;
mod grpc;
mod kept;
mod locate;
mod outbound;
mod part;
mod place;
mod profiles;
pub(crate) mod scratch;
mod server_name;
mod set;
mod sidecar;
mod task;
#[cfg(test)]
mod tests;
mod told;
mod way_in;
mod way_out;

pub(crate) use compiler::Compiler;
pub(crate) use credentials::{HEARD, Signed, SigningRequest};
pub(crate) use departure::Departures;
pub(crate) use exposure::{EdgeOwn, Exposure};
