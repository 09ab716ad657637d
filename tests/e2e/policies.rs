//! Policies, by what they do to traffic between real sidecars.

use reqwest::StatusCode;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    harness::{Global, Zone, eventually, http},
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// Nothing is tried again.
const NO_RETRIES: &str = "
type: MeshRetry
name: a-never
mesh: default
spec:
  to:
    - targetRef: { kind: Mesh }
      default: { http: { numRetries: 0 } }
";

/// One zone with a backend and a client that may call it.
async fn pair() -> (Global, Vec<Zone>, Member, Member) {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    (global, zones, backend, client)
}

#[tokio::test]
async fn a_failed_request_is_tried_again_as_often_as_the_policy_says() {
    let (global, _zones, _backend, client) = pair().await;
    let client = &client;
    let mut fresh = 0;
    let mut ask = || {
        fresh += 1;
        let path = format!("/fails/2/{fresh}");
        async move { client.call(0, &path).await }
    };
    // Every mesh begins with a policy that tries five times again.
    let (status, seen) = ask().await.unwrap();
    assert_eq!((status, &seen["attempt"]), (StatusCode::OK, &Value::from(3)), "{seen}");

    global.apply(
        "
type: MeshRetry
name: a-once
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default: { http: { numRetries: 1 } }
",
    );
    eventually("one retry only", || {
        let answer = ask();
        async move {
            let (status, seen) = answer.await?;
            let given_up = status == StatusCode::SERVICE_UNAVAILABLE && seen["attempt"] == 2;
            if given_up { Ok(()) } else { Err(format!("{status} {seen}")) }
        }
    })
    .await;
}

#[tokio::test]
async fn a_host_that_fails_is_left_out_and_requests_over_the_limit_are_refused() {
    let (global, _zones, _backend, client) = pair().await;
    let client = &client;
    global.apply(NO_RETRIES);
    global.apply(
        "
type: MeshCircuitBreaker
name: a-strict
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default: { connectionLimits: { maxRequests: 1, maxPendingRequests: 1 } }
",
    );
    eventually("a request over the limit", || async move {
        let calls = (0..4).map(|_| client.call(0, "/delay/300"));
        let answers: Vec<StatusCode> =
            futures::future::try_join_all(calls).await?.into_iter().map(|(status, _)| status).collect();
        let has = |status| answers.contains(&status);
        let limited = has(StatusCode::OK) && has(StatusCode::SERVICE_UNAVAILABLE);
        if limited { Ok(()) } else { Err(format!("{answers:?}")) }
    })
    .await;

    global.straitctl(&["delete", "meshcircuitbreaker", "a-strict"]);
    global.apply(
        "
type: MeshCircuitBreaker
name: a-wary
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default:
        outlierDetection:
          interval: 1s
          baseEjectionTime: 10m
          maxEjectionPercent: 100
          healthyPanicThreshold: 0
          detectors: { totalFailures: { consecutive: 2 } }
",
    );
    eventually("the only host to be left out", || async move {
        client.call(0, "/status/500").await?;
        match client.envoy.stat("cluster.backend.outlier_detection.ejections_active").await? {
            1 => Ok(()),
            n => Err(format!("{n} are left out")),
        }
    })
    .await;
    client.gets(0, StatusCode::SERVICE_UNAVAILABLE).await;
}

#[tokio::test]
async fn a_timeout_holds_for_the_clients_it_names() {
    let (global, zones, _backend, client) = pair().await;
    let other = Member::join(&zones[0], Shape::http("other-1", "other", &["backend"])).await;
    other.reaches(0, "backend-1").await;
    global.apply(
        "
type: MeshTimeout
name: a-short-for-client
mesh: default
spec:
  targetRef: { kind: Mesh }
  rules:
    - matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/client' } }]
      default: { http: { requestTimeout: 200ms } }
",
    );
    let client = &client;
    eventually("the timeout of the client", || async move {
        match client.call(0, "/delay/800").await? {
            (StatusCode::GATEWAY_TIMEOUT, _) => Ok(()),
            (status, seen) => Err(format!("{status} {seen}")),
        }
    })
    .await;
    let (status, seen) = other.call(0, "/delay/800").await.unwrap();
    assert_eq!(status, StatusCode::OK, "{seen}");
}

