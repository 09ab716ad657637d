//! Bootstraps against known documents, and every way to be refused.
#![allow(clippy::unwrap_used)]

use std::{fs, sync::LazyLock};

use axum::body::{Body, to_bytes};
use base64::{Engine, engine::general_purpose::STANDARD};
use common::{
    document::Document,
    model::{Origin, Resource, ResourceKey, kinds::dataplane},
    runtime::Env,
    store::{Change, StoreIdentity, index::IndexReader},
    testing::needs,
    tls::KeyPairPem,
    token::{self, DataplaneClaims, Purpose},
};
use http::{Request as HttpRequest, StatusCode};
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;

use super::{super::auth::Credential, *};

const KNOWN: &str = "
type: Dataplane
mesh: default
name: dp-1
networking:
  address: 127.0.0.2
  admin: {port: 1234}
  inbound:
  - {port: 80, servicePort: 8080, tags: {kuma.io/service: backend}}
";

const GATEWAY: &str = "
type: Dataplane
mesh: default
name: gateway-1
networking:
  address: 127.0.0.2
  gateway: {type: BUILTIN, tags: {kuma.io/service: gateway}}
";

fn resource(yaml: &str) -> Resource {
    Document::parse(&serde_norway::from_str(yaml).unwrap())
        .unwrap()
        .into_resource(chrono::DateTime::UNIX_EPOCH)
}

fn index(resources: Vec<Resource>) -> Index {
    let mut index = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
    for resource in resources {
        let (key, resource) = (resource.key.clone(), Some(Arc::new(resource)));
        index.apply(&Change { revision: 1, key, resource });
    }
    index
}

fn certificate() -> Arc<ServerCertificate> {
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    Arc::new(ServerCertificate::of(&KeyPairPem::self_signed(&hosts).unwrap()).unwrap())
}

fn bootstraps(settings: BootstrapSettings) -> Bootstraps {
    Bootstraps {
        settings,
        requirement: Requirement::default(),
        certificate: Some(certificate()),
        port: 5678,
        ipv4_only: false,
    }
}

/// The authority a golden document trusts, which the request of that case brought along.
fn authority_of(golden: &Value) -> String {
    let secret = golden.pointer("/staticResources/secrets/0/validationContext/trustedCa/inlineBytes");
    let google = "/dynamicResources/adsConfig/grpcServices/0/googleGrpc/channelCredentials/sslCredentials";
    let bytes = secret.or_else(|| golden.pointer(&format!("{google}/rootCerts/inlineBytes"))).unwrap();
    String::from_utf8(STANDARD.decode(bytes.as_str().unwrap()).unwrap()).unwrap()
}

