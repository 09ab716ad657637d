//! What is accepted and has no effect: said to the author where one resource shows it, and always among the problems of
//! a proxy it is for.

use std::collections::BTreeSet;

use common::policy::ineffective;

use super::fixture::{Fixture, documents, resource};

/// Two proxies in a mesh with mutual TLS, and what of it a case may replace.
const AROUND: &str = "
type: Dataplane
mesh: demo
name: client
networking:
  address: 127.0.0.10
  inbound: [{ port: 3000, servicePort: 13000, tags: { kuma.io/service: client, kuma.io/protocol: http } }]
  outbound:
    - { port: 20001, tags: { kuma.io/service: server } }
    - { port: 20002, tags: { kuma.io/service: store } }
---
type: Dataplane
mesh: demo
name: server
networking:
  address: 127.0.0.11
  inbound:
    - { port: 8080, servicePort: 18080, tags: { kuma.io/service: server, kuma.io/protocol: http } }
    - { port: 6379, servicePort: 16379, tags: { kuma.io/service: store, kuma.io/protocol: tcp } }
";
const SECURE: &str = "
type: Mesh
name: demo
mtls: { enabledBackend: ca-1, backends: [{ name: ca-1, type: builtin }] }
";
/// With a route of the older generation, without which the others about calls have no effect.
const ROUTED: &str = "
type: Mesh
name: demo
mtls: { enabledBackend: ca-1, backends: [{ name: ca-1, type: builtin }] }
---
type: TrafficRoute
mesh: demo
name: all
sources: [{ match: { kuma.io/service: '*' } }]
destinations: [{ match: { kuma.io/service: '*' } }]
conf: { destination: { kuma.io/service: '*' } }
";
/// With metrics as the older generation offers them.
const MEASURED: &str = "
type: Mesh
name: demo
metrics: { enabledBackend: m, backends: [{ name: m, type: prometheus }] }
";
const PLAIN: &str = "
type: Mesh
name: demo
";

/// One thing without effect.
struct Case {
    mesh: &'static str,
    resource: &'static str,
    /// Part of what the author is told; nothing where it depends on other resources.
    author: Option<&'static str>,
    /// Part of a problem of a proxy.
    proxy: &'static str,
}

impl Case {
    /// What is the same for author and proxy.
    const fn of(resource: &'static str, told: &'static str) -> Self {
        Self { mesh: SECURE, resource, author: Some(told), proxy: told }
    }

    /// What only a proxy tells, since it depends on other resources.
    const fn there(resource: &'static str, told: &'static str) -> Self {
        Self { mesh: SECURE, resource, author: None, proxy: told }
    }

    const fn in_mesh(self, mesh: &'static str) -> Self {
        Self { mesh, ..self }
    }
}

/// The top of a policy of the newer generation, with its spec to follow.
macro_rules! newer {
    ($kind:literal, $spec:literal) => {
        concat!("type: ", $kind, "\nmesh: demo\nname: odd\nspec: ", $spec)
    };
}

/// A policy of the older generation for all calls.
macro_rules! older {
    ($kind:literal, $conf:literal) => {
        concat!(
            "type: ",
            $kind,
            "\nmesh: demo\nname: odd\nsources: [{match: {kuma.io/service: '*'}}]\n\
             destinations: [{match: {kuma.io/service: '*'}}]\n",
            $conf
        )
    };
}

