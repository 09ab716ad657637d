//! The policies of the older generation, by what they do to traffic between real sidecars.

use std::collections::BTreeSet;

use reqwest::StatusCode;

use serde_json::Value;

use crate::{
    harness::{Global, Zone, eventually},
    mesh::{MESH, Member, Shape, federation},
    telemetry::collector,
};

/// Without the first policies of the mesh, which would win over the older ones.
async fn older_mesh() -> (Global, Vec<Zone>) {
    let (global, zones) = federation(1).await;
    for kind in ["timeout", "retry", "circuit-breaker"] {
        global.straitctl(&[
            "delete",
            &format!("mesh{}", kind.replace('-', "")),
            &format!("mesh-{kind}-all-default"),
        ]);
    }
    global.apply(ROUTE_ALL);
    (global, zones)
}

/// Everything goes where it is sent to.
const ROUTE_ALL: &str = "
type: TrafficRoute
name: route-all
mesh: default
sources: [{ match: { kuma.io/service: '*' } }]
destinations: [{ match: { kuma.io/service: '*' } }]
conf: { destination: { kuma.io/service: '*' } }
";

/// Lets clients with these tags call everything.
fn permission(tags: &str) -> String {
    format!(
        "
type: TrafficPermission
name: to-all
mesh: default
sources: [{{ match: {{ {tags} }} }}]
destinations: [{{ match: {{ kuma.io/service: '*' }} }}]
"
    )
}

/// What is for calls of `backend`.
fn of_calls(kind: &str, conf: &str) -> String {
    format!(
        "
type: {kind}
name: backend
mesh: default
sources: [{{ match: {{ kuma.io/service: '*' }} }}]
destinations: [{{ match: {{ kuma.io/service: backend }} }}]
conf: {conf}
"
    )
}

/// What is for requests of `client` to `backend`.
fn of_client(kind: &str, more: &str, conf: &str) -> String {
    format!(
        "
type: {kind}
name: client-to-backend
mesh: default
sources: [{{ match: {{ kuma.io/service: client }} }}]
destinations: [{{ match: {{ kuma.io/service: backend{more} }} }}]
conf: {conf}
"
    )
}

