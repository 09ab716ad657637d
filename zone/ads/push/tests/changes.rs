//! What happens in a mesh, at random.

use common::{
    model::ResourceKey,
    policy::{mesh_load_balancing_strategy, mesh_proxy_patch, mesh_timeout, mesh_traffic_permission},
};
use rand::Rng;

use super::{PROXIES, SERVICES, World};

impl World {
    fn service(&mut self) -> &'static str {
        SERVICES[self.rng.random_range(0..SERVICES.len())]
    }

    /// Services of several zones, what they are made of, and what policies say about them.
    fn change_services_of_zones(&mut self, n: usize, one: &str, other: &str) {
        let all = format!("{{kind: MeshMultiZoneService, name: {one}-all, port: 80}}");
        let yaml = match self.rng.random_range(0..7_u32) {
            0..=1 => {
                let wanted =
                    ["kuma.io/zone: west", "team: a", "team: a, kuma.io/zone: east", "team: b"][n % 4];
                format!(
                    "{{type: MeshMultiZoneService, mesh: default, name: {one}-all, labels: {{of: all}}, spec: {{selector: \
                     {{meshService: {{matchLabels: {{{wanted}}}}}}}, ports: [{{port: {}, appProtocol: {}}}]}}}}",
                    [80, 80, 80, 81][n % 4],
                    ["http", "tcp"][n % 2]
                )
            }
            2..=3 => format!(
                "{{type: MeshService, mesh: default, name: {other}-part, labels: {{kuma.io/zone: {}, team: {}}}, spec: \
                 {{state: {}, selector: {{dataplaneTags: {{kuma.io/service: {one}}}}}, ports: [{{port: 80, targetPort: \
                 80}}], identities: [{{type: ServiceTag, value: {one}}}]}}, status: {{tls: {{status: {}}}}}}}",
                ["east", "west"][n % 2],
                ["a", "b"][n % 2],
                ["Available", "Available", "Unavailable"][n % 3],
                ["Ready", "NotReady"][n % 2]
            ),
            4 => format!(
                "{{type: MeshHTTPRoute, mesh: default, name: zones, spec: {{targetRef: {{kind: Mesh}}, to: [{{targetRef: \
                 {{kind: MeshMultiZoneService, name: {one}-all}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: \
                 /a}}}}], default: {{backendRefs: [{}]}}}}]}}]}}}}",
                all.replace(one, other)
            ),
            5 => format!(
                "{{type: MeshTimeout, mesh: default, name: zones, spec: {{targetRef: {{kind: Mesh}}, to: [{{targetRef: \
                 {{kind: MeshMultiZoneService, name: {one}-all}}, default: {{idleTimeout: {}s}}}}]}}}}",
                n + 1
            ),
            _ => {
                let gone = [
                    ("MeshMultiZoneService", format!("{one}-all")),
                    ("MeshService", format!("{other}-part")),
                    ("MeshHTTPRoute", "zones".to_owned()),
                ];
                let (kind, name) = &gone[n % 3];
                let kind = common::registry::by_name(kind).unwrap();
                return self.apply(ResourceKey::new(kind, "default", name), None);
            }
        };
        self.put(&yaml, ["", "east"][usize::from(yaml.contains("-part"))]);
    }

    /// Somebody wants other logs, traces or metrics, or none.
    fn change_telemetry(&mut self, n: usize, service: &str) {
        let collector =
            ["endpoint: 'a:1'", "endpoint: 'b:2'", "backendRef: {kind: MeshOpenTelemetryBackend, name: c}"];
        let told = format!("{{type: OpenTelemetry, openTelemetry: {{{}}}}}", collector[n % 3]);
        let log = [
            "{type: File, file: {path: /a}}",
            "{type: File, file: {path: /a, format: {type: Plain, plain: b}}}",
            &told,
        ];
        let top = ["Mesh", "MeshSubset, tags: {version: v0}"][n % 2];
        let (kind, name, spec) = match self.rng.random_range(0..6_u32) {
            0 => {
                let to = format!(
                    "{{targetRef: {{kind: MeshService, name: {service}}}, default: {{backends: [{}]}}}}",
                    log[n % 3]
                );
                ("MeshAccessLog", "calls", format!("{{targetRef: {{kind: {top}}}, to: [{to}]}}"))
            }
            1 => {
                let rules = format!("[{{default: {{backends: [{}]}}}}]", log[n % 3]);
                ("MeshAccessLog", "served", format!("{{targetRef: {{kind: {top}}}, rules: {rules}}}"))
            }
            2 => (
                "MeshTrace",
                "spans",
                format!("{{targetRef: {{kind: {top}}}, default: {{backends: [{told}]}}}}"),
            ),
            3 => {
                let asked = format!("{{type: Prometheus, prometheus: {{port: {}}}}}", 80 + n);
                (
                    "MeshMetric",
                    "told",
                    format!("{{targetRef: {{kind: {top}}}, default: {{backends: [{asked}]}}}}"),
                )
            }
            4 => ("MeshOpenTelemetryBackend", "c", format!("{{endpoint: {{address: c, port: {}}}}}", n + 1)),
            _ => {
                let gone = [
                    ("MeshAccessLog", "calls"),
                    ("MeshAccessLog", "served"),
                    ("MeshTrace", "spans"),
                    ("MeshMetric", "told"),
                    ("MeshOpenTelemetryBackend", "c"),
                ][n % 5];
                let kind = common::registry::by_name(gone.0).unwrap();
                return self.apply(ResourceKey::new(kind, "default", gone.1), None);
            }
        };
        self.put(&format!("{{type: {kind}, mesh: default, name: {name}, spec: {spec}}}"), "");
    }

    /// One random change of the kinds that happen.
    pub(super) fn change(&mut self) {
        let n = self.rng.random_range(0..10_usize);
        let (one, other) = (self.service(), self.service());
        let who = self.rng.random_range(0..PROXIES + 2);
        match self.rng.random_range(0..60_u32) {
            50..=53 => self.change_identities(n, one, other),
            54..=59 => self.change_zones(n, one, who),
            29..=33 => self.change_gateways(n, one, other),
            34..=38 => self.change_outside(n, one),
            39..=45 => self.change_legacy(n, one, other),
            46..=49 => self.change_addresses(n, one, other, who),
            23..=25 => self.change_telemetry(n, one),
            26..=28 => self.change_services_of_zones(n, one, other),
            12 => {
                let zone = ["", "labels: {kuma.io/zone: west}, "][n % 2];
                let yaml = format!(
                    "{{type: MeshService, mesh: default, name: {one}-here, {zone}spec: {{selector: {{dataplaneTags: \
                     {{kuma.io/service: {other}}}}}, ports: [{{port: {}, appProtocol: http}}]}}}}",
                    [80, 80, 81][n % 3]
                );
                self.put(&yaml, "east");
            }
            13 => {
                let kind = &common::model::kinds::mesh_service::KIND;
                self.apply(ResourceKey::new(kind, "default", &format!("{one}-here")), None);
            }
            14 => {
                let route = format!(
                    "{{type: MeshTCPRoute, mesh: default, name: bytes, spec: {{targetRef: {{kind: {}}}, to: [{{targetRef: \
                     {{kind: MeshService, name: {one}}}, rules: [{{default: {{backendRefs: [{{kind: MeshService, name: \
                     {other}-here, port: 80}}]}}}}]}}]}}}}",
                    ["Mesh", "Dataplane", "Mesh, proxyTypes: [Sidecar]"][n % 3]
                );
                self.put(&route, "");
            }
            15 => {
                let top = [
                    "{kind: MeshSubset, tags: {version: v0}}".to_owned(),
                    format!("{{kind: Dataplane, name: p-{who}}}"),
                    format!("{{kind: MeshService, name: {one}}}"),
                    "{kind: Mesh}".to_owned(),
                ];
                let timeout = format!(
                    "{{type: MeshTimeout, mesh: default, name: some-{}, spec: {{targetRef: {}, to: [{{targetRef: {{kind: \
                     MeshService, name: {other}}}, default: {{connectionTimeout: {}s}}}}]}}}}",
                    n % 2,
                    top[n % 4],
                    n + 1
                );
                self.put(&timeout, "");
            }
            16 => {
                let permission = format!(
                    "{{type: MeshTrafficPermission, mesh: default, name: who-{}, spec: {{targetRef: {}, from: \
                     [{{targetRef: {{kind: MeshSubset, tags: {{kuma.io/service: {other}}}}}, default: {{action: {}}}}}]}}}}",
                    n % 2,
                    ["{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}"][n % 2],
                    ["Allow", "Deny", "AllowWithShadowDeny"][n % 3]
                );
                self.put(&permission, "");
            }
            21 | 22 => self.put_nearness(one, n),
            20 => self.put_patch(one, n),
            17 => {
                let (kind, name) = match n % 4 {
                    0 => (&mesh_timeout::KIND, format!("some-{}", who % 2)),
                    1 => (&mesh_load_balancing_strategy::KIND, format!("near-{}", who % 2)),
                    2 => (&mesh_proxy_patch::KIND, format!("patch-{}", who % 2)),
                    _ => (&mesh_traffic_permission::KIND, format!("who-{}", who % 2)),
                };
                self.apply(ResourceKey::new(kind, "default", &name), None);
            }
            18 | 19 => self.change_limits(n, one, other, who),
            0..=5 => {
                let protocol = ["http", "tcp", "grpc"][n % 3];
                let state = ["Ready", "Ready", "NotReady"][n % 3];
                let yaml = format!(
                    "{{type: Dataplane, mesh: default, name: p-{who}, networking: {{address: 127.0.0.{}, inbound: \
                     [{{port: 80, servicePort: 8080, state: {state}, tags: {{kuma.io/service: {one}, version: v{}, \
                     kuma.io/protocol: {protocol}}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: {other}}}}}, \
                     {{port: 2, tags: {{kuma.io/service: web, version: v1}}}}, \
                     {{port: 3, backendRef: {{kind: MeshService, name: {one}-here, port: 80}}}}, \
                     {{port: 4, backendRef: {{kind: MeshService, name: far, port: 80}}}}, \
                     {{port: 5, backendRef: {{kind: MeshMultiZoneService, name: {one}-all, port: 80}}}}, \
                     {{port: 6, backendRef: {{kind: MeshMultiZoneService, labels: {{of: all}}, port: 80}}}}, \
                     {{port: 7, tags: {{kuma.io/service: ext}}}}, \
                     {{port: 8, backendRef: {{kind: MeshExternalService, name: mes-0}}}}]}}}}",
                    who + 1,
                    n % 2
                );
                self.put(&yaml, "east");
            }
            6 => {
                let name = format!("p-{who}");
                let kind = &common::model::kinds::dataplane::KIND;
                self.apply(ResourceKey::new(kind, "default", &name), None);
            }
            7 => {
                let split = format!(
                    "{{type: MeshHTTPRoute, mesh: default, name: split, spec: {{targetRef: {{kind: Mesh}}, to: \
                     [{{targetRef: {{kind: MeshService, name: {one}}}, rules: [{{matches: [{{path: {{type: \
                     PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshService, name: {other}, \
                     weight: 1}}, {{kind: MeshServiceSubset, name: web, tags: {{version: v0}}, weight: 1}}]}}}}]}}]}}}}"
                );
                self.put(&split, "");
            }
            8 => {
                let ingress = format!(
                    "{{type: ZoneIngress, name: west-in, zone: west, networking: {{address: 10.0.0.1, port: 1, \
                     advertisedAddress: 10.0.0.1, advertisedPort: {}}}, availableServices: [{{mesh: default, \
                     instances: 1, tags: {{kuma.io/service: {one}, kuma.io/zone: west}}}}]}}",
                    n + 1
                );
                self.put(&ingress, "west");
            }
            9 => {
                let insight = format!(
                    "{{type: DataplaneInsight, mesh: default, name: p-{who}, mTLS: {{issuedBackend: {}}}}}",
                    ["''", "ca-1"][n % 2]
                );
                self.put(&insight, "east");
            }
            10 => {
                let seconds = format!(
                    "{{type: MeshTimeout, mesh: default, name: all, spec: {{targetRef: {{kind: Mesh}}, to: \
                     [{{targetRef: {{kind: Mesh}}, default: {{idleTimeout: {}s}}}}]}}}}",
                    n + 1
                );
                self.put(&seconds, "");
            }
            _ => {
                let mtls = [
                    "{type: Mesh, name: default}",
                    "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}, \
                      tracing: {defaultBackend: a, backends: [{name: a, type: zipkin, conf: {url: 'http://z:1/a'}}]}, \
                      logging: {defaultBackend: a, backends: [{name: a, type: file, conf: {path: /a}}]}}",
                    "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin, mode: PERMISSIVE}]}, \
                      metrics: {enabledBackend: m, backends: [{name: m, type: prometheus}]}}",
                ];
                let mode = ["Everywhere", "Exclusive", "ReachableBackends"][who % 3];
                let mesh = mtls[n % 3].trim_end_matches('}');
                let open = mtls[n % 3].len() - mesh.len() - 1;
                self.put(&format!("{mesh}{}, meshServices: {{mode: {mode}}}}}", "}".repeat(open)), "");
            }
        }
    }

    /// Something is changed in what has been made for some proxies.
    fn put_patch(&mut self, service: &str, n: usize) {
        let change = [
            format!("cluster: {{operation: Patch, match: {{name: {service}}}, value: 'connectTimeout: {}s'}}", n + 1),
            "listener: {operation: Remove, match: {origin: outbound, tags: {version: v1}}}".to_owned(),
            "listener: {operation: Patch, match: {origin: inbound}, value: 'perConnectionBufferLimitBytes: 7'}".to_owned(),
            format!("cluster: {{operation: Remove, match: {{name: {service}}}}}"),
            "cluster: {operation: Add, value: '{name: more, type: STATIC}'}".to_owned(),
            "cluster: {operation: Patch, jsonPatches: [{op: replace, path: /none, value: 1}]}".to_owned(),
        ];
        let top = ["{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}", "{kind: Dataplane, name: p-1}"];
        let policy = format!(
            "{{type: MeshProxyPatch, mesh: default, name: patch-{}, spec: {{targetRef: {}, default: {{appendModifications: \
             [{{{}}}]}}}}}}",
            n % 2,
            top[self.rng.random_range(0..3)],
            change[self.rng.random_range(0..6)]
        );
        self.put(&policy, "");
    }

    /// Which endpoints of `service` are near.
    fn put_nearness(&mut self, service: &str, n: usize) {
        let locality = [
            "localZone: {affinityTags: [{key: version}]}",
            "localZone: {affinityTags: [{key: version}, {key: kuma.io/protocol}]}, crossZone: {failover: [{to: {type: Any}}]}",
            "crossZone: {failover: [{from: {zones: [east]}, to: {type: AnyExcept, zones: [west]}}]}",
            "disabled: true",
            "{}",
        ];
        let locality = match locality[n % 5] {
            "{}" => "loadBalancer: {type: Random}".to_owned(),
            said => format!("localityAwareness: {{{said}}}"),
        };
        let top = ["{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}", "{kind: Dataplane, name: p-1}"];
        let to = ["{kind: Mesh}".to_owned(), format!("{{kind: MeshService, name: {service}}}")];
        let policy = format!(
            "{{type: MeshLoadBalancingStrategy, mesh: default, name: near-{}, spec: {{targetRef: {}, to: [{{targetRef: {}, \
             default: {{{locality}}}}}]}}}}",
            n % 2,
            top[self.rng.random_range(0..3)],
            to[self.rng.random_range(0..2)]
        );
        self.put(&policy, "");
    }
}
