//! Names of members: whoever describes himself chooses them, so a secret can stand there as well.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value};

/// Gives members the names that `cleaned` says. Of several that would have one name then, each keeps a place of
/// its own.
pub(super) fn rename(members: &mut Map<String, Value>, cleaned: impl Fn(&str) -> Cow<'_, str>) {
    let changed = |name: &String| match cleaned(name) {
        Cow::Owned(shown) if shown == *name => None,
        Cow::Borrowed(same) if same == name => None,
        shown => Some(shown.into_owned()),
    };
    let shown: Vec<Option<String>> = members.keys().map(changed).collect();
    if shown.iter().all(Option::is_none) {
        return;
    }
    let mut renamed = Vec::new();
    for ((name, member), shown) in std::mem::take(members).into_iter().zip(shown) {
        match shown {
            None => _ = members.insert(name, member),
            Some(shown) => renamed.push((shown, member)),
        }
    }
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (shown, member) in renamed {
        let number = numbers.entry(shown.clone()).or_default();
        let mut name = shown.clone();
        while members.contains_key(&name) {
            *number += 1;
            name = format!("{shown} {number}");
        }
        members.insert(name, member);
    }
}
