//! SPIFFE identities: `spiffe://<trust domain>/<path>`.

const SCHEME: &str = "spiffe://";

/// Why `text` is not a SPIFFE identity, `None` when it is one.
pub fn problem(text: &str) -> Option<&'static str> {
    let Some(rest) = text.strip_prefix(SCHEME) else {
        return Some(if text.is_empty() { "cannot be empty" } else { "scheme is missing or invalid" });
    };
    let (domain, path) = rest.split_once('/').map_or((rest, None), |(d, p)| (d, Some(p)));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    if domain.is_empty() {
        return Some("trust domain is missing");
    }
    if !domain.chars().all(plain) {
        return Some(
            "trust domain characters are limited to lowercase letters, numbers, dots, dashes, and underscores",
        );
    }
    let segments = path.into_iter().flat_map(|p| p.split('/'));
    for segment in segments {
        if segment.is_empty() {
            let trailing = path.is_some_and(|p| p.ends_with('/') || p.is_empty());
            return Some(if trailing {
                "path cannot have a trailing slash"
            } else {
                "path cannot contain empty segments"
            });
        }
        if segment == "." || segment == ".." {
            return Some("path cannot contain dot segments");
        }
        if !segment.chars().all(|c| plain(c) || c.is_ascii_uppercase()) {
            return Some(
                "path segment characters are limited to letters, numbers, dots, dashes, and underscores",
            );
        }
    }
    None
}

/// The trust domain of an identity, or of the beginning of one; `None` when it is neither.
pub fn trust_domain(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(SCHEME)?;
    Some(rest.split_once('/').map_or(rest, |(domain, _)| domain))
}

/// What all identities of a trust domain begin with.
pub fn prefix(domain: &str) -> String {
    format!("{SCHEME}{domain}/")
}

#[cfg(test)]
mod tests {
    use super::{problem, trust_domain};

    #[test]
    fn the_domain_ends_where_the_path_begins() {
        for (text, domain) in [
            ("spiffe://a.b/c/d", Some("a.b")),
            ("spiffe://a.b", Some("a.b")),
            ("kuma://a/b", None),
            ("", None),
        ] {
            assert_eq!(trust_domain(text), domain, "{text}");
        }
        assert_eq!(problem("spiffe://a.b/c"), None);
        assert!(problem("spiffe://A/c").is_some());
    }
}