static CASES: &[Case] = &[
    Case::of(
        newer!(
            "MeshAccessLog",
            "{to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /tmp/a, format: {type: Plain, plain: '%NOBODY_KNOWS%'}}}]}}]}"
        ),
        "NOBODY_KNOWS is no placeholder here",
    ),
    Case::there(
        newer!(
            "MeshAccessLog",
            "{to: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: '127.0.0.1:9000'}}]}}]}"
        ),
        "nobody beside the proxy passes lines on",
    ),
    Case::there(
        newer!(
            "MeshAccessLog",
            "{to: [{targetRef: {kind: Mesh}, default: {backends: [{type: OpenTelemetry, openTelemetry: {backendRef: {kind: MeshOpenTelemetryBackend, name: nobody}}}]}}]}"
        ),
        "MeshAccessLog: a OpenTelemetry backend for",
    ),
    Case::of(
        newer!(
            "MeshTrace",
            "{default: {backends: [{type: Zipkin, zipkin: {url: 'http://zipkin.example:9411'}}]}}"
        ),
        "has no path, and Zipkin needs one",
    ),
    Case::there(
        newer!(
            "MeshTrace",
            "{default: {backends: [{type: OpenTelemetry, openTelemetry: {backendRef: {kind: MeshOpenTelemetryBackend, name: nobody}}}]}}"
        ),
        "MeshTrace: nothing is traced",
    ),
    Case::there(
        newer!(
            "MeshMetric",
            "{default: {backends: [{type: OpenTelemetry, openTelemetry: {endpoint: 'collector:4317'}}]}}"
        ),
        "no collector is told metrics",
    ),
    Case::there(
        newer!(
            "MeshMetric",
            "{default: {backends: [{type: Prometheus, prometheus: {port: 8080, path: /m}}]}}"
        ),
        "the port is taken",
    ),
    Case::of(
        newer!(
            "MeshHealthCheck",
            "{to: [{targetRef: {kind: Mesh}, default: {http: {path: \"/a\\nb\", requestHeadersToAdd: {set: [{name: host, value: a}]}}}}]}"
        ),
        "is no path",
    ),
    Case::of(
        newer!(
            "MeshHealthCheck",
            "{to: [{targetRef: {kind: Mesh}, default: {http: {requestHeadersToAdd: {set: [{name: host, value: a}]}}}}]}"
        ),
        "the header \"host\" is left out: it is none",
    ),
    Case::of(
        newer!(
            "MeshRateLimit",
            "{targetRef: {kind: Dataplane}, rules: [{default: {local: {http: {requestRate: {num: 5, interval: 10s}, onRateLimit: {status: 430}}}}}]}"
        ),
        "Envoy knows no status 430",
    ),
    Case::of(
        newer!(
            "MeshRateLimit",
            "{targetRef: {kind: Dataplane}, rules: [{default: {local: {http: {requestRate: {num: 5, interval: 10s}, onRateLimit: {headers: {add: [{name: host, value: a}]}}}}}}]}"
        ),
        "the header \"host\" is left out: it is none",
    ),
    Case::of(
        newer!(
            "MeshRateLimit",
            "{targetRef: {kind: Dataplane}, rules: [{matches: [{sni: {type: Exact, value: web.example}}], default: {local: {tcp: {connectionRate: {num: 1, interval: 1s}}}}}]}"
        ),
        "a limit on connections is left out",
    ),
    Case::of(
        newer!(
            "MeshLoadBalancingStrategy",
            "{to: [{targetRef: {kind: Mesh}, default: {loadBalancer: {type: RingHash, ringHash: {minRingSize: 10, maxRingSize: 5}}}}]}"
        ),
        "no ring has such a size",
    ),
    Case::of(
        newer!(
            "MeshLoadBalancingStrategy",
            "{to: [{targetRef: {kind: Mesh}, default: {loadBalancer: {type: Maglev, maglev: {tableSize: 10}}}}]}"
        ),
        "tableSize 10 is left out: it is not a prime number",
    ),
    Case::there(
        newer!("MeshTLS", "{targetRef: {kind: Dataplane}, rules: [{default: {mode: Strict}}]}"),
        "has no effect, because the mesh has no mutual TLS",
    )
    .in_mesh(PLAIN),
    Case::there(
        newer!("MeshTrafficPermission", "{from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]}"),
        "has no effect, because the proxy has no identity for mutual TLS: everybody is let in",
    )
    .in_mesh(PLAIN),
    Case::of(
        newer!(
            "MeshHTTPRoute",
            "{to: [{targetRef: {kind: MeshService, name: server}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], default: {backendRefs: [{kind: MeshService, name: server, weight: 0}]}}]}]}"
        ),
        "all of its backends have the weight 0",
    ),
    Case::there(
        newer!(
            "MeshHTTPRoute",
            "{to: [{targetRef: {kind: MeshService, name: server}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], default: {backendRefs: [{kind: MeshMultiZoneService, name: nobody, port: 80}]}}]}]}"
        ),
        "it does not exist, or is of a kind not supported",
    ),
    Case::there(
        newer!("MeshPassthrough", "{default: {passthroughMode: None}}"),
        "has no effect, because the traffic of this proxy's workload is not redirected to it",
    ),
    Case::there(
        newer!(
            "MeshProxyPatch",
            "{default: {appendModifications: [{cluster: {operation: Patch, match: {name: server}, value: 'nobody_knows: 1'}}]}}"
        ),
        "MeshProxyPatch: modification 0 of",
    ),
    Case::there(older!("TrafficPermission", ""), "has no effect, because the proxy has no identity for mutual TLS: everybody is let in")
        .in_mesh(PLAIN),
    Case::there(older!("Timeout", "conf: {connectTimeout: 1s}"), "there is no TrafficRoute in the mesh"),
    Case::there(older!("Retry", "conf: {http: {numRetries: 1}}"), "there is no TrafficRoute in the mesh"),
    Case::there(
        older!("CircuitBreaker", "conf: {detectors: {totalErrors: {}}}"),
        "there is no TrafficRoute in the mesh",
    ),
    Case::there(older!("TrafficLog", "conf: {backend: nobody}"), "there is no TrafficRoute in the mesh"),
    Case::of(
        older!(
            "HealthCheck",
            "conf: {interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, http: {path: \"/a\\nb\"}}"
        ),
        "is no path",
    ).in_mesh(ROUTED),
    Case::of(
        older!("RateLimit", "conf: {http: {requests: 1, interval: 0.01s}}"),
        "has an interval below 50ms",
    ),
    Case::of(
        "type: ProxyTemplate\nmesh: demo\nname: odd\nselectors: [{match: {kuma.io/service: '*'}}]\n\
         conf: {imports: [ingress-proxy]}",
        "not import default-proxy, which its proxies get all the same",
    ),
    Case::there(
        "type: TrafficTrace\nmesh: demo\nname: odd\nselectors: [{match: {kuma.io/service: '*'}}]\nconf: {backend: nobody}",
        "the mesh has no tracing backend of this name",
    ),
    Case::of(
        "type: Mesh\nname: demo\nmetrics: {backends: [{name: m, type: prometheus}]}",
        ineffective::METRICS_OF_MESH,
    )
    .in_mesh(""),
    Case::there(
        "type: Dataplane\nmesh: demo\nname: third\nmetrics: {name: m, type: prometheus}\n\
         networking: {address: 127.0.0.12, inbound: [{port: 80, tags: {kuma.io/service: third}}]}",
        "'metrics' of the dataplane has no effect",
    ),
    Case::there(
        "type: MeshMetric\nmesh: demo\nname: everybody\nspec: {default: {backends: [{type: Prometheus, prometheus: {}}]}}",
        "'metrics' has no effect, because a MeshMetric is for the proxy",
    )
    .in_mesh(MEASURED),
    Case::there(
        "type: Dataplane\nmesh: demo\nname: third\nmetrics: {type: prometheus, conf: {port: 80}}\n\
         networking: {address: 127.0.0.12, inbound: [{port: 80, tags: {kuma.io/service: third}}]}",
        "nobody is answered who asks for metrics on port 80: the port is taken",
    )
    .in_mesh(MEASURED),
];

