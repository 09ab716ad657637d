//! Names of the form `xdstp://AUTHORITY/TYPE/ID?KEY=VALUE&…`, and what of them counts.
//!
//! Two of them are equal if they have the same context parameters in whatever order; what comes after `#` tells a
//! client where to look and is no part of the name. An id that ends with `/*` stands for all resources right below it
//! that have the same parameters.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

const SCHEME: &str = "xdstp://";
/// How the id of a glob ends.
const ALL: &str = "/*";
/// Parameters of one name that are put in order. Who asks with more of them asks for what is written so.
const PARAMETERS: usize = 1024;

/// The name in the one form that all equal names have.
pub fn canonical(name: &str) -> Cow<'_, str> {
    if !name.starts_with(SCHEME) {
        return Cow::Borrowed(name);
    }
    let name = name.split_once('#').map_or(name, |(name, _)| name);
    let Some((path, query)) = name.split_once('?') else { return Cow::Borrowed(name) };
    let mut parameters: Vec<&str> = query.split('&').take(PARAMETERS + 1).collect();
    let is_canonical = parameters.is_sorted() && parameters.iter().all(|one| !one.is_empty());
    if is_canonical || parameters.len() > PARAMETERS {
        return Cow::Borrowed(name);
    }
    parameters.retain(|parameter| !parameter.is_empty());
    parameters.sort_unstable();
    match parameters.is_empty() {
        true => Cow::Borrowed(path),
        false => Cow::Owned(format!("{path}?{}", parameters.join("&"))),
    }
}

/// The id in a name without parameters, of a resource of this type: who asks by way of an authority for what has a plain
/// name here asks so.
pub(super) fn plain<'a>(type_url: &str, name: &'a str) -> Option<Cow<'a, str>> {
    let (_, path) = name.strip_prefix(SCHEME)?.split_once('/')?;
    let message = type_url.rsplit('/').next()?;
    let id = path.strip_prefix(message)?.strip_prefix('/')?;
    let is_plain = !id.is_empty() && !id.ends_with(ALL) && id != "*" && !id.contains(['?', '#']);
    percent_decode_str(id).decode_utf8().ok().filter(|_| is_plain)
}

/// What of a glob comes before and after the names it stands for; `None` for any other name.
pub(super) fn glob(name: &str) -> Option<(&str, &str)> {
    let (path, query) = parts(name.strip_prefix(SCHEME).map(|_| name)?);
    let before = path.strip_suffix(ALL)?;
    Some((&name[..=before.len()], query))
}

/// Whether a glob with these parts stands for `name`, which is canonical and has the first part.
pub(super) fn is_member((before, query): (&str, &str), name: &str) -> bool {
    let (path, parameters) = parts(name);
    let id = path.strip_prefix(before).unwrap_or_default();
    !id.is_empty() && id != "*" && !id.contains('/') && parameters == query
}

/// The glob that stands for `name`, among others.
pub(super) fn glob_of(name: &str) -> Option<String> {
    let (path, query) = parts(name.strip_prefix(SCHEME).map(|_| name)?);
    let (before, _) = path.rsplit_once('/')?;
    Some(format!("{before}{ALL}{query}"))
}

