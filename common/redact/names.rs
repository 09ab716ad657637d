//! Members and headers that hold secrets, by name and by type.

use serde_json::{Map, Value};

use crate::registry;

/// How the names of secret members end, without case and separators.
#[rustfmt::skip]
const ENDINGS: [&str; 40] = [
    "accesskey", "accesskeyid", "apikey", "apikeys", "authkey", "authorization", "bearer", "clientkey",
    "connectionstring", "cookie", "credential", "credentials", "encryptionkey", "hmackey", "initialmetadata",
    "jsonkey", "masterkey", "passphrase", "passwd", "password", "passwords", "pkcs12", "privatekey", "privatekeyprovider",
    "privatekeys", "psk", "pwd", "secret", "secretdata", "secretkey", "sessionkey", "sessionticketkeys", "setcookie",
    "sharedkey", "signingkey", "signingkeys", "subscriptionkey", "ticketkeys", "token", "tokens",
];

/// More endings of the names of headers that prove something.
const HEADER_ENDINGS: [&str; 6] = ["auth", "key", "session", "sessionid", "signature", "xsrf"];

/// Members that name the other member of a pair.
pub(super) const PAIR_NAMES: [&str; 5] = ["key", "name", "headerName", "header", "tag"];

/// The other member: what a header is set to, or compared with.
#[rustfmt::skip]
pub(super) const PAIR_VALUES: [&str; 15] = [
    "value", "rawValue", "raw_value", "values", "stringValue", "stringMatch", "string_match", "exact", "exactMatch",
    "prefixMatch", "suffixMatch", "containsMatch", "safeRegexMatch", "rangeMatch", "literal",
];

/// Members that are secret by the type of the message they are in, where their name does not tell.
const TYPED: [(&str, &[&str]); 7] = [
    ("envoy.extensions.filters.http.basic_auth.v3.BasicAuth", &["users"]),
    ("envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRoute", &["users"]),
    ("envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth", &["credentials"]),
    ("envoy.extensions.transport_sockets.tls.v3.GenericSecret", &["secret", "secrets"]),
    ("envoy.extensions.transport_sockets.tls.v3.TlsSessionTicketKeys", &["keys"]),
    ("envoy.extensions.transport_sockets.tls.v3.TlsCertificate", &["privateKey", "pkcs12", "password"]),
    ("envoy.config.core.v3.GrpcService", &["initialMetadata"]),
];

/// What a private key is made of, as JSON web keys name it.
const PRIVATE_JWK: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "k", "oth"];

/// Whether a member of this name is secret whatever it holds.
pub(super) fn is_secret(name: &str) -> bool {
    let plain = plain(name);
    // Lists of Envoy's `Secret` messages end so as well, and are looked through.
    plain == "secrets" || ENDINGS.iter().any(|ending| plain.ends_with(ending))
}

/// Whether a header, or whatever else is named in a pair, proves something about its sender.
pub(super) fn is_secret_header(name: &str) -> bool {
    let plain = plain(name);
    ENDINGS.iter().chain(&HEADER_ENDINGS).any(|ending| plain.ends_with(ending))
}

/// Longest name that a message gives a member of it.
const LONGEST_FIELD: usize = 48;

/// Whether a member of this name can be a field of a message, inside something secret whose members nobody knows.
pub(super) fn is_field(name: &str) -> bool {
    let bare = name.strip_prefix('@').unwrap_or(name);
    let is_word = bare.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    name.len() <= LONGEST_FIELD && is_word
}

/// Whether a member of this name holds messages of the type it names.
pub(super) fn is_type_url(name: &str) -> bool {
    name.strip_prefix("type.googleapis.com/").is_some_and(|of| !of.is_empty())
}

/// Whether numbers under this name are amounts.
pub(super) fn counts(name: &str) -> bool {
    let plain = plain(name);
    plain.ends_with("token") || plain.ends_with("tokens")
}

/// Whether `value` is a message around a secret whose members are known, such as Envoy's `Secret`.
pub(super) fn is_envelope(value: &Value) -> bool {
    value.as_object().is_some_and(|members| members.contains_key("@type") && members.contains_key("name"))
}

/// Members of what is told about resources of a type: how many there are, how their sync goes.
#[rustfmt::skip]
const REPORT: [&str; 8] = [
    "acknowledged", "lastRejection", "responsesAcknowledged", "responsesRejected", "responsesSent", "sent", "total",
    "version",
];

/// Whether `value` tells about resources of the type `name`, rather than being one.
pub(super) fn is_report(name: &str, value: &Value) -> bool {
    is_secret_type(name)
        && match value {
            Value::Number(_) => true,
            // A sentence: why they are refused.
            Value::String(text) => text.contains(' '),
            Value::Object(members) => members.keys().all(|name| REPORT.contains(&name.as_str())),
            Value::Null | Value::Bool(_) | Value::Array(_) => false,
        }
}

/// The members of this object that are secret by its type.
pub(super) fn secret_members(members: &Map<String, Value>) -> &'static [&'static str] {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    if members.contains_key("kty") {
        return &PRIVATE_JWK;
    }
    if text("type").is_some_and(is_secret_type) {
        return &["data"];
    }
    let Some(name) = text("@type").and_then(|url| url.rsplit('/').next()) else { return &[] };
    TYPED.iter().find(|(of, _)| *of == name).map_or(&[], |(_, members)| members)
}

/// Whether resources of the type `name` are secrets.
fn is_secret_type(name: &str) -> bool {
    registry::by_name(name).is_some_and(|kind| kind.admin_only)
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