#[tokio::test]
async fn a_permissive_mesh_takes_plaintext_and_a_strict_one_does_not() {
    let (global, _zones, backend, client) = pair().await;
    let plain = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let plain = &plain;
    let url = format!("http://{}/", backend.inbound);
    let direct = || async { plain.get(&url).send().await.map(|answer| answer.status()) };
    assert!(direct().await.is_err(), "a strict mesh must not answer plaintext");

    let mesh = |mode: &str| {
        global.apply(&format!(
            "{{type: Mesh, name: default, mtls: {{enabledBackend: ca-1, backends: [{{name: ca-1, type: builtin, mode: {mode}}}]}}}}"
        ));
    };
    mesh("PERMISSIVE");
    eventually("an answer to plaintext", || async {
        match direct().await {
            Ok(StatusCode::OK) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let client = &client;
    eventually("proxies that keep to mutual TLS", || async move {
        let seen = client.reaches(0, "backend-1").await;
        let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
        if peer.contains("URI=spiffe://default/client") { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;

    mesh("STRICT");
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
async fn a_permission_being_tried_out_lets_in_and_counts() {
    let (global, _zones, backend, client) = pair().await;
    global.apply(
        "
type: MeshTrafficPermission
name: a-trial
mesh: default
spec:
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: MeshService, name: client }
      default: { action: AllowWithShadowDeny }
",
    );
    let (client, backend) = (&client, &backend);
    eventually("a request that would have been denied", || async move {
        let (status, seen) = client.call(0, "/").await?;
        assert_eq!(status, StatusCode::OK, "{seen}");
        let counted = backend.envoy.admin("/stats?filter=rbac.shadow_denied$").await?;
        let counts = counted.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        if counts.sum::<u64>() > 0 { Ok(()) } else { Err(counted) }
    })
    .await;
}

#[tokio::test]
async fn who_is_denied_stays_out_whatever_allows_and_a_shadow_only_counts() {
    let (global, zones, backend, client) = pair().await;
    let other = Member::join(&zones[0], Shape::http("other-1", "other", &["backend"])).await;
    other.reaches(0, "backend-1").await;
    global.apply(
        "
type: MeshTrafficPermission
name: by-identity
mesh: default
spec:
  targetRef: { kind: MeshService, name: backend }
  rules:
    - default:
        allow: [{ spiffeID: { type: Prefix, value: 'spiffe://default' } }]
        deny: [{ spiffeID: { type: Exact, value: 'spiffe://default/client' } }]
        allowWithShadowDeny: [{ spiffeID: { type: Exact, value: 'spiffe://default/other' } }]
",
    );
    client.gets(0, StatusCode::FORBIDDEN).await;
    let (other, backend) = (&other, &backend);
    eventually("a request that the shadow would have denied", || async move {
        let (status, seen) = other.call(0, "/").await?;
        assert_eq!(status, StatusCode::OK, "{seen}");
        let counted = backend.envoy.admin("/stats?filter=rbac.shadow_denied$").await?;
        let counts = counted.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        if counts.sum::<u64>() > 0 { Ok(()) } else { Err(counted) }
    })
    .await;
    assert_eq!(client.call(0, "/").await.unwrap().0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn headers_are_changed_and_bytes_are_routed() {
    let (global, zones, _backend, client) = pair().await;
    global.apply(
        "
type: MeshHTTPRoute
name: headers
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules:
        - matches: [{ path: { type: PathPrefix, value: /api } }]
          default:
            filters:
              - type: RequestHeaderModifier
                requestHeaderModifier:
                  set: [{ name: x-set, value: new }]
                  add: [{ name: x-add, value: more }]
                  remove: [x-gone]
              - type: ResponseHeaderModifier
                responseHeaderModifier: { set: [{ name: x-answer, value: '42' }] }
              - type: URLRewrite
                urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /v2 } }
---
type: MeshTCPRoute
name: elsewhere
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: store }
      rules:
        - default: { backendRefs: [{ kind: MeshService, name: archive }] }
",
    );
    let at = client.outbounds[0];
    eventually("the changed headers", || async move {
        let request = http::client().get(format!("http://{at}/api/things"));
        let request = request.header("x-set", "old").header("x-add", "one").header("x-gone", "here");
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let told = answer.headers().get("x-answer").cloned();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        let seen: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        let headers = &seen["headers"];
        let changed = told.is_some_and(|v| v == "42")
            && seen["path"] == "/v2/things"
            && headers["x-set"] == "new"
            && headers["x-add"].as_str().is_some_and(|v| v.ends_with("more"))
            && headers.get("x-gone").is_none();
        if changed { Ok(()) } else { Err(text) }
    })
    .await;

    let tcp = |name, calls| Shape { mesh: "default", name, service: name, protocol: "tcp", tags: "", calls };
    let _store = Member::join(&zones[0], tcp("store", &[])).await;
    let _archive = Member::join(&zones[0], tcp("archive", &[])).await;
    let caller = Member::join(&zones[0], tcp("caller", &["store"])).await;
    let at = caller.outbounds[0];
    eventually("bytes from the archive", || async move {
        let mut stream = BufReader::new(TcpStream::connect(at).await.map_err(|e| e.to_string())?);
        stream.write_all(b"\n").await.map_err(|e| e.to_string())?;
        let mut line = String::new();
        stream.read_line(&mut line).await.map_err(|e| e.to_string())?;
        if line == "archive\n" { Ok(()) } else { Err(line) }
    })
    .await;
}
