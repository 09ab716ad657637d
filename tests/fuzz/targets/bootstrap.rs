//! What a proxy sends to get its bootstrap.

use std::{sync::Arc, time::Duration};

use common::{
    mode::Mode,
    runtime::Env,
    store::{Snapshot, StoreIdentity, index::Index},
};
use serde_json::{Value, json};
use uuid::Uuid;
use zone::ads::{
    auth::{Authenticator, Credential, Requirement},
    bootstrap::{BootstrapSettings, Bootstraps, Judge},
};

use super::{Target, choice};
use crate::corpus::Corpus;

/// A request to a zone where proxies show tokens, or to one where they are believed.
pub static BOOTSTRAPS: Target = Target { name: "bootstraps", costs: 2, run, seeds };

fn run(data: &[u8]) {
    let Some((form, body)) = choice(data, 2) else { return };
    let credential = if form == 0 { Credential::Token } else { Credential::None };
    let requirement =
        Requirement { dataplane: credential, zone_proxy: credential, node: credential, bound: false };
    let env = Env::system("fuzz");
    let authenticator = Authenticator::new(requirement, "zone-1".into(), env.clone());
    let judge = Judge::new(authenticator, Mode::federated_zone("zone-1"), env);
    let maker = Bootstraps {
        settings: BootstrapSettings {
            connect_timeout: Duration::from_secs(1),
            ..BootstrapSettings::default()
        },
        requirement,
        certificate: None,
        port: 5678,
        ipv4_only: true,
    };
    match maker.answer(body, Some("localhost"), &judge, &index()) {
        Ok(made) => given(&made.envoy, body, credential),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Nobody here can sign a token, so who must show one has it in a file, and the bootstrap holds none.
fn given(envoy: &Value, body: &[u8], credential: Credential) {
    let request: Value = serde_json::from_slice(body).expect("what was answered is JSON");
    let is_set = |name: &str| request[name].as_str().is_some_and(|text| !text.is_empty());
    if credential == Credential::Token {
        assert!(is_set("dataplaneTokenPath") || is_set("credentialFile"), "{request}");
        assert!(request["dataplaneToken"].as_str().is_none_or(|token| token.trim().is_empty()), "{request}");
    }
    let id = envoy["node"]["id"].as_str().expect("a node has an id");
    assert!(id.ends_with(request["name"].as_str().unwrap_or("?")), "{id} of {request}");
    serde_norway::to_string(envoy).expect("a bootstrap can be written");
}

fn index() -> Arc<Index> {
    let corpus = Corpus::own();
    let resources = corpus.resources.into_iter().map(Into::into).collect();
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    Arc::new(Index::of(store, Snapshot { revision: 1, commit: None, resources }))
}

fn seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let dataplane = |name: &str| {
        json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": {"address": "127.0.0.1",
            "inbound": [{"port": 80, "tags": {"kuma.io/service": "a"}}]}})
        .to_string()
    };
    let own = [
        json!({"mesh": "default", "name": "web-1", "dataplaneTokenPath": "/token"}),
        json!({"name": "web-2", "credentialFile": "/token", "dataplaneResource": dataplane("web-2"),
            "dynamicMetadata": {"a": "b"}, "features": ["feature-delta-grpc"], "workdir": "/tmp/x"}),
        json!({"name": "in-1", "proxyType": "ingress", "version": {"kumaDp": {"version": "2.14.0"}}}),
        json!({"name": "web-1", "dataplaneToken": "a.b.c", "caCert": "-----BEGIN CERTIFICATE-----",
            "otelEnv": {"a": [1, null]}, "resources": {"maxHeapSizeBytes": 1000}}),
    ];
    let dataplanes = corpus.documents.iter().filter(|document| document["type"] == "Dataplane").take(20);
    let brought = dataplanes.map(|document| {
        json!({"mesh": document["mesh"], "name": document["name"], "dataplaneTokenPath": "/token",
            "dataplaneResource": document.to_string()})
    });
    let bodies: Vec<Value> = own.into_iter().chain(brought).collect();
    let of = |form: u8| bodies.iter().map(move |body| [&[form][..], body.to_string().as_bytes()].concat());
    of(0).chain(of(1)).collect()
}
