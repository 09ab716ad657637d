//! A change goes out in waves: real processes, real Envoys, a real Prometheus.

use std::{net::TcpListener, path::Path};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, addresses, control_plane::write, eventually, process::Process},
    mesh::{ALLOW_ALL, Member, Shape, federation, federation_with},
    monitoring::prometheus,
    recover::has,
};

/// How long idle connections live, as a policy says it.
fn timeout(seconds: u32) -> String {
    format!(
        "
type: MeshTimeout
name: a-quick
mesh: default
spec:
  targetRef: {{ kind: Mesh }}
  to: [{{ targetRef: {{ kind: Mesh }}, default: {{ connectionTimeout: {seconds}s }} }}]
"
    )
}

const CANARY: &str = "
type: Rollout
name: canary
spec:
  waves:
    - { zones: { names: [zone-1] }, pause: manual }
    - { zones: { names: [zone-2] } }
";

/// Begins a rollout of these documents.
fn roll_out(global: &Global, rollout: &str, yaml: &str) {
    let (ok, out, err) = try_roll_out(global, rollout, yaml);
    assert!(ok, "{out}\n{err}");
}

fn try_roll_out(global: &Global, rollout: &str, yaml: &str) -> (bool, String, String) {
    let file = write(global.folder.path(), "rollout.yaml", yaml).display().to_string();
    global.try_straitctl(&["apply", "--rollout", rollout, "-f", &file])
}

/// The connection timeout of the policy as `zone` has it; nothing when it has none.
async fn held(zone: &Zone) -> Result<Value, String> {
    let all = zone.try_get("/meshes/default/meshtimeouts").await?;
    let mut all = all["items"].as_array().cloned().unwrap_or_default().into_iter();
    let policy = all.find(|it| it["labels"]["kuma.io/display-name"] == "a-quick");
    Ok(policy.map(|it| it["spec"]["to"][0]["default"]["connectionTimeout"].clone()).unwrap_or_default())
}

async fn holds(zone: &Zone, expected: &Value) {
    eventually(&format!("{expected} in {}", zone.zone), || async move {
        let held = held(zone).await?;
        if held == *expected { Ok(()) } else { Err(held.to_string()) }
    })
    .await;
}

