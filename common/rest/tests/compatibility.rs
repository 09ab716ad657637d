//! `docs/compatibility.md`: what is the same as with Kuma, and what is not, on purpose. The page is written from
//! the tables here, and from what the API answers. `UPDATE_GOLDEN=1` writes it; read the diff before you commit it.

use std::{fmt::Write, fs, path::Path};

use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::{TestApi, config, dataplane, mesh};
use crate::{config::WITHOUT_EFFECT, metering, mode::Mode, registry, testing::api::HOST};

const INTRO: &str = "# Compatibility with Kuma 2.14.3

What Kuma accepts is accepted, with the same defaults filled in, and what Kuma refuses is refused with the same
fields named. Errors say more than Kuma's in places; clients should look at fields, not at words. This page is
written by a test from what the API answers, so it says what is so.

";

const SYNC: &str = "
## Sync

Global and zones sync by KDS v2, with each other and with control planes of Kuma 2.9 and later. KDS v1
(`MultiplexService`: both directions over one stream, all of a type in each message), which Kuma spoke before that, is
beside it and switched off: a call of it is answered with UNIMPLEMENTED, as Kuma 2.14 does, and with what to do.

| setting | what it does |
| --- | --- |
| `multizone.global.kds.v1.enabled` | zones may sync by v1; those that sync by v2 go on as before |
| `multizone.zone.kds.v1.enabled` | this zone syncs by v1, for a global that speaks nothing newer |

Names, filters, credentials, pings, questions about Envoys, refusals and status are the same; `straitctl inspect zones` and
`straitctl link` say who syncs by v1. What is different comes of the protocol: a change sends all of its type again, and so
does a reconnect; a type that does not fit into one message (`maxMsgSize`) stays as it was in the zone, and the status of the
zone says so. Relays speak v2 only, and so does a zone that looks at another global before it moves there. Messages in
version 2 of Envoy's interface, of zones that do not say `kds-version: v3`, end the stream.

A zone pings as often as global asks, but at most every 100 milliseconds and at least every hour, whatever that asks for; and
no global here asks a zone, also one of Kuma, for more than that, whatever its settings say.

A zone begins 300 sessions at once and then five in a second, where Kuma's global takes any number; of the last ten, its
insight holds the settings (`config`) of the newest that said any, where Kuma's holds those of each. Both keep a zone that
does nothing but come and go from filling the disk of global.
";

/// Names of metrics that Kuma has and nothing here is called, and why.
const WITHOUT_COUNTERPART: &[(&[&str], &str)] = &[
    (
        &["ca_cache", "cla_cache", "mesh_cache", "store_cache"],
        "everything is read from memory that follows the store, and nothing is looked up in a cache",
    ),
    (
        &[
            "component_catalog_writer",
            "component_heartbeat",
            "component_heartbeat_failures",
            "component_hostname_generator",
            "component_meshservice_generator",
            "component_motb_status_updater",
            "component_ms_status_updater",
            "component_mzms_status_updater",
            "component_store_counter",
            "component_sub_finalizer",
            "component_vip_allocator",
            "component_workload_generator",
            "component_workload_status_updater",
            "component_zone_available_services",
            "insights_resyncer_event_time_processing",
            "insights_resyncer_event_time_to_process",
            "insights_resyncer_processor_idle_time",
            "vip_generation",
            "vip_generation_errors",
        ],
        "there are no such loops: what follows from a change is made when it happens",
    ),
    (
        &["hds_generation", "hds_generation_errors", "kds_delta_generation_errors"],
        "what is sent is made of the state of the moment, and cannot fail as a whole",
    ),
    (
        &[
            "ca_manager_get_cert",
            "ca_manager_get_root_cert_chain",
            "cert_generation_backoff",
            "cert_generation_circuit_open",
        ],
        "nobody far away is asked for a certificate",
    ),
    (
        &["dp_server_force_stop_total", "dp_server_shutdown_duration_seconds"],
        "streams end within a time that is fixed",
    ),
    (
        &[
            "kuma_cp_log_lines_total",
            "store_postgres_list_query_threshold_exceeded_total",
            "xds_client_versions",
        ],
        "not counted: insights tell the versions of proxies, and `store` how long the database takes",
    ),
];

