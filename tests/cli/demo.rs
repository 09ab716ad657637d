//! `demo/run.sh` and the files it applies: they are about the same addresses, and nothing in them is refused.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use common::document::Document;
use serde_json::Value;

const FILES: [&str; 9] = [
    "mesh.yaml",
    "allow-all.yaml",
    "external-service.yaml",
    "policy.yaml",
    "services/both-zones.yaml",
    "services/inventory-here.yaml",
    "zone-1/dataplanes.yaml",
    "zone-1/egress.yaml",
    "zone-2/dataplanes.yaml",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The addresses that the script looks at before it starts anything.
fn needed(script: &str) -> BTreeSet<String> {
    let (_, rest) = script.split_once("needed=(").expect("the script says what it needs");
    let (list, _) = rest.split_once(")\ntaken=").expect("and then looks");
    let shown = format!("needed=({list})\nprintf '%s\\n' \"${{needed[@]}}\"");
    let output = Command::new("bash").args(["-c", &shown]).output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64()
}

/// Where something listens because of this document.
fn listens(document: &Value) -> Vec<String> {
    let networking = &document["networking"];
    let address = networking["address"].as_str().unwrap_or_default();
    let mut at = Vec::new();
    at.extend(number(networking, "/admin/port").map(|port| format!("127.0.0.1:{port}")));
    at.extend(number(networking, "/port").map(|port| format!("{address}:{port}")));
    for inbound in networking["inbound"].as_array().into_iter().flatten() {
        at.extend(number(inbound, "/port").map(|port| format!("{address}:{port}")));
        at.extend(number(inbound, "/servicePort").map(|port| format!("127.0.0.1:{port}")));
    }
    for outbound in networking["outbound"].as_array().into_iter().flatten() {
        at.extend(number(outbound, "/port").map(|port| format!("127.0.0.1:{port}")));
    }
    at
}

#[test]
fn the_demo_looks_at_every_address_it_will_use_and_applies_what_is_valid() {
    let script = read("demo/run.sh");
    let needed = needed(&script);
    for file in FILES {
        let name = file.split('/').next_back().unwrap();
        let folder = file.strip_suffix(name).unwrap().trim_end_matches('/');
        let used = script.contains(&format!("examples/{file}"))
            || (!folder.is_empty() && script.contains(&format!("examples/{folder}\n")));
        assert!(used, "{file} is not applied");
        for document in read(&format!("examples/{file}")).split("\n---\n") {
            let document: Value = serde_norway::from_str(document).unwrap();
            let read = Document::parse(&document).unwrap_or_else(|error| panic!("{file}: {error}"));
            let violations = read.kind.validate_authored(&read.spec).unwrap();
            assert!(violations.is_empty(), "{file}: {violations}");
            for at in listens(&document) {
                assert!(
                    needed.contains(&at),
                    "{file}: {at} is not among what demo/run.sh looks at: {needed:?}"
                );
            }
        }
    }
    let steps = script.lines().filter(|line| line.trim_start().starts_with("say \"")).count();
    assert!(script.contains(&format!("[%d/{steps}]")), "{steps} steps, which is not what it says");
}
