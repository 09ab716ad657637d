//! Policies for so many overlapping groups of proxies that telling them apart never ends.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ads_peer::{Stream, channel, join, meanwhile, node, token};
use crate::{
    harness::{
        Global, Options, Zone,
        budget::{Before, Budget},
        eventually, http,
    },
    mesh::federation_with,
};

/// What each of these policies may cost the zone, and global.
const BUDGET: Budget = Budget { memory: 512 << 20, log: 256 << 10 };
/// Groups of a case.
const SIZE: usize = 18_000;
/// And of one policy: so few that some are taken, of which all together have too many.
const OF_ONE: usize = 6_000;
/// An answer to anybody takes no longer, with two busy cores and a debug build.
const LONGEST: Duration = Duration::from_secs(30);

/// Groups of proxies by tags: what they are called here, and the tags.
fn crowds() -> Vec<(&'static str, Vec<Value>)> {
    let subset = |tags: Value| json!({"kind": "MeshSubset", "tags": tags});
    let numbered = |n: usize, tags: &dyn Fn(usize) -> Value| (0..n).map(|i| subset(tags(i))).collect();
    vec![
        ("all the same", numbered(SIZE, &|_| json!({"team": "a"}))),
        ("each another value", numbered(SIZE, &|i| json!({"team": format!("t{i}")}))),
        ("each another key", numbered(SIZE, &|i| json!({format!("k{i}"): "v"}))),
        ("two by two", numbered(SIZE, &|i| json!({format!("k{}", i % 2): format!("v{i}")}))),
        ("a chain", numbered(SIZE, &|i| json!({format!("k{i}"): "v", format!("k{}", i + 1): "v"}))),
        (
            "two tags of each",
            numbered(SIZE, &|i| json!({"a": format!("v{}", i % 150), "b": format!("v{}", i / 150)})),
        ),
        ("few keys", numbered(SIZE, &|i| json!({format!("k{}", i % 7): format!("v{}", i / 7 % 9)}))),
        (
            "many tags each",
            numbered(300, &|i| {
                Value::Object(
                    (0..60).map(|k| (format!("k{k}"), json!(format!("v{}", (i * k) % 7)))).collect(),
                )
            }),
        ),
    ]
}

/// Policies for all of these groups.
fn policies(targets: &[Value], of_one: usize) -> Vec<(String, Value)> {
    let item = |target: &Value| json!({"targetRef": target, "default": {"action": "Allow"}});
    let policy = |(n, targets): (usize, &[Value])| {
        let from: Value = targets.iter().map(item).collect();
        let name = format!("crowd-{n}");
        let spec = json!({"targetRef": {"kind": "Mesh"}, "from": from});
        let path = format!("/meshes/default/meshtrafficpermissions/{name}");
        (path, json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": spec}))
    };
    targets.chunks(of_one).enumerate().map(policy).collect()
}

/// Waits until the zone has so many of the policies.
async fn arrived(zone: &Zone, expected: usize) {
    eventually(&format!("{expected} policies in the zone"), || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions?size=100").await?;
        let items = list["items"].as_array().into_iter().flatten();
        let found = items
            .filter(|item| {
                item["labels"]["kuma.io/display-name"].as_str().is_some_and(|name| name.starts_with("crowd"))
            })
            .count();
        if found == expected { Ok(()) } else { Err(format!("{found} of them")) }
    })
    .await;
}

/// How long an anonymous GET takes, whatever it answers.
async fn asked(zone: &Zone, path: &str) -> (StatusCode, Duration) {
    let begin = Instant::now();
    let answer = http::client().get(zone.url(path)).send().await.expect("an answer");
    let status = answer.status();
    answer.bytes().await.expect("all of it");
    (status, begin.elapsed())
}

/// Applies all of them: how many were taken, what was said of the others, and the longest it took.
async fn apply(global: &Global, policies: &[(String, Value)]) -> (usize, Duration) {
    let (mut taken, mut longest) = (0, Duration::ZERO);
    for (path, document) in policies {
        let begin = Instant::now();
        let (status, answer) = global.call(Method::PUT, path, Some(document.clone())).await;
        longest = longest.max(begin.elapsed());
        match status {
            StatusCode::CREATED => taken += 1,
            StatusCode::BAD_REQUEST => assert!(answer.to_string().contains("too many ways"), "{answer}"),
            _ => panic!("{status}: {answer}"),
        }
    }
    (taken, longest)
}

