//! Policies that limit, break, ask and encrypt come, change and go.

use common::{
    model::{Kind, ResourceKey},
    policy::{mesh_fault_injection, mesh_health_check, mesh_rate_limit, mesh_tls},
};

use super::World;

impl World {
    /// One random change of them.
    pub(super) fn change_limits(&mut self, n: usize, one: &str, other: &str, who: usize) {
        let kinds: [&'static Kind; 4] =
            [&mesh_fault_injection::KIND, &mesh_rate_limit::KIND, &mesh_health_check::KIND, &mesh_tls::KIND];
        let kind = kinds[who % kinds.len()];
        let name = format!("limits-{}", n % 2);
        if n == 0 {
            self.apply(ResourceKey::new(kind, "default", &name), None);
            return;
        }
        if kind == &mesh_tls::KIND {
            let conf = match n % 3 {
                0 => "targetRef: {kind: Mesh}, rules: [{default: {tlsVersion: {min: TLS12}}}]".to_owned(),
                1 => "rules: [{default: {tlsVersion: {min: TLS13}, mode: Permissive}}]".to_owned(),
                _ => format!(
                    "targetRef: {{kind: Dataplane, name: p-{}}}, rules: [{{default: {{mode: Strict}}}}]",
                    n % 4
                ),
            };
            self.put(&format!("{{type: MeshTLS, mesh: default, name: {name}, spec: {{{conf}}}}}"), "");
            return;
        }
        let top = [
            "{kind: Mesh, proxyTypes: [Sidecar]}".to_owned(),
            format!("{{kind: MeshService, name: {one}}}"),
            format!("{{kind: Dataplane, name: p-{}}}", n % 3),
        ];
        let matches = format!("[{{spiffeID: {{type: Exact, value: spiffe://default/{other}}}}}]");
        let items = match kind.name {
            "MeshFaultInjection" => {
                let fault = format!("{{http: [{{abort: {{httpStatus: 500, percentage: {n}}}}}]}}");
                match n % 2 {
                    0 => format!(
                        "from: [{{targetRef: {{kind: MeshService, name: {other}}}, default: {fault}}}]"
                    ),
                    _ => format!("rules: [{{matches: {matches}, default: {fault}}}]"),
                }
            }
            "MeshHealthCheck" => {
                format!(
                    "to: [{{targetRef: {{kind: MeshService, name: {other}}}, default: {{interval: {n}s, tcp: {{}}}}}}]"
                )
            }
            _ => {
                let rate = format!("{{local: {{http: {{requestRate: {{num: {n}, interval: 1s}}}}}}}}");
                match n % 2 {
                    0 => format!("from: [{{targetRef: {{kind: Mesh}}, default: {rate}}}]"),
                    _ => format!("rules: [{{matches: {matches}, default: {rate}}}]"),
                }
            }
        };
        self.put(
            &format!(
                "{{type: {}, mesh: default, name: {name}, spec: {{targetRef: {}, {items}}}}}",
                kind.name,
                top[n % 3]
            ),
            "",
        );
    }
}
