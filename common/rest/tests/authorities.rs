//! Authorities that the owner of a mesh brings.

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, Duration};
use serde_json::{Value, json};

use super::{ask, global, mesh};
use crate::{
    ca::create_root,
    keys::{KeyForm, PrivateKey},
    testing::api::TestApi,
    tls::KeyPairPem,
};

fn authority() -> KeyPairPem {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    create_root("default", &key, Duration::days(1), now).unwrap()
}

fn provided(cert: Value, key: Value) -> Value {
    let conf = json!({ "cert": cert, "key": key });
    let backend = json!({ "name": "ca", "type": "provided", "conf": conf });
    json!({ "type": "Mesh", "name": "default", "mtls": { "enabledBackend": "ca", "backends": [backend] } })
}

async fn put(api: &TestApi, mesh: Value) -> (u16, Vec<String>) {
    let (status, body) = ask(api, "PUT", "/meshes/default", Some(mesh)).await;
    let wrong = body["invalid_parameters"].as_array().cloned().unwrap_or_default();
    let fields = wrong.iter().map(|one| one["field"].as_str().unwrap_or_default());
    (status, fields.map(|field| field.replace("mtls.backends[0].conf.", "")).collect())
}

#[tokio::test]
async fn an_authority_has_to_be_there_before_a_mesh_uses_it() {
    let api = global(&[mesh("default")]).await;
    let by_name = provided(json!({ "secret": "root" }), json!({ "secret": "root-key" }));
    let refused = (400, vec!["cert".to_owned(), "key".to_owned()]);
    assert_eq!(put(&api, by_name.clone()).await, refused);
    let mut unseen = by_name.clone();
    unseen["mtls"]["skipValidation"] = json!(true);
    assert_eq!(put(&api, unseen).await.0, 200);

    let own = authority();
    for (name, text) in [("root", &own.certificate), ("root-key", &own.key)] {
        let secret =
            json!({ "type": "Secret", "mesh": "default", "name": name, "data": STANDARD.encode(text) });
        let path = format!("/meshes/default/secrets/{name}");
        assert_eq!(ask(&api, "PUT", &path, Some(secret)).await.0, 201);
    }
    assert_eq!(put(&api, by_name).await, (200, vec![]));
}

#[tokio::test]
async fn an_authority_has_to_be_able_to_sign() {
    let api = global(&[mesh("default")]).await;
    let (own, other) = (authority(), authority());
    let inline = |text: &str| json!({ "inlineString": text });
    assert_eq!(put(&api, provided(inline(&own.certificate), inline(&own.key))).await, (200, vec![]));
    let encoded = json!({ "inline": STANDARD.encode(&own.certificate) });
    assert_eq!(put(&api, provided(encoded, inline(&own.key))).await, (200, vec![]));
    let refused = (400, vec!["cert".to_owned()]);
    assert_eq!(put(&api, provided(inline(&other.certificate), inline(&own.key))).await, refused);
    assert_eq!(put(&api, provided(inline("nothing"), inline(&own.key))).await, refused);
    assert_eq!(put(&api, provided(inline(&own.certificate), inline("nothing"))).await, refused);
    let leaf = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let (certificate, key) = (leaf.cert.pem(), leaf.signing_key.serialize_pem());
    let (status, fields) = put(&api, provided(inline(&certificate), inline(&key))).await;
    assert_eq!((status, fields.first().map(String::as_str)), (400, Some("cert[0]")), "{fields:?}");
}
