//! What Envoy gets from policies.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    generator::{
        Draft, RouteDraft, Sidecar,
        envoy::http::{self, Share},
        outbound,
    },
    mesh::{MeshContext, Problem},
};

/// Applies all.
pub(crate) fn apply_all(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft, problems: &mut Vec<Problem>) {
    for outbound in outbound::all(proxy, mesh, problems) {
        let shares = [Share { cluster: outbound.backend.cluster.clone(), weight: 1 }];
        if outbound.backend.protocol.is_http() {
            let message = http::forward("", http::any_path(), &shares);
            outbound::add_http_listener(proxy, &outbound, vec![RouteDraft { message, policy: None }], draft);
        } else {
            outbound::add_tcp_listener(&outbound, &shares, draft);
        }
        outbound::add_backend(mesh, &outbound.backend, draft);
    }
}

/// Tag sets that route policies send traffic to.
pub(crate) fn destination_tags(_mesh: &MeshContext) -> BTreeSet<BTreeMap<String, String>> {
    BTreeSet::new()
}
