//! Envoy as the judge: `--mode validate` on a bootstrap that holds a whole configuration.

use std::{fs, path::Path, process::Command, sync::LazyLock};

use common::tls::KeyPairPem;
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
    let (listeners, mut secrets) = (json(type_url::LISTENER), json(type_url::SECRET));
    for (name, secret) in listeners.iter().chain(&clusters).flat_map(of_agents) {
        if !secrets.iter().any(|known| known["name"] == name.as_str()) {
            secrets.push(secret);
        }
    }
    let mut resources = json!({ "listeners": listeners, "clusters": clusters, "secrets": secrets });
    let routes = json(type_url::ROUTE);
    make_static(&mut resources, &routes);
    json!({ "node": {"id": "check", "cluster": "check"}, "static_resources": resources })
}

/// In place of what an agent has and nobody else: any certificate, by whatever name.
static STAND_IN: LazyLock<KeyPairPem> =
    LazyLock::new(|| KeyPairPem::self_signed(&["stand-in".to_owned()]).unwrap());

/// The secrets that are asked of agents somewhere in there, by name.
fn of_agents(json: &Value) -> Vec<(String, Value)> {
    let of_agent = |config: &Value| config.pointer("/sdsConfig/apiConfigSource").is_some();
    let inline = |text: &str| json!({ "inlineString": text });
    match json {
        Value::Object(object) => {
            let mut found: Vec<(String, Value)> = object.values().flat_map(of_agents).collect();
            let mut note = |config: &Value, key: &str, value: Value| {
                let name = config["name"].as_str().unwrap().to_owned();
                let mut secret = json!({ "name": name });
                secret[key] = value;
                found.push((name, secret));
            };
            let shown = object.get("tlsCertificateSdsSecretConfigs").and_then(Value::as_array);
            for config in shown.into_iter().flatten().filter(|config| of_agent(config)) {
                let (chain, key) = (inline(&STAND_IN.certificate), inline(&STAND_IN.key));
                note(config, "tlsCertificate", json!({ "certificateChain": chain, "privateKey": key }));
            }
            let believed = object.get("validationContextSdsSecretConfig").filter(|config| of_agent(config));
            if let Some(config) = believed {
                note(config, "validationContext", json!({ "trustedCa": inline(&STAND_IN.certificate) }));
            }
            found
        }
        Value::Array(items) => items.iter().flat_map(of_agents).collect(),
        _ => Vec::new(),
    }
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
