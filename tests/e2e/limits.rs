//! Policies that limit, break, ask and encrypt, by what they do to traffic between real sidecars.

use reqwest::StatusCode;

use crate::{
    harness::{Global, Zone, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// One zone with a backend and two clients that may call it.
async fn trio() -> (Global, Vec<Zone>, Member, Member, Member) {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    let other = Member::join(&zones[0], Shape::http("other-1", "other", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    other.reaches(0, "backend-1").await;
    (global, zones, backend, client, other)
}

#[tokio::test]
async fn a_limit_limits_whom_it_names() {
    let (global, _zones, _backend, client, other) = trio().await;
    global.apply(
        "
type: MeshRateLimit
name: backend
mesh: default
spec:
  targetRef: { kind: MeshService, name: backend }
  rules:
    - matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/client' } }]
      default:
        local:
          http:
            requestRate: { num: 1, interval: 1h }
            onRateLimit: { headers: { set: [{ name: x-limited, value: 'yes' }] } }
",
    );
    let at = client.outbounds[0];
    eventually("a request over the limit", || async move {
        let answer = reqwest::get(format!("http://{at}/")).await.map_err(|e| e.to_string())?;
        let told = answer.headers().get("x-limited").is_some_and(|value| value == "yes");
        match answer.status() {
            StatusCode::TOO_MANY_REQUESTS if told => Ok(()),
            status => Err(format!("{status} {:?}", answer.headers())),
        }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(other.call(0, "/").await.unwrap().0, StatusCode::OK);
    }
    // A client that had its share waits for the hour to pass, or for another limit.
    assert_eq!(client.call(0, "/").await.unwrap().0, StatusCode::TOO_MANY_REQUESTS);
    global.straitctl(&["delete", "meshratelimit", "backend"]);
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn a_fault_faults_whom_it_names_by_tags_and_by_identity() {
    let (global, _zones, _backend, client, other) = trio().await;
    let fault = |items: &str| {
        global.apply(&format!(
            "
type: MeshFaultInjection
name: trouble
mesh: default
spec:
  targetRef: {{ kind: MeshService, name: backend }}
  {items}
      default: {{ http: [{{ abort: {{ httpStatus: 418, percentage: 100 }} }}] }}
"
        ));
    };
    fault("from:\n    - targetRef: { kind: MeshService, name: client }");
    client.gets(0, StatusCode::IM_A_TEAPOT).await;
    let seen = other.reaches(0, "backend-1").await;
    assert_eq!(seen["headers"].get("x-kuma-tags"), None, "workloads are not told tags");

    fault("rules:\n    - matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/other' } }]");
    other.gets(0, StatusCode::IM_A_TEAPOT).await;
    client.reaches(0, "backend-1").await;
    assert_eq!(other.call(0, "/").await.unwrap().0, StatusCode::IM_A_TEAPOT);
}

#[tokio::test]
async fn a_host_that_fails_the_check_gets_nothing() {
    let (global, _zones, _backend, client, _other) = trio().await;
    let check = |path: &str| {
        global.apply(&format!(
            "
type: MeshHealthCheck
name: backend
mesh: default
spec:
  to:
    - targetRef: {{ kind: MeshService, name: backend }}
      default:
        interval: 1s
        noTrafficInterval: 1s
        unhealthyThreshold: 1
        healthyPanicThreshold: 0
        http: {{ path: {path} }}
"
        ));
    };
    check("/status/500");
    client.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
    let failed = client.envoy.stat("cluster.backend.health_check.failure").await.unwrap();
    assert!(failed > 0, "it was left out for another reason");
    check("/");
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn an_inbound_takes_plaintext_when_the_policy_lets_it_and_versions_hold_on_both_sides() {
    let (global, _zones, backend, client, _other) = trio().await;
    let plain = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let url = format!("http://{}/", backend.inbound);
    let direct = || async { plain.get(&url).send().await.map(|answer| answer.status()) };
    assert!(direct().await.is_err(), "a strict mesh must not answer plaintext");
    global.apply(
        "
type: MeshTLS
name: all
mesh: default
spec:
  rules:
    - default: { tlsVersion: { min: TLS13, max: TLS13 } }
---
type: MeshTLS
name: open
mesh: default
spec:
  targetRef: { kind: MeshSubset, tags: { kuma.io/service: backend } }
  rules:
    - default: { mode: Permissive }
",
    );
    eventually("an answer to plaintext", || async {
        match direct().await {
            Ok(StatusCode::OK) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let client = &client;
    eventually("a connection with TLS 1.3", || async move {
        client.reaches(0, "backend-1").await;
        let counted = client.envoy.admin("/stats?filter=cluster.backend.ssl.versions.TLSv1.3").await?;
        let seen = counted.lines().any(|line| line.rsplit(' ').next().is_some_and(|n| n != "0"));
        if seen { Ok(()) } else { Err(counted) }
    })
    .await;
    global.straitctl(&["delete", "meshtls", "open"]);
    eventually("no answer to plaintext", || async {
        match direct().await {
            Ok(status) => Err(status.to_string()),
            Err(_) => Ok(()),
        }
    })
    .await;
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn every_example_is_accepted() {
    let (global, _zones) = federation(1).await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies");
    let (ok, told, warned) = global.try_straitctl(&["apply", "-f", &folder.display().to_string()]);
    assert!(ok, "{told}\n{warned}");
    let texts =
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let documents: usize =
        texts.map(|text| text.lines().filter(|line| line.starts_with("type: ")).count()).sum();
    assert_eq!(told.lines().count(), documents, "{told}");
}
