//! Both ends against each other.

mod cost;
mod envoy;
mod follow;
mod rulebook;
mod shared;
