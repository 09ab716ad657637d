//! Policies, parsed once.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{merge::Strategy, order::PolicyRank};
use crate::{
    model::{FieldPath, ItemForm, Kind, Resource, SpecError, decode},
    policy::{PeerMatch, TargetRef, presets},
};

/// A policy with its lists taken apart. Shared by all proxies it is for.
#[derive(Debug)]
pub struct Policy {
    /// Where it came from.
    pub resource: Arc<Resource>,
    /// For which proxies.
    pub top: TargetRef,
    /// Per destination.
    pub to: Vec<PolicyItem>,
    /// Per group of clients.
    pub from: Vec<PolicyItem>,
    /// For inbound traffic.
    pub rules: Vec<RuleItem>,
    /// For the whole proxy, in policies without lists.
    pub default: Option<Value>,
    /// Its place among others.
    pub(super) rank: PolicyRank,
    /// Whether it says how services of its own namespace are called, and nothing else.
    pub(super) speaks: bool,
    /// Whether it came through global from another zone.
    pub(super) guest: bool,
}

/// An entry of `to` or `from`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyItem {
    /// The peers.
    pub target: TargetRef,
    /// The configuration in the form in which it is merged.
    pub conf: Value,
}

/// An entry of `rules`.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleItem {
    /// Any of these; none means all traffic.
    pub matches: Vec<PeerMatch>,
    /// The configuration.
    pub conf: Value,
}

/// What all policy specs have in common.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Skeleton {
    #[serde(default)]
    target_ref: Option<TargetRef>,
    #[serde(default, deserialize_with = "decode::list")]
    to: Vec<SkeletonItem>,
    #[serde(default, deserialize_with = "decode::list")]
    from: Vec<SkeletonItem>,
    #[serde(default, deserialize_with = "decode::list")]
    rules: Vec<SkeletonRule>,
    #[serde(default)]
    default: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkeletonItem {
    target_ref: TargetRef,
    #[serde(default)]
    default: Option<Value>,
    #[serde(default, deserialize_with = "decode::list")]
    hostnames: Vec<String>,
    #[serde(default, deserialize_with = "decode::list")]
    rules: Vec<Value>,
}

#[derive(Deserialize)]
struct SkeletonRule {
    #[serde(default, deserialize_with = "decode::list")]
    matches: Vec<PeerMatch>,
    #[serde(default)]
    default: Option<Value>,
}

impl Policy {
    /// Takes a policy apart.
    ///
    /// # Errors
    /// [`SpecError`] when the spec does not decode as its kind.
    pub fn parse(resource: Arc<Resource>) -> Result<Self, SpecError> {
        let kind = resource.kind();
        let mut spec: Value = decode::spec(&kind.normalize(&resource.spec)?)?;
        presets::fill(kind, &mut spec);
        let skeleton: Skeleton = decode::value_at(&FieldPath::new("spec"), &spec)?;
        let item = |item: SkeletonItem| PolicyItem { conf: conf(kind, &item), target: item.target_ref };
        let rule = |rule: SkeletonRule| RuleItem { matches: rule.matches, conf: or_empty(rule.default) };
        let top = skeleton.target_ref.unwrap_or_else(TargetRef::mesh);
        Ok(Self {
            rank: PolicyRank::of(&resource, &top),
            top,
            to: skeleton.to.into_iter().map(item).collect(),
            from: skeleton.from.into_iter().map(item).collect(),
            rules: skeleton.rules.into_iter().map(rule).collect(),
            default: skeleton.default,
            resource,
            speaks: false,
            guest: false,
        }
        .judged())
    }

    /// The same as it is for clients that ask for one of these server names: what it says of them is said of all, after
    /// what it says of everybody, and what it says of others is left out.
    #[must_use]
    pub fn asked_for(&self, names: &[&str]) -> Self {
        let (mut everybody, mut these) = (Vec::new(), Vec::new());
        for rule in &self.rules {
            if rule.matches.is_empty() {
                everybody.push(rule.clone());
                continue;
            }
            let meant = |condition: &&PeerMatch| {
                condition.sni.as_ref().is_none_or(|sni| names.contains(&sni.value.as_str()))
            };
            let matches: Vec<PeerMatch> = rule
                .matches
                .iter()
                .filter(meant)
                .map(|condition| PeerMatch { sni: None, ..condition.clone() })
                .collect();
            if matches.iter().any(|condition| *condition == PeerMatch::default()) {
                these.push(RuleItem { matches: Vec::new(), conf: rule.conf.clone() });
            } else if !matches.is_empty() {
                these.push(RuleItem { matches, conf: rule.conf.clone() });
            }
        }
        everybody.extend(these);
        Self {
            resource: Arc::clone(&self.resource),
            top: self.top.clone(),
            to: self.to.clone(),
            from: self.from.clone(),
            rules: everybody,
            default: self.default.clone(),
            rank: self.rank.clone(),
            speaks: self.speaks,
            guest: self.guest,
        }
    }

    /// How its configurations are merged.
    pub fn strategy(&self) -> Strategy {
        Strategy::of(self.resource.kind())
    }
}

fn or_empty(conf: Option<Value>) -> Value {
    conf.unwrap_or_else(|| Value::Object(Map::new()))
}

/// What is merged for one item. Routes keep their rules beside the target rather than in `default`; those
/// of HTTP routes are turned round, because in a route the first rule wins and in a merge the last.
fn conf(kind: &Kind, item: &SkeletonItem) -> Value {
    match kind.item_form {
        ItemForm::RulesByMatches => {
            let mut conf = Map::new();
            conf.insert("rules".to_owned(), item.rules.iter().rev().cloned().collect());
            if !item.hostnames.is_empty() {
                conf.insert("hostnames".to_owned(), item.hostnames.clone().into());
            }
            Value::Object(conf)
        }
        ItemForm::OneRule => item.rules.first().cloned().unwrap_or_else(|| json!({"default": {}})),
        ItemForm::Default => or_empty(item.default.clone()),
    }
}