#[tokio::test]
async fn older_routes_split_and_choose_and_older_timeouts_and_retries_hold() {
    let (global, zones) = older_mesh().await;
    global.apply(&permission("kuma.io/service: '*'"));
    let first = Shape { tags: ", version: v1", ..Shape::http("backend-1", "backend", &[]) };
    let _first = Member::join(&zones[0], first).await;
    let second = Shape { tags: ", version: v2", ..Shape::http("backend-2", "backend", &[]) };
    let _second = Member::join(&zones[0], second).await;
    let client = &Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    let served = || async {
        let mut served = BTreeSet::new();
        for _ in 0..20 {
            let (_, seen) = client.call(0, "/").await?;
            served.insert(seen["service"].to_string());
        }
        Ok::<_, String>(served)
    };
    let served = &served;
    let both = |what: &'static str| async move {
        eventually(what, || async move {
            let served = served().await?;
            if served.len() == 2 && !served.contains("null") { Ok(()) } else { Err(format!("{served:?}")) }
        })
        .await;
    };
    both("every host of the service").await;

    global.apply(&of_calls(
        "TrafficRoute",
        "
  http:
    - match: { path: { prefix: /new } }
      modify: { path: { rewritePrefix: /old } }
      destination: { kuma.io/service: backend, version: v2 }
  split: [{ weight: 1, destination: { kuma.io/service: backend, version: v1 } }]",
    ));
    eventually("a request for the second version", || async move {
        let (_, seen) = client.call(0, "/new/page").await?;
        let there = seen["service"] == "backend-2" && seen["path"] == "/old/page";
        if there { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    assert_eq!(served().await.unwrap(), BTreeSet::from(["\"backend-1\"".to_owned()]));

    global.apply(&of_calls(
        "TrafficRoute",
        "
  split:
    - { weight: 1, destination: { kuma.io/service: backend, version: v1 } }
    - { weight: 1, destination: { kuma.io/service: backend, version: v2 } }",
    ));
    both("both shares").await;

    // Without retries a request fails the first time it is made, whichever host it reaches.
    assert_eq!(client.call(0, "/fails/1/alone").await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    global.apply(&of_calls("Retry", "{ http: { numRetries: 5, retriableStatusCodes: [503] } }"));
    eventually("an answer after retries", || async move {
        let key = uuid::Uuid::new_v4();
        match client.call(0, &format!("/fails/1/{key}")).await? {
            (StatusCode::OK, _) => Ok(()),
            (status, seen) => Err(format!("{status}: {seen}")),
        }
    })
    .await;

    assert_eq!(client.call(0, "/delay/1500").await.unwrap().0, StatusCode::OK);
    global.apply(&of_calls("Timeout", "{ http: { requestTimeout: 1s } }"));
    eventually("a timeout", || async move {
        match client.call(0, "/delay/1500").await? {
            (StatusCode::GATEWAY_TIMEOUT, _) => Ok(()),
            (status, seen) => Err(format!("{status}: {seen}")),
        }
    })
    .await;
    global.straitctl(&["delete", "timeout", "backend"]);
    eventually("no timeout", || async move {
        match client.call(0, "/delay/1500").await? {
            (StatusCode::OK, _) => Ok(()),
            (status, seen) => Err(format!("{status}: {seen}")),
        }
    })
    .await;
}

#[tokio::test]
async fn older_permissions_limits_and_faults_are_for_whom_they_name() {
    let (global, zones) = older_mesh().await;
    global.apply(&permission("kuma.io/service: client"));
    let backend = &Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    let other = &Member::join(&zones[0], Shape::http("other-1", "other", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let denied = || async {
        let stats = backend.envoy.admin("/stats?filter=rbac.denied").await?;
        let counts = stats.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok::<u64, String>(counts.sum())
    };
    let before = denied().await.unwrap();
    let denied = &denied;
    eventually("a refusal", || async move {
        let (status, seen) = other.call(0, "/").await?;
        assert_ne!(status, StatusCode::OK, "{seen}");
        if denied().await? > before { Ok(()) } else { Err(format!("{status}: {seen}")) }
    })
    .await;
    global.apply(&permission("kuma.io/service: '*'"));
    other.reaches(0, "backend-1").await;

    global.apply(&of_client(
        "FaultInjection",
        ", kuma.io/protocol: http",
        "{ abort: { percentage: 100, httpStatus: 418 } }",
    ));
    client.gets(0, StatusCode::IM_A_TEAPOT).await;
    let seen = other.reaches(0, "backend-1").await;
    assert_eq!(seen["headers"].get("x-kuma-tags"), None, "workloads are not told tags");
    global.straitctl(&["delete", "fault-injection", "client-to-backend"]);
    client.reaches(0, "backend-1").await;

    global.apply(&of_client("RateLimit", "", "{ http: { requests: 1, interval: 3600s } }"));
    client.gets(0, StatusCode::TOO_MANY_REQUESTS).await;
    for _ in 0..3 {
        assert_eq!(other.call(0, "/").await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(client.call(0, "/").await.unwrap().0, StatusCode::TOO_MANY_REQUESTS);
    global.straitctl(&["delete", "rate-limit", "client-to-backend"]);
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn older_breakers_and_checks_keep_requests_away() {
    let (global, zones) = older_mesh().await;
    global.apply(&permission("kuma.io/service: '*'"));
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = &Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;

    global.apply(&of_calls("CircuitBreaker", "{ thresholds: { maxRequests: 1, maxPendingRequests: 1 } }"));
    eventually("a request over the limit", || async move {
        let calls = (0..4).map(|_| client.call(0, "/delay/300"));
        let answers = futures::future::try_join_all(calls).await?;
        let answers: Vec<StatusCode> = answers.into_iter().map(|(status, _)| status).collect();
        let limited = [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].iter().all(|s| answers.contains(s));
        if limited { Ok(()) } else { Err(format!("{answers:?}")) }
    })
    .await;
    global.straitctl(&["delete", "circuit-breaker", "backend"]);

    let check = |path: &str| {
        let conf = format!(
            "{{ interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, noTrafficInterval: 1s, \
             healthyPanicThreshold: 0, http: {{ path: {path} }} }}"
        );
        global.apply(&of_calls("HealthCheck", &conf));
    };
    check("/status/500");
    client.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
    let failed = client.envoy.stat("cluster.backend.health_check.failure").await.unwrap();
    assert!(failed > 0, "it was left out for another reason");
    check("/");
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn older_logs_spans_and_templates_are_seen() {
    let (global, zones) = older_mesh().await;
    global.apply(&permission("kuma.io/service: '*'"));
    let (at, arrived) = collector().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.log");
    global.apply(&format!(
        "{}
logging:
  backends:
    - name: lines
      type: file
      format: '%KUMA_SOURCE_SERVICE%->%KUMA_DESTINATION_SERVICE% %REQ(:PATH)%'
      conf: {{ path: {} }}
tracing:
  backends: [{{ name: spans, type: zipkin, conf: {{ url: 'http://{at}/api/v2/spans' }} }}]
",
        MESH.trim_end(),
        file.display(),
    ));
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = &Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    global.apply(&of_calls("TrafficLog", "{ backend: lines }"));
    global.apply(
        "
type: TrafficTrace
name: all
mesh: default
selectors: [{ match: { kuma.io/service: '*' } }]
conf: { backend: spans }
---
type: ProxyTemplate
name: mark
mesh: default
selectors: [{ match: { kuma.io/service: client } }]
conf:
  imports: [default-proxy]
  modifications:
    - virtualHost:
        operation: patch
        match: { origin: outbound }
        value: |
          responseHeadersToAdd:
            - header: { key: x-templated, value: 'yes' }
",
    );
    let (file, arrived) = (&file, &arrived);
    eventually("a line, a span and a header", || async move {
        let url = format!("http://{}/seen", client.outbounds[0]);
        let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
        if answer.headers().get("x-templated").is_none() {
            return Err(format!("{:?}", answer.headers()));
        }
        let log = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        if !log.contains("client->backend /seen") {
            return Err(log);
        }
        let bodies = arrived.lock().unwrap().clone();
        let spans = bodies.iter().filter(|(path, _)| *path == "zipkin");
        let spans =
            spans.flat_map(|(_, body)| serde_json::from_slice::<Vec<Value>>(body).unwrap_or_default());
        let services: BTreeSet<String> =
            spans.map(|span| span["localEndpoint"]["serviceName"].to_string()).collect();
        let both =
            ["client", "backend"].iter().all(|one| services.iter().any(|service| service.contains(one)));
        if both { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
}
