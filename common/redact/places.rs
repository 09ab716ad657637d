//! Secrets in places where anything may stand: what a probe sends, what a tag says otherwise, and text where certificates
//! are expected.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use regex::Regex;
use serde_json::Value;

use super::{REDACTED, conceal, effort::Nesting};

/// Probes over plain TCP, as policies and as Envoy name them. What they send may be a login.
const PROBES: [&str; 3] = ["tcp", "tcpHealthCheck", "tcp_health_check"];
const PROBE_WORDS: [&str; 2] = ["send", "receive"];

/// Where the value of a pair is taken from, as tags of traces say it, and what it is when nothing is there.
const ORIGINS: [&str; 4] = ["header", "requestHeader", "request_header", "environment"];
const OTHERWISE: [&str; 3] = ["default", "defaultValue", "default_value"];

/// Members that hold certificates, or say where they are, and the one that stands beside them.
const CERTIFICATES: [&str; 4] = ["certificates", "cert", "caCert", "clientCert"];
const KEY: &str = "key";

/// One certificate in PEM.
static CERTIFICATE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s\\]*-----END CERTIFICATE-----")
        .expect("a pattern of ours is well-formed")
});

/// Takes secrets out of `member`, as far as its name says that there are some. `is_secret_pair`: it is a member of a pair
/// whose name says so.
pub(super) fn withhold(name: &str, member: &mut Value, is_secret_pair: bool, at: Option<Nesting<'_>>) {
    if PROBES.contains(&name) {
        conceal_members(member, &PROBE_WORDS, at);
    } else if is_secret_pair && ORIGINS.contains(&name) {
        conceal_members(member, &OTHERWISE, at);
    } else if CERTIFICATES.contains(&name) {
        only_certificates(member);
    } else if name == KEY && inline(member).next().is_some() {
        conceal(member, at);
    }
}

/// Whether `member` is what a pair says otherwise. Where more than a text stands under such a name, it is something else.
pub(super) fn is_otherwise(name: &str, member: &Value) -> bool {
    member.is_string() && OTHERWISE.contains(&name)
}

fn conceal_members(of: &mut Value, names: &[&str], at: Option<Nesting<'_>>) {
    let members = of.as_object_mut().into_iter().flatten();
    members.filter(|(name, _)| names.contains(&name.as_str())).for_each(|(_, member)| conceal(member, at));
}

/// What stands in the document itself of something that could be kept elsewhere.
fn inline(source: &mut Value) -> impl Iterator<Item = &mut Value> {
    let members = source.as_object_mut().into_iter().flatten();
    members.filter(|(name, _)| name.starts_with("inline")).map(|(_, member)| member)
}

fn only_certificates(member: &mut Value) {
    match member {
        Value::Array(items) => items.iter_mut().for_each(only_certificates),
        source => inline(source).for_each(only_these),
    }
}

fn only_these(text: &mut Value) {
    match text {
        Value::String(text) => {
            if !text.is_empty() && !is_public(text) {
                let mut kept: Vec<&str> = CERTIFICATE.find_iter(text).map(|found| found.as_str()).collect();
                kept.push(REDACTED);
                *text = kept.join("\n");
            }
        }
        // The older form has the text in a message of its own.
        Value::Object(members) => members.values_mut().for_each(only_these),
        Value::Array(items) => items.iter_mut().for_each(only_these),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether there are certificates in `text`, and nothing else.
fn is_public(text: &str) -> bool {
    let nothing_else = |text: &str| {
        CERTIFICATE.is_match(text) && CERTIFICATE.replace_all(text, "").replace("\\n", "").trim().is_empty()
    };
    let decoded = || {
        let packed: String = text.split_ascii_whitespace().collect();
        BASE64_STANDARD.decode(packed).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    };
    nothing_else(text) || decoded().is_some_and(|decoded| nothing_else(&decoded))
}
