//! What happens to edges of the mesh, and between it and another mesh, at random.

use common::model::ResourceKey;
use rand::Rng;

use super::{PROXIES, World, identities::identity};

const MTLS: &str = "mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}";

impl World {
    /// One random change of them.
    pub(super) fn change_zones(&mut self, n: usize, one: &str, who: usize) {
        match self.rng.random_range(0..12_u32) {
            0..=2 => {
                let listener = ["ZoneIngress", "ZoneEgress"][n % 2];
                let inbound = format!("inbound: [{{port: 80, tags: {{kuma.io/service: {one}}}}}], ");
                let inbound = if n.is_multiple_of(5) { "" } else { &inbound };
                let state = ["Ready", "Ready", "NotReady"][n % 3];
                let yaml = format!(
                    "{{type: Dataplane, mesh: default, name: p-{who}, networking: {{address: 127.0.0.{}, {inbound}listeners: \
                     [{{type: {listener}, address: 127.0.0.{}, port: {}, name: edge, state: {state}}}]}}}}",
                    who + 1,
                    who + 1,
                    10_001 + n % 2
                );
                self.put(&yaml, "east");
            }
            3 | 4 => {
                let zone = ["west", "west", "east"][n % 3];
                let yaml = format!(
                    "{{type: MeshZoneAddress, mesh: default, name: {zone}-{}, labels: {{kuma.io/zone: {zone}}}, spec: \
                     {{address: 10.0.3.{n}, port: {}}}}}",
                    n % 2,
                    n + 1
                );
                self.put(&yaml, zone);
            }
            5 => {
                let listener = format!("{{port: {}, protocol: HTTP, crossMesh: true}}", 9000 + n % 2);
                let yaml = format!(
                    "{{type: MeshGateway, mesh: other, name: there, selectors: [{{match: {{kuma.io/service: there}}}}], conf: \
                     {{listeners: [{listener}, {{port: 7, protocol: HTTP}}]}}}}"
                );
                self.put(&yaml, "");
            }
            6 => {
                let yaml = format!(
                    "{{type: Dataplane, mesh: other, name: q-{}, networking: {{address: 127.0.2.{}, gateway: {{type: BUILTIN, \
                     tags: {{kuma.io/service: {}}}}}}}}}",
                    n % 2,
                    n + 1,
                    ["there", "there", "elsewhere"][n % 3]
                );
                self.put(&yaml, "east");
            }
            7 => {
                let yaml = format!(
                    "{{type: MeshGateway, mesh: default, name: edge, selectors: [{{match: {{kuma.io/service: edge}}}}], conf: \
                     {{listeners: [{{port: 8080, protocol: HTTP, crossMesh: {}, hostname: in.mesh}}]}}}}",
                    !n.is_multiple_of(3)
                );
                self.put(&yaml, "");
            }
            8 => {
                let mtls = [MTLS, "mtls: {}"][usize::from(n == 3)];
                if n % 5 == 4 {
                    let kind = &common::model::kinds::mesh::KIND;
                    return self.apply(ResourceKey::new(kind, "", "other"), None);
                }
                self.put(&format!("{{type: Mesh, name: other, {mtls}}}"), "");
            }
            9 => {
                let domain = ["other.east.mesh.local", "default.west.mesh.local", "elsewhere"][n % 3];
                self.put_trust_in("other", n % 2, domain, "");
            }
            10 => {
                let state = ["True", "True", "False"][n % 3];
                let given = identity(n % 2, "{}", state).replace("mesh: default", "mesh: other");
                self.put(&given, "east");
            }
            _ => {
                let gone = [
                    ("MeshZoneAddress", "default", "west-0".to_owned()),
                    ("MeshGateway", "other", "there".to_owned()),
                    ("Dataplane", "other", format!("q-{}", n % 2)),
                    ("Dataplane", "default", format!("p-{}", n % PROXIES)),
                    ("MeshZoneAddress", "default", "west-1".to_owned()),
                    ("MeshTrust", "other", format!("mid-{}", n % 2)),
                    ("MeshIdentity", "other", format!("mid-{}", n % 2)),
                ];
                let (kind, mesh, name) = &gone[n % gone.len()];
                let kind = common::registry::by_name(kind).unwrap();
                self.apply(ResourceKey::new(kind, mesh, name), None);
            }
        }
    }
}
