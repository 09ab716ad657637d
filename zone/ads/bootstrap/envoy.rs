//! The bootstrap document itself: values in, JSON out.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::request::{BootstrapRequest, FEATURE_DELTA, FEATURE_UNIFIED_NAMES};
use crate::{
    ads::node::ProxyKind,
    generator::{FEATURE_RUNTIME, gateway::LIMITS, runtime::RUNTIME_LAYER},
};

/// Where the admin endpoint of a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address of the endpoint, or of the listener in front of a socket.
    pub address: String,
    /// Port of the endpoint, or of the listener in front of a socket; 0 for no endpoint.
    pub port: u16,
    /// A Unix socket, which the endpoint then uses instead.
    pub socket: Option<String>,
}

/// Everything a bootstrap depends on.
#[derive(Clone, Debug)]
pub(super) struct Params<'a> {
    /// What the proxy asked for.
    pub request: &'a BootstrapRequest,
    /// Value of `node.cluster`.
    pub service: String,
    /// How many connections it takes, where it runs a builtin gateway. Only that has limits.
    pub gateway_connections: Option<u32>,
    /// Where the proxy reaches this control plane.
    pub xds_host: String,
    /// And on which port.
    pub xds_port: u16,
    /// Whether this control plane has no IPv6 address. Envoy would rather use one where a name has it.
    pub ipv4_only: bool,
    /// How long the proxy tries to connect, as a protobuf duration.
    pub connect_timeout: String,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// PEM the proxy verifies this control plane with; `None` leaves it to the machine of the proxy.
    pub ca: Option<String>,
    /// Admin endpoint.
    pub admin: Admin,
    /// File the admin endpoint logs to.
    pub admin_access_log: String,
    /// Whether the proxy is asked how its workload is.
    pub health: bool,
}

/// Names of what the bootstrap defines, which depend on the naming scheme the proxy asked for.
struct BootstrapNames {
    ads: &'static str,
    access_log: &'static str,
}

impl BootstrapNames {
    fn of(request: &BootstrapRequest) -> Self {
        if request.has(FEATURE_UNIFIED_NAMES) {
            Self { ads: "system_ads", access_log: "system_access_log_sink" }
        } else {
            Self { ads: "ads_cluster", access_log: "access_log_sink" }
        }
    }
}

const VALIDATION_SECRET: &str = "cp_validation_ctx";
const TOKEN_SECRET: &str = "cp_token";

/// Whether Envoy itself reads the token from a file.
fn has_credential(request: &BootstrapRequest) -> bool {
    request.dataplane_token_path.is_empty() && !request.credential_file.is_empty()
}

/// The bootstrap of one proxy, members in alphabetical order.
pub(super) fn document(params: &Params<'_>) -> Value {
    let mut document = Map::new();
    if let Some(admin) = admin(params) {
        document.insert("admin".into(), admin);
    }
    document.insert(
        "defaultRegexEngine".into(),
        json!({
            "name": "envoy.regex_engines.google_re2",
            "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.regex_engines.v3.GoogleRE2"},
        }),
    );
    let over_ads = json!({"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"});
    document.insert(
        "dynamicResources".into(),
        json!({"adsConfig": ads(params), "cdsConfig": over_ads, "ldsConfig": over_ads}),
    );
    if params.health {
        document.insert("hdsConfig".into(), health(params));
    }
    document.insert("layeredRuntime".into(), json!({ "layers": runtime(params) }));
    document.insert("node".into(), node(params));
    if let Some(connections) = params.gateway_connections {
        let heap = params.request.resources.max_heap_size_bytes;
        document.insert("overloadManager".into(), overload(connections, heap));
    }
    document.insert("staticResources".into(), statics(params));
    document.insert("statsConfig".into(), json!({"statsTags": stats_tags()}));
    Value::Object(document)
}

