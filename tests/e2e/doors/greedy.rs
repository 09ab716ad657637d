//! Proxies that bring along as much as they can, by a token that lets them.

use std::{collections::BTreeMap, ops::Range};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;

use super::ads_peer::{join, node, refused, token};
use crate::{
    harness::{
        Options, Zone,
        budget::{Before, Budget},
        eventually,
    },
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, federation_with, ingress},
};

/// As SECURITY.md says.
const INBOUNDS: usize = 128;
const TOLD: usize = 10_000;

/// A dataplane with an inbound for each of `numbers`, of the web or of a service of its own.
fn dataplane(name: &str, numbers: Range<usize>, of_web: bool) -> String {
    let tags = |n: usize| match of_web {
        // It comes before what begins with `kuma.io`.
        true => json!({"a": format!("v-{n}"), "kuma.io/service": "web"}),
        false => json!({"kuma.io/service": format!("s-{n}")}),
    };
    let inbounds = numbers.clone().map(|n| json!({"port": n - numbers.start + 1, "tags": tags(n)}));
    json!({
        "type": "Dataplane", "mesh": "default", "name": name,
        "networking": {"address": "127.0.0.9", "inbound": inbounds.collect::<Vec<_>>()},
    })
    .to_string()
}

async fn services(zone: &Zone) -> usize {
    let (_, listed) = zone.call(Method::GET, "/meshes/default/meshservices?size=1", None).await;
    usize::try_from(listed["total"].as_u64().expect("a list has a total")).unwrap()
}

