//! Secrets by their looks: key blocks, tokens, credentials in addresses and assignments, also when they are
//! base64, hexadecimal or percent-encoded.

use std::{borrow::Cow, sync::LazyLock};

use base64::{
    Engine,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};
use serde_json::Value;

use super::{REDACTED, effort::Nesting};

/// Shorter texts hold no secret one could tell from other words.
const SHORTEST: usize = 8;
/// Shorter words are not searched for something packed.
const SHORTEST_PACKED: usize = 32;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of ours is well-formed")
}

/// A block of PEM that holds a private key, also one that was cut.
static PEM: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?is)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|\z)",
    )
});
/// `scheme://user:password@`.
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/"'<>@]*:[^\s/"'<>]*@"#));
/// `Bearer …`, `Basic …`.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(bearer|basic)(\s+)([a-z0-9+/=._~-]{8,})"));
/// Passwords as servers keep them.
static HASH: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"\{S?SHA\}[A-Za-z0-9+/=]+|\$(2[abxy]?|apr1|1|5|6|y|argon2i?d?)\$[^\s:"']+"#));
/// `password=…`, `"token": "…"`.
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    let name = "passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|private|secret|signing)[_-]?key|credentials?\
                |authorization|cookie";
    // Without a space after it a colon is part of a name, such as those of Envoy's secrets.
    let set = r#"(?:\\*["'][ \t]*[:=][ \t]*|[ \t]*=[ \t]*|[ \t]*:[ \t]+)"#;
    regex(&format!(r#"(?i)((?:{name}){set})(\\*"[^"]*"|'[^']*'|[^\s"',;&{{}}\[\]]+)"#))
});
/// The same with the value in a message of its own: `private_key { inline_string: "…" }`, `token: {…}`.
static NESTED: LazyLock<Regex> = LazyLock::new(|| {
    let name = "passw(?:or)?d|passphrase|secret|token|(?:api|access|private|signing)[_-]?key|credentials?";
    let inline = r#"\\*["']?inline_?(?:string|bytes)\\*["']?\s*:\s*"#;
    let value = r#"\\*"[^"]*"|'[^']*'|[^\s"',;&{}\[\]]+"#;
    regex(&format!(
        r#"(?i)((?:{name})\\*["']?\s*[:=]?\s*\{{)[^{{}}]*|((?:{name})\\*["']?\s*[:=]\s*{inline})(?:{value})"#
    ))
});
/// `key: "authorization" value: "…"`, as messages are printed.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"[a-z0-9_.-]*(?:passw(?:or)?d|secret|token|api[_-]?key|authorization|cookie)";
    regex(&format!(
        r#"(?i)(\b(?:key|name)\\*["']?\s*[:=]\s*\\*["']?{name}\\*["']?[\s,]*\\*["']?(?:raw_?)?value\\*["']?\s*[:=]\s*)(\\*"[^"]*"|'[^']*'|[^\s"',}}]+)"#
    ))
});
/// What an address is signed with, by the names that stores give it, and the keys that services want in one: whoever has
/// the address may use it.
static SIGNED: LazyLock<Regex> = LazyLock::new(|| {
    let name = "sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|googleaccessid\
         |(?:[a-z0-9_.-]*[_.-])?(?:key|auth)|[a-z0-9]*(?:api|access|auth|license|account|shared|subscription)key";
    regex(&format!(r#"(?i)([?&;](?:amp;)?(?:{name})=)[^\s"'<>&#\\]+"#))
});
/// `add("x-api-key", "…")`: a header that code sets.
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"[a-z0-9_.-]*(?:passw(?:or)?d|secret|token|api[_-]?key|auth[_-]?key|authorization|cookie)";
    let quote = r#"\\*["']"#;
    regex(&format!(r#"(?i)(\(\s*{quote}{name}{quote}\s*,\s*)(\\*"[^"]*"|'[^']*')"#))
});
/// Something long in base64, also over several lines.
static ENCODED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[A-Za-z0-9+/_-]{32,}(?:(?:\\[nr]|[ \t\r\n])+[A-Za-z0-9+/_-]{16,})*={0,2}"));
/// Something long in hexadecimal.
static HEX: LazyLock<Regex> = LazyLock::new(|| regex(r"(?:[0-9a-fA-F]{2}){32,}"));
/// A word with percent signs.
static PERCENT: LazyLock<Regex> = LazyLock::new(|| regex(r#"[^\s"'<>]*%[0-9a-fA-F]{2}[^\s"'<>]*"#));

/// The text without secrets; nothing of it where the search would take too long.
pub(super) fn clean<'a>(text: &'a str, at: Nesting<'_>) -> Cow<'a, str> {
    if text.len() < SHORTEST || is_word(text) {
        return Cow::Borrowed(text);
    }
    if !at.spend(text.len()) {
        return Cow::Borrowed(REDACTED);
    }
    let mut text = Cow::Borrowed(text);
    then(&mut text, |text| PEM.replace_all(text, REDACTED));
    then(&mut text, |text| without_tokens(text, at));
    then(&mut text, |text| ADDRESS.replace_all(text, |of: &Captures<'_>| format!("{}{REDACTED}@", &of[1])));
    then(&mut text, |text| SCHEME.replace_all(text, scheme));
    then(&mut text, |text| HASH.replace_all(text, REDACTED));
    then(&mut text, |text| SIGNED.replace_all(text, |of: &Captures<'_>| format!("{}{REDACTED}", &of[1])));
    then(&mut text, |text| CALL.replace_all(text, |of: &Captures<'_>| format!("{}'{REDACTED}'", &of[1])));
    then(&mut text, |text| PAIR.replace_all(text, |of: &Captures<'_>| format!("{}\"{REDACTED}\"", &of[1])));
    then(&mut text, |text| NESTED.replace_all(text, nested));
    then(&mut text, |text| ASSIGNMENT.replace_all(text, assignment));
    if at.opens() {
        then(&mut text, |text| ENCODED.replace_all(text, |of: &Captures<'_>| packed(&of[0], at)));
        then(&mut text, |text| HEX.replace_all(text, |of: &Captures<'_>| hexadecimal(&of[0], at)));
        then(&mut text, |text| PERCENT.replace_all(text, |of: &Captures<'_>| escaped(&of[0], at)));
    }
    text
}

/// Whether it is one short word, in which nothing is packed and nothing is said: most names and many values are.
fn is_word(text: &str) -> bool {
    text.len() < SHORTEST_PACKED
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// One step; a text in which it finds nothing stays as it is.
fn then<'a>(text: &mut Cow<'a, str>, step: impl for<'b> Fn(&'b str) -> Cow<'b, str>) {
    let changed = match step(text) {
        Cow::Owned(changed) if changed != **text => changed,
        Cow::Owned(_) | Cow::Borrowed(_) => return,
    };
    *text = Cow::Owned(changed);
}

/// The longest first part of a token that is looked at; real ones have a tenth of it.
const LONGEST_HEADER: usize = 1024;

/// What each place costs at which one might begin: most are given up after a few bytes.
const TOKEN_BEGIN: usize = 16;

/// How a JSON object begins in base64: with a quote or white space after the brace.
static OBJECT: LazyLock<Regex> = LazyLock::new(|| regex("ey[A-DI-L]|ew[k-r0-3]"));

/// Takes out what is signed or encrypted as JSON web tokens are: parts in base64 between dots, of which the
/// first is a JSON object.
fn without_tokens<'a>(text: &'a str, at: Nesting<'_>) -> Cow<'a, str> {
    let mut kept = String::new();
    let mut done = 0;
    for start in OBJECT.find_iter(text).map(|found| found.start()) {
        if start < done {
            continue;
        }
        if !at.spend(TOKEN_BEGIN) {
            return Cow::Owned(REDACTED.to_owned());
        }
        if let Some(length) = token(&text[start..]) {
            kept.push_str(&text[done..start]);
            kept.push_str(REDACTED);
            done = start + length;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[done..]);
    Cow::Owned(kept)
}

/// The length of the token `text` begins with.
fn token(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // The cost of a text that begins again and again is bounded by the length of a header.
    let header = bytes.iter().take(LONGEST_HEADER).position(|byte| !is_base64_url(*byte))?;
    if bytes[header] != b'.' {
        return None;
    }
    let decoded = BASE64_URL.decode(&text[..header]).ok()?;
    if !matches!(serde_json::from_slice(&decoded), Ok(Value::Object(_))) {
        return None;
    }
    let mut length = header;
    while bytes.get(length) == Some(&b'.') {
        let part = bytes[length + 1..].iter().take_while(|byte| is_base64_url(**byte)).count();
        if part == 0 {
            break;
        }
        length += 1 + part;
    }
    Some(length)
}

fn is_base64_url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=')
}

fn scheme(of: &Captures<'_>) -> String {
    // "Basic constraints" are no credentials; those are a name and a password in base64.
    let is_basic = of[1].eq_ignore_ascii_case("basic");
    if is_basic && !BASE64.decode(&of[3]).is_ok_and(|decoded| decoded.contains(&b':')) {
        return of[0].to_owned();
    }
    format!("{}{}{REDACTED}", &of[1], &of[2])
}

fn assignment(of: &Captures<'_>) -> String {
    let value = of[2].trim_matches(['\\', '"', '\'']);
    let is_scheme = ["bearer", "basic"].iter().any(|scheme| value.to_ascii_lowercase().starts_with(scheme));
    let harmless = ["true", "false", "null", "~", "|", ">", "|-", ">-", ""].contains(&value)
        || value.parse::<f64>().is_ok()
        || value.starts_with(REDACTED)
        || value.starts_with("[redacted")
        || is_scheme;
    if harmless { of[0].to_owned() } else { format!("{}{REDACTED}", &of[1]) }
}

fn nested(of: &Captures<'_>) -> String {
    let named = of.get(1).or_else(|| of.get(2)).map_or("", |named| named.as_str());
    let is_empty = named.ends_with('{') && of[0][named.len()..].trim().is_empty();
    if is_empty { of[0].to_owned() } else { format!("{named}{REDACTED}") }
}

fn packed(word: &str, at: Nesting<'_>) -> String {
    let joined: String = word.replace("\\n", "").replace("\\r", "").split_whitespace().collect();
    let pieces = word.split(|c: char| c.is_whitespace() || c == '\\').filter(|piece| *piece != joined);
    let hides = std::iter::once(joined.as_str()).chain(pieces).any(|piece| hides_in_base64(piece, at));
    if hides { REDACTED.to_owned() } else { word.to_owned() }
}

/// Where it begins is not known when something stands before it that could belong to it.
fn hides_in_base64(text: &str, at: Nesting<'_>) -> bool {
    // Either alphabet, and what stands before may be of the other.
    let text = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    (0..4).filter_map(|start| text.get(start..)).any(|text| {
        // One character more than whole bytes need is left over from something else.
        let text = if text.len() % 4 == 1 { &text[..text.len() - 1] } else { text };
        BASE64.decode(text).is_ok_and(|bytes| hides(&bytes, at))
    })
}

fn hexadecimal(word: &str, at: Nesting<'_>) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        word.as_bytes().chunks_exact(2).map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?)).collect();
    if bytes.is_some_and(|bytes| hides(&bytes, at)) { REDACTED.to_owned() } else { word.to_owned() }
}

fn escaped(word: &str, at: Nesting<'_>) -> String {
    let decoded = percent_decode_str(word).decode_utf8_lossy();
    let changed = decoded != word && clean(&decoded, at.deeper()) != decoded;
    if changed { REDACTED.to_owned() } else { word.to_owned() }
}

/// Whether there is a secret in something that was encoded, or nobody can tell.
fn hides(bytes: &[u8], at: Nesting<'_>) -> bool {
    if is_private_key(bytes) {
        return true;
    }
    let text = String::from_utf8_lossy(bytes);
    super::document_in(&text, at.deeper()).is_some() || clean(&text, at.deeper()) != text
}

/// Whether there is a private key in these bytes, in the form PKCS #8, PKCS #1 or SEC 1 gives it: a sequence
/// that begins with its version. Certificates and public keys begin otherwise.
fn is_private_key(bytes: &[u8]) -> bool {
    (0..bytes.len()).filter(|at| bytes[*at] == 0x30).any(|at| {
        let content = match bytes.get(at + 1) {
            Some(0..=0x7f) => at + 2,
            Some(0x81) => at + 3,
            Some(0x82) => at + 4,
            _ => return false,
        };
        match bytes.get(content..) {
            // The algorithm of PKCS #8, or a modulus of at least 128 bytes.
            Some([0x02, 0x01, 0x00, 0x30, _, 0x06, ..] | [0x02, 0x01, 0x00, 0x02, 0x81 | 0x82, ..]) => true,
            // An octet string of SEC 1, or the newer version of PKCS #8 for Edwards curves.
            Some(
                [0x02, 0x01, 0x01, 0x04, 0x20..=0x42, ..]
                | [0x02, 0x01, 0x01, 0x30, 0x05, 0x06, 0x03, 0x2b, ..],
            ) => true,
            _ => false,
        }
    })
}