fn runtime(params: &Params<'_>) -> Vec<Value> {
    let mut layers = vec![json!({
        "name": "kuma",
        "staticLayer": {
            "re2.max_program_size.error_level": 4_294_967_295_u32,
            "re2.max_program_size.warn_level": 1000,
        },
    })];
    let over_ads = json!({"ads": {}, "resourceApiVersion": "V3"});
    let over_ads = |name: &str| json!({"name": name, "rtdsLayer": {"name": name, "rtdsConfig": over_ads}});
    if params.gateway_connections.is_some() {
        layers.push(over_ads(LIMITS));
    }
    // Over what is there in any case, and before what an operator sets by hand.
    if params.request.has(FEATURE_RUNTIME) && params.request.proxy_type == ProxyKind::Dataplane {
        layers.push(over_ads(RUNTIME_LAYER));
    }
    layers
}

fn admin(params: &Params<'_>) -> Option<Value> {
    let Admin { address, port, socket } = &params.admin;
    let address = match socket {
        Some(path) => json!({"pipe": {"path": path, "mode": 0o600}}),
        None if *port > 0 => json!({"socketAddress": {"address": address, "portValue": port}}),
        None => return None,
    };
    let mut admin = json!({"address": address});
    if !params.admin_access_log.is_empty() {
        admin["accessLog"] = json!([{
            "name": "envoy.access_loggers.file",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": params.admin_access_log,
            },
        }]);
    }
    Some(admin)
}

fn ads(params: &Params<'_>) -> Value {
    json!({
        "apiType": if params.request.has(FEATURE_DELTA) { "DELTA_GRPC" } else { "GRPC" },
        "grpcServices": [service(params)],
        "setNodeOnFirstMessageOnly": true,
        "transportApiVersion": "V3",
    })
}

/// Health is told over one connection with everything else, where there is one.
fn health(params: &Params<'_>) -> Value {
    json!({
        "apiType": "GRPC",
        "grpcServices": [service(params)],
        "setNodeOnFirstMessageOnly": true,
        "transportApiVersion": "V3",
    })
}

fn service(params: &Params<'_>) -> Value {
    if params.request.dataplane_token_path.is_empty() { envoy_grpc(params) } else { google_grpc(params) }
}

fn envoy_grpc(params: &Params<'_>) -> Value {
    let mut service = json!({"envoyGrpc": {"clusterName": BootstrapNames::of(params.request).ads}});
    let token = params.request.dataplane_token.trim();
    if !token.is_empty() && params.request.credential_file.is_empty() {
        service["initialMetadata"] = json!([{"key": "authorization", "value": token}]);
    }
    service
}

/// The client of Google, because only it reads the token from a file again when the file changes.
fn google_grpc(params: &Params<'_>) -> Value {
    let mut tls = json!({});
    if let Some(ca) = &params.ca {
        tls["rootCerts"] = json!({"inlineBytes": STANDARD.encode(ca)});
    }
    let mut service = json!({
        "callCredentials": [{"fromPlugin": {
            "name": "envoy.grpc_credentials.file_based_metadata",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.config.grpc_credential.v3.FileBasedMetadataConfig",
                "secretData": {"filename": params.request.dataplane_token_path},
            },
        }}],
        "channelArgs": {"args": {
            "grpc.http2.max_pings_without_data": {"intValue": "0"},
            "grpc.keepalive_time_ms": {"intValue": "10000"},
            "grpc.keepalive_timeout_ms": {"intValue": "30000"},
            "grpc.max_receive_message_length": {"intValue": "4194304"},
        }},
        "credentialsFactoryName": "envoy.grpc_credentials.file_based_metadata",
        "statPrefix": "ads",
        "targetUri": format!("{}:{}", in_uri(&params.xds_host), params.xds_port),
    });
    if params.tls {
        service["channelCredentials"] = json!({"sslCredentials": tls});
    }
    json!({"googleGrpc": service})
}

