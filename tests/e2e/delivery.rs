//! A write is followed to the last proxy: who waits for it finds it in every Envoy, or is told who lacks it.

use std::net::TcpListener;

use reqwest::{Method, StatusCode, header::HeaderValue};
use serde_json::{Value, json};

use crate::{
    harness::{
        Envoy, Global, Options, Zone, addresses, control_plane::write, envoy::admin_address, eventually,
    },
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

fn policy(seconds: u32) -> String {
    format!(
        "{{type: MeshTimeout, mesh: default, name: followed, spec: {{to: [{{targetRef: {{kind: Mesh}}, default: \
         {{connectionTimeout: {seconds}s}}}}]}}}}"
    )
}

fn file(global: &Global, text: &str) -> String {
    let folder = global.admin_token_file().parent().unwrap().to_owned();
    write(&folder, "delivered.yaml", text).display().to_string()
}

/// Whether the clusters of an Envoy have this timeout.
async fn has(envoy: &Envoy, seconds: u32) -> bool {
    let dump = envoy.admin("/config_dump").await.unwrap();
    dump.contains(&format!("\"connect_timeout\": \"{seconds}s\""))
}

/// A client and a server, which have been served.
async fn members(zone: &Zone) -> [Member; 2] {
    let server = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(zone, Shape::http("web-1", "web", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    [client, server]
}

#[tokio::test]
async fn who_waits_for_proxies_finds_the_write_in_every_envoy() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let members = members(&zones[0]).await;
    for seconds in 1..=3 {
        let out = global.straitctl(&["apply", "-f", &file(&global, &policy(seconds)), "--wait=proxies"]);
        assert!(out.contains("zone-1: acknowledged") && out.contains("zone-2: acknowledged"), "{out}");
        assert!(has(&members[0].envoy, seconds).await, "the client has {seconds} s");
    }

    // One that takes nothing is waited for, and named when the time is over.
    members[0].envoy.signal("STOP");
    let waiting = ["apply", "-f", &file(&global, &policy(4)), "--wait=proxies", "--timeout", "3s"];
    let (done, out, error) = global.try_straitctl(&waiting);
    assert!(!done && error.contains("proxies in zone-1 have not answered: default.web-1"), "{out} {error}");
    assert!(!error.contains("zone-2 has") && out.contains("zone-2: acknowledged"), "{out} {error}");
    let revision = error.split_whitespace().skip_while(|word| *word != "revision").nth(1).unwrap();
    let path = format!("/sync/revisions/{revision}");
    let zones_only = global.get(&path).await;
    assert_eq!(zones_only["acknowledged"], true, "{zones_only}");
    let with_proxies = global.get(&format!("{path}?of=proxies")).await;
    assert_eq!(with_proxies["acknowledged"], false, "{with_proxies}");
    let zone = &with_proxies["zones"][0];
    assert_eq!(
        (&zone["state"], &zone["proxies"]["behind"]),
        (&json!("proxies"), &json!(1)),
        "{with_proxies}"
    );
    members[0].envoy.signal("CONT");
    global.straitctl(&["wait", "revision", revision, "--proxies"]);
    assert!(has(&members[0].envoy, 4).await);

    // The same is asked of the zone itself about what is written there.
    let limit = "{type: MeshCircuitBreaker, mesh: default, name: own, labels: {kuma.io/origin: zone}, spec: {to: \
                 [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 77}}}]}}";
    zones[0].straitctl(&["apply", "-f", &file(&global, limit), "--wait=proxies"]);
    let dump = members[0].envoy.admin("/config_dump").await.unwrap();
    assert!(dump.contains("\"max_connections\": 77"), "the zone's own policy is there");
    let (status, sync) = global.call(Method::GET, "/sync", None).await;
    assert_eq!((status, &sync["zones"][0]["proxies"]["connected"]), (StatusCode::OK, &json!(2)), "{sync}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_exception_and_holds_up_nobody() {
    // Without mutual TLS the listener needs nothing that the Envoy would ask for and then not want any more.
    let global = &Global::start().await;
    let zone = &Zone::start_with(global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let address = addresses::loopback();
    let taken = TcpListener::bind((address, 0)).unwrap();
    let (port, admin) = (taken.local_addr().unwrap().port(), admin_address());
    zone.apply(&format!(
        "{{type: Dataplane, mesh: default, name: bound, networking: {{address: {address}, admin: {{port: {}}}, inbound: \
         [{{port: {port}, servicePort: 1, serviceAddress: 127.0.0.1, tags: {{kuma.io/service: bound}}}}]}}}}",
        admin.port()
    ));
    let _envoy = Envoy::sidecar(zone, "default", "bound", admin).await;
    eventually("global is told what the proxy does without", || async move {
        let sync = global.try_get("/sync").await?;
        let refusal = &sync["zones"][0]["proxies"]["refusals"][0];
        let tells = refusal["proxy"] == "default.bound"
            && refusal["reason"].as_str().is_some_and(|reason| reason.contains("Address already in use"));
        if tells { Ok(()) } else { Err(sync.to_string()) }
    })
    .await;
    let applied = global.try_straitctl(&["apply", "-f", &file(global, &policy(5)), "--wait=proxies"]);
    let shown = zone.get("/debug/proxies").await;
    assert!(applied.0 && applied.2.contains("default.bound does without something"), "{applied:?} {shown}");
}

#[tokio::test]
async fn a_write_names_its_revision_in_the_body_for_who_asks() {
    let global = Global::start().await;
    let body: Value = json!({"type": "Mesh", "name": "default", "labels": {"team": "a"}});
    let put = |prefer: Option<&'static str>| {
        let request = global.admin().put(global.url("/meshes/default")).json(&body);
        match prefer {
            Some(prefer) => request.header("prefer", HeaderValue::from_static(prefer)).send(),
            None => request.send(),
        }
    };
    let usual = put(None).await.unwrap();
    let revision = usual.headers()["strait-revision"].to_str().unwrap().to_owned();
    assert_eq!(usual.json::<Value>().await.unwrap(), json!({}), "as Kuma's clients know it");
    let told = put(Some("respond-async, Revision")).await.unwrap();
    assert_eq!(told.headers()["preference-applied"], "revision");
    let told: Value = told.json().await.unwrap();
    assert_eq!(told["revision"].to_string(), revision, "an equal put names what it found");
}