/// Has strangers look at what comes of them, several at a time. The longest that took.
async fn looked_at(zone: &Zone) -> Duration {
    let mut longest = Duration::ZERO;
    for what in ["_rules", "_policies", "_config?shadow=true"] {
        let path = format!("/meshes/default/dataplanes/probe/{what}");
        for (_, took) in join_all((0..4).map(|_| asked(zone, &path))).await {
            longest = longest.max(took);
        }
    }
    longest
}

const PROBE: &str = "{type: Dataplane, mesh: default, name: probe, networking: {address: 127.0.0.1, inbound: [\
    {port: 80, servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: probe, kuma.io/protocol: http}}]}}";

/// Waits until the status of the probe says that nobody knows who may call it, or does not say it any more.
async fn told_of(zone: &Zone, is_told: bool) {
    eventually(&format!("the status says it: {is_told}"), || async move {
        let shown = zone.try_get("/meshes/default/dataplanes/probe/_overview").await?;
        let says = shown.to_string().contains("who may call probe cannot be told");
        if says == is_told { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn policies_for_endless_groups_hold_up_nobody() {
    let (global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    zone.apply(PROBE);
    let probe = token(zone, &["--name", "probe"]).await;
    let mut cases = 0;
    for (called, targets) in crowds() {
        cases += 1;
        let before = [Before::of(&global.process), Before::of(&zone.process)];
        let policies = policies(&targets, OF_ONE);
        let attack = async {
            let (taken, applied) = apply(&global, &policies).await;
            arrived(zone, taken).await;
            (taken, applied, looked_at(zone).await)
        };
        let (taken, applied, looked) = meanwhile(zone, &probe, LONGEST, attack).await;
        assert!(applied < LONGEST && looked < LONGEST, "{called}: {applied:?}, {looked:?}");
        join(zone, node("default.probe", None), Some(&probe)).await.expect("the proxy is served");
        let spent = before.map(|it| it.spent(BUDGET).unwrap_or_else(|why| panic!("{called}: {why}")));
        let spent = spent.join("; ");
        println!("{called}: {taken} taken in {applied:?}, looked at in {looked:?}: {spent}");
        for (path, _) in &policies {
            let (status, answer) = global.call(Method::DELETE, path, None).await;
            assert!([StatusCode::OK, StatusCode::NOT_FOUND].contains(&status), "{answer}");
        }
        arrived(zone, 0).await;
    }
    println!("endless groups: {cases} cases");
}

/// None of these policies is too much, and all of them are. Who has a configuration keeps it, who has none gets none that
/// lets in the wrong ones, and the status says so.
#[tokio::test]
async fn policies_that_are_too_much_together_only_change_nothing_until_they_are_fewer() {
    let (global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    zone.apply(PROBE);
    let probe = token(zone, &["--name", "probe"]).await;
    let mut held = join(zone, node("default.probe", None), Some(&probe)).await.expect("it is served");
    let values = (0..SIZE).map(|i| json!({"kind": "MeshSubset", "tags": {"team": format!("t{i}")}}));
    let policies = policies(&values.collect::<Vec<_>>(), 1000);
    let before = [Before::of(&global.process), Before::of(&zone.process)];
    let (taken, applied) = apply(&global, &policies).await;
    assert_eq!(taken, policies.len(), "each has few enough");
    arrived(zone, taken).await;
    told_of(zone, true).await;
    let looked = looked_at(zone).await;
    assert!(applied < LONGEST && looked < LONGEST, "{applied:?}, {looked:?}");
    let mut newcomer =
        Stream::open(channel(zone).await, node("default.probe", None), Some(&probe)).await.unwrap();
    for (path, _) in &policies {
        global.call(Method::DELETE, path, None).await;
    }
    arrived(zone, 0).await;
    told_of(zone, false).await;
    newcomer.admitted().await.expect("it is served again");
    // Its stream never ended, and it is told of a change on it.
    zone.apply(&PROBE.replace("8080", "8081"));
    held.take().await.expect("another cluster for another port");
    let spent = before.map(|it| it.spent(BUDGET).expect("little"));
    println!("too much together: applied in {applied:?}, looked at in {looked:?}: {}", spent.join("; "));
}