#[tokio::test]
async fn a_proxy_brings_along_no_more_than_one_has_and_an_operator_may_apply_it() {
    let options = Options::default().with("xdsServer.dataplaneDeregistrationDelay", "1s");
    let (global, zones) = federation_with(1, Options::default(), options).await;
    let zone = &zones[0];
    global.apply(&format!("{MESH}meshServices: {{ mode: Everywhere }}\n"));
    let named = token(zone, &["--name", "web-1"]).await;
    for (numbers, says) in [(0..4000, "4000 services"), (0..65, "65 services"), (0..200, "200 inbounds")] {
        let brought = dataplane("web-1", numbers.clone(), numbers.end == 200);
        refused(zone, node("default.web-1", Some(&brought)), Some(&named), Code::InvalidArgument, says).await;
        refused(
            zone,
            node("default.web-1", Some(&brought)),
            Some(&named),
            Code::InvalidArgument,
            "networking.inbound",
        )
        .await;
    }
    assert_eq!(services(zone).await, 0, "nothing of it was kept");
    // Coming back with other services makes no more than a share of them.
    for round in 0..6 {
        let brought = dataplane("web-1", round * 64..(round + 1) * 64, false);
        let stream = join(zone, node("default.web-1", Some(&brought)), Some(&named)).await;
        let stream = stream.expect("so many are allowed");
        let made = ((round + 1) * 64).min(256);
        eventually(&format!("{made} services"), || async move {
            let found = services(zone).await;
            if found == made { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        drop(stream);
    }
    zone.apply(&dataplane("big-1", 1000..1300, false));
    let big = token(zone, &["--name", "big-1"]).await;
    join(zone, node("default.big-1", None), Some(&big)).await.expect("an operator said so");
    eventually("all services of what an operator applied", || async {
        let found = services(zone).await;
        if found == 556 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_token_for_one_service_hides_no_other_from_other_zones() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let [here, there] = &zones[..] else { panic!("two zones") };
    let _ingress = ingress(&global, there).await;
    let web = token(there, &["--tag", "kuma.io/service=web"]).await;
    let mut held = Vec::new();
    for n in 0..TOLD / INBOUNDS + 5 {
        let name = format!("web-{n}");
        let brought = dataplane(&name, n * INBOUNDS..(n + 1) * INBOUNDS, true);
        let stream = join(there, node(&format!("default.{name}"), Some(&brought)), Some(&web)).await;
        held.push(stream.expect("its token says so"));
    }
    let _payments = Member::join(there, Shape::http("payments-1", "payments", &[])).await;
    let client = Member::join(here, Shape::http("client-1", "client", &["payments"])).await;
    eventually("all that zones are told", || async {
        let all = here.try_get("/zoneingresses").await?;
        let theirs = all["items"].as_array().into_iter().flatten().find(|item| item["zone"] == "zone-2");
        let offered = theirs.and_then(|ingress| ingress["availableServices"].as_array()).map_or(0, Vec::len);
        if offered == TOLD { Ok(()) } else { Err(format!("{offered} tag sets")) }
    })
    .await;
    client.reaches(0, "payments-1").await;
}

/// What two hundred kilobytes in one inbound, or beside it, may cost again and again.
const LONG: Budget = Budget { memory: 256 << 20, log: 1 << 20 };

/// A dataplane of the web with this in its inbound and its networking, in place of what is usual.
fn long(name: &str, tags: usize, more: &Value) -> String {
    let mut all: BTreeMap<String, String> = (0..tags).map(|n| (format!("t{n}"), "x".to_owned())).collect();
    all.insert("kuma.io/service".to_owned(), "web".to_owned());
    let mut networking = json!({"address": "127.0.0.9", "inbound": [{"port": 80, "tags": all}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        networking[key.as_str()] = value.clone();
    }
    json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": networking}).to_string()
}

#[tokio::test]
async fn what_is_long_is_refused_by_its_field_or_counts_by_its_length() {
    let (_global, zones) = federation(1).await;
    let zone = &zones[0];
    let web = token(zone, &["--tag", "kuma.io/service=web"]).await;
    let before = Before::of(&zone.process);
    let outbound: Vec<Value> =
        (0..3000).map(|n| json!({"port": 10_000 + n, "tags": {"kuma.io/service": "web"}})).collect();
    let reaches = |services: Vec<String>| json!({"transparentProxying": {"reachableServices": services}});
    for round in 0..10 {
        let name = format!("web-{round}");
        for (brought, field) in [
            (long(&name, 12_000, &Value::Null), "networking.inbound[0].tags"),
            (long(&name, 0, &json!({"outbound": outbound})), "networking.outbound"),
            (
                long(&name, 0, &reaches((0..12_000).map(|n| format!("s-{n}")).collect())),
                "networking.transparentProxying.reachableServices",
            ),
        ] {
            let who = node(&format!("default.{name}"), Some(&brought));
            refused(zone, who, Some(&web), Code::InvalidArgument, field).await;
        }
    }
    // What is no longer than one may be counts as what it is: some ten megabytes are all there is for one token.
    let brought = |name: &str| long(name, 0, &reaches((0..1000).map(|n| format!("{n:0400}")).collect()));
    let mut held = Vec::new();
    let refusal = loop {
        let name = format!("web-{}", held.len());
        match join(zone, node(&format!("default.{name}"), Some(&brought(&name))), Some(&web)).await {
            Ok(stream) => held.push(stream),
            Err(refusal) => break refusal,
        }
    };
    let says = refusal.message().contains("as many inbounds as one token may have");
    assert!(refusal.code() == Code::ResourceExhausted && says, "{refusal:?}");
    assert!((20..=30).contains(&held.len()), "{}", held.len());
    println!("{}", before.spent(LONG).expect("it costs little"));
    let other = token(zone, &["--name", "bank-1"]).await;
    join(zone, node("default.bank-1", Some(&long("bank-1", 8, &Value::Null))), Some(&other))
        .await
        .expect("others are let in as before");
}

/// What thirty-six proxies may cost that come back with other names, again and again.
const RENAMED: Budget = Budget { memory: 256 << 20, log: 1 << 20 };
/// Bytes that may be written meanwhile, besides those of a second: the addresses of all services are one resource.
const WRITTEN: u64 = 64 << 20;
const WRITTEN_IN_A_SECOND: u64 = 4 << 20;

/// Bytes a process has written so far, wherever to.
fn written(zone: &Zone) -> u64 {
    let counted = std::fs::read_to_string(format!("/proc/{}/io", zone.process.id())).expect("it runs");
    let line = counted.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a number of bytes");
    line.trim().parse().expect("a number of bytes")
}

/// Bytes of the files in the folder of a zone, its database among them.
fn on_disk(zone: &Zone) -> u64 {
    let files = std::fs::read_dir(zone.folder.path()).expect("a folder").flatten();
    files.filter_map(|file| file.metadata().ok()).filter(|file| file.is_file()).map(|file| file.len()).sum()
}

#[tokio::test]
async fn names_that_are_long_and_new_each_time_cost_no_multiple_of_themselves() {
    const PROXIES: usize = 36;
    const SERVICES: usize = 64;
    let (_global, zones) = federation(1).await;
    let zone = &zones[0];
    let any = token(zone, &[]).await;
    let brought = |name: &str, service: &dyn Fn(usize) -> String| {
        let inbound = |n: usize| json!({"port": n + 1, "tags": {"kuma.io/service": service(n)}});
        json!({
            "type": "Dataplane", "mesh": "default", "name": name,
            "networking": {"address": "127.0.0.9", "inbound": (0..SERVICES).map(inbound).collect::<Vec<_>>()},
        })
        .to_string()
    };
    let (before, begun, written_before) = (Before::of(&zone.process), Instant::now(), written(zone));
    let endless = brought("p-0", &|n| format!("s-{n}-{:x<3690}", ""));
    let who = || node("default.p-0", Some(&endless));
    refused(zone, who(), Some(&any), Code::InvalidArgument, "bytes: a proxy brings along 253").await;
    // What is no longer than the name of a host is taken.
    let label = "x".repeat(63);
    for round in 0..3 {
        let mut held = Vec::new();
        for proxy in 0..PROXIES {
            let name = format!("p-{proxy}");
            let service = |n: usize| format!("s{round}-{proxy}-{n}.{label}.{label}.{label}");
            let document = brought(&name, &service);
            let stream = join(zone, node(&format!("default.{name}"), Some(&document)), Some(&any)).await;
            held.push(stream.expect("so many are allowed"));
        }
    }
    let (seconds, bytes, disk) = (begun.elapsed().as_secs(), written(zone) - written_before, on_disk(zone));
    println!("{bytes} bytes written in {seconds} s, {disk} on disk");
    assert!(bytes <= WRITTEN + seconds * WRITTEN_IN_A_SECOND, "{bytes} bytes written in {seconds} s");
    assert!(disk <= WRITTEN, "{disk} bytes on disk");
    println!("{}", before.spent(RENAMED).expect("it costs little"));
    let other = token(zone, &["--name", "bank-1"]).await;
    join(zone, node("default.bank-1", Some(&long("bank-1", 8, &Value::Null))), Some(&other))
        .await
        .expect("others are let in as before");
}

#[tokio::test]
async fn what_was_brought_along_does_not_survive_a_restart_without_its_proxy() {
    let options = Options::default()
        .with("xdsServer.dataplaneDeregistrationDelay", "1s")
        .with("metrics.dataplane.idleTimeout", "2s");
    let (_global, mut zones) = federation_with(1, Options::default(), options).await;
    let zone = &zones[0];
    let web = token(zone, &["--tag", "kuma.io/service=web"]).await;
    let mut held = Vec::new();
    for n in 0..5 {
        let name = format!("web-{n}");
        let brought = long(&name, 60, &Value::Null);
        let stream = join(zone, node(&format!("default.{name}"), Some(&brought)), Some(&web)).await;
        held.push(stream.expect("its token says so"));
    }
    zone.apply(&long("applied", 60, &Value::Null));
    zones[0].process.kill();
    drop(held);
    zones[0].start_again().await;
    let zone = &zones[0];
    let back = long("web-0", 60, &Value::Null);
    let _back = join(zone, node("default.web-0", Some(&back)), Some(&web)).await.expect("it comes back");
    for n in 1..5 {
        let path = format!("/meshes/default/dataplanes/web-{n}");
        eventually("what nobody came back for is deleted", || async {
            let (status, _) = zone.call(Method::GET, &path, None).await;
            if status == StatusCode::NOT_FOUND { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }
    for name in ["web-0", "applied"] {
        zone.get(&format!("/meshes/default/dataplanes/{name}")).await;
    }
}
