//! Where connections to builtin gateways go: as a `MeshTCPRoute` says or, where none is for the gateway, a
//! `MeshGatewayRoute`.

use common::policy::{
    BackendRef, TargetKind,
    mesh_tcp_route::{self, TcpRouteRule},
};

use crate::{
    generator::envoy::http::{self, Share},
    mesh::{
        MeshContext,
        gateway::{GatewayHost, GatewayPort},
    },
    policy::{
        Reporter,
        gateway::{GatewayRules, GatewayScope},
        mesh_http_route::gateway::through,
        uses::Uses,
    },
};

/// Where connections go that come in by `port` for these listeners.
pub(crate) fn shares<'a>(
    mesh: &MeshContext,
    rules: &GatewayRules,
    port: &'a GatewayPort,
    listeners: impl IntoIterator<Item = &'a GatewayHost>,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<Share> {
    let mut shares = Vec::new();
    for listener in listeners {
        for reference in references(mesh, rules, port, listener) {
            if let Some(target) = through(&reference, listener, uses, reporter) {
                shares.push(Share { cluster: uses.cluster_of(&target), weight: reference.weight.max(1) });
            }
        }
    }
    http::bounded(shares)
}

fn references(
    mesh: &MeshContext,
    rules: &GatewayRules,
    port: &GatewayPort,
    listener: &GatewayHost,
) -> Vec<BackendRef> {
    let of_gateways = |rules: &common::policy::rules::OutboundRules| {
        // The last, which is the most specific, is the one that counts.
        let items = rules.policies().flat_map(|policy| policy.to.clone());
        let of_mesh = items.filter(|item| item.target.kind == TargetKind::Mesh);
        of_mesh.filter_map(|item| serde_json::from_value::<TcpRouteRule>(item.conf).ok()).last()
    };
    let routed = rules.policies(&mesh_tcp_route::KIND).iter().flat_map(|policy| &policy.to);
    if routed.into_iter().any(|item| item.target.kind == TargetKind::Mesh) {
        let rule = of_gateways(
            rules.rules(&mesh_tcp_route::KIND, GatewayScope::Host(port.number, &listener.hostname)),
        );
        return rule.and_then(|rule| rule.default.backend_refs).unwrap_or_default();
    }
    let older = mesh.gateway_routes.of(&listener.tags);
    older.values().flat_map(|route| route.backends.iter().flatten().cloned()).collect()
}
