//! Where what the workload sends goes: decided once, by whichever kind of route is for it.

use std::collections::BTreeSet;

use super::{
    Outside, PolicyEffect, Reporter, legacy, mesh_http_route, mesh_http_route::MeshHttpRouteEffect,
    mesh_tcp_route, mesh_tcp_route::MeshTcpRouteEffect,
};
pub(crate) use super::{routing::Routing, uses::Uses};
use crate::{generator::Backend, mesh::Problem};

/// How traffic for `called` is passed on. An HTTP service is treated as bytes when nothing but a TCP route
/// is for it.
pub(crate) fn decide(
    outside: Outside<'_>,
    called: &Backend,
    uses: &mut Uses<'_>,
    problems: &mut BTreeSet<Problem>,
) -> Routing {
    if legacy::routes(outside, called) {
        return legacy::decide(outside, called, uses, problems);
    }
    let mut reporter = Reporter { kind: MeshHttpRouteEffect::KIND, problems };
    let requests = outside.confs::<MeshHttpRouteEffect>().said_of(called, &mut reporter);
    let conf = requests.as_ref().and_then(|said| said.conf(&mut reporter));
    let mut reporter = Reporter { kind: MeshTcpRouteEffect::KIND, problems };
    let rule = outside.confs::<MeshTcpRouteEffect>().of(called, &mut reporter);
    let as_bytes = !called.protocol.is_http() || (conf.is_none() && rule.is_some());
    if as_bytes {
        return Routing::Bytes(mesh_tcp_route::shares(called, rule, uses, &mut reporter));
    }
    let mut reporter = Reporter { kind: MeshHttpRouteEffect::KIND, problems };
    let origin = |hash: &str| requests.as_ref().and_then(|said| said.origin(hash));
    let conf = conf.unwrap_or_default();
    Routing::Requests(mesh_http_route::routes(called, &conf, origin, uses, &mut reporter))
}