/// Something that is not as in Kuma.
struct Difference {
    what: &'static str,
    kuma: &'static str,
    why: &'static str,
    zone: bool,
    /// From another machine, without a token.
    stranger: bool,
    method: &'static str,
    path: &'static str,
    body: Sent,
}

/// What is sent.
enum Sent {
    Nothing,
    Json(fn() -> Value),
    Text(&'static str),
}

impl Difference {
    fn new(what: &'static str, kuma: &'static str, why: &'static str) -> Self {
        let (method, path, body) = ("GET", "/", Sent::Nothing);
        Self { what, kuma, why, zone: false, stranger: false, method, path, body }
    }

    fn put(mut self, path: &'static str, body: fn() -> Value) -> Self {
        (self.method, self.path, self.body) = ("PUT", path, Sent::Json(body));
        self
    }

    fn post(mut self, path: &'static str, body: fn() -> Value) -> Self {
        (self.method, self.path, self.body) = ("POST", path, Sent::Json(body));
        self
    }

    fn text(mut self, path: &'static str, body: &'static str) -> Self {
        (self.method, self.path, self.body) = ("PUT", path, Sent::Text(body));
        self
    }

    fn get(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    fn head(mut self, path: &'static str) -> Self {
        (self.method, self.path) = ("HEAD", path);
        self
    }

    fn on_zone(mut self) -> Self {
        self.zone = true;
        self
    }

    fn by_stranger(mut self) -> Self {
        self.stranger = true;
        self
    }
}

fn backend(members: &Value) -> Value {
    let mut backend = json!({ "name": "ca", "type": "builtin" });
    for (name, value) in members.as_object().unwrap() {
        backend[name] = value.clone();
    }
    json!({ "type": "Mesh", "name": "new", "mtls": { "backends": [backend] } })
}

fn proxy(inbound: Value) -> Value {
    let networking = json!({ "address": "10.0.0.1", "inbound": inbound });
    json!({ "type": "Dataplane", "mesh": "default", "name": "new", "networking": networking })
}

/// A policy of the older form about everybody's calls of one service.
fn of_calls(kind: &str) -> Value {
    json!({ "type": kind, "mesh": "default", "name": "new", "sources": [{ "match": { "kuma.io/service": "*" } }],
        "destinations": [{ "match": { "kuma.io/service": "web" } }] })
}

fn differences() -> Vec<Difference> {
    let d = Difference::new;
    vec![
        d("a caller without a token writes", "accepted", "who can reach a port is not who may change a mesh; `apiServer.authn.anonymousMayWrite` brings it back")
            .put("/meshes/new", || mesh("new"))
            .by_stranger(),
        d("a token that is over when it is made", "made", "nobody can use it")
            .post("/tokens/zone", || json!({ "zone": "east", "scope": ["cp"], "validFor": "0s" })),
        d("a token for a scope that is none", "made", "it would open nothing, and nobody would know why")
            .post("/tokens/zone", || json!({ "zone": "east", "scope": ["everything"], "validFor": "1h" })),
        d("a secret without data", "accepted", "whoever reads it fails, far away from here")
            .put("/meshes/default/secrets/new", || json!({ "type": "Secret", "mesh": "default", "name": "new" })),
        d("a document in which a key stands twice", "the last one counts", "which of the two is meant depends on who reads it")
            .text("/meshes/new", r#"{"type":"Mesh","name":"new","name":"new"}"#),
        d("a second mTLS backend", "refused", "that is how an authority is replaced without plaintext: both are believed, and one signs")
            .put("/meshes/new", || json!({ "type": "Mesh", "name": "new", "mtls": { "enabledBackend": "a", "backends": [
                { "name": "a", "type": "builtin" }, { "name": "b", "type": "builtin" }] } })),
        d("an mTLS backend without a name", "accepted", "the secrets of its authority are called after it")
            .put("/meshes/new", || backend(&json!({ "name": "" }))),
        d("an authority with a small or an endless key", "accepted", "a small one can be broken, and an endless one takes for ever to make")
            .put("/meshes/new", || backend(&json!({ "conf": { "caCert": { "RSAbits": 1024 } } }))),
        d("certificates that live for less than a second", "accepted", "they are over when they are made")
            .put("/meshes/new", || backend(&json!({ "dpCert": { "rotation": { "expiration": "1ms" } } }))),
        d("a service is probed in negative intervals", "accepted", "Envoy refuses it, and the proxy keeps what it had")
            .put("/meshes/default/dataplanes/new", || proxy(json!([{ "port": 80, "serviceProbe": { "interval": "-1s" } }])))
            .on_zone(),
        d("two inbounds of one name, or of one port without names", "accepted", "policies and identifiers name inbounds by it")
            .put("/meshes/default/dataplanes/new", || proxy(json!([{ "port": 80 }, { "port": 80 }])))
            .on_zone(),
        d("an admin port that is none", "accepted", "no Envoy starts with it")
            .put("/meshes/default/dataplanes/new", || {
                let mut proxy = proxy(json!([{ "port": 80 }]));
                proxy["networking"]["admin"] = json!({ "port": 70_000 });
                proxy
            })
            .on_zone(),
        d("a port for metrics that is none", "accepted", "nobody can listen there")
            .put("/meshes/new", || {
                json!({ "type": "Mesh", "name": "new", "metrics": { "backends": [
                    { "name": "p", "type": "prometheus", "conf": { "port": 70_000 } }] } })
            }),
        d("a negative duration in a Timeout or a Retry", "accepted", "Envoy refuses it, and the proxy keeps what it had")
            .put("/meshes/default/timeouts/new", || {
                let mut timeout = of_calls("Timeout");
                timeout["conf"] = json!({ "http": { "requestTimeout": "-1s" } });
                timeout
            }),
        d("an ExternalService with a client certificate and no key, or the other way round", "accepted", "Envoy needs both")
            .put("/meshes/default/external-services/new", || {
                json!({ "type": "ExternalService", "mesh": "default", "name": "new", "tags": { "kuma.io/service": "new" },
                    "networking": { "address": "example.com:443", "tls": { "enabled": true, "clientCert": { "secret": "c" } } } })
            }),
        d("a host name of a route behind a gateway that is none", "accepted", "no request asks for it")
            .put("/meshes/default/meshhttproutes/new", || {
                json!({ "type": "MeshHTTPRoute", "mesh": "default", "name": "new", "spec": {
                    "targetRef": { "kind": "MeshGateway", "name": "edge" },
                    "to": [{ "targetRef": { "kind": "Mesh" }, "hostnames": ["not a host"], "rules": [] }] } })
            }),
        d("a share of mirrored requests that is no percentage", "accepted", "Envoy refuses it, and the proxy keeps what it had")
            .put("/meshes/default/meshhttproutes/new", || {
                let mirror = json!({ "percentage": 101, "backendRef": { "kind": "MeshService", "name": "b" } });
                let filters = json!([{ "type": "RequestMirror", "requestMirror": mirror }]);
                json!({ "type": "MeshHTTPRoute", "mesh": "default", "name": "new", "spec": { "to": [{
                    "targetRef": { "kind": "MeshService", "name": "a" }, "rules": [{
                        "matches": [{ "method": "GET" }], "default": { "filters": filters } }] }] } })
            }),
        d("a policy whose targets overlap in more ways than can be told apart", "accepted", "nobody could say what it means for a proxy, or only after hours")
            .put("/meshes/default/meshtrafficpermissions/new", || {
                let tag = |i: usize| json!({ "targetRef": { "kind": "MeshSubset", "tags": { format!("k{i}"): "v" } }, "default": { "action": "Allow" } });
                let from: Vec<Value> = (0..20).map(tag).collect();
                json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": "new", "spec": { "from": from } })
            }),
        d("a port of a MeshService that is none, or that stands there twice", "accepted", "nobody can listen there, or nobody knows which of the two is meant")
            .put("/meshes/default/meshservices/new", || {
                json!({ "type": "MeshService", "mesh": "default", "name": "new", "spec": {
                    "selector": { "dataplaneTags": { "kuma.io/service": "web" } }, "ports": [{ "port": 80 }, { "port": 80 }] } })
            })
            .on_zone(),
        d("an address of a zone that is none", "accepted", "the other zones cannot reach it")
            .put("/meshes/default/meshzoneaddresses/new", || {
                json!({ "type": "MeshZoneAddress", "mesh": "default", "name": "new",
                    "spec": { "address": "0.0.0.0", "port": 10_001 } })
            })
            .on_zone(),
        d("a member of a protobuf spec has a wrong type", "400 `Bad Request` without a field", "the field says where to look")
            .put("/meshes/new", || json!({ "type": "Mesh", "name": "new", "mtls": [] })),
        d("a duration that is none", "400 `Bad Request` without a field", "the field says where to look")
            .put("/meshes/default/meshtimeouts/new", || {
                json!({ "type": "MeshTimeout", "mesh": "default", "name": "new", "spec": { "to": [
                    { "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "soon" } }] } })
            }),
        d("a member that no spec has", "ignored without a word", "it is a typing error nine times out of ten; Kuma's clients show warnings")
            .put("/meshes/new", || json!({ "type": "Mesh", "name": "new", "mtl": {} })),
        d("a reference to something that is not there", "accepted without a word", "it may come later, or be a typing error; it is stored and synced all the same")
            .put("/meshes/default/meshtimeouts/new", || {
                json!({ "type": "MeshTimeout", "mesh": "default", "name": "new", "spec": { "to": [
                    { "targetRef": { "kind": "MeshService", "name": "nobody" }, "default": { "idleTimeout": "1s" } }] } })
            }),
        d("a MeshIdentity of an extension", "refused by nobody, and of use where that is built in", "none is built in; it is stored, synced and warned of")
            .put("/meshes/default/meshidentities/new", || {
                json!({ "type": "MeshIdentity", "mesh": "default", "name": "new", "spec": { "provider": {
                    "type": "Extension", "extension": { "name": "x" } } } })
            }),
        d("a HostnameGenerator whose template does more than fill in fields and labels", "the language of Go counts", "not built; it is stored, synced and warned of")
            .put("/hostnamegenerators/new", || {
                json!({ "type": "HostnameGenerator", "name": "new", "spec": {
                    "selector": { "meshService": {} }, "template": "{{ .Name | printf \"%s\" }}.mesh" } })
            }),
        d("an extension of a HostnameGenerator or a MeshExternalService", "what is installed decides", "nothing can be installed; it is stored, synced and warned of")
            .put("/hostnamegenerators/new", || {
                json!({ "type": "HostnameGenerator", "name": "new", "spec": {
                    "selector": { "meshService": {} }, "template": "{{ .Name }}.mesh", "extension": { "type": "CoreDNS" } } })
            }),
        d("how long an authority of a mesh may take", "counts", "both kinds of authorities sign where they are asked; it is stored, synced and warned of")
            .put("/meshes/new", || backend(&json!({ "rootChain": { "requestTimeout": "1s" } }))),
        d("variables in a MeshOpenTelemetryBackend", "the environment of a proxy counts", "not built yet; it is stored, synced and warned of")
            .put("/meshes/default/meshopentelemetrybackends/new", || {
                json!({ "type": "MeshOpenTelemetryBackend", "mesh": "default", "name": "new", "spec": { "env": {} } })
            }),
        d("`HEAD` of what `GET` shows", "405", "it says whether something is there, and how long it is, without sending it")
            .head("/meshes/default"),
        d("labels in the form of Kubernetes (`?format=k8s`)", "only `kuma.io/mesh`", "what selectors choose by has to come along")
            .get("/meshes/default/meshtimeouts/some?format=k8s"),
        d("the global secret `inter-cp-ca`", "made at the start", "replicas meet in the store they share and ask each other nothing, so there is nothing to sign for")
            .get("/global-secrets/inter-cp-ca"),
        d("somebody looks at the levels of logs, or changes them", "`/logging` of the port for diagnostics, for everybody", "who may fill a disk with logs, or silence them, has to be known; here it is the same path of the API, for who operates")
            .get("/logging")
            .by_stranger(),
    ]
}

/// Routes by which people and kumactl look at what comes of resources, with the name of something that is there.
const ROUTES: &[&str] = &[
    "/meshes/default/meshtimeouts/some/_resources/dataplanes",
    "/meshes/default/meshtimeouts/some/dataplanes",
    "/meshes/default/meshgateways/some/dataplanes",
    "/meshes/default/meshgateways/some/_rules",
    "/meshes/default/dataplanes/some/_overview",
    "/meshes/default/dataplanes/some/policies",
    "/meshes/default/dataplanes/some/rules",
    "/meshes/default/dataplanes/some/_rules",
    "/meshes/strict/dataplanes/some/_policies",
    "/meshes/strict/dataplanes/some/_layout",
    "/meshes/strict/meshservices/some/_dataplanes",
    "/meshes/strict/meshservices/some/_resources/dataplanes",
    "/meshes/strict/meshservices/some/_hostnames",
    "/meshes/default/dataplanes/_overview",
    "/meshes/default/dataplanes+insights",
    "/dataplanes+insights",
    "/zones/_overview",
    "/zones+insights",
    "/zoneingresses/_overview",
    "/zoneegresses/_overview",
    "/zoneegressoverviews",
    "/meshes/default/service-insights",
    "/service-insights",
    "/mesh-insights",
    "/global-insight",
    "/_resources",
    "/policies",
];

fn documents() -> Vec<Value> {
    let mut strict = mesh("strict");
    strict["meshServices"] = json!({ "mode": "Exclusive" });
    let mut inside = dataplane("some");
    inside["mesh"] = json!("strict");
    let any = json!([{ "match": { "kuma.io/service": "*" } }]);
    let spec = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] });
    vec![
        mesh("default"),
        strict,
        dataplane("some"),
        inside,
        json!({ "type": "MeshTimeout", "mesh": "default", "name": "some", "labels": { "team": "a" }, "spec": spec }),
        json!({ "type": "MeshGateway", "mesh": "default", "name": "some", "selectors": any,
            "conf": { "listeners": [{ "port": 80, "protocol": "HTTP" }] } }),
        json!({ "type": "MeshService", "mesh": "strict", "name": "some", "spec": {
            "selector": { "dataplaneTags": { "kuma.io/service": "web" } }, "ports": [{ "port": 80 }] } }),
    ]
}

/// What is answered, in the words of the page.
async fn answer(api: &TestApi, difference: &Difference) -> String {
    // Who calls from this machine is an administrator in these tests, by the name of this machine.
    let host = if difference.stranger { "cp.example" } else { HOST };
    let request = Request::builder().method(difference.method).uri(difference.path).header("host", host);
    let body = match &difference.body {
        Sent::Nothing => Body::empty(),
        Sent::Json(body) => Body::from(body().to_string()),
        Sent::Text(text) => Body::from(*text),
    };
    let peer = if difference.stranger { [10, 0, 0, 9] } else { [127, 0, 0, 1] };
    let (status, text) = api.send_from(peer, request.body(body).unwrap()).await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let wrong = &body["invalid_parameters"][0];
    let (field, reason) = (wrong["field"].as_str(), wrong["reason"].as_str().unwrap_or_default());
    let labelled =
        [&body["metadata"], &body["items"][0]].into_iter().find_map(|one| one["labels"].as_object());
    match (field, body["warnings"][0].as_str(), labelled) {
        (Some(field), ..) => format!("{status}, `{field}`: {reason}"),
        (None, Some(warning), _) => format!("{status}, warning: {warning}"),
        (None, None, Some(labels)) => {
            let names: Vec<String> = labels.keys().map(|name| format!("`{name}`")).collect();
            format!("{status}, labels {}", names.join(", "))
        }
        (None, None, None) => {
            format!("{status} {}", body["detail"].as_str().unwrap_or_default()).trim().to_owned()
        }
    }
}

async fn page() -> String {
    let mut page = INTRO.to_owned();
    let zone_mode = || Mode::standalone_zone("east");
    page.push_str(
        "## Different on purpose\n\n| what | Kuma | Strait | because |\n| --- | --- | --- | --- |\n",
    );
    for difference in differences() {
        let mode = if difference.zone { zone_mode() } else { Mode::Global };
        let api = TestApi::start(config(mode), &documents()).await.unwrap();
        let Difference { what, kuma, why, .. } = difference;
        let here = answer(&api, &difference).await.replace('|', "\\|");
        let _fits = writeln!(page, "| {what} | {kuma} | {here} | {why} |");
    }
    page.push_str(
        "\nA name in `to[].targetRef` of a policy that was applied on global means no MeshService of a zone, as in \
         Kuma: name it by `labels`, such as `kuma.io/display-name`.\n\nA policy of a producer reaches clients in other \
         zones as in Kuma, and means less there, because its zone may have been taken over: names in `to`, backends and \
         mirrors mean MeshServices of its zone only, and no services known by tags. One that has `rules` beside `to`, is \
         for a MeshHTTPRoute as a whole, logs to another file than `/dev/stdout` and `/dev/stderr`, or shows the \
         environment or a file of a proxy (`%ENVIRONMENT(…)%`, `%FILE_CONTENT(…)%`), stays in its zone. So does one whose top `targetRef` tells \
         clients apart by anything but `kuma.io/zone`: each sort of clients has its configuration made for it.\n\nA \
         resource whose labels `kuma.io/display-name`, `kuma.io/zone` and `k8s.kuma.io/namespace` would give it the name of \
         another one where it is sent is answered 409. In Kuma the one that is listed last takes the place of the other \
         there. Global takes a namespace from a zone only if it is a DNS label, as those of Kubernetes are, and the API of \
         a zone says so; from a zone without `hash-suffix` it takes `kuma.io/display-name` only if that is the name, or \
         the name before the namespace, under which the zone sends it. No MeshService is made of a tag that \
         has the form of a name with a hash, and no proxy brings an ingress that is called so. Of \
         services that want one host name by a HostnameGenerator, those of other zones come last, however old they \
         are.\n\n## Kinds\n\nWhere each is written; the others receive it.\n\n| kind | path | written on |\n| --- | --- | --- |\n",
    );
    let zone = Mode::Zone { name: "east".into(), federated: true };
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty()) {
        let written = match (Mode::Global.may_write(kind), zone.may_write(kind)) {
            (true, true) => "global, zones",
            (true, false) => "global",
            (false, true) => "zones",
            (false, false) => "nowhere, it is made",
        };
        let _fits = writeln!(page, "| {} | `{}` | {written} |", kind.name, kind.path);
    }
    page.push_str("\n## Looking at what comes of it\n\nAsked of global and of zones:\n\n");
    for mode in [Mode::Global, zone_mode()] {
        let api = TestApi::start(config(mode), &documents()).await.unwrap();
        for path in ROUTES {
            let (status, text) = api.send("GET", path, None).await.unwrap();
            assert_eq!(status, 200, "{path}: {text}");
        }
    }
    for path in ROUTES {
        let path =
            path.replace("/some", "/{name}").replace("/default", "/{mesh}").replace("/strict", "/{mesh}");
        let _fits = writeln!(page, "- `{path}`");
    }
    page.push_str(
        "\nWhat a proxy is to run with, `…/_config`, is asked of both as well: where Kuma's global answers with 405, ours \
         asks the zone. Of what an Envoy says of itself, `…/xds`, `…/stats` and `…/clusters`, more than 40 MiB, or more than \
         2.5 million values, is withheld: nobody knows that it is the Envoy who answers.\n\nSecrets that the control plane makes carry the label `kuma.io/mesh`, as everything that belongs \
         to a mesh does, so that one filter finds it all; those that Kuma makes carry none.\n\nA query has at most 128 \
         parameters here, and one with more is answered 400: each takes many times the bytes that it has in the address.\n",
    );
    page.push_str(SYNC);
    page.push_str(
        "\n## Settings\n\nA setting that both have is called and means the same. These are Kuma's and have no effect \
         here; a file that holds them is taken, and the log says so. Any other setting that does not exist stops the \
         start.\n\n| setting | because |\n| --- | --- |\n",
    );
    for (path, why) in WITHOUT_EFFECT {
        let _fits = writeln!(page, "| `{path}` | {why} |");
    }
    page.push_str(
        "\n## Metrics\n\nWhat both count is called the same, and [the reference](reference/metrics.md) marks it. Requests \
         that were refused before a handler saw them (401, 403, 405), and those of callers who show no token that were \
         wrong otherwise (4xx), count under the handler `none` and the method `other`, since strangers could otherwise \
         make a series of every route with every method and code; a `HEAD` counts as the `GET` that answers it.\n\n\
         These of Kuma's have no counterpart:\n\n| metrics | because |\n| --- | --- |\n",
    );
    for (names, why) in WITHOUT_COUNTERPART {
        assert!(names.iter().all(|name| metering::by_name(name).is_none()), "{names:?}");
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _fits = writeln!(page, "| {} | {why} |", names.join(", "));
    }
    page
}

#[tokio::test]
async fn the_page_says_what_is_so() {
    let page = page().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compatibility.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = std::iter::zip(page.lines(), written.lines()).find(|(now, then)| now != then);
    assert!(
        page == written,
        "docs/compatibility.md is old (see with UPDATE_GOLDEN=1 and git diff): {differs:?}"
    );
}
