//! Documents that do not fit where they are put: the words say which field or part is wrong, and what to
//! do.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    http::{Http, put},
    table::{Case, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    tally::{Class::Content, Tally},
};

type Row = Case<Vec<u8>>;

const WRONG: &[&str] = &["400"];
const NOWHERE: &[&str] = &["404"];
const ELSEWHERE: &[&str] = &["405"];

fn row(
    what: &'static str,
    path: &str,
    body: impl ToString,
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
) -> Row {
    case(Content, what, put(path, body.to_string()), verdicts, says)
}

/// A policy that is right, with `change` applied to it.
fn policy(change: impl FnOnce(&mut Value)) -> Value {
    let mut policy = json!({"type": "MeshTimeout", "mesh": "default", "name": "t",
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}});
    change(&mut policy);
    policy
}

/// A dataplane that is right, with `change` applied to it.
fn dataplane(change: impl FnOnce(&mut Value)) -> Value {
    let mut dataplane = json!({"type": "Dataplane", "mesh": "default", "name": "d", "networking": {
        "address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}});
    change(&mut dataplane);
    dataplane
}

fn zone_proxy(kind: &str, zone: &str) -> Value {
    json!({"type": kind, "name": "p", "zone": zone, "networking": {"address": "10.0.0.1", "port": 10001}})
}

const POLICY: &str = "/meshes/default/meshtimeouts/t";
const DATAPLANE: &str = "/meshes/default/dataplanes/d";

#[rustfmt::skip]
fn on_global() -> Vec<Row> {
    let huge = format!("{{\"type\": \"{}\"}}", "x".repeat(5 << 20));
    vec![
        row("malformed JSON", POLICY, "{\"type\": ", WRONG, &["not JSON", "line 1 column", "straitctl apply"]),
        row("YAML", POLICY, "type: MeshTimeout", WRONG, &["not JSON", "`straitctl apply` takes YAML"]),
        row("no object", POLICY, "[]", WRONG, &["the document is not an object with type and name"]),
        row("unknown kind", "/meshes/default/nonsense/n", "{}", NOWHERE, &["404: Page Not Found"]),
        row("another kind", POLICY, policy(|p| p["type"] = json!("Mesh")), WRONG, &["should be one of [MeshTimeout]"]),
        row("wrong mesh", POLICY, policy(|p| p["mesh"] = json!("other")), WRONG,
            &["\"mesh\"", "mesh from the URL has to be the same as in body"]),
        row("no such mesh", "/meshes/nowhere/meshtimeouts/t", policy(|p| p["mesh"] = json!("nowhere")), NOWHERE,
            &["Failed to retrieve Mesh", "Not found"]),
        row("invalid name", "/meshes/default/meshtimeouts/Not_A_Name", policy(|p| p["name"] = json!("Not_A_Name")),
            WRONG, &["\"name\"", "must consist of lower case alphanumeric characters"]),
        row("another name", POLICY, policy(|p| p["name"] = json!("u")), WRONG,
            &["\"name\"", "name from the URL has to be the same as in body"]),
        row("name that is no text", POLICY, policy(|p| p["name"] = json!(7)), WRONG,
            &["name: must be a string; quote it in YAML"]),
        row("label that is no text", POLICY, policy(|p| p["labels"] = json!({"a": 7})), WRONG,
            &["labels[\\\"a\\\"]: must be a string; quote it in YAML"]),
        row("foreign origin", POLICY, policy(|p| p["labels"] = json!({"kuma.io/origin": "zone"})), WRONG,
            &["labels[\\\"kuma.io/origin\\\"]", "must be set to 'global'"]),
        row("spec of a wrong shape", POLICY, policy(|p| p["spec"]["to"] = json!(7)), WRONG,
            &["spec.to", "must be of type array"]),
        row("spec that breaks a rule", POLICY,
            policy(|p| p["spec"]["to"][0]["default"]["connectionTimeout"] = json!("soon")), WRONG,
            &["spec.to[0].default.connectionTimeout", "invalid duration"]),
        row("what zones own", DATAPLANE, dataplane(|_| {}), ELSEWHERE, &["apply it on the zone control plane"]),
        row("body over the limit", POLICY, huge, &["413"],
            &["longer than 4194304 bytes", "spread it over several resources"]),
    ]
}

#[rustfmt::skip]
fn on_a_zone() -> Vec<Row> {
    vec![
        row("malformed JSON", DATAPLANE, "{", WRONG, &["not JSON", "straitctl apply"]),
        row("what global owns", "/meshes/m", json!({"type": "Mesh", "name": "m"}), ELSEWHERE,
            &["apply it on the global control plane"]),
        row("no origin label", POLICY, policy(|_| {}), WRONG,
            &["labels[\\\"kuma.io/origin\\\"]", "must be set to 'zone'"]),
        row("spec that breaks rules", DATAPLANE,
            dataplane(|d| d["networking"]["inbound"][0] = json!({"port": 99_999, "tags": {"a": "b"}})), WRONG,
            &["networking.inbound[0].port", "[1, 65535]", "networking.inbound[0].tags", "kuma.io/service"]),
        row("spec of a wrong shape", DATAPLANE, dataplane(|d| d["networking"]["inbound"] = json!("x")), WRONG,
            &["networking.inbound", "expected a list"]),
        row("another zone's label", DATAPLANE, dataplane(|d| d["labels"] = json!({"kuma.io/zone": "zone-2"})), WRONG,
            &["labels[\\\"kuma.io/zone\\\"]", "should have zone-1 value"]),
        row("another zone's ingress", "/zoneingresses/p", zone_proxy("ZoneIngress", "zone-2"), WRONG,
            &["\"zone\"", "must be \\\"zone-1\\\", the zone of this control plane, or left out"]),
        row("another zone's egress", "/zoneegresses/p", zone_proxy("ZoneEgress", "zone-2"), WRONG,
            &["\"zone\"", "must be \\\"zone-1\\\", the zone of this control plane, or left out"]),
    ]
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&on_global());
    all.join(&tally(&on_a_zone()));
    all
}

#[tokio::test]
async fn global_says_what_is_wrong_and_lives() {
    let mut global = Global::start().await;
    let rest = Http::of_admin("global REST", &global);
    all_right([run(&rest, &on_global(), &[&global.process]).await]);
    let request = global.admin().put(global.url(POLICY)).header("content-type", "text/yaml");
    let answer = request.body("type: MeshTimeout").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(answer.text().await.unwrap().contains("`straitctl apply` takes YAML"));
    let (status, _) = global.call(Method::GET, POLICY, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nothing of it was stored");
    assert_eq!(global.call(Method::PUT, POLICY, Some(policy(|_| {}))).await.0, StatusCode::CREATED);
    assert!(global.process.runs());
}

#[tokio::test]
async fn a_zone_says_what_is_wrong_and_makes_tags_its_own() {
    let global = Global::start().await;
    let mut zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let rest = Http::of_admin("zone REST", &zone);
    all_right([run(&rest, &on_a_zone(), &[&zone.process]).await]);
    // A tag is the zone's to set, so one that names another zone is overwritten, as in Kuma.
    let tagged = dataplane(|d| d["networking"]["inbound"][0]["tags"]["kuma.io/zone"] = json!("zone-2"));
    assert_eq!(zone.call(Method::PUT, DATAPLANE, Some(tagged)).await.0, StatusCode::CREATED);
    let stored = zone.get(DATAPLANE).await;
    assert_eq!(stored["networking"]["inbound"][0]["tags"]["kuma.io/zone"], "zone-1");
    assert!(zone.process.runs());
}
