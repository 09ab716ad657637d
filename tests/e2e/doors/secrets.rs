//! No credential, key or secret leaves a control plane in an answer, a log line, a metric or an insight.
//!
//! The test collects every secret it can get hold of as an administrator, runs an Envoy that holds some of
//! them in its configuration, and then reads everything there is to read, as administrator, as user and as
//! stranger, with the logs at debug.

use std::collections::BTreeSet;

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use common::testing::needs;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use zone::ads::introspection::ENDPOINTS;

use crate::{
    harness::{
        Global, Options, Zone, addresses,
        control_plane::{ControlPlane, write},
        envoy::admin_address,
        eventually, http,
        process::Process,
    },
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

/// Something nobody may see.
struct Secret {
    what: String,
    /// Texts that give it away: of itself and of its encodings.
    traces: Vec<String>,
}

impl Secret {
    fn new(what: impl Into<String>, text: &str) -> Self {
        // Of a key a line from the middle is enough, and is the same however its lines are joined.
        let core = text
            .lines()
            .filter(|line| line.len() > 40 && !line.starts_with('-'))
            .nth(1)
            .unwrap_or(text)
            .trim();
        let encoded = |text: &str| {
            let all = BASE64_STANDARD.encode(text);
            // The last characters depend on what follows.
            all[..all.len() - 4].to_owned()
        };
        let mut traces = vec![core.to_owned(), utf8_percent_encode(core, NON_ALPHANUMERIC).to_string()];
        // Base64 depends on where in a group of three bytes something begins.
        for skip in 0..3 {
            traces.extend(core.get(skip..).map(encoded));
        }
        traces.push(BASE64_URL_SAFE_NO_PAD.encode(core));
        Self { what: what.into(), traces }
    }
}

/// Secrets in resources, without what is public: certificates and public keys.
async fn stored(cp: &ControlPlane, of: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for list in ["/secrets?size=1000", "/global-secrets?size=1000"] {
        for item in cp.get(list).await["items"].as_array().unwrap() {
            let data = item["data"].as_str().unwrap();
            let text = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
            let is_public = text.contains("PUBLIC KEY") || text.contains("-----BEGIN CERT");
            let key = text.find("-----BEGIN").filter(|_| text.contains("PRIVATE KEY"));
            let text = match key {
                Some(_) => {
                    let at = text.find("PRIVATE KEY").unwrap();
                    text[text[..at].rfind("-----BEGIN").unwrap()..].to_owned()
                }
                None if is_public || text.is_empty() => continue,
                None => text,
            };
            found.push(Secret::new(format!("{} in {of}", item["name"]), &text));
        }
    }
    assert!(found.len() >= 4, "signing keys and authorities are there");
    found
}

fn assert_clean(place: &str, text: &str, secrets: &[Secret]) {
    for secret in secrets {
        for trace in &secret.traces {
            assert!(!text.contains(trace.as_str()), "{} is in {place}, as {trace}", secret.what);
        }
    }
    // Keys the test cannot know, such as those of proxies' certificates, by their frame.
    for frame in ["PRIVATE KEY-----", "BRIVATE", "UFJJVkFURSBLRVkt", "BSSVZBVEUgS0VZL", "QUklWQVRFIEtFWS"] {
        assert!(!text.contains(frame), "a private key is in {place}");
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
enum Caller<'a> {
    Administrator,
    User(&'a str),
    Stranger,
}

async fn ask(client: &Client, cp: &ControlPlane, caller: Caller<'_>, path: &str) -> (StatusCode, String) {
    let request = client.get(cp.url(path));
    let request = match caller {
        Caller::Administrator => request.bearer_auth(cp.admin_token()),
        Caller::User(token) => request.header("x-forwarded-for", "10.0.0.9").bearer_auth(token),
        Caller::Stranger => request.header("x-forwarded-for", "10.0.0.9"),
    };
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

/// Every path one can read: those that stand still, and those of every resource there is.
async fn readable(client: &Client, cp: &ControlPlane) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> = [
        "/",
        "/config",
        "/who-am-i",
        "/policies",
        "/_resources",
        "/global-insight",
        "/global-insights",
        "/strait/link",
        "/debug/proxies",
        "/debug",
        "/nowhere",
    ]
    .map(str::to_owned)
    .into();
    let of_leaky = |(name, _): &(&str, &str)| format!("/debug/{name}?proxyID=leaky-1&include_eds");
    let everybody = |(name, _): &(&str, &str)| format!("/debug/{name}");
    paths.extend(ENDPOINTS.iter().map(of_leaky).chain(ENDPOINTS.iter().map(everybody)));
    for kind in cp.get("/_resources").await["resources"].as_array().unwrap() {
        let path = kind["path"].as_str().unwrap();
        paths.extend([format!("/{path}"), format!("/{path}/_overview"), format!("/meshes/default/{path}")]);
        let (status, list) = ask(client, cp, Caller::Administrator, &format!("/{path}?size=1000")).await;
        if !status.is_success() {
            continue;
        }
        let list: Value = serde_json::from_str(&list).unwrap();
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["name"].as_str().unwrap();
            let one = match item["mesh"].as_str().filter(|_| kind["scope"] == "Mesh") {
                Some(mesh) => format!("/meshes/{mesh}/{path}/{name}"),
                None => format!("/{path}/{name}"),
            };
            paths.extend(["", "?format=k8s", "/_overview"].map(|end| format!("{one}{end}")));
            if ["Dataplane", "ZoneIngress", "ZoneEgress"].contains(&kind["name"].as_str().unwrap()) {
                let asked = [
                    "xds",
                    "xds?include_eds=true",
                    "stats",
                    "stats?usedonly=false",
                    "stats?format=json",
                    "clusters",
                    "clusters?format=json",
                    "_config",
                ];
                paths.extend(asked.map(|what| format!("{one}/{what}")));
                paths.insert(format!("/debug/proxies/default.{name}/config"));
            }
        }
    }
    for old in ["dataplanes+insights", "zones+insights", "zoneingresses+insights", "zoneegressoverviews"] {
        paths.extend([format!("/{old}"), format!("/meshes/default/{old}")]);
    }
    paths
}

/// What only an administrator reads, and reads as it is.
fn is_for_administrators(path: &str) -> bool {
    ["/secrets", "/globalsecrets", "/global-secrets"].iter().any(|of| path.contains(of))
}

/// An Envoy whose configuration holds secrets in many places, as operators and older agents put them.
async fn leaky(zone: &Zone, secrets: &mut Vec<Secret>) -> (Process, std::net::SocketAddr) {
    let admin = admin_address();
    let address = addresses::loopback();
    zone.apply(&format!(
        "{{type: Dataplane, mesh: default, name: leaky-1, networking: {{address: {address}, admin: {{port: {}}}, \
         inbound: [{{port: {}, servicePort: 1, tags: {{kuma.io/service: leaky}}}}]}}}}",
        admin.port(),
        addresses::free_port(address),
    ));
    let token = zone.proxy_token("default", &["--name", "leaky-1"]).await;
    let old = zone.proxy_token("default", &["--name", "leaky-1", "--valid-for", "1h"]).await;
    let (token, old) = (token.as_str(), old.as_str());
    let token_file = write(zone.folder.path(), "leaky.token", token).display().to_string();
    let (server, ca) = (format!("https://{}", zone.dp_server), zone.certificate().display().to_string());
    let bootstrap = zone.straitctl(&[
        "bootstrap",
        "--cp-address",
        &server,
        "--ca-cert-file",
        &ca,
        "--token-file",
        &token_file,
        "--name",
        "leaky-1",
    ]);
    let mut bootstrap: Value = serde_norway::from_str(&bootstrap).unwrap();
    let metadata = bootstrap["node"]["metadata"].as_object_mut().unwrap();
    metadata.insert("dynamicMetadata".into(), json!({ "apiToken": "opaque-of-the-node-81", "copy": old }));
    let service = &mut bootstrap["dynamicResources"]["adsConfig"]["grpcServices"][0];
    let sent = service["initialMetadata"].as_array().cloned().unwrap_or_default();
    let more = [
        json!({ "key": "x-old", "value": old }),
        json!({ "key": "x-opaque", "value": "opaque-of-a-call-82" }),
    ];
    service["initialMetadata"] = sent.into_iter().chain(more).collect();
    let cluster = json!({
        "name": "leaky", "type": "STATIC", "connectTimeout": "1s", "loadAssignment": { "clusterName": "leaky" },
        "metadata": { "filterMetadata": { "of.an.operator": {
            "password": "opaque-of-metadata-83",
            "nested": json!({ "inner": BASE64_STANDARD.encode(old) }).to_string(),
            "address": "redis://cache:opaque-of-address-84@10.0.0.7:6379",
        } } },
        "healthChecks": [{ "timeout": "1s", "interval": "1000s", "unhealthyThreshold": 1, "healthyThreshold": 1,
            "httpHealthCheck": { "path": "/", "requestHeadersToAdd": [
                { "header": { "key": "Authorization", "value": "Bearer opaque-of-a-header-85" } },
                { "header": { "key": "x-api-key", "value": "opaque-of-a-key-86" } } ] } }],
    });
    let clusters = bootstrap["staticResources"]["clusters"].as_array_mut().unwrap();
    clusters.push(cluster);
    secrets.push(Secret::new("the token of the leaky proxy", token));
    secrets.push(Secret::new("its older token", old));
    for opaque in ["node-81", "call-82", "metadata-83", "address-84", "header-85", "key-86"] {
        let text = ["opaque-of-the-", "opaque-of-a-", "opaque-of-"]
            .map(|start| format!("{start}{opaque}"))
            .into_iter()
            .find(|text| bootstrap.to_string().contains(text.as_str()))
            .unwrap();
        secrets.push(Secret::new(text.clone(), &text));
    }
    let config = write(zone.folder.path(), "leaky.json", &bootstrap.to_string()).display().to_string();
    let base_id = (std::process::id() * 100 + 99).to_string();
    let args = ["-c", &config, "--base-id", &base_id, "--concurrency", "1", "--log-level", "warning"];
    (Process::start("leaky-1", &needs::envoy().unwrap(), args), admin)
}

async fn known_on_global(global: &Global, name: &str) -> String {
    eventually("the dataplane and its insight are on global", || async {
        let all = global.try_get("/meshes/default/dataplanes/_overview").await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let found = items.iter().find(|item| item["labels"]["kuma.io/display-name"] == name);
        let found = found.filter(|item| !item["dataplaneInsight"].is_null());
        found.and_then(|item| item["name"].as_str()).map(str::to_owned).ok_or("not yet".to_owned())
    })
    .await
}

#[tokio::test]
async fn no_secret_leaves_in_an_answer_a_log_a_metric_or_an_insight() {
    let password = "postgres-password-of-the-operator-77";
    let options =
        || Options::default().with("store.postgres.password", password).with_variable("RUST_LOG", "debug");
    let (global, zones) = federation_with(1, options(), options()).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let opaque = "content-of-a-secret-of-the-operator-78";
    for kind in ["type: Secret\nmesh: default", "type: GlobalSecret"] {
        global.apply(&format!("{kind}\nname: of-the-operator\ndata: {}\n", BASE64_STANDARD.encode(opaque)));
    }
    let mut secrets =
        vec![Secret::new("the password of Postgres", password), Secret::new("a secret", opaque)];
    let mut users = Vec::new();
    for cp in [&global.cp, &zone.cp] {
        let args = ["generate", "user-token", "--name", "ann", "--group", "team", "--valid-for", "1h"];
        let user = cp.straitctl(&args).trim().to_owned();
        secrets.push(Secret::new("the token of a user", &user));
        users.push(user);
    }
    let zone_token = std::fs::read_to_string(zone.folder.path().join("zone-token")).unwrap();
    secrets.push(Secret::new("the token of the zone", zone_token.trim()));
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let (_leaky, admin) = leaky(zone, &mut secrets).await;
    known_on_global(&global, "backend-1").await;
    known_on_global(&global, "leaky-1").await;
    secrets.extend(stored(&global, "global").await);
    secrets.extend(stored(zone, "the zone").await);

    // Envoy itself shows what it was given, so there is something to take out.
    let raw = reqwest::get(format!("http://{admin}/config_dump")).await.unwrap().text().await.unwrap();
    let shown = secrets.iter().filter(|secret| raw.contains(&secret.traces[0])).count();
    assert!(shown >= 6, "{shown} of the secrets are in the Envoy");

    let client = http::client();
    let (mut answers, mut seen) = (0, BTreeSet::new());
    for (cp, user) in [(&global.cp, &users[0]), (&zone.cp, &users[1])] {
        let paths = readable(&client, cp).await;
        for path in &paths {
            for caller in [Caller::Administrator, Caller::User(user), Caller::Stranger] {
                let (status, text) = ask(&client, cp, caller, path).await;
                if is_for_administrators(path) {
                    if matches!(caller, Caller::Administrator) {
                        continue;
                    }
                    assert!(!status.is_success(), "{path} for {caller:?}");
                }
                answers += usize::from(status.is_success());
                if !seen.contains(&text) {
                    assert_clean(&format!("{path} for {caller:?}"), &text, &secrets);
                    seen.insert(text);
                }
            }
        }
        let dumps = paths.iter().filter(|path| path.contains("leaky-1") && path.ends_with("/xds"));
        for dump in dumps {
            let (status, text) = ask(&client, cp, Caller::Administrator, dump).await;
            assert_eq!(status, StatusCode::OK, "{text}");
            assert!(text.contains("[redacted]") && text.contains("localhost:"), "the rest is there: {text}");
            assert_eq!(ask(&client, cp, Caller::User(user), dump).await.0, StatusCode::FORBIDDEN);
        }
        for path in ["/metrics", "/ready", "/healthy", "/"] {
            let text = reqwest::get(cp.diagnostics_url(path)).await.unwrap().text().await.unwrap();
            assert_clean(&format!("{path} of diagnostics"), &text, &secrets);
        }
        let log = cp.process.whole_log();
        assert!(log.contains("DEBUG"), "the log is at debug");
        assert_clean("the log", &log, &secrets);
    }
    let stranger = Client::builder().danger_accept_invalid_certs(true).build().unwrap();
    for path in ["/", "/bootstrap", "/config_dump"] {
        let answer = stranger.get(format!("https://{}{path}", zone.dp_server)).send().await.unwrap();
        assert_clean(path, &answer.text().await.unwrap(), &secrets);
    }
    println!("{} secrets looked for in {answers} answers", secrets.len());
}
