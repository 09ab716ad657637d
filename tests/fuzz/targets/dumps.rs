//! What is shown of Envoys and settings: a token or a key in it is gone, whatever stands around it.

use common::redact;
use serde_json::{Value, json};

use super::Target;
use crate::corpus::Corpus;

/// A text, or JSON, with secrets in its middle.
pub static DUMPS: Target = Target { name: "dumps", costs: 1, run, seeds };

const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJOYW1lIjoid2ViLTEiLCJleHAiOjE3MDAwMDAwMDB9.\
                     c2lnbmF0dXJlLW9mLWEtdG9rZW4tdGhhdC1uZXZlci13YXM";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n\
                   c29tZS1wcml2YXRlLWtleS10aGF0LW5ldmVyLXdhcw==\n-----END PRIVATE KEY-----";

fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
    for secret in [TOKEN, KEY] {
        let planted = format!("{before} {secret} {after}");
        let shown = redact::text(&planted);
        assert!(!shown.contains(secret), "{shown}");
        if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
            value = json!({ "a": value, "b": [planted] });
            redact::json(&mut value);
            assert!(!value["b"][0].as_str().unwrap_or_default().contains(secret), "{value}");
        }
    }
}

fn seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let documents = corpus.documents.iter().take(50).map(|document| document.to_string().into_bytes());
    let own =
        ["cluster.a::1::cx_active::0", "{\"configs\": [{\"@type\": \"x\"}]}", "Bearer ", "https://u:p@h/"];
    documents.chain(own.map(|text| text.as_bytes().to_vec())).collect()
}
