//! Envoy as the judge: `--mode validate` on a bootstrap that holds a whole configuration.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::generator::{ResourceSet, type_url};

/// Envoy's words when it does not accept one of the configurations, or warns about a deprecated field.
pub(super) fn check_all(envoy: &Path, configurations: &[(String, ResourceSet)]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    for (i, (name, set)) in configurations.iter().enumerate() {
        let file = folder.path().join(format!("{i}.json"));
        fs::write(&file, bootstrap(set).to_string()).unwrap();
        let arguments = ["--mode", "validate", "-l", "warning", "--base-id", "7", "-c"];
        let output = Command::new(envoy).args(arguments).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || said.contains("eprecated") {
            return Err(format!("{name}: Envoy says\n{said}"));
        }
    }
    Ok(())
}

/// A static bootstrap. What would arrive by discovery is put in place: endpoints into their clusters, and
/// secrets as static ones, since a static cluster with secrets from a stream crashes Envoy.
fn bootstrap(set: &ResourceSet) -> Value {
    let json = |url: &str| -> Vec<Value> { set.of_type(url).map(|(_, r)| r.to_json().unwrap()).collect() };
    let mut clusters = json(type_url::CLUSTER);
    for cluster in &mut clusters {
        if cluster["type"] == "EDS" {
            let name = cluster["name"].as_str().unwrap();
            let endpoints = set.get(type_url::ENDPOINT, name).unwrap().to_json().unwrap();
            let cluster = cluster.as_object_mut().unwrap();
            cluster.remove("edsClusterConfig");
            cluster.insert("type".into(), json!("STATIC"));
            cluster.insert("loadAssignment".into(), endpoints);
        }
    }
    let mut resources = json!({
        "listeners": json(type_url::LISTENER),
        "clusters": clusters,
        "secrets": json(type_url::SECRET),
    });
    let routes = json(type_url::ROUTE);
    make_static(&mut resources, &routes);
    json!({ "node": {"id": "check", "cluster": "check"}, "static_resources": resources })
}

/// Turns references to streamed secrets into references to static ones, and those to routes into the routes.
fn make_static(json: &mut Value, routes: &[Value]) {
    match json {
        Value::Object(object) => {
            if object.get("sdsConfig").is_some() {
                object.remove("sdsConfig");
            }
            if let Some(discovered) = object.remove("rds") {
                let named = |routes: &&Value| routes["name"] == discovered["routeConfigName"];
                object.insert("routeConfig".into(), routes.iter().find(named).unwrap().clone());
            }
            object.values_mut().for_each(|value| make_static(value, routes));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| make_static(item, routes)),
        _ => {}
    }
}
