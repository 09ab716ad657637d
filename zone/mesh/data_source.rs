//! Data a mesh refers to: given in place, or held by a secret.

use common::proto::google::protobuf::{Struct, value::Kind};

/// The text of the data source `member` of `conf`.
///
/// # Errors
/// What is missing or cannot be read.
pub(super) fn read(
    conf: &Struct,
    member: &str,
    secret: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let Some(Kind::StructValue(source)) = conf.fields.get(member).and_then(|v| v.kind.as_ref()) else {
        return Err(format!("conf.{member} is missing"));
    };
    let text = |name: &str| match source.fields.get(name).and_then(|v| v.kind.as_ref()) {
        Some(Kind::StringValue(text)) => Some(text.as_str()),
        _ => None,
    };
    if let Some(name) = text("secret") {
        return secret(name);
    }
    if let Some(inline) = text("inlineString") {
        return Ok(inline.to_owned());
    }
    if let Some(inline) = text("inline") {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(inline);
        let bytes = bytes.map_err(|e| format!("conf.{member}.inline is not base64: {e}"))?;
        return String::from_utf8(bytes).map_err(|_| format!("conf.{member}.inline is not text"));
    }
    Err(format!("conf.{member} needs one of secret, inline, inlineString"))
}