#[test]
fn documents_equal_the_known_ones() {
    let Some(goldens) = needs::goldens() else { return };
    let folder = goldens.join("bootstrap");
    let version = json!({
        "kumaDp": {"version": "0.0.1", "gitTag": "v0.0.1",
            "gitCommit": "91ce236824a9d875601679aa80c63783fb0e8725", "buildDate": "2019-08-07T11:26:06Z"},
        "envoy": {"version": "1.15.0", "build": "hash/1.15.0/RELEASE"},
    });
    let minimal = json!({"mesh": "mesh", "name": "name.namespace", "version": version, "workdir": "/tmp"});
    let with = |more: Value| {
        let mut request = minimal.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let tcp = |address: &str, port| BootstrapSettings {
        admin_address: address.to_owned(),
        admin_port: port,
        admin_socket: false,
        ..BootstrapSettings::default()
    };
    let custom = || BootstrapSettings {
        connect_timeout: Duration::from_secs(2),
        admin_access_log: "/var/log".to_owned(),
        ..tcp("192.168.0.1", 9902)
    };
    let metrics = json!({"certPath": "/path/cert/pem", "keyPath": "/path/key/pem"});
    let cases = [
        (
            "bootstrap.universal",
            with(json!({"mesh": "default", "name": "dp-1", "dataplaneToken": "token"})),
            tcp("127.0.0.1", 0),
            5678,
        ),
        (
            "bootstrap.overridden",
            with(json!({"mesh": "default", "name": "dp-1.default", "dataplaneToken": "token"})),
            tcp("127.0.0.1", 1234),
            5678,
        ),
        (
            "generator.custom-config-minimal-request-and-delta",
            with(json!({"features": ["feature-delta-grpc"]})),
            custom(),
            15678,
        ),
        ("generator.custom-config-minimal-request", minimal.clone(), custom(), 15678),
        (
            "generator.custom-config",
            with(json!({"dataplaneToken": "token", "dynamicMetadata": {"test": "value"}})),
            BootstrapSettings { connect_timeout: Duration::from_secs(2), ..tcp("192.168.0.1", 9902) },
            15678,
        ),
        (
            "generator.custom-config-minimal-request-with-unified-resource-naming-feature-flag",
            with(json!({"features": ["feature-unified-resource-naming"]})),
            tcp("127.0.0.1", 9902),
            5678,
        ),
        (
            "generator.default-config-token-path",
            with(
                json!({"dataplaneTokenPath": "/path/to/file", "dnsPort": 53001, "metricsResources": metrics}),
            ),
            tcp("127.0.0.1", 1234),
            5678,
        ),
        (
            "generator.probes.kubernetes",
            with(json!({"dataplaneToken": "token", "readinessPort": 15000, "appProbeProxyDisabled": true})),
            tcp("127.0.0.1", 1234),
            5678,
        ),
        (
            "bootstrap.k8s",
            with(json!({"mesh": "default", "name": "dp-1.default", "dataplaneToken": "token"})),
            tcp("127.0.0.1", 0),
            5678,
        ),
        (
            "bootstrap.gateway",
            with(json!({
                "mesh": "default", "name": "gateway-1.default", "dataplaneToken": "token",
                "resources": {"maxHeapSizeBytes": 2_000_000},
            })),
            tcp("127.0.0.1", 0),
            5678,
        ),
        (
            "generator.gateway",
            with(json!({"dataplaneToken": "token", "dataplaneTokenPath": "/path/to/file", "dnsPort": 53001})),
            BootstrapSettings { gateway_connections: 35_678, ..tcp("127.0.0.1", 0) },
            5678,
        ),
        (
            "generator.default-config.kubernetes",
            with(json!({"dataplaneToken": "token"})),
            tcp("127.0.0.1", 1234),
            5678,
        ),
        (
            "generator.default-config.kubernetes.ipv6",
            with(json!({"dataplaneToken": "token"})),
            BootstrapSettings { xds_host: Some("fd00:a123::1".to_owned()), ..tcp("127.0.0.1", 1234) },
            5678,
        ),
    ];
    let mut tried: Vec<String> = cases.iter().map(|case| format!("{}.golden.yaml", case.0)).collect();
    let mut there: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    tried.sort();
    there.sort();
    assert_eq!(tried, there, "what is here and what there is");
    for (name, mut request, settings, port) in cases {
        let text = fs::read_to_string(folder.join(format!("{name}.golden.yaml"))).unwrap();
        let golden: Value = serde_norway::from_str(&text).unwrap();
        request["caCert"] = authority_of(&golden).into();
        if let Some(brought) = golden.pointer("/node/metadata/dataplane.resource") {
            request["dataplaneResource"] = brought.clone();
        }
        let mut maker = bootstraps(settings);
        // Some were recorded where nobody is asked for health.
        maker.settings.health = golden.get("hdsConfig").is_some();
        maker.port = port;
        maker.requirement.dataplane = Credential::None;
        let (mesh, dp) = (request["mesh"].as_str().unwrap(), request["name"].as_str().unwrap());
        let gateway = golden["node"]["cluster"] == "gateway";
        let mut stored =
            resource(&if gateway { GATEWAY.to_owned() } else { KNOWN.replace("admin: {port: 1234}", "") });
        stored.key = ResourceKey::new(&dataplane::KIND, mesh, dp);
        let index = index(vec![stored]);
        let request: BootstrapRequest = serde_json::from_value(request).unwrap();
        let made = maker.make(&request, Some("localhost"), &index).unwrap().envoy;
        let text = |json| serde_json::to_string_pretty(json).unwrap();
        assert!(made == golden, "{name}: made\n{}\nexpected\n{}", text(&made), text(&golden));
    }
}

#[test]
fn a_layer_of_the_runtime_has_a_place_where_somebody_asks_for_it() {
    let maker = bootstraps(BootstrapSettings::default());
    for (features, expected) in
        [(json!([]), vec!["kuma"]), (json!(["feature-runtime-layer"]), vec!["kuma", "mesh"])]
    {
        let request: BootstrapRequest = serde_json::from_value(json!({
            "mesh": "default", "name": "dp-1", "dataplaneToken": "a.b.c", "dataplaneResource": KNOWN,
            "features": features,
        }))
        .unwrap();
        let made = maker.make(&request, Some("127.0.0.1"), &index(Vec::new())).unwrap().envoy;
        let layers = made.pointer("/layeredRuntime/layers").unwrap().as_array().unwrap().clone();
        let names: Vec<&str> = layers.iter().filter_map(|layer| layer["name"].as_str()).collect();
        assert_eq!(names, expected);
        let said = made.pointer("/node/metadata/features").cloned().unwrap_or_default();
        assert_eq!(said, features, "the zone finds it there");
    }
}

#[test]
fn a_plain_envoy_gets_what_it_needs() {
    let maker = bootstraps(BootstrapSettings::default());
    let request: BootstrapRequest = serde_json::from_value(json!({
        "mesh": "default", "name": "dp-1", "dataplaneToken": "a.b.c", "dataplaneResource": KNOWN,
    }))
    .unwrap();
    let made = maker.make(&request, Some("127.0.0.1"), &index(Vec::new())).unwrap();
    assert_eq!(made.address, "127.0.0.2");
    let at = |pointer: &str| made.envoy.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/node/id"), "default.dp-1");
    assert_eq!(at("/node/cluster"), "backend");
    assert_eq!(at("/node/metadata/dataplane.resource"), KNOWN);
    assert_eq!(at("/admin/address/socketAddress/portValue"), 1234);
    assert_eq!(at("/staticResources/clusters/1/type"), "STATIC");
    let trusted = at("/staticResources/secrets/0/validationContext/trustedCa/inlineBytes");
    let authority = maker.certificate.as_ref().unwrap().authority_pem().unwrap().to_owned();
    assert_eq!(trusted, STANDARD.encode(authority));
    let metadata = at("/dynamicResources/adsConfig/grpcServices/0/initialMetadata/0");
    assert_eq!(metadata, json!({"key": "authorization", "value": "a.b.c"}));
}

/// The key the tokens of the mesh are signed with.
static SIGNING_KEY: LazyLock<String> = LazyLock::new(|| token::new_signing_key().unwrap().pem().to_owned());

/// The mesh, its one dataplane, and the key of its tokens.
fn known() -> Index {
    let key = Purpose::Dataplane { mesh: "default" }.key(1);
    let key = Resource::new(key, chrono::DateTime::UNIX_EPOCH)
        .with_spec(token::secret_spec(SIGNING_KEY.as_bytes()));
    let applied = Resource { origin: Origin::Zone("east".into()), ..resource(KNOWN) };
    index(vec![resource("{type: Mesh, name: default}"), applied, key])
}

/// A token for this dataplane, or for any.
fn token(name: &str) -> String {
    let claims = DataplaneClaims { name: name.to_owned(), ..DataplaneClaims::default() };
    let (purpose, hour) = (Purpose::Dataplane { mesh: "default" }, Duration::from_secs(3600));
    token::issue(&known(), purpose, &claims, hour, &Env::system("test")).unwrap()
}

/// A token for dataplanes of this service.
fn tagged(service: &str) -> String {
    let tags = [("kuma.io/service".to_owned(), [service.to_owned()].into())].into();
    let claims = DataplaneClaims { tags, ..DataplaneClaims::default() };
    let (purpose, hour) = (Purpose::Dataplane { mesh: "default" }, Duration::from_secs(3600));
    token::issue(&known(), purpose, &claims, hour, &Env::system("test")).unwrap()
}

#[test]
fn a_token_in_a_file_stays_there() {
    let maker = bootstraps(BootstrapSettings::default());
    let request: BootstrapRequest = serde_json::from_value(json!({
        "name": "dp-1", "dataplaneToken": "a.b.c", "credentialFile": "/run/token", "dataplaneResource": KNOWN,
    }))
    .unwrap();
    let made = maker.make(&request, Some("127.0.0.1"), &index(Vec::new())).unwrap().envoy;
    assert!(!made.to_string().contains("a.b.c"), "{made}");
    let secret = made.pointer("/staticResources/secrets/1").unwrap();
    assert_eq!(secret, &json!({"genericSecret": {"secret": {"filename": "/run/token"}}, "name": "cp_token"}));
    let options = made.pointer("/staticResources/clusters/1/typedExtensionProtocolOptions").unwrap();
    assert!(options.to_string().contains("credential_injector"), "{options}");
}

async fn post(maker: &Bootstraps, host: &str, accept: &str, body: String) -> (StatusCode, String) {
    let index = known();
    let reader = IndexReader::new(watch::Sender::new(Arc::new(index)).subscribe());
    let request = HttpRequest::post("/bootstrap")
        .header("host", host)
        .header("accept", accept)
        .body(Body::from(body))
        .unwrap();
    let env = Env::system("test");
    let authenticator = Authenticator::new(maker.requirement, "east".into(), env.clone());
    let judge = Judge::new(authenticator, Mode::federated_zone("east"), env);
    let response = handler::router(maker.clone(), judge, reader).oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn refusals_have_the_status_the_client_acts_on() {
    let maker = bootstraps(BootstrapSettings::default());
    let (any, other) = (token(""), token("dp-2"));
    let dp_1 = json!({"mesh": "default", "name": "dp-1", "dataplaneToken": any});
    let dp_2 = json!({"mesh": "default", "name": "dp-2", "dataplaneToken": any});
    let yaml_bomb = "{a: ".repeat(40_000);
    let long = "x".repeat(300);
    let deep = (0..60).fold(json!(0), |inner, _| json!([inner]));
    let by_path = |length: usize| json!({"name": "dp-1", "dataplaneTokenPath": "/t", "dataplaneResource": "x".repeat(length)});
    let with = |key: &str, value: &str| {
        let mut request = dp_1.clone();
        request[key] = value.into();
        request
    };
    let leaf_is_no_authority = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    for (request, host, status, text) in [
        (dp_2.clone(), "localhost", 404, ""),
        (json!({"mesh": "default", "name": "dp-1"}), "localhost", 422, "a dataplane token is required"),
        (json!({"name": "in", "proxyType": "ingress"}), "localhost", 422, "a zone token is required"),
        (json!({"dataplaneToken": any}), "localhost", 422, "name must be set"),
        (json!({"name": long}), "localhost", 422, "253 bytes long"),
        (with("dataplaneToken", "t"), "localhost", 401, "is not accepted"),
        (with("dataplaneToken", &other), "localhost", 403, "made for name \"dp-2\""),
        (json!({"mesh": "new", "name": "dp-1", "dataplaneToken": any}), "localhost", 503, "no signing key"),
        (
            json!({"name": "dp-1", "dataplaneToken": "t", "dataplaneResource": yaml_bomb}),
            "localhost",
            401,
            "is not accepted",
        ),
        (with("dataplaneResource", &yaml_bomb), "localhost", 422, "neither JSON nor YAML"),
        (by_path(UNJUDGED + 1), "localhost", 422, "send the token along"),
        (by_path(UNJUDGED), "localhost", 422, "not an object"),
        (json!({"name": "dp-1", "dataplaneToken": any, "version": deep}), "localhost", 422, "nested deeper"),
        (json!({"name": 7}), "localhost", 422, "not valid"),
        (json!({"name": "a", "proxyType": "router"}), "localhost", 422, "router"),
        (with("dataplaneToken", "a\nb"), "localhost", 422, "no token has"),
        (with("dataplaneResource", &KNOWN.replace("dp-1", "dp-2")), "localhost", 422, "but the proxy is"),
        (dp_1.clone(), "elsewhere.example:5678", 400, "not valid for \"elsewhere.example\""),
        (with("caCert", "nonsense"), "localhost", 400, "not a PEM certificate"),
        (with("caCert", &leaf_is_no_authority), "localhost", 400, "may not sign"),
    ] {
        let (got, body) = post(&maker, host, "application/json", request.to_string()).await;
        assert_eq!(got.as_u16(), status, "{request}: {body}");
        assert!(if text.is_empty() { body.is_empty() } else { body.contains(text) }, "{request}: {body}");
    }
}

/// What a stream with it would be refused for.
#[tokio::test]
async fn what_the_stream_refuses_gets_no_bootstrap() {
    let maker = bootstraps(BootstrapSettings::default());
    let bound = Bootstraps {
        requirement: Requirement { bound: true, ..Requirement::default() },
        ..bootstraps(BootstrapSettings::default())
    };
    let open = Bootstraps {
        requirement: Requirement { dataplane: Credential::None, ..Requirement::default() },
        ..bootstraps(BootstrapSettings::default())
    };
    let any = token("");
    let dp_1 = |token: &str| json!({"name": "dp-1", "dataplaneToken": token});
    let brings = |name: &str, token: &str, yaml: &str| json!({"name": name, "dataplaneToken": token, "dataplaneResource": yaml.replace("dp-1", name)});
    let with = |mut request: Value, key: &str, value: Value| {
        request[key] = value;
        request
    };
    let other = KNOWN.replace("127.0.0.2", "127.0.0.3");
    let elsewhere = KNOWN.replace("mesh: default", "mesh: new");
    for (maker, request, status, text) in [
        // By what the token says, of what is stored and of what comes along.
        (&maker, dp_1(&tagged("backend")), 200, ""),
        (&maker, dp_1(&tagged("web")), 403, "kuma.io/service"),
        (&maker, brings("dp-9", &tagged("backend"), KNOWN), 200, ""),
        (&maker, brings("dp-9", &tagged("web"), KNOWN), 403, "kuma.io/service"),
        (&maker, brings("dp-9", &any, KNOWN), 200, ""),
        (&bound, brings("dp-9", &any, KNOWN), 403, "must name its services"),
        (&bound, brings("dp-9", &tagged("backend"), KNOWN), 200, ""),
        // By its name, its mesh, and who applied it.
        (&maker, brings("Dp_9", &any, KNOWN), 422, "name: "),
        (&maker, brings("dp-1", &any, &other), 409, "was applied by somebody"),
        (&open, with(brings("dp-1", "", &elsewhere), "mesh", "new".into()), 404, ""),
        (&open, brings("dp-1", "", &other), 409, "was applied by somebody"),
        // By the limits of what a node may say.
        (
            &maker,
            with(dp_1(&any), "dynamicMetadata", json!({"a": "x".repeat(200 << 10)})),
            422,
            "node metadata",
        ),
        (&maker, with(dp_1(&any), "otelEnv", vec![json!(1); 5000].into()), 422, "node metadata"),
        (&maker, with(dp_1(&any), "dynamicMetadata", json!({"a": "x"})), 200, ""),
    ] {
        let (got, body) = post(maker, "localhost", "*/*", request.to_string()).await;
        assert_eq!(got.as_u16(), status, "{request}: {body}");
        assert!(status == 200 || body.contains(text), "{request}: {body}");
    }
}

#[tokio::test]
async fn one_answer_has_two_forms() {
    let maker = bootstraps(BootstrapSettings::default());
    let request = json!({"name": "dp-1", "dataplaneToken": token("dp-1")}).to_string();
    let (status, yaml) = post(&maker, "[::1]:5678", "*/*", request.clone()).await;
    assert_eq!(status, StatusCode::OK, "{yaml}");
    let plain: Value = serde_norway::from_str(&yaml).unwrap();
    assert_eq!(plain["node"]["id"], "default.dp-1");

    let (_, body) = post(&maker, "[::1]:5678", "application/json", request).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let inner = STANDARD.decode(body["bootstrap"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(inner).unwrap(), yaml);
    let sidecar = json!({
        "networking": {"corefileTemplate": null, "address": "127.0.0.2"}, "metrics": {"aggregate": []},
    });
    assert_eq!(body["kumaSidecarConfiguration"], sidecar);
}

#[test]
fn whoever_runs_the_envoy_is_told_whose_metrics_to_add() {
    const MESH: &str = "
type: Mesh
name: default
metrics:
  enabledBackend: m
  backends:
  - {name: m, type: prometheus, conf: {aggregate: [{name: app, port: 8080, path: /told}, {name: db, port: 9187}]}}
";
    let own = "metrics: {type: prometheus, conf: {aggregate: [{name: db, enabled: false}]}}\n";
    let index = index(vec![resource(MESH), resource(&format!("{KNOWN}{own}"))]);
    let request = json!({"mesh": "default", "name": "dp-1", "dataplaneToken": token("dp-1")});
    let request: BootstrapRequest = serde_json::from_value(request).unwrap();
    let made = bootstraps(BootstrapSettings::default()).make(&request, Some("localhost"), &index).unwrap();
    let told = serde_json::to_value(&made.workloads).unwrap();
    assert_eq!(told, json!([{"name": "app", "address": "", "port": 8080, "path": "/told"}]));
}
