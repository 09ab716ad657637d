//! What an older version stored, which nobody would accept today.

use serde_json::{Value, json};

use super::{ask, config, kinds, mesh};
use crate::{
    document::Document,
    mode::Mode,
    model::Kind,
    registry,
    testing::{api::TestApi, mutation::mutated},
};

/// A kind, what stands in the store, and what corrects it.
fn kept() -> Vec<(&'static str, Value, Value)> {
    let outside = |address: &str| json!({ "networking": { "address": address }, "tags": { "kuma.io/service": "outside" } });
    let to = |default: Value| json!({ "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": default }] } });
    let identity = |provider: Value| json!({ "spec": { "provider": provider } });
    let pem = "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n";
    let trust = |value: &str| json!({ "spec": { "trustDomain": "a.example", "caBundles": [{ "type": "Pem", "pem": { "value": value } }] } });
    vec![
        ("ExternalService", outside("nowhere"), outside("a.example:443")),
        (
            "MeshIdentity",
            identity(json!({ "type": "Nobody" })),
            identity(json!({ "type": "Spire", "spire": {} })),
        ),
        ("MeshTrust", trust("no certificate"), trust(pem)),
        ("MeshTimeout", to(json!({ "idleTimeout": "soon" })), to(json!({ "idleTimeout": "1s" }))),
        (
            "MeshTrace",
            json!({ "spec": { "default": [] } }),
            json!({ "spec": { "default": { "backends": [] } } }),
        ),
        ("MeshHealthCheck", to(json!({ "interval": "-1s" })), to(json!({ "interval": "1s", "tcp": {} }))),
    ]
}

#[tokio::test]
async fn what_nobody_would_accept_is_read_corrected_and_deleted() {
    for (kind, wrong, right) in kept() {
        let path = format!("/meshes/default/{}", registry::by_name(kind).unwrap().path);
        let document = |name: &str, content: &Value| {
            let mut document = json!({ "type": kind, "mesh": "default", "name": name });
            document.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            document
        };
        let stored = [mesh("default"), document("a", &wrong), document("b", &wrong)];
        let api = TestApi::start(config(Mode::Global), &stored).await.unwrap();
        let (status, shown) = ask(&api, "GET", &format!("{path}/a"), None).await;
        assert_eq!((status, &shown["name"]), (200, &json!("a")), "{kind}: {shown}");
        assert_eq!(ask(&api, "GET", &path, None).await.1["total"], 2, "{kind}");
        let (status, refused) = ask(&api, "PUT", &format!("{path}/a"), Some(document("a", &wrong))).await;
        assert_eq!(status, 400, "{kind}: {refused}");
        let (status, body) = ask(&api, "PUT", &format!("{path}/a"), Some(document("a", &right))).await;
        assert_eq!(status, 200, "{kind}: {body}");
        for name in ["a", "b"] {
            assert_eq!(ask(&api, "DELETE", &format!("{path}/{name}"), None).await.0, 200, "{kind}");
        }
        assert_eq!(ask(&api, "GET", &path, None).await.1["total"], 0, "{kind}");
    }
}

/// A document that can be stored, and that nobody would accept: one that is right, with one place changed.
fn wrong(kind: &'static Kind, right: &Value) -> Option<Value> {
    let mut near = (0..40).flat_map(|place| (0..12).map(move |how| mutated(right, place, how)));
    near.find(|document| {
        let Ok(document) = Document::parse_as(kind, document) else { return false };
        kind.settle_authored(&document.spec).map_or(true, |(violations, _)| !violations.is_empty())
    })
}

/// A zone says whether it is enabled and a workload nothing: whatever can be stored of them is right.
const NEVER_WRONG: [&str; 2] = ["Workload", "Zone"];

#[tokio::test]
async fn of_every_kind_what_is_wrong_is_read_corrected_and_deleted() {
    for kind in kinds::written() {
        let right = kinds::document(kind);
        let Some(wrong) = wrong(kind, &right) else {
            assert!(NEVER_WRONG.contains(&kind.name), "{}", kind.name);
            continue;
        };
        let stored = [mesh("default"), wrong.clone()];
        let api = TestApi::start(config(Mode::standalone_zone("east")), &stored).await.unwrap();
        let path = format!("{}/a", kinds::path(kind));
        let (status, shown) = ask(&api, "GET", &path, None).await;
        assert_eq!((status, &shown["name"]), (200, &json!("a")), "{}: {shown}", kind.name);
        let (status, refused) = ask(&api, "PUT", &path, Some(shown)).await;
        assert_eq!(status, 400, "{} {wrong}: {refused}", kind.name);
        let (status, answer) = ask(&api, "PUT", &path, Some(right)).await;
        assert_eq!(status, 200, "{} {wrong}: {answer}", kind.name);
        assert_eq!(ask(&api, "DELETE", &path, None).await.0, 200, "{}", kind.name);

        let api = TestApi::start(config(Mode::standalone_zone("east")), &stored).await.unwrap();
        assert_eq!(ask(&api, "DELETE", &path, None).await.0, 200, "{} {wrong}", kind.name);
    }
}