/// A newer policy about the same, and an older one that loses against it.
static OVERRIDDEN: &[(&str, &str)] = &[
    (
        older!("Timeout", "conf: {connectTimeout: 1s}"),
        newer!("MeshTimeout", "{to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 2s}}]}"),
    ),
    (
        older!("Retry", "conf: {http: {numRetries: 1}}"),
        newer!("MeshRetry", "{to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 2}}}]}"),
    ),
    (
        older!(
            "HealthCheck",
            "conf: {interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1}"
        ),
        newer!("MeshHealthCheck", "{to: [{targetRef: {kind: Mesh}, default: {tcp: {}}}]}"),
    ),
    (
        older!("TrafficPermission", ""),
        newer!("MeshTrafficPermission", "{from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}"),
    ),
    (
        older!("RateLimit", "conf: {http: {requests: 1, interval: 10s}}"),
        newer!(
            "MeshRateLimit",
            "{targetRef: {kind: Dataplane}, rules: [{default: {local: {http: {requestRate: {num: 5, interval: 10s}}}}}]}"
        ),
    ),
    (
        "type: TrafficTrace\nmesh: demo\nname: odd\nselectors: [{match: {kuma.io/service: '*'}}]\nconf: {backend: spans}",
        newer!(
            "MeshTrace",
            "{default: {backends: [{type: Zipkin, zipkin: {url: 'http://a.example:9411/api'}}]}}"
        ),
    ),
];

