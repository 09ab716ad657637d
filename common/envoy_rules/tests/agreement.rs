//! An Envoy and the rules in here are of one opinion.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde_json::{Value, json};

use super::{
    cases::{self, Case},
    told,
};
use crate::{testing::needs, xds::envoy};

/// Envoys that look at the same time.
const AT_ONCE: usize = 2;

#[test]
fn what_envoy_takes_breaks_no_rule() {
    let cases = cases::good();
    assert!(cases.len() >= 60);
    for (what, type_url, json) in &cases {
        assert_eq!(told(type_url, json), Vec::<String>::new(), "{what}: {json}");
    }
    let Some(envoy) = needs::envoy() else { return };
    // All at once, unless there is something to find.
    if refused(&envoy, &cases.iter().collect::<Vec<_>>()).is_none() {
        return;
    }
    let wrong: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{}: {}", case.0, refused(&envoy, &[case])?))).collect();
    panic!("Envoy refuses\n{}", wrong.join("\n"));
}

#[test]
fn what_envoy_refuses_breaks_a_rule() {
    let cases = cases::bad();
    assert!(cases.len() >= 60);
    let unnoticed: Vec<&str> = cases
        .iter()
        .filter(|(_, type_url, json)| told(type_url, json).is_empty())
        .map(|case| case.0)
        .collect();
    assert!(unnoticed.is_empty(), "nothing is wrong with {unnoticed:?}");
    let Some(envoy) = needs::envoy() else { return };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut taken = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if refused(&envoy, &[case]).is_none() {
                taken.push(case.0);
            }
        }
        taken
    };
    let taken: Vec<&str> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(taken.is_empty(), "Envoy takes {taken:?}");
}

/// Envoy's words when it does not take one of `cases`.
fn refused(envoy: &Path, cases: &[&Case]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.json");
    std::fs::write(&file, bootstrap(cases).to_string()).unwrap();
    let arguments = ["--mode", "validate", "-l", "warning", "--use-dynamic-base-id", "-c"];
    let output = Command::new(envoy).args(arguments).arg(&file).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn bootstrap(cases: &[&Case]) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": 1}});
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": address}}]}]);
    let control_plane = json!({"name": "control-plane", "type": "STATIC",
        "load_assignment": {"cluster_name": "control-plane", "endpoints": endpoints}});
    let (mut clusters, mut listeners) = (vec![control_plane], Vec::new());
    for (i, (_, type_url, json)) in cases.iter().enumerate() {
        let mut json = json.clone();
        // A case is about its name or has one that others have as well.
        if json["name"] != "" && cases.len() > 1 {
            json["name"] = format!("{}-{i}", json["name"].as_str().unwrap()).into();
        }
        match *type_url {
            envoy::CLUSTER => clusters.push(json),
            envoy::ROUTE => listeners.push(serving(i, json)),
            _ => listeners.push(json),
        }
    }
    let ads = json!({"api_type": "GRPC", "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}]});
    json!({
        "node": {"id": "check", "cluster": "check"},
        "dynamic_resources": {"ads_config": ads},
        "static_resources": {"clusters": clusters, "listeners": listeners},
    })
}

/// A listener with these routes.
fn serving(i: usize, routes: Value) -> Value {
    let of = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
    let router = json!({"name": "router", "typed_config": {"@type": of("http.router.v3.Router")}});
    let manager = json!({"@type": of("network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "s", "http_filters": [router], "route_config": routes});
    json!({"name": format!("routes-{i}"),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}]})
}
