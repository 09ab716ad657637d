//! What the policies of another zone do to proxies here: something to what they send to that zone, and nothing else.

use std::collections::BTreeMap;

use super::{fixture::Fixture, set};
use crate::generator::ResourceSet;

/// A client that calls a service by its tag, as a resource, and as a resource of the zone `west`, which has services of the
/// same names.
const AROUND: &str = "
type: Mesh
name: demo
mtls: { enabledBackend: ca-1, backends: [{ name: ca-1, type: builtin }] }
---
type: Dataplane
mesh: demo
name: client
labels: { kuma.io/origin: zone, kuma.io/zone: zone-1 }
networking:
  address: 127.0.0.10
  inbound: [{ port: 3000, servicePort: 13000, tags: { kuma.io/service: client, kuma.io/protocol: http } }]
  outbound:
    - { port: 20001, tags: { kuma.io/service: server } }
    - { port: 20002, backendRef: { kind: MeshService, name: server, port: 80 } }
    - { port: 20003, backendRef: { kind: MeshService, name: server-west, port: 80 } }
---
type: Dataplane
mesh: demo
name: server
labels: { kuma.io/origin: zone, kuma.io/zone: zone-1 }
networking:
  address: 127.0.0.11
  inbound: [{ port: 80, servicePort: 18080, tags: { kuma.io/service: server, kuma.io/protocol: http } }]
";

fn services() -> String {
    let of = |name: &str, zone: &str, origin: &str, called: &str| {
        format!(
            "---\ntype: MeshService\nmesh: demo\nname: {called}\nlabels: {{ kuma.io/origin: {origin}, kuma.io/zone: {zone}, \
             kuma.io/display-name: {name}, k8s.kuma.io/namespace: shop }}\nspec:\n  selector: {{ dataplaneTags: {{ \
             kuma.io/service: {name} }} }}\n  ports: [{{ port: 80, targetPort: 80, appProtocol: http }}]\n"
        )
    };
    let both =
        |name: &str| of(name, "zone-1", "zone", name) + &of(name, "west", "global", &format!("{name}-west"));
    both("server") + &both("admin")
}

fn guest(n: usize, kind: &str, to: &str) -> String {
    format!(
        "---\ntype: {kind}\nmesh: demo\nname: p-{n}\nlabels: {{ kuma.io/origin: global, kuma.io/zone: west, \
         kuma.io/policy-role: producer, kuma.io/display-name: p-{n}, k8s.kuma.io/namespace: shop }}\nspec:\n  targetRef: {{ \
         kind: Mesh }}\n  to: [{to}]\n"
    )
}

/// What has nothing to do with the zone `west`.
fn elsewhere(set: &ResourceSet) -> BTreeMap<String, String> {
    let shown =
        set.iter().map(|one| (format!("{} {}", one.type_url, one.name), one.to_json().unwrap().to_string()));
    shown.filter(|(_, json)| !json.contains("west")).collect()
}

#[test]
fn another_zone_reroutes_delays_and_watches_nothing_but_what_is_sent_to_it() {
    let route = "{targetRef: {kind: MeshService, name: server}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], \
                 default: {backendRefs: [{kind: MeshService, name: admin, port: 80}]}}]}";
    let bytes = "{targetRef: {kind: MeshService, name: server}, rules: [{default: {backendRefs: [{kind: MeshService, name: \
                 admin, port: 80}]}}]}";
    let timeout = |name: &str| {
        format!(
            "{{targetRef: {{kind: MeshService, name: {name}}}, default: {{http: {{requestTimeout: 1ms}}}}}}"
        )
    };
    let log = "{targetRef: {kind: MeshService, name: server}, default: {backends: [{type: File, file: {path: /dev/stdout}}]}}";
    let policies = [
        guest(0, "MeshHTTPRoute", route),
        guest(1, "MeshTCPRoute", bytes),
        guest(2, "MeshTimeout", &timeout("server")),
        guest(3, "MeshTimeout", &timeout("server_shop_svc_80")),
        guest(4, "MeshAccessLog", log),
    ];
    let around = AROUND.to_owned() + &services();
    let before = Fixture::parse(&around);
    let after = Fixture::parse(&(around + &policies.concat())).with_identities_of(&before);
    let (before, after) = (set(&before, "client"), set(&after, "client"));
    assert_eq!(elsewhere(&before), elsewhere(&after));

    let all: String = after.iter().map(|one| one.to_json().unwrap().to_string()).collect();
    assert!(all.contains("demo_admin_shop_west_msvc_80"), "its own clients go where it says: {all}");
    assert!(!all.contains("demo_admin_shop_zone-1_msvc_80"), "and to no service of this zone: {all}");
    assert!(all.contains("0.001s"), "they wait as long as it says");
}