/// What the Envoy of a member has as the timeout of its connections to `service`.
async fn envoy_has(member: &Member, service: &str, expected: &str) {
    eventually(&format!("{expected} in an Envoy"), || async move {
        let dump = member.envoy.admin("/config_dump").await?;
        let dump: Value = serde_json::from_str(&dump).map_err(|error| error.to_string())?;
        let clusters = dump["configs"].as_array().into_iter().flatten();
        let mut clusters =
            clusters.flat_map(|config| config["dynamic_active_clusters"].as_array().into_iter().flatten());
        let found =
            clusters.find(|it| it["cluster"]["name"].as_str().is_some_and(|name| name.starts_with(service)));
        let found = found.map(|it| it["cluster"]["connect_timeout"].clone()).unwrap_or_default();
        if found == expected { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

/// Waits until the rollout says this of itself, and gives what it says.
async fn is(global: &Global, rollout: &str, state: &str, wave: u64) -> Value {
    let path = format!("/rollouts/{rollout}/status");
    let path = &path;
    eventually(&format!("{rollout} is {state} at wave {}", wave + 1), || async move {
        let shown = global.try_get(path).await?;
        if shown["state"] == state && shown["wave"] == wave { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await
}

#[tokio::test]
async fn zones_and_their_envoys_get_a_change_one_wave_after_the_other() {
    let (mut global, mut zones) = federation(3).await;
    global.apply(ALLOW_ALL);
    global.apply(&timeout(3));
    global.apply(CANARY);
    let mut members = Vec::new();
    for zone in &zones {
        let _web = Member::join(zone, Shape::http("web-1", "web", &[])).await;
        let client = Member::join(zone, Shape::http("client-1", "client", &["web"])).await;
        envoy_has(&client, "web", "3s").await;
        members.push((_web, client));
    }
    roll_out(&global, "canary", &timeout(7));
    let shown = is(&global, "canary", "paused", 0).await;
    assert_eq!(shown["zones"][0]["state"], "acknowledged", "its Envoys have it as well: {shown}");
    envoy_has(&members[0].1, "web", "7s").await;
    for zone in &zones[1..] {
        assert_eq!(held(zone).await, Ok(json!("3s")), "{}", zone.zone);
    }

    // Nobody waits for those who wait, and what they wait for is told.
    let revision = shown["changeRevision"].to_string();
    let (ok, out, notes) = global.try_straitctl(&["wait", "revision", &revision, "--proxies"]);
    assert!(ok && out.contains("zone-2: kept") && notes.contains("rollout canary"), "{out} {notes}");
    let (_, out, _) = global.try_straitctl(&["explain", "zone", "zone-3", "meshtimeout", "a-quick"]);
    assert!(out.contains("wave 3 of 3"), "{out}");
    let (_, _, notes) = global.try_straitctl(&["inspect", "sync"]);
    assert!(notes.contains("zone-3: it keeps the version from before by rollout canary"), "{notes}");
    let file = write(global.folder.path(), "other.yaml", &timeout(9)).display().to_string();
    let (ok, _, err) = global.try_straitctl(&["apply", "-f", &file]);
    assert!(!ok && err.contains("straitctl rollout abort canary"), "{err}");

    // Global goes away and comes back; so does a zone, which misses nothing it may have and gets nothing else.
    assert!(global.process.stop().await.success());
    global.start_again().await;
    assert!(zones[2].process.stop().await.success());
    zones[2].start_again().await;
    let global = &global;
    for zone in &zones {
        eventually("every zone is back", || async move {
            match global.zone_status(&zone.zone).await?.as_str() {
                "online" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
    }
    // What is written meanwhile arrives, so what has not arrived was kept back.
    global.apply("{type: MeshTimeout, name: other, mesh: default, spec: {to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 5s}}]}}");
    for zone in &zones[1..] {
        eventually("what else is written", || async move {
            let all = zone.try_get("/meshes/default/meshtimeouts").await?;
            if all.to_string().contains("\"other\"") { Ok(()) } else { Err(all.to_string()) }
        })
        .await;
        assert_eq!(held(zone).await, Ok(json!("3s")), "{}", zone.zone);
    }
    is(global, "canary", "paused", 0).await;

    global.straitctl(&["rollout", "advance", "canary"]);
    let out = global.straitctl(&["rollout", "status", "canary", "--follow"]);
    assert!(out.contains("finished: everybody has the change"), "{out}");
    for (zone, (_, client)) in zones.iter().zip(&members) {
        holds(zone, &json!("7s")).await;
        envoy_has(client, "web", "7s").await;
    }
    // It is over, so anybody may write it again.
    global.apply(&timeout(4));
    let metrics = global.metrics().await;
    assert!(metrics.contains("rollout_steps_total{zone=\"Global\",step=\"finished\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_rollout_is_taken_back_and_demanded() {
    let (global, zones) = federation(2).await;
    global.apply(&timeout(3));
    global.apply("{type: Rollout, name: canary, spec: {waves: [{zones: {names: [zone-1]}, pause: manual}], requiredFor: [{kinds: [MeshTimeout]}]}}");
    for zone in &zones {
        holds(zone, &json!("3s")).await;
    }
    let file = write(global.folder.path(), "plain.yaml", &timeout(7)).display().to_string();
    let (ok, _, err) = global.try_straitctl(&["apply", "-f", &file]);
    assert!(!ok && err.contains("straitctl apply --rollout canary"), "{err}");
    let (ok, _, err) = global.try_straitctl(&["delete", "meshtimeout", "a-quick"]);
    assert!(!ok && err.contains("straitctl delete --rollout canary"), "{err}");

    let out = global.straitctl(&["delete", "meshtimeout", "a-quick", "--rollout", "canary"]);
    assert!(out.contains("delete MeshTimeout default/a-quick"), "{out}");
    holds(&zones[0], &Value::Null).await;
    is(&global, "canary", "paused", 0).await;
    assert_eq!(held(&zones[1]).await, Ok(json!("3s")), "a delete has not reached it");
    let before = zones[1].get("/meshes/default/meshtimeouts").await;
    global.straitctl(&["rollout", "abort", "canary"]);
    holds(&zones[0], &json!("3s")).await;
    assert_eq!(zones[1].get("/meshes/default/meshtimeouts").await, before, "it saw nothing of it");
    let (_, history) = global.call(Method::GET, "/meshes/default/meshtimeouts/a-quick/_history", None).await;
    let ops: Vec<&Value> = history["items"].as_array().unwrap().iter().map(|item| &item["op"]).collect();
    assert_eq!(ops, ["create", "delete", "create"], "{history}");
    assert!(history["items"][0]["author"].as_str().unwrap().starts_with("user "), "{history}");
}

#[tokio::test]
async fn an_envoy_or_a_zone_that_refuses_halts_it() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply("{type: Rollout, name: canary, spec: {waves: [{zones: {names: [zone-1]}}]}}");
    let _web = Member::join(&zones[0], Shape::http("web-1", "web", &[])).await;
    let address = addresses::loopback();
    let taken = TcpListener::bind((address, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    roll_out(
        &global,
        "canary",
        &format!(
            "
type: MeshProxyPatch
name: odd
mesh: default
spec:
  targetRef: {{ kind: Mesh }}
  default:
    appendModifications:
      - listener:
          operation: Add
          value: |
            name: odd
            address: {{ socketAddress: {{ address: {address}, portValue: {port} }} }}
            filterChains:
              - filters:
                  - name: envoy.filters.network.tcp_proxy
                    typedConfig:
                      '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
                      statPrefix: odd
                      cluster: odd
"
        ),
    );
    let shown = is(&global, "canary", "halted", 0).await;
    assert!(shown["reasons"].to_string().contains("proxy default.web-1 in zone-1"), "{shown}");
    let (code, found) = global.check();
    assert!(code != 0 && found.to_string().contains("rollout canary is halted"), "{found}");
    let other = zones[1].get("/meshes/default/meshproxypatches").await;
    assert_eq!(other["total"], 0, "{other}");
    global.straitctl(&["rollout", "abort", "canary"]);

    // A zone that has a policy of its own under the name by which the other arrives does not take it.
    global.apply(&timeout(3));
    holds(&zones[0], &json!("3s")).await;
    let all = zones[0].get("/meshes/default/meshtimeouts").await;
    let mut all = all["items"].as_array().unwrap().iter();
    let arrives = all.find(|it| it["labels"]["kuma.io/display-name"] == "a-quick").unwrap()["name"].clone();
    let path = format!("/meshes/default/meshtimeouts/{}", arrives.as_str().unwrap());
    global.straitctl(&["delete", "meshtimeout", "a-quick"]);
    holds(&zones[0], &Value::Null).await;
    let own = json!({ "type": "MeshTimeout", "mesh": "default", "name": arrives, "labels": { "kuma.io/origin": "zone" },
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "5s" } }] } });
    let (status, answer) = zones[0].call(Method::PUT, &path, Some(own)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    roll_out(&global, "canary", &timeout(7));
    let shown = is(&global, "canary", "halted", 0).await;
    assert!(shown["reasons"].to_string().contains("the zone refused MeshTimeout"), "{shown}");
    assert_eq!(held(&zones[1]).await, Ok(Value::Null));
    // Somebody goes on all the same.
    global.straitctl(&["rollout", "resume", "canary"]);
    holds(&zones[1], &json!("7s")).await;
    is(&global, "canary", "finished", 1).await;
}

/// A Prometheus that collects the metrics of `target`, and where it answers.
fn collecting(folder: &Path, target: &str) -> (Process, String) {
    prometheus(folder, &format!("- job_name: global\n  static_configs: [{{ targets: ['{target}'] }}]\n"))
}

#[tokio::test]
async fn a_query_halts_it() {
    let folder = TempDir::new().unwrap();
    // It collects nothing at first: who it is to ask is not there before it is.
    let (_running, prometheus) = collecting(folder.path(), "127.0.0.1:1");
    let options = Options::default().with("rollouts.prometheus.address", &prometheus);
    let (global, zones) = federation_with(2, options, Options::default()).await;
    let (global, prometheus) = (&global, &prometheus);
    eventually("the Prometheus has asked somebody", || async move {
        let answer =
            reqwest::get(format!("{prometheus}/api/v1/query?query=up")).await.map_err(|e| e.to_string())?;
        let answer: Value = answer.json().await.map_err(|e| e.to_string())?;
        if answer["data"]["result"][0].is_object() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    let canary = |query: &str| {
        format!(
            "{{type: Rollout, name: canary, spec: {{waves: [{{zones: {{names: [zone-1]}}}}], haltOn: {{queries: [{query}]}}}}}}"
        )
    };
    global.apply(&canary("{promql: 'up{job=\"global\"}', below: 1, interval: 1s}"));
    roll_out(global, "canary", &timeout(7));
    let shown = is(global, "canary", "halted", 0).await;
    assert!(shown["reasons"].to_string().contains("0 is below 1"), "{shown}");
    assert_ne!(held(&zones[1]).await, Ok(json!("7s")));
    global.straitctl(&["rollout", "abort", "canary"]);
    // The same with a value that is as it should be.
    global.apply(&canary("{promql: 'up{job=\"global\"}', above: 0.5, interval: 1s}"));
    roll_out(global, "canary", &timeout(7));
    is(global, "canary", "finished", 1).await;
    holds(&zones[1], &json!("7s")).await;
}

/// A Prometheus that takes every question and answers none; it lives as long as this.
async fn silent() -> (tokio::task::JoinHandle<()>, String) {
    let listener = tokio::net::TcpListener::bind((addresses::loopback(), 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heard = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    (heard, address)
}

#[tokio::test]
async fn a_prometheus_that_says_nothing_holds_up_its_own_run_and_no_other() {
    let (heard, prometheus) = silent().await;
    let options = Options::default().with("rollouts.prometheus.address", &prometheus);
    let (global, zones) = federation_with(2, options, Options::default()).await;
    let global = &global;
    let run = |name: &str, halts: &str| {
        format!("{{type: Rollout, name: {name}, spec: {{waves: [{{zones: {{names: [zone-1]}}}}]{halts}}}}}")
    };
    let queries: Vec<String> =
        (0..10).map(|n| format!("{{promql: 'up{{n=\"{n}\"}}', below: 1, interval: 1s}}")).collect();
    global.apply(&run("unheard", &format!(", haltOn: {{queries: [{}]}}", queries.join(", "))));
    global.apply(&run("quick", ""));
    let other = |name: &str| timeout(9).replace("a-quick", name);
    roll_out(global, "unheard", &timeout(7));
    is(global, "unheard", "running", 0).await;
    holds(&zones[0], &json!("7s")).await;
    // Twice, since what is left of the first must not be in the way of the second.
    for name in ["first", "second"] {
        roll_out(global, "quick", &other(name));
        is(global, "quick", "finished", 1).await;
        has(&zones[1], name).await;
    }
    // Nothing went on that waits for an answer, and it can be taken back at once.
    let shown = is(global, "unheard", "running", 0).await;
    assert_ne!(held(&zones[1]).await, Ok(json!("7s")), "{shown}");
    global.straitctl(&["rollout", "abort", "unheard"]);
    holds(&zones[0], &Value::Null).await;
    assert!(!heard.is_finished());
    heard.abort();
}
