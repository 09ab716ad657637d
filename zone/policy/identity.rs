//! How the identity of a client looks to Envoy.

use common::{
    model::spiffe,
    policy::{SpiffeMatch, SpiffeMatchType},
};

/// A regular expression for the text Envoy makes of the names in a certificate when one of them is to meet
/// `condition`. That text is all of them joined by commas, which no name contains.
///
/// The first name tells who is asked about the certificate, and who may speak for one trust domain can write names of
/// any other behind it. So none of another domain may stand before the one that counts.
pub(super) fn among_names(condition: &SpiffeMatch) -> String {
    let value = literal(&condition.value);
    let domain = spiffe::trust_domain(&condition.value).unwrap_or_default();
    let is_whole = condition.value.len() > spiffe::prefix(domain).len();
    match condition.kind {
        SpiffeMatchType::Exact => {
            format!("(?:{}[^,]*,)*{value}(?:,.*)?", literal(&spiffe::prefix(domain)))
        }
        SpiffeMatchType::Prefix if is_whole => {
            format!("(?:{}[^,]*,)*{value}.*", literal(&spiffe::prefix(domain)))
        }
        // The beginning of a domain.
        SpiffeMatchType::Prefix => format!("{value}.*"),
    }
}

/// `text` as a regular expression that matches only itself.
pub(super) fn literal(text: &str) -> String {
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
    use common::policy::{SpiffeMatch, SpiffeMatchType};

    use super::{among_names, literal};

    #[test]
    fn nobody_is_known_by_a_name_of_somebody_elses_domain() {
        let check = |kind, value: &str, names: &str, expected| {
            let condition = SpiffeMatch { kind, value: value.to_owned() };
            let expression =
                regex::Regex::new(&format!("^(?:{})$", among_names(&condition))).expect("it parses");
            assert_eq!(expression.is_match(names), expected, "{value} in {names}");
        };
        let web = "spiffe://demo/web";
        check(SpiffeMatchType::Exact, web, web, true);
        check(SpiffeMatchType::Exact, web, "spiffe://demo/api,spiffe://demo/web,kuma://a/b", true);
        check(SpiffeMatchType::Exact, web, "spiffe://demo/webs", false);
        check(SpiffeMatchType::Exact, web, "spiffe://demo.east.mesh.local/a,spiffe://demo/web", false);
        check(
            SpiffeMatchType::Prefix,
            "spiffe://demo/w",
            "spiffe://demo/a,spiffe://demo/web,kuma://a/b",
            true,
        );
        check(SpiffeMatchType::Prefix, "spiffe://demo/w", "spiffe://other/a,spiffe://demo/web", false);
        check(SpiffeMatchType::Prefix, "spiffe://demo", "spiffe://demo.east.mesh.local/a", true);
        check(SpiffeMatchType::Prefix, "spiffe://demo", "spiffe://other/a,spiffe://demo/web", false);
    }

    #[test]
    fn a_literal_has_no_special_characters_left() {
        assert_eq!(literal("spiffe://a.b/c-1"), r"spiffe\:\/\/a\.b\/c\-1");
    }
}
