//! Builtin gateways come, change and go, with their routes and certificates.

use std::sync::LazyLock;

use chrono::DateTime;
use common::{
    model::{
        Resource, ResourceKey,
        kinds::{mesh_gateway, mesh_gateway_route, secret},
    },
    policy::{mesh_http_route, mesh_retry},
    tls::KeyPairPem,
    token,
};
use rand::Rng;

use super::World;

/// Made once: it takes long.
static CERTIFICATES: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["a.example.com", "b.example.com"].map(|host| {
        let pair = KeyPairPem::self_signed(&[host.to_owned()]).unwrap();
        format!("{}{}", pair.certificate, pair.key)
    })
});

impl World {
    /// One random change of them.
    pub(super) fn change_gateways(&mut self, n: usize, one: &str, other: &str) {
        match self.rng.random_range(0..10_u32) {
            0 | 1 => {
                let (proxy, last, service) = (n % 2, n % 3 + 1, ["edge", "edge", "other"][n % 3]);
                self.put(
                    &format!(
                        "{{type: Dataplane, mesh: default, name: p-{proxy}, networking: {{address: 127.0.1.{last}, \
                         gateway: {{type: BUILTIN, tags: {{kuma.io/service: {service}}}}}}}}}"
                    ),
                    "east",
                );
            }
            2 | 3 => self.put_gateway(n),
            4 => {
                let key = ResourceKey::new(&secret::SECRET, "default", "edge-certificate");
                let held = Resource::new(key.clone(), DateTime::UNIX_EPOCH)
                    .with_spec(token::secret_spec(CERTIFICATES[n % 2].as_bytes()));
                self.apply(key, (!n.is_multiple_of(3)).then_some(held));
            }
            5 | 6 => self.put_gateway_route(n, one, other),
            7 => {
                let tags = ["", ", tags: {host: a}", ", tags: {host: b}"][n % 3];
                self.put(
                    &format!(
                        "{{type: MeshRetry, mesh: default, name: of-edge-{}, spec: {{targetRef: {{kind: MeshGateway, \
                         name: edge{tags}}}, to: [{{targetRef: {{kind: Mesh}}, default: {{http: {{numRetries: {n}}}, \
                         tcp: {{maxConnectAttempt: {}}}}}}}]}}}}",
                        n % 2,
                        n + 1
                    ),
                    "",
                );
            }
            _ => {
                let (kind, name) = match n % 4 {
                    0 => (&mesh_gateway::KIND, "edge".to_owned()),
                    1 => (&mesh_gateway_route::KIND, format!("older-{}", n % 2)),
                    2 => (&mesh_http_route::KIND, format!("of-edge-{}", n % 2)),
                    _ => (&mesh_retry::KIND, format!("of-edge-{}", n % 2)),
                };
                self.apply(ResourceKey::new(kind, "default", &name), None);
            }
        }
    }

    fn put_gateway(&mut self, n: usize) {
        let terminated = "tls: {mode: TERMINATE, certificates: [{secret: edge-certificate}]}";
        let listeners = [
            format!("{{port: {}, protocol: HTTP, tags: {{host: a}}}}", 8080 + n % 2),
            format!(
                "{{port: 443, protocol: HTTPS, hostname: a.example.com, tags: {{host: a}}, {terminated}}}"
            ),
            format!(
                "{{port: 443, protocol: HTTPS, hostname: b.example.com, tags: {{host: b}}, {terminated}}}"
            ),
            "{port: 6379, protocol: TCP, tags: {host: b}, resources: {connectionLimit: 7}}".to_owned(),
        ];
        let some: Vec<String> = listeners.into_iter().filter(|_| self.rng.random_bool(0.6)).collect();
        let service = ["edge", "edge", "'*'"][n % 3];
        self.put(
            &format!(
                "{{type: MeshGateway, mesh: default, name: edge, selectors: [{{match: {{kuma.io/service: {service}}}}}], \
                 conf: {{listeners: [{}]}}}}",
                some.join(", ")
            ),
            "",
        );
    }

    fn put_gateway_route(&mut self, n: usize, one: &str, other: &str) {
        let hostnames = ["[]", "[a.example.com]", "['*.example.com', b.example.com]"][n % 3];
        let name = n % 2;
        let route = match self.rng.random_range(0..4_u32) {
            0 => format!(
                "{{type: MeshGatewayRoute, mesh: default, name: older-{name}, selectors: [{{match: {{kuma.io/service: \
                 edge}}}}], conf: {{http: {{hostnames: {hostnames}, rules: [{{matches: [{{path: {{match: PREFIX, value: \
                 /}}}}], backends: [{{weight: 1, destination: {{kuma.io/service: {one}}}}}]}}]}}}}}}"
            ),
            1 => format!(
                "{{type: MeshGatewayRoute, mesh: default, name: older-{name}, selectors: [{{match: {{kuma.io/service: \
                 '*', host: b}}}}], conf: {{tcp: {{rules: [{{backends: [{{weight: 1, destination: {{kuma.io/service: \
                 {one}}}}}]}}]}}}}}}"
            ),
            2 => format!(
                "{{type: MeshTCPRoute, mesh: default, name: bytes, spec: {{targetRef: {{kind: MeshGateway, name: edge}}, \
                 to: [{{targetRef: {{kind: Mesh}}, rules: [{{default: {{backendRefs: [{{kind: MeshService, name: \
                 {other}}}]}}}}]}}]}}}}"
            ),
            _ => format!(
                "{{type: MeshHTTPRoute, mesh: default, name: of-edge-{name}, spec: {{targetRef: {{kind: MeshGateway, name: \
                 edge}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: [{{matches: [{{path: {{type: \
                 PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshService, name: {one}-here, port: 80}}, \
                 {{kind: MeshService, name: {other}}}]}}}}]}}]}}}}"
            ),
        };
        self.put(&route, "");
    }
}
