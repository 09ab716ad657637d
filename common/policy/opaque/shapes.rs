//! What the specs in [`super`] look like: the members of each and what they hold.

use crate::model::shape::{
    Member,
    Shape::{self, *},
};

const fn must(name: &'static str, shape: &'static Shape) -> Member {
    Member::required(name, shape)
}

const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member::optional(name, shape)
}

const TARGET_REF: Shape = Object(&[
    must(
        "kind",
        &OneOf(&[
            "Mesh",
            "Dataplane",
            "MeshSubset",
            "MeshGateway",
            "MeshService",
            "MeshExternalService",
            "MeshMultiZoneService",
            "MeshServiceSubset",
            "MeshHTTPRoute",
        ]),
    ),
    may("name", &Text),
    may("namespace", &Text),
    may("sectionName", &Text),
    may("mesh", &Text),
    may("tags", &Map(&Text)),
    may("labels", &Map(&Text)),
    may("proxyTypes", &List(&OneOf(&["Sidecar", "Gateway"]))),
]);
const MATCHES: Shape = List(&Object(&[
    may("spiffeID", &Object(&[must("type", &OneOf(&["Exact", "Prefix"])), must("value", &Text)])),
    may("sni", &Object(&[must("type", &OneOf(&["Exact"])), must("value", &Text)])),
]));
const HEADERS: Shape = List(&Object(&[must("name", &Text), must("value", &Text)]));
const CHANGED_HEADERS: Shape = Object(&[may("add", &HEADERS), may("set", &HEADERS)]);

pub(super) static MESH_ACCESS_LOG: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("to", &List(&ACCESS_LOG_PEER)),
    may("from", &List(&ACCESS_LOG_PEER)),
    may("rules", &List(&Object(&[may("matches", &MATCHES), may("default", &ACCESS_LOG)]))),
]);
const ACCESS_LOG_PEER: Shape = Object(&[must("targetRef", &TARGET_REF), may("default", &ACCESS_LOG)]);
const ACCESS_LOG: Shape = Object(&[may(
    "backends",
    &List(&Tagged {
        by: &[("Tcp", "tcp"), ("File", "file"), ("OpenTelemetry", "openTelemetry")],
        members: &[
            may("tcp", &Object(&[must("address", &Text), may("format", &LOG_FORMAT)])),
            may("file", &Object(&[must("path", &Text), may("format", &LOG_FORMAT)])),
            may("openTelemetry", &Object(&[may("endpoint", &Text), may("attributes", &List(&Any))])),
        ],
    }),
)]);
const LOG_FORMAT: Shape = Object(&[
    may("type", &OneOf(&["Plain", "Json"])),
    may("plain", &Text),
    may("json", &List(&Object(&[may("key", &Text), may("value", &Text)]))),
    may("omitEmptyValues", &Flag),
]);

pub(super) static MESH_FAULT_INJECTION: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("to", &List(&FAULT_PEER)),
    may("from", &List(&FAULT_PEER)),
    may("rules", &List(&Object(&[may("matches", &MATCHES), may("default", &FAULTS)]))),
]);
const FAULT_PEER: Shape = Object(&[must("targetRef", &TARGET_REF), may("default", &FAULTS)]);
const FAULTS: Shape = Object(&[may(
    "http",
    &List(&Object(&[
        may("abort", &Object(&[must("httpStatus", &Integer), must("percentage", &IntOrText)])),
        may("delay", &Object(&[must("value", &Duration), must("percentage", &IntOrText)])),
        may("responseBandwidth", &Object(&[must("limit", &Text), must("percentage", &IntOrText)])),
    ])),
)]);

pub(super) static MESH_HEALTH_CHECK: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("to", &List(&Object(&[must("targetRef", &TARGET_REF), may("default", &HEALTH_CHECK)]))),
]);
const HEALTH_CHECK: Shape = Object(&[
    may("interval", &Duration),
    may("timeout", &Duration),
    may("unhealthyThreshold", &Integer),
    may("healthyThreshold", &Integer),
    may("initialJitter", &Duration),
    may("intervalJitter", &Duration),
    may("intervalJitterPercent", &Integer),
    may("healthyPanicThreshold", &IntOrText),
    may("failTrafficOnPanic", &Flag),
    may("noTrafficInterval", &Duration),
    may("eventLogPath", &Text),
    may("alwaysLogHealthCheckFailures", &Flag),
    may("reuseConnection", &Flag),
    may("tcp", &Object(&[may("disabled", &Flag), may("send", &Text), may("receive", &List(&Text))])),
    may(
        "http",
        &Object(&[
            may("disabled", &Flag),
            may("path", &Text),
            may("requestHeadersToAdd", &CHANGED_HEADERS),
            may("expectedStatuses", &List(&Integer)),
        ]),
    ),
    may("grpc", &Object(&[may("disabled", &Flag), may("serviceName", &Text), may("authority", &Text)])),
]);

