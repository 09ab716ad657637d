//! Merging of configurations, the later over the earlier.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use crate::model::{ItemForm, Kind};

/// How configurations of a kind are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// As JSON merge patches; lists whose name starts with `append` are concatenated.
    Patch,
    /// Rules with equal matches are merged, others added; one result per host name.
    HttpRoute,
}

impl Strategy {
    /// That of `kind`.
    pub fn of(kind: &Kind) -> Self {
        match kind.item_form {
            ItemForm::RulesByMatches => Self::HttpRoute,
            ItemForm::Default | ItemForm::OneRule => Self::Patch,
        }
    }

    /// Merges `confs`, given from least to most specific. No configuration gives no result; only routes
    /// for several host names give more than one.
    pub fn merge(self, confs: &[&Value]) -> Vec<Value> {
        match self {
            _ if confs.is_empty() => Vec::new(),
            Self::Patch => vec![patched(confs)],
            Self::HttpRoute => by_hostname(confs).into_iter().map(|group| routes(&group)).collect(),
        }
    }
}

/// Configurations that many merges start with, merged step by step once.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// After the first, the second … of them.
    merged: Vec<Value>,
}

impl Layers {
    /// Of `confs`, from least to most specific. Routes are not merged in steps.
    pub(super) fn new(strategy: Strategy, confs: &[&Value]) -> Self {
        let mut merged: Vec<Value> = Vec::new();
        if strategy == Strategy::Patch {
            for conf in confs {
                let steps: Vec<&Value> = merged.last().into_iter().chain([*conf]).collect();
                let step = patched(&steps);
                merged.push(step);
            }
        }
        Self { merged }
    }

    /// Merges `confs`, of which the first `shared` are the first of the layers.
    pub(super) fn merge(&self, strategy: Strategy, shared: usize, confs: &[&Value]) -> Vec<Value> {
        match shared.checked_sub(1).and_then(|last| self.merged.get(last)) {
            Some(layer) => {
                let rest: Vec<&Value> =
                    std::iter::once(layer).chain(confs[shared..].iter().copied()).collect();
                strategy.merge(&rest)
            }
            None => strategy.merge(confs),
        }
    }
}

/// RFC 7396, with `append*` lists concatenated.
fn patched(confs: &[&Value]) -> Value {
    let mut merged = Value::Object(Map::new());
    for conf in confs {
        patch(&mut merged, conf);
    }
    concatenate(&mut merged, confs);
    merged
}

/// Applies `patch` to `target` as RFC 7396 says.
pub fn patch(target: &mut Value, patch_with: &Value) {
    let Value::Object(members) = patch_with else {
        *target = patch_with.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    for (name, value) in members {
        if value.is_null() {
            object.remove(name);
        } else {
            patch(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Replaces every `append*` list of `merged` by the concatenation of those in `confs`.
fn concatenate(merged: &mut Value, confs: &[&Value]) {
    let Value::Object(object) = merged else { return };
    for (name, value) in object.iter_mut() {
        let parts = || confs.iter().filter_map(|c| c.get(name));
        if value.is_array() && name.starts_with("append") {
            *value = parts().filter_map(Value::as_array).flatten().cloned().collect();
        } else if value.is_object() {
            concatenate(value, &parts().collect::<Vec<_>>());
        }
    }
}

/// One group per host name, in order of first appearance; in each, the configurations that apply to it,
/// narrowed to that name.
fn by_hostname(confs: &[&Value]) -> Vec<Vec<Value>> {
    let mut names: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for conf in confs {
        let hostnames = conf.get("hostnames").and_then(Value::as_array).filter(|h| !h.is_empty());
        let keys: Vec<&str> = match hostnames {
            Some(hostnames) => hostnames.iter().filter_map(Value::as_str).collect(),
            None => vec![""],
        };
        for key in keys {
            let mut narrowed = (*conf).clone();
            if !key.is_empty() {
                narrowed["hostnames"] = vec![key].into();
            }
            if !groups.contains_key(key) {
                names.push(key);
            }
            groups.entry(key).or_default().push(narrowed);
        }
    }
    names.into_iter().filter_map(|name| groups.remove(name)).collect()
}

/// Merges routes: rules with equal matches become one, which takes the place of its last occurrence.
/// Rules come in and are kept most specific last; the result has them most specific first.
fn routes(confs: &[Value]) -> Value {
    let mut merged = patched(&confs.iter().collect::<Vec<_>>());
    let rules = confs.iter().filter_map(|c| c.get("rules")).filter_map(Value::as_array).flatten();
    // In order of the last occurrence: what moves on leaves its place empty.
    let mut by_matches: Vec<Option<(&Value, Vec<&Value>)>> = Vec::new();
    let mut places: HashMap<&Value, usize> = HashMap::new();
    for rule in rules {
        let matches = rule.get("matches").unwrap_or(&Value::Null);
        let earlier = places.insert(matches, by_matches.len()).and_then(|place| by_matches[place].take());
        let mut defaults = earlier.map(|(_, defaults)| defaults).unwrap_or_default();
        defaults.extend(rule.get("default"));
        by_matches.push(Some((matches, defaults)));
    }
    let rules: Vec<Value> = by_matches
        .into_iter()
        .flatten()
        .rev()
        .map(|(matches, defaults)| {
            let mut rule = Map::new();
            rule.insert("matches".to_owned(), matches.clone());
            rule.insert("default".to_owned(), patched(&defaults));
            Value::Object(rule)
        })
        .collect();
    if let Value::Object(object) = &mut merged {
        object.remove("rules");
        if !rules.is_empty() {
            object.insert("rules".to_owned(), rules.into());
        }
    }
    merged
}
