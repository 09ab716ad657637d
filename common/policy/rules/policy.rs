//! Policies, parsed once.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::merge::Strategy;
use crate::{
    model::{FieldPath, Kind, Resource, ResourceKey, SpecError},
    policy::{PeerMatch, TargetRef, decode, opaque},
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
        opaque::fill(kind, &mut spec);
        let skeleton: Skeleton = decode::value_at(&FieldPath::new("spec"), &spec)?;
        let item = |item: SkeletonItem| PolicyItem { conf: conf(kind, &item), target: item.target_ref };
        let rule = |rule: SkeletonRule| RuleItem { matches: rule.matches, conf: or_empty(rule.default) };
        Ok(Self {
            top: skeleton.target_ref.unwrap_or_else(TargetRef::mesh),
            to: skeleton.to.into_iter().map(item).collect(),
            from: skeleton.from.into_iter().map(item).collect(),
            rules: skeleton.rules.into_iter().map(rule).collect(),
            default: skeleton.default,
            resource,
        })
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
    match kind.name {
        "MeshHTTPRoute" => {
            let mut conf = Map::new();
            conf.insert("rules".to_owned(), item.rules.iter().rev().cloned().collect());
            if !item.hostnames.is_empty() {
                conf.insert("hostnames".to_owned(), item.hostnames.clone().into());
            }
            Value::Object(conf)
        }
        "MeshTCPRoute" => item.rules.first().cloned().unwrap_or_else(|| json!({"default": {}})),
        _ => or_empty(item.default.clone()),
    }
}

/// All policies of one kind in one mesh.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// The kind.
    pub kind: &'static Kind,
    /// In the order given.
    pub policies: Vec<Arc<Policy>>,
    /// Those whose spec does not decode; they select nothing, and someone should be told.
    pub broken: Vec<(ResourceKey, Arc<SpecError>)>,
}

impl PolicySet {
    /// Parses all `resources` of `kind`; others are passed over.
    pub fn parse<'a>(kind: &'static Kind, resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Self {
        let mut set = Self { kind, policies: Vec::new(), broken: Vec::new() };
        for resource in resources.into_iter().filter(|r| r.kind() == kind) {
            match Policy::parse(Arc::clone(resource)) {
                Ok(policy) => set.policies.push(Arc::new(policy)),
                Err(error) => set.broken.push((resource.key.clone(), Arc::new(error))),
            }
        }
        set
    }
}