fn problems(documents: &[&str]) -> BTreeSet<String> {
    let fixture = Fixture::parse(&documents.join("\n---\n"));
    let all = fixture.generate();
    all.values().flat_map(|generated| generated.problems.iter().map(ToString::to_string)).collect()
}

#[test]
fn whatever_has_no_effect_says_so() {
    let mut silent = Vec::new();
    for case in CASES {
        let subject = &documents(case.resource)[0];
        let told = match resource(subject) {
            Ok(resource) => ineffective::of(&resource),
            Err(refused) => {
                silent.push(format!("{}: refused: {refused}", case.resource));
                continue;
            }
        };
        let at_apply = match case.author {
            Some(expected) => told.iter().any(|text| text.contains(expected)),
            None => told.is_empty(),
        };
        if !at_apply {
            silent.push(format!("{}: the author is told {told:?}", case.resource));
        }
        let found = problems(&[AROUND, case.mesh, case.resource]);
        if !found.iter().any(|problem| problem.contains(case.proxy)) {
            silent.push(format!("{}: the proxies tell {found:?}", case.resource));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn an_older_policy_that_a_newer_one_replaces_says_so() {
    const TRACED: &str = "
type: Mesh
name: demo
mtls: { enabledBackend: ca-1, backends: [{ name: ca-1, type: builtin }] }
tracing: { backends: [{ name: spans, type: zipkin, conf: { url: 'http://a.example:9411/api' } }] }
---
type: TrafficRoute
mesh: demo
name: all
sources: [{ match: { kuma.io/service: '*' } }]
destinations: [{ match: { kuma.io/service: '*' } }]
conf: { destination: { kuma.io/service: '*' } }
";
    for (older, newer) in OVERRIDDEN {
        let kind = documents(older)[0]["type"].as_str().unwrap().to_owned();
        let successor = documents(newer)[0]["type"].as_str().unwrap().to_owned();
        let alone = problems(&[AROUND, TRACED, older]);
        let both = problems(&[AROUND, TRACED, older, newer]);
        let says = |all: &BTreeSet<String>| {
            all.iter().any(|problem| {
                problem.starts_with(&kind) && problem.contains(&format!("a {successor} is for"))
            })
        };
        assert!(!says(&alone), "{kind}: {alone:?}");
        assert!(says(&both), "{kind}: {both:?}");
    }
}

#[test]
fn what_has_its_effect_is_not_warned_of() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/policies");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        for document in documents(&std::fs::read_to_string(&path).unwrap()) {
            let told = ineffective::of(&resource(&document).unwrap());
            assert!(told.is_empty(), "{}: {told:?}", path.display());
        }
    }
}
