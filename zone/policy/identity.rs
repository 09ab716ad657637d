//! How the identity of a client looks to Envoy.

use common::policy::{SpiffeMatch, SpiffeMatchType};

/// A regular expression for the text Envoy makes of the names in a certificate when one of them is to meet
/// `condition`. That text is all of them joined by commas, which no name contains.
pub(super) fn among_names(condition: &SpiffeMatch) -> String {
    let tail = match condition.kind {
        SpiffeMatchType::Exact => "(?:,.*)?",
        SpiffeMatchType::Prefix => ".*",
    };
    format!("(?:.*,)?{}{tail}", literal(&condition.value))
}

/// `text` as a regular expression that matches only itself.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn a_literal_has_no_special_characters_left() {
        assert_eq!(literal("spiffe://a.b/c-1"), r"spiffe\:\/\/a\.b\/c\-1");
    }
}
