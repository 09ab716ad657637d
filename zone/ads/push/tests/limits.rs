//! Policies that limit, break, ask and encrypt come, change and go.

use common::{
    model::{Kind, ResourceKey},
    policy::{mesh_fault_injection, mesh_health_check, mesh_rate_limit, mesh_tls},
};

use super::{ProxyId, ProxyKind, World, proxy};

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

#[test]
fn a_proxy_whose_permissions_nobody_can_tell_apart_keeps_what_it_has() {
    let mut world = World::new(0);
    world.put_authority();
    world.put(
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}",
        "",
    );
    let web = "{type: Dataplane, mesh: default, name: p-0, networking: {address: 127.0.0.1, inbound: [{port: 80, tags: \
               {kuma.io/service: web}}]}}";
    world.put(web, "east");
    world.meshes.arrive(&proxy(ProxyKind::Dataplane, "p-0"));
    let permit = |world: &mut World, name: &str, keys: std::ops::Range<usize>| {
        let group =
            |i| format!("{{targetRef: {{kind: MeshSubset, tags: {{k{i}: v}}}}, default: {{action: Allow}}}}");
        let from: Vec<String> = keys.map(group).collect();
        world.put(
            &format!(
                "{{type: MeshTrafficPermission, mesh: default, name: {name}, spec: {{from: [{}]}}}}",
                from.join(", ")
            ),
            "",
        );
        world.settle();
    };
    let id = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    permit(&mut world, "one", 0..8);
    let before = world.has[&id].clone();
    assert!(world.problems[&id].is_empty(), "{:?}", world.problems[&id]);
    // Each for itself can be told apart, and both together cannot.
    permit(&mut world, "other", 8..16);
    assert!(world.has[&id].is_same(&before));
    let told = world.problems[&id].join(" ");
    assert!(told.contains("who may call p-0") && told.contains("overlap"), "{told}");
    permit(&mut world, "other", 8..9);
    assert!(world.problems[&id].is_empty(), "{:?}", world.problems[&id]);
    assert!(!world.has[&id].is_same(&before));
}