pub(super) static MESH_LOAD_BALANCING_STRATEGY: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("to", &List(&Object(&[must("targetRef", &TARGET_REF), may("default", &LOAD_BALANCING)]))),
]);
const LOAD_BALANCING: Shape = Object(&[
    may("localityAwareness", &LOCALITY),
    may(
        "loadBalancer",
        &Tagged {
            by: &[("RoundRobin", ""), ("LeastRequest", ""), ("RingHash", ""), ("Random", ""), ("Maglev", "")],
            members: &[
                may(
                    "leastRequest",
                    &Object(&[may("choiceCount", &Integer), may("activeRequestBias", &IntOrText)]),
                ),
                may("ringHash", &RING_HASH),
                may("maglev", &Object(&[may("tableSize", &Integer), may("hashPolicies", &HASH_POLICIES)])),
            ],
        },
    ),
    may("hashPolicies", &HASH_POLICIES),
]);
const LOCALITY: Shape = Object(&[
    may("disabled", &Flag),
    may(
        "localZone",
        &Object(&[may("affinityTags", &List(&Object(&[must("key", &Text), may("weight", &Integer)])))]),
    ),
    may(
        "crossZone",
        &Object(&[
            may("failover", &List(&FAILOVER)),
            may("failoverThreshold", &Object(&[must("percentage", &IntOrText)])),
        ]),
    ),
]);
const FAILOVER: Shape = Object(&[
    may("from", &Object(&[must("zones", &List(&Text))])),
    must(
        "to",
        &Object(&[must("type", &OneOf(&["None", "Only", "Any", "AnyExcept"])), may("zones", &List(&Text))]),
    ),
]);
const RING_HASH: Shape = Object(&[
    may("hashFunction", &OneOf(&["XXHash", "MurmurHash2"])),
    may("minRingSize", &Integer),
    may("maxRingSize", &Integer),
    may("hashPolicies", &HASH_POLICIES),
]);
const HASH_POLICIES: Shape = List(&Tagged {
    by: &[
        ("Header", "header"),
        ("Cookie", "cookie"),
        ("Connection", "connection"),
        ("SourceIP", ""),
        ("QueryParameter", "queryParameter"),
        ("FilterState", "filterState"),
    ],
    members: &[
        may("terminal", &Flag),
        may("header", &Object(&[must("name", &Text)])),
        may("cookie", &Object(&[must("name", &Text), may("ttl", &Duration), may("path", &Text)])),
        may("connection", &Object(&[may("sourceIP", &Flag)])),
        may("queryParameter", &Object(&[must("name", &Text)])),
        may("filterState", &Object(&[must("key", &Text)])),
    ],
});

pub(super) static MESH_METRIC: Shape = Object(&[may("targetRef", &TARGET_REF), may("default", &METRICS)]);
const METRICS: Shape = Object(&[
    may("sidecar", &Object(&[may("includeUnused", &Flag), may("profiles", &METRIC_PROFILES)])),
    may(
        "applications",
        &List(&Object(&[may("name", &Text), may("path", &Text), may("address", &Text), must("port", &Port)])),
    ),
    may(
        "backends",
        &List(&Tagged {
            by: &[("Prometheus", "prometheus"), ("OpenTelemetry", "openTelemetry")],
            members: &[
                may("prometheus", &PROMETHEUS),
                may("openTelemetry", &Object(&[may("endpoint", &Text), may("refreshInterval", &Duration)])),
            ],
        }),
    ),
]);
const METRIC_PROFILES: Shape = Object(&[
    may("appendProfiles", &List(&Object(&[must("name", &OneOf(&["All", "Basic", "None"]))]))),
    may("include", &METRIC_SELECTORS),
    may("exclude", &METRIC_SELECTORS),
]);
const METRIC_SELECTORS: Shape =
    List(&Object(&[must("type", &OneOf(&["Regex", "Prefix", "Exact", "Contains"])), must("match", &Text)]));
const PROMETHEUS: Shape = Object(&[
    may("clientId", &Text),
    may("port", &Port),
    may("path", &Text),
    may("tls", &Object(&[may("mode", &OneOf(&["Disabled", "ProvidedTLS", "ActiveMTLSBackend"]))])),
]);

