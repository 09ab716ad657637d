//! What the user writes: policies that select proxies by `targetRef`.

pub mod mesh_circuit_breaker;
pub mod mesh_http_route;
pub mod mesh_retry;
pub mod mesh_tcp_route;
pub mod mesh_timeout;
pub mod mesh_traffic_permission;
pub mod opaque;
