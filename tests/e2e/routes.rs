//! Where requests go and what becomes of them on the way, and what somebody changes in Envoy's own terms.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode, redirect};
use serde_json::Value;

use crate::{
    harness::eventually,
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// What came of a request: status, headers of the answer, and what the service saw.
async fn ask(
    client: &Member,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(StatusCode, reqwest::header::HeaderMap, Value), String> {
    let http = reqwest::Client::builder().redirect(redirect::Policy::none()).build().unwrap();
    let mut request = http.request(method, format!("http://{}{path}", client.outbounds[0]));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.map_err(|e| e.to_string())?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.map_err(|e| e.to_string())?;
    Ok((status, headers, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

const ROUTE: &str = "
type: MeshHTTPRoute
name: everything
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules:
        - matches: [{ path: { type: PathPrefix, value: /old } }]
          default:
            filters:
              - type: RequestRedirect
                requestRedirect:
                  scheme: https
                  hostname: other.example
                  port: 8443
                  path: { type: ReplacePrefixMatch, replacePrefixMatch: /new }
                  statusCode: 301
        - matches: [{ path: { type: Exact, value: /page } }]
          default:
            filters:
              - type: URLRewrite
                urlRewrite: { path: { type: ReplaceFullPath, replaceFullPath: /fixed } }
        - matches: [{ path: { type: PathPrefix, value: /copied } }]
          default:
            filters:
              - type: RequestMirror
                requestMirror: { percentage: 100, backendRef: { kind: MeshService, name: canary } }
        - matches:
            - method: POST
              path: { type: RegularExpression, value: '/v[0-9]+/things' }
              headers: [{ type: RegularExpression, name: x-tenant, value: 'a+' }]
              queryParams: [{ type: Exact, name: beta, value: 'yes' }]
          default: { backendRefs: [{ kind: MeshService, name: canary }] }
        - matches: [{ path: { type: PathPrefix, value: /split } }]
          default:
            backendRefs:
              - { kind: MeshService, name: backend, weight: 1 }
              - { kind: MeshServiceSubset, name: canary, tags: { version: v2 }, weight: 1 }
";

#[tokio::test]
async fn requests_are_redirected_rewritten_copied_matched_and_split() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let canary = Shape { tags: ", version: v2", ..Shape::http("canary-1", "canary", &[]) };
    let canary = Member::join(&zones[0], canary).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    global.apply(ROUTE);
    let (client, canary) = (&client, &canary);
    eventually("a redirect", || async move {
        let (status, headers, _) = ask(client, Method::GET, "/old/page?x=1", &[]).await?;
        let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or_default().to_owned();
        let there =
            status == StatusCode::MOVED_PERMANENTLY && to == "https://other.example:8443/new/page?x=1";
        if there { Ok(()) } else { Err(format!("{status} {to}")) }
    })
    .await;

    let (_, _, seen) = ask(client, Method::GET, "/page", &[]).await.unwrap();
    assert_eq!((&seen["service"], &seen["path"]), (&"backend-1".into(), &"/fixed".into()), "{seen}");

    let beta = [("x-tenant", "aaa")];
    eventually("a request for the canary", || async move {
        let (_, _, seen) = ask(client, Method::POST, "/v1/things?beta=yes", &beta).await?;
        if seen["service"] == "canary-1" { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    for (method, path, tenant) in [
        (Method::GET, "/v1/things?beta=yes", "aaa"),
        (Method::POST, "/v1/things?beta=no", "aaa"),
        (Method::POST, "/v1/other?beta=yes", "aaa"),
        (Method::POST, "/v1/things?beta=yes", "b"),
    ] {
        let (_, _, seen) = ask(client, method, path, &[("x-tenant", tenant)]).await.unwrap();
        assert_eq!(seen["service"], "backend-1", "{path}: {seen}");
    }

    eventually("both shares", || async move {
        let mut served = BTreeSet::new();
        for _ in 0..20 {
            let (_, _, seen) = ask(client, Method::GET, "/split", &[]).await?;
            served.insert(seen["service"].to_string());
        }
        if served.len() == 2 { Ok(()) } else { Err(format!("{served:?}")) }
    })
    .await;

    let received = || async {
        let stats = canary.envoy.admin("/stats?filter=downstream_rq_total").await?;
        // Those to the endpoint that is asked here do not count.
        let inbound =
            stats.lines().filter(|line| line.starts_with("http.") && !line.starts_with("http.admin."));
        let counts = inbound.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok::<u64, String>(counts.sum())
    };
    let before = received().await.unwrap();
    let received = &received;
    eventually("a copy of a request", || async move {
        let (status, _, seen) = ask(client, Method::GET, "/copied", &[]).await?;
        assert_eq!((status, &seen["service"]), (StatusCode::OK, &"backend-1".into()), "{seen}");
        match received().await? {
            after if after > before => Ok(()),
            after => Err(format!("{after} requests as before")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_patch_is_seen_on_both_sides_and_a_broken_one_is_told() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    global.apply(
        "
type: MeshProxyPatch
name: headers
mesh: default
spec:
  default:
    appendModifications:
      - virtualHost:
          operation: Patch
          match: { origin: outbound, routeConfigurationName: 'outbound:backend' }
          value: |
            responseHeadersToAdd: [{ header: { key: x-patched, value: outside } }]
      - httpFilter:
          operation: AddBefore
          match: { name: envoy.filters.http.router, origin: inbound, listenerTags: { kuma.io/service: backend } }
          value: |
            name: envoy.filters.http.lua
            typedConfig:
              '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              defaultSourceCode:
                inlineString: 'function envoy_on_request(handle) handle:headers():add(\"x-lua\", \"inside\") end'
      - cluster:
          operation: Patch
          match: { name: backend }
          jsonPatches: [{ op: replace, path: /not/there, value: 1 }]
",
    );
    let client = &client;
    eventually("the patched headers", || async move {
        let (_, headers, seen) = ask(client, Method::GET, "/", &[]).await?;
        let outside = headers.get("x-patched").is_some_and(|value| value == "outside");
        let inside = seen["headers"]["x-lua"] == "inside";
        if outside && inside { Ok(()) } else { Err(format!("{headers:?} {seen}")) }
    })
    .await;
    let zone = &zones[0];
    eventually("word of what was left out", || async move {
        let said = zone.try_get("/debug/proxies").await?.to_string();
        let told = said.contains("modification 2 of headers is left out of backend");
        if told { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test]
async fn a_layer_of_the_runtime_reaches_envoys_and_goes_again() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let patch = |layer: &str| {
        global.apply(&format!(
            "{{type: MeshProxyPatch, name: runtime, mesh: default, spec: {{default: {{appendModifications: [{{runtime: \
             {{layer: {layer}}}}}]}}}}}}"
        ));
    };
    let client = &client;
    let shows = |key: &'static str, value: Option<&'static str>| async move {
        eventually(&format!("{key} is {value:?}"), || async move {
            let shown = client.envoy.admin("/runtime").await?;
            let parsed: Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
            let layers = parsed["layers"]
                .as_array()
                .map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>());
            assert!(layers.is_some_and(|layers| layers.contains(&"mesh")), "{shown}");
            let is = parsed["entries"][key]["final_value"].as_str();
            if is == value { Ok(()) } else { Err(shown) }
        })
        .await;
    };
    patch("{upstream.healthy_panic_threshold: 7, strait.test: yes-it-is}");
    shows("strait.test", Some("yes-it-is")).await;
    shows("upstream.healthy_panic_threshold", Some("7")).await;
    patch("{upstream.use_retry: 0}");
    shows("strait.test", None).await;
    shows("upstream.use_retry", Some("0")).await;
    client.reaches(0, "backend-1").await;
    global.straitctl(&["delete", "meshproxypatch", "runtime"]);
    shows("upstream.use_retry", None).await;
}
