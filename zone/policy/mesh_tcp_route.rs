//! `MeshTCPRoute`: the listeners of everything that is not HTTP, with or without a policy.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::Kind,
    policy::mesh_tcp_route::{self, Rule},
};

use super::{Context, Policy, Reporter, mesh_http_route};
use crate::{
    generator::{
        Draft,
        backend::add_backend,
        envoy::http::{self, Share},
        outbound,
    },
    mesh::MeshContext,
};

/// See the module.
pub(super) struct MeshTcpRoute;

impl super::TypedPolicy for mesh_tcp_route::MeshTcpRoute {
    const KIND: &'static Kind = &mesh_tcp_route::KIND;
    type Conf = Rule;
}

impl Policy for MeshTcpRoute {
    fn kind(&self) -> &'static Kind {
        &mesh_tcp_route::KIND
    }

    fn apply(&self, context: &Context<'_>, draft: &mut Draft, reporter: &mut Reporter<'_>) {
        let rules = context.rules::<mesh_tcp_route::MeshTcpRoute>(reporter);
        let requests = context.rules::<common::policy::mesh_http_route::MeshHttpRoute>(reporter);
        for outbound in &context.outbounds {
            let backend = &outbound.backend;
            let rule = rules.outbound(backend, reporter);
            // An HTTP service is treated as bytes only when nothing but a TCP route is for it.
            let as_bytes = rule.is_some() && requests.outbound(backend, reporter).is_none();
            if backend.protocol.is_http() && !as_bytes {
                continue;
            }
            let references = rule.and_then(|r| r.default.backend_refs).unwrap_or_default();
            let mut shares = Vec::new();
            for reference in references.iter().filter(|r| r.weight > 0) {
                if let Some(target) = mesh_http_route::backend(context.mesh, reference, reporter) {
                    add_backend(context.mesh, &target, draft);
                    shares.push(Share { cluster: target.cluster, weight: reference.weight });
                }
            }
            if shares.is_empty() {
                add_backend(context.mesh, backend, draft);
                shares.push(Share { cluster: backend.cluster.clone(), weight: 1 });
            }
            outbound::add_tcp_listener(outbound, &http::bounded(shares), draft);
        }
    }
}

/// Tag sets that routes of this kind send traffic to.
pub(super) fn destination_tags(mesh: &MeshContext) -> BTreeSet<BTreeMap<String, String>> {
    let set = mesh.policies(&mesh_tcp_route::KIND);
    let policies = set.into_iter().flat_map(|s| &s.policies);
    let specs = policies.filter_map(|p| p.resource.spec::<mesh_tcp_route::MeshTcpRoute>().ok());
    let rules = specs.flat_map(|spec| spec.to).flat_map(|to| to.rules);
    let references = rules.flat_map(|rule| rule.default.backend_refs.unwrap_or_default());
    references.filter_map(|reference| mesh_http_route::tags_of(&reference)).collect()
}