fn in_uri(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn node(params: &Params<'_>) -> Value {
    json!({
        "cluster": params.service,
        "id": params.request.proxy().to_string(),
        "metadata": metadata(params),
    })
}

fn metadata(params: &Params<'_>) -> Value {
    let request = params.request;
    let mut metadata = Map::new();
    let mut set = |key: &str, value: Value| {
        metadata.insert(key.to_owned(), value);
    };
    if params.admin.port > 0 {
        set("dataplane.admin.address", params.admin.address.as_str().into());
        set("dataplane.admin.port", params.admin.port.to_string().into());
    }
    if let Some(path) = &params.admin.socket {
        set("dataplane.admin.socketPath", path.as_str().into());
    }
    if request.app_probe_proxy_enabled {
        set("dataplane.appProbeProxy.enabled", "true".into());
    }
    if request.dns_port > 0 {
        set("dataplane.dns.port", request.dns_port.to_string().into());
    }
    set("dataplane.proxyType", request.proxy_type.name().into());
    if request.readiness_port > 0 {
        set("dataplane.readinessReporter.port", request.readiness_port.to_string().into());
    }
    if !request.dataplane_resource.is_empty() {
        set("dataplane.resource", request.dataplane_resource.as_str().into());
    }
    if !request.dynamic_metadata.is_empty() {
        set("dynamicMetadata", json!(request.dynamic_metadata));
    }
    set("features", json!(request.features));
    set("ipv6Enabled", request.ipv6_enabled.into());
    set("metricsCertPath", request.metrics_resources.cert_path.as_str().into());
    set("metricsKeyPath", request.metrics_resources.key_path.as_str().into());
    if let Some(inventory) = &request.otel_env {
        set("otelEnvInventory", inventory.clone());
    }
    set("spireAgent.socketPath", request.spire_resources.socket_path.as_str().into());
    set("systemCaPath", request.system_ca_path.as_str().into());
    if let Some(config) = &request.dataplane_config {
        set("transparentProxy", config.clone());
    }
    set("version", json!({"envoy": request.version.envoy, "kumaDp": request.version.kuma_dp}));
    set("workdir", request.workdir.as_str().into());
    Value::Object(metadata)
}

/// What strangers can make a gateway use: they are not let in any more when it is too much.
fn overload(connections: u32, max_heap: u64) -> Value {
    let monitor = |name: &str, config: Value| json!({"name": format!("envoy.resource_monitors.{name}"), "typedConfig": config});
    let at = |kind: &str| format!("type.googleapis.com/envoy.extensions.resource_monitors.{kind}");
    let downstream = json!({
        "@type": at("downstream_connections.v3.DownstreamConnectionsConfig"),
        "maxActiveDownstreamConnections": connections.to_string(),
    });
    let mut overload = json!({
        "refreshInterval": "0.250s",
        "resourceMonitors": [monitor("global_downstream_max_connections", downstream)],
    });
    if max_heap > 0 {
        let heap =
            json!({"@type": at("fixed_heap.v3.FixedHeapConfig"), "maxHeapSizeBytes": max_heap.to_string()});
        overload["resourceMonitors"] =
            json!([overload["resourceMonitors"][0].take(), monitor("fixed_heap", heap)]);
        overload["actions"] = json!([
            above_heap("envoy.overload_actions.shrink_heap", 0.95),
            above_heap("envoy.overload_actions.stop_accepting_requests", 0.98),
        ]);
    }
    overload
}

fn above_heap(action: &str, threshold: f64) -> Value {
    json!({
        "name": action,
        "triggers": [{
            "name": "envoy.resource_monitors.fixed_heap",
            "threshold": {"value": threshold},
        }],
    })
}

fn statics(params: &Params<'_>) -> Value {
    let mut clusters = vec![access_log_cluster(params)];
    let mut statics = Map::new();
    // With a token file the proxy dials by itself.
    if params.request.dataplane_token_path.is_empty() {
        clusters.push(ads_cluster(params));
    }
    statics.insert("clusters".into(), clusters.into());
    let mut secrets = Vec::new();
    if params.tls {
        secrets.push(validation(params));
    }
    if has_credential(params.request) {
        let file = json!({"filename": params.request.credential_file});
        secrets.push(json!({"genericSecret": {"secret": file}, "name": TOKEN_SECRET}));
    }
    if !secrets.is_empty() {
        statics.insert("secrets".into(), secrets.into());
    }
    Value::Object(statics)
}

fn access_log_cluster(params: &Params<'_>) -> Value {
    let request = params.request;
    let workdir = if request.workdir.is_empty() { "/tmp" } else { &request.workdir };
    let proxy = request.proxy();
    let path = format!("{workdir}/kuma-al-{}-{}.sock", proxy.name, proxy.mesh);
    cluster(params, BootstrapNames::of(request).access_log, "STATIC", json!({"pipe": {"path": path}}), None)
}

fn ads_cluster(params: &Params<'_>) -> Value {
    let host = params.xds_host.as_str();
    let discovery = if host.parse::<IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
    let address = json!({"socketAddress": {"address": host, "portValue": params.xds_port}});
    let tls = params.tls.then(|| {
        json!({
            "name": "envoy.transport_sockets.tls",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "commonTlsContext": {
                    "tlsParams": {"tlsMinimumProtocolVersion": "TLSv1_2"},
                    "validationContextSdsSecretConfig": {"name": VALIDATION_SECRET},
                },
                "sni": host,
            },
        })
    });
    let mut cluster = cluster(params, BootstrapNames::of(params.request).ads, discovery, address, tls);
    if has_credential(params.request) {
        cluster["typedExtensionProtocolOptions"][HTTP]["httpFilters"] = credential_filters();
    }
    if params.ipv4_only && discovery == "STRICT_DNS" {
        cluster["dnsLookupFamily"] = "V4_PREFERRED".into();
    }
    cluster
}

