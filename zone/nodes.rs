//! Nodes that are no proxies of a mesh, and what they are served: Envoy resources as somebody wrote them.
//!
//! ```text
//!  EnvoyConfig ──► raw configs ──► plane: what one selection of them comes to ──► sets, shared by all it is for
//!                                    ▲
//!  what nodes say about themselves ──┘
//! ```
//!
//! Nothing here knows streams or waits.

mod plane;
mod raw;
mod selection;

pub(crate) use plane::{Plane, ServedNode};
pub(crate) use raw::RawConfigs;
pub(crate) use selection::NodeTraits;