/// Path, and parameters with their question mark.
fn parts(name: &str) -> (&str, &str) {
    name.split_at(name.find('?').unwrap_or(name.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::{collection::vec, prelude::*};

    use super::{PARAMETERS, canonical, glob, glob_of, is_member, plain};

    #[test]
    fn parameters_have_no_order_and_directives_do_not_count() {
        for (name, expected) in [
            ("a?b=2&a=1", "a?b=2&a=1"),
            ("xdstp://x/T/a", "xdstp://x/T/a"),
            ("xdstp://x/T/a?b=2&a=1", "xdstp://x/T/a?a=1&b=2"),
            ("xdstp://x/T/a?a=1&b=2", "xdstp://x/T/a?a=1&b=2"),
            ("xdstp://x/T/a?", "xdstp://x/T/a"),
            ("xdstp://x/T/a?&&", "xdstp://x/T/a"),
            ("xdstp://x/T/a?b=1#alt=xdstp://y/T/a?z", "xdstp://x/T/a?b=1"),
            ("xdstp:///T/a?b=?&a", "xdstp:///T/a?a&b=?"),
        ] {
            assert_eq!(canonical(name), expected, "{name}");
        }
    }

    #[test]
    fn a_plain_name_may_be_asked_for_by_way_of_an_authority() {
        let of_type = "type.googleapis.com/envoy.config.listener.v3.Listener";
        for (name, expected) in [
            ("xdstp://x/envoy.config.listener.v3.Listener/web.mesh%3A80", Some("web.mesh:80")),
            ("xdstp:///envoy.config.listener.v3.Listener/a/b", Some("a/b")),
            ("xdstp://x/envoy.config.listener.v3.Listener/", None),
            ("xdstp://x/envoy.config.listener.v3.Listener/*", None),
            ("xdstp://x/envoy.config.listener.v3.Listener/a/*", None),
            ("xdstp://x/envoy.config.listener.v3.Listener/a?b=c", None),
            ("xdstp://x/envoy.config.listener.v3.Listener/%ff", None),
            ("xdstp://x/envoy.config.cluster.v3.Cluster/a", None),
            ("xdstp://x", None),
            ("web", None),
        ] {
            assert_eq!(plain(of_type, name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_glob_stands_for_what_is_right_below_it_with_the_same_parameters() {
        for (glob_name, name, expected) in [
            ("xdstp://x/T/a/*", "xdstp://x/T/a/b", true),
            ("xdstp://x/T/a/*", "xdstp://x/T/a/b/c", false),
            ("xdstp://x/T/a/*", "xdstp://x/T/a/*", false),
            ("xdstp://x/T/a/*", "xdstp://x/T/a/", false),
            ("xdstp://x/T/a/*", "xdstp://x/T/ab", false),
            ("xdstp://x/T/a/*", "xdstp://x/T/a/b?k=v", false),
            ("xdstp://x/T/a/*?k=v", "xdstp://x/T/a/b?k=v", true),
            ("xdstp://x/T/a/*?k=v", "xdstp://x/T/a/b", false),
            ("xdstp://x/T/*", "xdstp://x/T/b", true),
        ] {
            let parts = glob(glob_name).unwrap();
            assert_eq!(name.starts_with(parts.0) && is_member(parts, name), expected, "{glob_name} {name}");
            assert_eq!(glob_of(name).as_deref() == Some(glob_name) && !name.ends_with(['*', '/']), expected);
        }
        for name in ["a/*", "*", "xdstp://x/T/a", "xdstp://x/T/a*", "xdstp://x/T/a?k=/*"] {
            assert_eq!(glob(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_one_form_is_one(mut parameters in vec("[a-c]{1,2}(=[&?#]?[a-c]{0,2})?", 0..6), seed in 0..6_usize) {
            parameters.iter_mut().for_each(|one| one.retain(|c| !['&', '#'].contains(&c)));
            let name = |parameters: &[String]| format!("xdstp://x/T/a?{}", parameters.join("&"));
            let one = canonical(&name(&parameters)).into_owned();
            let turned = seed % parameters.len().max(1);
            parameters.rotate_left(turned);
            let other = name(&parameters);
            prop_assert_eq!(&canonical(&other), &one);
            prop_assert_eq!(&canonical(&one), &one);
        }
    }

    #[test]
    fn thousands_of_parameters_are_left_as_they_are() {
        let parameters: Vec<String> = (0..=PARAMETERS).rev().map(|i| format!("{i:05}")).collect();
        let name = format!("xdstp://x/T/a?{}", parameters.join("&"));
        assert_eq!(canonical(&name), name);
        let fewer = format!("xdstp://x/T/a?{}", parameters[1..].join("&"));
        assert_ne!(canonical(&fewer), fewer);
    }
}
