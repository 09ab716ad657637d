//! `MeshTCPRoute`: the listeners of everything that is not HTTP, with or without a policy.

pub(crate) mod gateway;

use std::collections::BTreeSet;

use common::{
    model::Kind,
    policy::mesh_tcp_route::{self, TcpRouteRule},
};

use super::{
    PolicyEffect, Reporter,
    uses::{self, Uses},
};
use crate::{
    generator::{
        Backend,
        envoy::http::{self, Share},
    },
    mesh::{Destination, MeshContext},
};

/// See the module.
pub(super) struct MeshTcpRouteEffect;

impl PolicyEffect for MeshTcpRouteEffect {
    const KIND: &'static Kind = &mesh_tcp_route::KIND;
    type Conf = TcpRouteRule;
}

/// Where the bytes for `called` go.
pub(super) fn shares(
    called: &Backend,
    rule: Option<TcpRouteRule>,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<Share> {
    let references = rule.and_then(|r| r.default.backend_refs).unwrap_or_default();
    let mut shares = Vec::new();
    for reference in references.iter().filter(|r| r.weight > 0) {
        if let Some(target) = uses.referenced(reference, reporter) {
            shares.push(Share { cluster: uses.cluster_of(&target), weight: reference.weight });
        }
    }
    if shares.is_empty() {
        shares.push(Share { cluster: uses.cluster_of(called), weight: 1 });
    }
    http::bounded(shares)
}

/// Tagged destinations that routes of this kind send traffic to.
pub(super) fn targets(mesh: &MeshContext) -> BTreeSet<Destination> {
    let set = mesh.policies(&mesh_tcp_route::KIND);
    // What another zone sends traffic to is never known by tags.
    let policies = set.into_iter().flat_map(|s| &s.policies).filter(|policy| !policy.is_guest());
    let specs = policies.filter_map(|p| p.resource.spec::<mesh_tcp_route::MeshTcpRoute>().ok());
    let rules = specs.flat_map(|spec| spec.to).flat_map(|to| to.rules);
    let references = rules.flat_map(|rule| rule.default.backend_refs.unwrap_or_default());
    references.filter_map(|reference| uses::tagged(&reference)).collect()
}
