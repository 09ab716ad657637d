//! Who may do what: strangers, users, administrators; and the settings that decide it.

use std::process::Command;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Global, Options, Zone, control_plane::ControlPlane, http, process::Process, wait::eventually,
};

/// Asks as a proxy asks for somebody else, with his token if he has one.
async fn from_afar(
    cp: &ControlPlane,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> (StatusCode, String) {
    let request = http::client().request(method, cp.url(path)).header("x-forwarded-for", "10.0.0.9");
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let answer = request.json(body).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

fn user_token(cp: &ControlPlane, name: &str, group: &str) -> String {
    let args = ["generate", "user-token", "--name", name, "--group", group, "--valid-for", "1h"];
    cp.straitctl(&args).trim().to_owned()
}

#[tokio::test]
async fn a_stranger_writes_nothing_on_global_and_in_a_zone() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    let mesh = json!({ "type": "Mesh", "name": "taken" });
    let timeout = json!({ "type": "MeshTimeout", "mesh": "default", "name": "a", "spec": {},
        "labels": { "kuma.io/origin": "zone" } });
    eventually("the zone's resource", || global.try_get("/zones/zone-1")).await;
    for cp in [&global.cp, &zone.cp] {
        // Global and zone still tell each other things, so what a stranger asked for is looked at by its name.
        let there = async |path: &str| cp.call(Method::GET, path, None).await.0 == StatusCode::OK;
        eventually("the default mesh", || cp.try_get("/meshes/default")).await;
        for (method, path, body) in [
            (Method::PUT, "/meshes/taken", &mesh),
            (Method::DELETE, "/meshes/default", &Value::Null),
            (Method::PUT, "/meshes/default/meshtimeouts/a", &timeout),
            (Method::DELETE, "/zones/zone-1", &Value::Null),
            (Method::PUT, "/meshes/default/dataplanes/a", &json!({})),
            (Method::PUT, "/global-secrets/a", &json!({})),
            (Method::POST, "/tokens/user", &json!({ "name": "a", "validFor": "1h" })),
            (Method::POST, "/tokens/zone", &json!({ "scope": ["cp"] })),
            (Method::POST, "/tokens/dataplane", &json!({ "mesh": "default" })),
            (Method::POST, "/strait/link/approve", &Value::Null),
            (Method::PATCH, "/meshes/default", &mesh),
            (Method::from_bytes(b"INVENTED").unwrap(), "/meshes/default", &mesh),
        ] {
            let (status, text) = from_afar(cp, method.clone(), path, None, body).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {text}");
            assert!(text.contains("straitctl generate user-token"), "it says how to get in: {text}");
        }
        let made = [
            "/meshes/taken",
            "/meshes/default/meshtimeouts/a",
            "/meshes/default/dataplanes/a",
            "/global-secrets/a",
        ];
        for path in made {
            assert!(!there(path).await, "a stranger made {path}");
        }
        assert!(there("/meshes/default").await, "a stranger deleted it");
        let reads = ["/", "/meshes", "/zones/_overview", "/global-insight", "/who-am-i", "/meshtimeouts"];
        for path in reads {
            assert_eq!(from_afar(cp, Method::GET, path, None, &Value::Null).await.0, 200, "{path}");
        }
        for path in ["/config", "/secrets", "/global-secrets", "/meshes/default/dataplanes/a/xds"] {
            assert_eq!(from_afar(cp, Method::GET, path, None, &Value::Null).await.0, 403, "{path}");
        }
    }

    global.get("/zones/zone-1").await;

    // A user with a token gets in, on the side that made it, also with our own program.
    let token = user_token(&global, "ann", "team");
    let (status, text) = from_afar(&global, Method::PUT, "/meshes/taken", Some(&token), &mesh).await;
    assert_eq!(status, 201, "{text}");
    assert_eq!(from_afar(&global, Method::GET, "/config", Some(&token), &Value::Null).await.0, 200);
    assert_eq!(from_afar(&global, Method::GET, "/secrets", Some(&token), &Value::Null).await.0, 403);
    assert_eq!(from_afar(&zone, Method::GET, "/meshes", Some(&token), &Value::Null).await.0, 401);

    let home = TempDir::new().unwrap();
    let remote = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_straitctl"))
            .args(args)
            .env("HOME", home.path())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let address = global.url("");
    let add = ["config", "control-planes", "add", "--name", "there", "--headers", "x-forwarded-for=10.0.0.9"];
    assert!(remote(&[&add[..], &["--address", &address]].concat()).0);
    let (ok, error) = remote(&["delete", "mesh", "taken"]);
    assert!(!ok && error.contains("user-token") && error.contains("--token"), "{error}");
    let (ok, error) = remote(&["delete", "mesh", "taken", "--token", &token]);
    assert!(ok, "{error}");
}

#[tokio::test]
async fn kumas_way_is_a_setting_and_is_warned_of() {
    let global =
        Global::start_with(Options::default().with("apiServer.authn.anonymousMayWrite", "true")).await;
    let mesh = json!({ "type": "Mesh", "name": "anyone" });
    assert_eq!(from_afar(&global, Method::PUT, "/meshes/anyone", None, &mesh).await.0, 201);
    assert_eq!(from_afar(&global, Method::GET, "/global-secrets", None, &Value::Null).await.0, 403);
    let warning = "apiServer.authn.anonymousMayWrite is true";
    assert!(global.process.log().contains(warning), "{}", global.process.log());
    assert!(global.get("/").await["strait"]["warnings"].to_string().contains(warning));
    for command in [&["inspect", "zones"][..], &["version"]] {
        let (ok, _, told) = global.try_straitctl(command);
        assert!(ok && told.contains(warning), "{command:?}: {told}");
    }
}

/// What proxies add, and what nobody has thought of yet.
#[rustfmt::skip]
const OF_PROXIES: [&str; 24] = [
    "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
    "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip",
    "CF-Connecting-IP", "CF-Ray", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For",
    "X-Original-Host", "X-Envoy-External-Address", "X-Request-Id", "X-Amzn-Trace-Id", "CDN-Loop", "X-Varnish",
    "X-Invented-By-A-Proxy",
];

#[tokio::test]
async fn a_request_that_came_through_a_proxy_is_not_local() {
    let trusting = Options::default().with_variable("KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN", "true");
    let global = Global::start_with(trusting).await;
    let who = async |headers: &[(&str, &str)]| {
        let mut request = http::client().get(global.url("/who-am-i"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = request.send().await.unwrap().text().await.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(who(&[]).await, "mesh-system:admin");
    let usual = [("accept", "application/json"), ("user-agent", "kumactl/2.14"), ("sec-fetch-site", "none")];
    assert_eq!(who(&usual).await, "mesh-system:admin");
    for name in OF_PROXIES {
        for value in ["10.0.0.9", "localhost", ""] {
            assert_eq!(who(&[(name, value)]).await, "mesh-system:anonymous", "{name}: {value:?}");
        }
    }
    assert_eq!(who(&[("host", "global.example")]).await, "mesh-system:anonymous");
}

#[tokio::test]
async fn rights_are_set_as_with_kuma() {
    let options = Options::default()
        .with_variable("KUMA_ACCESS_STATIC_ADMIN_RESOURCES_USERS", "ann")
        .with_variable("KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS", "")
        .with_variable("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_GROUPS", "ops")
        .with_variable("STRAIT_ACCESS_STATIC_CONTROL_PLANE_METADATA_GROUPS", "ops")
        .with_variable("KUMA_API_SERVER_AUTHN_TYPE", "tokens")
        .with_variable("KUMA_STORE_CACHE_ENABLED", "true")
        .with("access.static.viewStats.groups", "mesh-system:unauthenticated");
    let global = Global::start_with(options).await;
    let (ann, ops) = (user_token(&global, "ann", "team"), user_token(&global, "bob", "ops"));
    let status = async |path: &str, token: Option<&str>| {
        from_afar(&global, Method::GET, path, token, &Value::Null).await.0.as_u16()
    };
    assert_eq!(global.call(Method::GET, "/global-secrets", None).await.0, 403, "not even the administrator");
    assert_eq!(
        (status("/global-secrets", Some(&ann)).await, status("/global-secrets", Some(&ops)).await),
        (200, 403)
    );
    assert_eq!((status("/config", Some(&ann)).await, status("/config", Some(&ops)).await), (403, 200));
    let web = "/meshes/default/dataplanes/web-1";
    let (dump, stats) = (format!("{web}/xds"), format!("{web}/stats"));
    assert_eq!((status(&dump, Some(&ann)).await, status(&dump, Some(&ops)).await), (403, 404));
    assert_eq!((status(&stats, None).await, status(&stats, Some(&ann)).await), (404, 403));
    assert!(global.process.log().contains("KUMA_STORE_CACHE_ENABLED"), "what does nothing is said");

    let options = Options::default()
        .with("apiServer.authn.localhostIsAdmin", "true")
        .with("apiServer.authn.tokens.bootstrapAdminToken", "false")
        .with("apiServer.authn.tokens.enableIssuer", "false");
    let global = Global::start_with(options).await;
    assert!(!global.get("/global-secrets").await.to_string().contains("admin-user-token"));
    assert!(!global.admin_token_file().exists());
    let (ok, _, error) =
        global.try_straitctl(&["generate", "user-token", "--name", "ann", "--valid-for", "1h"]);
    assert!(!ok && error.contains("apiServer.authn.tokens.enableIssuer"), "{error}");
}

#[tokio::test]
async fn a_variable_that_changes_security_and_does_not_exist_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let work_dir = folder.path().display().to_string();
    let (global, zone) = (env!("CARGO_BIN_EXE_strait-global"), env!("CARGO_BIN_EXE_strait-zone"));
    for (program, name, value, says) in [
        (global, "KUMA_ACCESS_STATIC_VIEW_SECRETS_USERS", "ann", "KUMA_ACCESS_STATIC_VIEW_SECRETS_USERS"),
        (
            global,
            "KUMA_API_SERVER_HTTPS_REQUIRE_CLIENT_CERT",
            "true",
            "KUMA_API_SERVER_HTTPS_REQUIRE_CLIENT_CERT",
        ),
        (global, "KUMA_API_SERVER_AUTHN_TOKENS_VALIDATOR_USE_SECRETS", "false", "VALIDATOR_USE_SECRETS"),
        (global, "STRAIT_ACCES_STATIC_DENY_ALL", "true", "STRAIT_ACCES_STATIC_DENY_ALL"),
        (global, "KUMA_DIAGNOSTICS_TLS_ENABLED", "true", "KUMA_DIAGNOSTICS_TLS_ENABLED"),
        (zone, "KUMA_GENERAL_TLS_MIN_VERSION", "TLSv1_3", "KUMA_GENERAL_TLS_MIN_VERSION"),
        (zone, "KUMA_DP_SERVER_AUTH_TYPE", "dpToken", "KUMA_DP_SERVER_AUTH_TYPE"),
        (zone, "KUMA_DP_SERVER_AUTHN_DP_PROXY_DP_TOKEN_ENABLE_ISSUER", "false", "DP_TOKEN_ENABLE_ISSUER"),
        (
            global,
            "KUMA_API_SERVER_AUTHN_TYPE",
            "adminClientCerts",
            "adminClientCerts is not supported: use tokens",
        ),
        (zone, "KUMA_API_SERVER_AUTHN_TYPE", "custom", "setting apiServer.authn.type"),
        (global, "KUMA_ACCESS_TYPE", "custom-rbac", "setting access.type"),
    ] {
        let args = ["--general.workDir", &work_dir, "--diagnostics.serverPort", "0"];
        let environment = [(name.to_owned(), value.to_owned())];
        let mut process = Process::start_in(name, program.as_ref(), args, &environment);
        assert_eq!(process.ended().await.code(), Some(2), "{name}");
        assert!(process.log().contains(says), "{name}: {}", process.log());
    }
}
