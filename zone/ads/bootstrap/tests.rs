//! Bootstraps against known documents, and every way to be refused.
#![allow(clippy::unwrap_used)]

use std::{fs, sync::LazyLock};

use axum::body::{Body, to_bytes};
use base64::{Engine, engine::general_purpose::STANDARD};
use common::{
    model::{Resource, ResourceKey, document::Document, kinds::dataplane},
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

fn bootstraps(settings: Settings) -> Bootstraps {
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
    let tcp = |address: &str, port| Settings {
        admin_address: address.to_owned(),
        admin_port: port,
        admin_socket: false,
        ..Settings::default()
    };
    let custom = || Settings {
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
    ];
    for (name, mut request, settings, port) in cases {
        let text = fs::read_to_string(folder.join(format!("{name}.golden.yaml"))).unwrap();
        let mut golden: Value = serde_norway::from_str(&text).unwrap();
        // Health discovery is not served here, so nobody is told to ask for it.
        golden.as_object_mut().unwrap().shift_remove("hdsConfig");
        request["caCert"] = authority_of(&golden).into();
        let mut maker = bootstraps(settings);
        maker.port = port;
        maker.requirement.dataplane = Credential::None;
        let (mesh, dp) = (request["mesh"].as_str().unwrap(), request["name"].as_str().unwrap());
        let mut stored = resource(&KNOWN.replace("admin: {port: 1234}", ""));
        stored.key = ResourceKey::new(&dataplane::KIND, mesh, dp);
        let index = index(vec![stored]);
        let request: Request = serde_json::from_value(request).unwrap();
        let made = maker.make(&request, Some("localhost"), &index).unwrap().envoy;
        let text = |json| serde_json::to_string_pretty(json).unwrap();
        assert!(made == golden, "{name}: made\n{}\nexpected\n{}", text(&made), text(&golden));
    }
}

#[test]
fn a_plain_envoy_gets_what_it_needs() {
    let maker = bootstraps(Settings::default());
    let request: Request = serde_json::from_value(json!({
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
    index(vec![resource("{type: Mesh, name: default}"), resource(KNOWN), key])
}

/// A token for this dataplane, or for any.
fn token(name: &str) -> String {
    let claims = DataplaneClaims { name: name.to_owned(), ..DataplaneClaims::default() };
    let (purpose, hour) = (Purpose::Dataplane { mesh: "default" }, Duration::from_secs(3600));
    token::issue(&known(), purpose, &claims, hour, &Env::system("test")).unwrap()
}

#[test]
fn a_token_in_a_file_stays_there() {
    let maker = bootstraps(Settings::default());
    let request: Request = serde_json::from_value(json!({
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
    let authenticator = Authenticator::new(maker.requirement, "east".into(), Env::system("test"));
    let response = handler::router(maker.clone(), authenticator, reader).oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn refusals_have_the_status_the_client_acts_on() {
    let maker = bootstraps(Settings::default());
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

#[tokio::test]
async fn one_answer_has_two_forms() {
    let maker = bootstraps(Settings::default());
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