/// Adds the token to every request of a cluster. A secret is redacted in every dump, a header is not.
fn credential_filters() -> Value {
    let at = |kind: &str| format!("type.googleapis.com/envoy.extensions.{kind}");
    json!([
        {
            "name": "envoy.filters.http.credential_injector",
            "typedConfig": {
                "@type": at("filters.http.credential_injector.v3.CredentialInjector"),
                "credential": {
                    "name": "envoy.http.injected_credentials.generic",
                    "typedConfig": {
                        "@type": at("http.injected_credentials.generic.v3.Generic"),
                        "credential": {"name": TOKEN_SECRET},
                    },
                },
                "overwrite": true,
            },
        },
        {
            "name": "envoy.filters.http.upstream_codec",
            "typedConfig": {"@type": at("filters.http.upstream_codec.v3.UpstreamCodec")},
        },
    ])
}

const HTTP: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

fn cluster(params: &Params<'_>, name: &str, discovery: &str, address: Value, tls: Option<Value>) -> Value {
    let mut cluster = json!({
        "connectTimeout": params.connect_timeout,
        "loadAssignment": {
            "clusterName": name,
            "endpoints": [{"lbEndpoints": [{"endpoint": {"address": address}}]}],
        },
        "name": name,
    });
    if let Some(tls) = tls {
        cluster["transportSocket"] = tls;
    }
    cluster["type"] = discovery.into();
    cluster["typedExtensionProtocolOptions"] = json!({HTTP: {
        "@type": format!("type.googleapis.com/{HTTP}"),
        "explicitHttpConfig": {"http2ProtocolOptions": {}},
    }});
    cluster["upstreamConnectionOptions"] = json!({"tcpKeepalive": {
        "keepaliveInterval": 10, "keepaliveProbes": 3, "keepaliveTime": 10,
    }});
    cluster
}

fn validation(params: &Params<'_>) -> Value {
    let is = |kind: &str| json!({"matcher": {"exact": params.xds_host}, "sanType": kind});
    let mut context = json!({"matchTypedSubjectAltNames": [is("DNS"), is("IP_ADDRESS")]});
    if let Some(ca) = &params.ca {
        context["trustedCa"] = json!({"inlineBytes": STANDARD.encode(ca)});
    } else {
        // Without a trust anchor Envoy would skip verification and the name checks would mean nothing.
        context["systemRootCerts"] = json!({});
    }
    json!({"name": VALIDATION_SECRET, "validationContext": context})
}

fn stats_tags() -> Value {
    let tag = |regex: &str, name: &str| json!({"regex": regex, "tagName": name});
    json!([
        tag(r"^grpc\.((.+)\.)", "name"),
        tag(r"^grpc.*streams_closed(_([0-9]+))", "status"),
        tag(r"^kafka(\.(\S*[0-9]))\.", "kafka_name"),
        tag(r"^kafka\..*\.(.*?(?=_duration|$))", "kafka_type"),
        tag(r"(worker_([0-9]+)\.)", "worker"),
        tag(r"((.+?)\.)rbac\.", "listener"),
    ])
}
