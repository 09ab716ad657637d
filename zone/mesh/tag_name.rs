//! Names in certificates that say which tags a workload has: `kuma://<tag>/<value>`. Both may have slashes in them, so the
//! name for one tag may be that for another as well.

/// Domains of tags and labels that control planes give a meaning.
const OF_CONTROL_PLANES: [&str; 2] = ["kuma.io", "strait.io"];

/// The name that says `tag=value`.
pub(crate) fn of_tag(tag: &str, value: &str) -> String {
    format!("kuma://{tag}/{value}")
}

/// What the name that says `tag=value` would be taken to say of the tag `other`; `None` when it says nothing of that.
pub(crate) fn said_of(other: &str, tag: &str, value: &str) -> Option<String> {
    if other == tag || other.is_empty() || is_plain(tag, value) {
        return None;
    }
    let both = format!("{tag}/{value}");
    let said = both.strip_prefix(other)?.strip_prefix('/')?;
    (!said.is_empty()).then(|| said.to_owned())
}

/// The tag of control planes, with its value, for which the name that says `tag=value` would be taken: its zone, it may be,
/// or its service. Such tags have one slash.
pub(crate) fn forged(tag: &str, value: &str) -> Option<(String, String)> {
    if is_plain(tag, value) {
        return None;
    }
    let both = format!("{tag}/{value}");
    let (domain, rest) = both.split_once('/')?;
    let (name, said) = rest.split_once('/')?;
    let end = domain.len() + 1 + name.len();
    let is_another = end != tag.len() && !name.is_empty() && !said.is_empty();
    (is_another && is_domain_of_control_planes(domain)).then(|| (both[..end].to_owned(), said.to_owned()))
}

/// Whether the name that says so says nothing else.
fn is_plain(tag: &str, value: &str) -> bool {
    !tag.contains('/') && !value.contains('/')
}

/// Whether control planes give tags and labels of this domain a meaning.
pub(crate) fn is_domain_of_control_planes(domain: &str) -> bool {
    let is_of =
        |ours: &&str| domain.strip_suffix(*ours).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    OF_CONTROL_PLANES.iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_that_of_several_tags() {
        for (other, tag, value, said) in [
            ("example.com/team", "example.com", "team/b", Some("b")),
            ("example.com", "example.com/team", "b", Some("team/b")),
            ("example.com", "example.com/team/b", "c", Some("team/b/c")),
            ("example.com/team", "example.com/team", "a", None),
            ("example.com/tea", "example.com", "team/b", None),
            ("example.com/team/b", "example.com", "team/b", None),
            ("version", "version", "v1", None),
            ("", "", "a", None),
        ] {
            assert_eq!(said_of(other, tag, value).as_deref(), said, "{other} in {tag}={value}");
        }
    }

    #[test]
    fn what_control_planes_say_nobody_says_by_another_tag() {
        for (tag, value, expected) in [
            ("kuma.io", "zone/west", Some("kuma.io/zone=west")),
            ("kuma.io/zone/we", "st", Some("kuma.io/zone=we/st")),
            ("k8s.kuma.io", "namespace/bank", Some("k8s.kuma.io/namespace=bank")),
            ("strait.io", "a/b", Some("strait.io/a=b")),
            // What is so itself, and what only looks like it.
            ("kuma.io/zone", "west", None),
            ("kuma.io/service", "team/web", None),
            ("notkuma.io", "zone/west", None),
            ("kuma.io", "zone", None),
            ("example.com", "path/of/it", None),
        ] {
            let found = forged(tag, value).map(|(tag, value)| format!("{tag}={value}"));
            assert_eq!(found.as_deref(), expected, "{tag}={value}");
        }
    }
}
