//! What is wrong in a request to the REST API of a global or a zone.

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Global, Options, Zone, eventually};

/// A request and what its answer must say.
struct Case {
    /// Which class of bad input.
    class: &'static str,
    path: &'static str,
    body: String,
    status: u16,
    /// Words of the answer: which field or part is wrong, and what to do.
    says: &'static [&'static str],
}

fn case(
    class: &'static str,
    path: &'static str,
    body: impl ToString,
    status: u16,
    says: &'static [&'static str],
) -> Case {
    Case { class, path, body: body.to_string(), status, says }
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
fn on_global() -> Vec<Case> {
    let huge = format!("{{\"type\": \"{}\"}}", "x".repeat(5 << 20));
    vec![
        case("malformed JSON", POLICY, "{\"type\": ", 400, &["not JSON", "line 1 column", "straitctl apply"]),
        case("YAML", POLICY, "type: MeshTimeout", 400, &["not JSON", "`straitctl apply` takes YAML"]),
        case("no object", POLICY, "[]", 400, &["the document is not an object with type and name"]),
        case("unknown kind", "/meshes/default/nonsense/n", "{}", 404, &["404: Page Not Found"]),
        case("another kind", POLICY, policy(|p| p["type"] = json!("Mesh")), 400, &["should be one of [MeshTimeout]"]),
        case("wrong mesh", POLICY, policy(|p| p["mesh"] = json!("other")), 400,
            &["\"mesh\"", "mesh from the URL has to be the same as in body"]),
        case("no such mesh", "/meshes/nowhere/meshtimeouts/t", policy(|p| p["mesh"] = json!("nowhere")), 404,
            &["Failed to retrieve Mesh", "Not found"]),
        case("invalid name", "/meshes/default/meshtimeouts/Not_A_Name", policy(|p| p["name"] = json!("Not_A_Name")),
            400, &["\"name\"", "must consist of lower case alphanumeric characters"]),
        case("another name", POLICY, policy(|p| p["name"] = json!("u")), 400,
            &["\"name\"", "name from the URL has to be the same as in body"]),
        case("name that is no text", POLICY, policy(|p| p["name"] = json!(7)), 400,
            &["name: must be a string; quote it in YAML"]),
        case("label that is no text", POLICY, policy(|p| p["labels"] = json!({"a": 7})), 400,
            &["labels[\\\"a\\\"]: must be a string; quote it in YAML"]),
        case("foreign origin", POLICY, policy(|p| p["labels"] = json!({"kuma.io/origin": "zone"})), 400,
            &["labels[\\\"kuma.io/origin\\\"]", "must be set to 'global'"]),
        case("spec of a wrong shape", POLICY, policy(|p| p["spec"]["to"] = json!(7)), 400,
            &["spec.to", "must be of type array"]),
        case("spec that breaks a rule", POLICY,
            policy(|p| p["spec"]["to"][0]["default"]["connectionTimeout"] = json!("soon")), 400,
            &["spec.to[0].default.connectionTimeout", "invalid duration"]),
        case("what zones own", DATAPLANE, dataplane(|_| {}), 405, &["apply it on the zone control plane"]),
        case("body over the limit", POLICY, huge, 413,
            &["longer than 4194304 bytes", "spread it over several resources"]),
    ]
}

#[rustfmt::skip]
fn on_a_zone() -> Vec<Case> {
    vec![
        case("malformed JSON", DATAPLANE, "{", 400, &["not JSON", "straitctl apply"]),
        case("what global owns", "/meshes/m", json!({"type": "Mesh", "name": "m"}), 405,
            &["apply it on the global control plane"]),
        case("no origin label", POLICY, policy(|_| {}), 400,
            &["labels[\\\"kuma.io/origin\\\"]", "must be set to 'zone'"]),
        case("spec that breaks rules", DATAPLANE,
            dataplane(|d| d["networking"]["inbound"][0] = json!({"port": 99_999, "tags": {"a": "b"}})), 400,
            &["networking.inbound[0].port", "[1, 65535]", "networking.inbound[0].tags", "kuma.io/service"]),
        case("spec of a wrong shape", DATAPLANE, dataplane(|d| d["networking"]["inbound"] = json!("x")), 400,
            &["networking.inbound", "expected a list"]),
        case("another zone's label", DATAPLANE, dataplane(|d| d["labels"] = json!({"kuma.io/zone": "zone-2"})), 400,
            &["labels[\\\"kuma.io/zone\\\"]", "should have zone-1 value"]),
        case("another zone's ingress", "/zoneingresses/p", zone_proxy("ZoneIngress", "zone-2"), 400,
            &["\"zone\"", "must be \\\"zone-1\\\", the zone of this control plane, or left out"]),
        case("another zone's egress", "/zoneegresses/p", zone_proxy("ZoneEgress", "zone-2"), 400,
            &["\"zone\"", "must be \\\"zone-1\\\", the zone of this control plane, or left out"]),
    ]
}

async fn check(url: impl Fn(&str) -> String, cases: Vec<Case>) {
    for Case { class, path, body, status, says } in cases {
        let request = Client::new().put(url(path)).header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap_or_else(|e| panic!("{class}: {e}"));
        let (got, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert_eq!(got, status, "{class}: {text}");
        for words in says {
            assert!(text.contains(words), "{class} does not say {words:?}: {text}");
        }
    }
}

#[tokio::test]
async fn global_says_what_is_wrong_and_lives() {
    let mut global = Global::start().await;
    check(|path| global.url(path), on_global()).await;
    let request = Client::new().put(global.url(POLICY)).header("content-type", "text/yaml");
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
    check(|path| zone.url(path), on_a_zone()).await;
    // A tag is the zone's to set, so one that names another zone is overwritten, as in Kuma.
    let tagged = dataplane(|d| d["networking"]["inbound"][0]["tags"]["kuma.io/zone"] = json!("zone-2"));
    assert_eq!(zone.call(Method::PUT, DATAPLANE, Some(tagged)).await.0, StatusCode::CREATED);
    let stored = zone.get(DATAPLANE).await;
    assert_eq!(stored["networking"]["inbound"][0]["tags"]["kuma.io/zone"], "zone-1");
    assert!(zone.process.runs());
}
