//! Applications with a gRPC library and no Envoy: their bootstrap, and the agent beside them.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn straitctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_straitctl")).args(args).output().expect("straitctl runs")
}

#[test]
fn a_library_gets_a_bootstrap_that_names_the_agent() {
    let place = ["--agent", "127.0.0.1:7000", "--certificates", "/run/web-1"];
    let output =
        straitctl(&[&["bootstrap", "--grpc", "--mesh", "demo", "--name", "web-1"][..], &place].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["node"]["id"], "demo.web-1");
    assert_eq!(document["xds_servers"][0]["server_uri"], "127.0.0.1:7000");
    assert_eq!(document["xds_servers"][0]["channel_creds"], json!([{ "type": "insecure" }]));
    let provider = &document["certificate_providers"]["default"];
    assert_eq!(provider["plugin_name"], "file_watcher");
    assert_eq!(provider["config"]["private_key_file"], "/run/web-1/identity.pem");
    let template = document["server_listener_resource_name_template"].as_str().expect("a template");
    assert!(template.starts_with("grpc/server?") && template.ends_with("=%s"), "{template}");
}

#[test]
fn without_a_folder_there_is_no_provider_of_certificates() {
    let output = straitctl(&["bootstrap", "--grpc", "--name", "web-1"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document.get("certificate_providers"), None);
}

#[test]
fn an_agent_listens_on_this_machine_only() {
    let output = straitctl(&["grpc-agent", "--listen", "0.0.0.0:0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("not an address of this machine alone"), "{said}");
}