pub(super) static MESH_PASSTHROUGH: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may(
        "default",
        &Object(&[
            may("passthroughMode", &OneOf(&["All", "Matched", "None"])),
            may("appendMatch", &List(&PASSED_THROUGH)),
        ]),
    ),
]);
const PASSED_THROUGH: Shape = Object(&[
    must("type", &OneOf(&["Domain", "IP", "CIDR"])),
    must("value", &Text),
    may("port", &Port),
    may("protocol", &OneOf(&["tcp", "tls", "grpc", "http", "http2", "mysql"])),
]);

pub(super) static MESH_PROXY_PATCH: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("default", &Object(&[may("appendModifications", &List(&MODIFICATION))])),
]);
const MODIFICATION: Shape = Object(&[
    may("cluster", &MODIFIED),
    may("listener", &MODIFIED),
    may("virtualHost", &MODIFIED),
    may("networkFilter", &MODIFIED_FILTER),
    may("httpFilter", &MODIFIED_FILTER),
]);
const MODIFIED: Shape = Object(&[
    must("operation", &OneOf(&["Add", "Remove", "Patch"])),
    may("match", &Object(&[])),
    may("value", &Text),
    may("jsonPatches", &List(&Object(&[]))),
]);
const MODIFIED_FILTER: Shape = Object(&[
    must("operation", &OneOf(&["Remove", "Patch", "AddFirst", "AddBefore", "AddAfter", "AddLast"])),
    may("match", &Object(&[])),
    may("value", &Text),
    may("jsonPatches", &List(&Object(&[]))),
]);

pub(super) static MESH_RATE_LIMIT: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("to", &List(&RATE_LIMIT_PEER)),
    may("from", &List(&RATE_LIMIT_PEER)),
    may("rules", &List(&Object(&[may("matches", &MATCHES), may("default", &RATE_LIMIT)]))),
]);
const RATE_LIMIT_PEER: Shape = Object(&[must("targetRef", &TARGET_REF), may("default", &RATE_LIMIT)]);
const RATE_LIMIT: Shape =
    Object(&[may("local", &Object(&[may("http", &HTTP_LIMIT), may("tcp", &TCP_LIMIT)]))]);
const HTTP_LIMIT: Shape = Object(&[
    may("disabled", &Flag),
    may("requestRate", &RATE),
    may("onRateLimit", &Object(&[may("status", &Integer), may("headers", &CHANGED_HEADERS)])),
]);
const TCP_LIMIT: Shape = Object(&[may("disabled", &Flag), may("connectionRate", &RATE)]);
const RATE: Shape = Object(&[must("num", &Integer), must("interval", &Duration)]);

pub(super) static MESH_TLS: Shape = Object(&[
    may("targetRef", &TARGET_REF),
    may("from", &List(&Object(&[must("targetRef", &TARGET_REF), may("default", &TLS)]))),
    may("rules", &List(&Object(&[may("default", &TLS)]))),
]);
const TLS: Shape = Object(&[
    may("mode", &OneOf(&["Strict", "Permissive"])),
    may("tlsVersion", &Object(&[may("min", &TLS_VERSION), may("max", &TLS_VERSION)])),
    may("tlsCiphers", &List(&Text)),
]);
const TLS_VERSION: Shape = OneOf(&["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"]);

pub(super) static MESH_TRACE: Shape = Object(&[may("targetRef", &TARGET_REF), may("default", &TRACES)]);
const TRACES: Shape = Object(&[
    may(
        "backends",
        &List(&Tagged {
            by: &[("Zipkin", "zipkin"), ("Datadog", "datadog"), ("OpenTelemetry", "openTelemetry")],
            members: &[
                may("zipkin", &ZIPKIN),
                may("datadog", &Object(&[must("url", &Text), may("splitService", &Flag)])),
                may("openTelemetry", &Object(&[may("endpoint", &Text)])),
            ],
        }),
    ),
    may(
        "sampling",
        &Object(&[may("overall", &IntOrText), may("client", &IntOrText), may("random", &IntOrText)]),
    ),
    may("tags", &List(&TRACE_TAG)),
]);
const ZIPKIN: Shape = Object(&[
    must("url", &Text),
    may("traceId128bit", &Flag),
    may("apiVersion", &OneOf(&["httpJson", "httpProto"])),
    may("sharedSpanContext", &Flag),
]);
const TRACE_TAG: Shape = Object(&[
    must("name", &Text),
    may("literal", &Text),
    may("header", &Object(&[must("name", &Text), may("default", &Text)])),
]);
