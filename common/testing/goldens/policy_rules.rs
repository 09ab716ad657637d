//! Replays the cases of `policy-rules`: what many policies come to.

use std::{path::Path, sync::Arc};

use chrono::DateTime;
use serde_json::{Map, Value, json};

use super::{Outcome, cases, read, yaml_documents};
use crate::{
    document::{self, Document},
    model::{Resource, ResourceKey, labels, names},
    policy::{
        mesh_http_route,
        rules::{
            Destinations, InboundRule, InboundRules, Policy, ResourceRules, RuleOrigin, Selection, TagRule,
            TagRules, ToRules, order, to_rules,
        },
    },
};

/// Only these policies take part where a case says which.
const MATCHED: &str = "matched-for-rules-";

/// All cases below `dir`, which is the folder `policy-rules`.
pub fn policy_rules(dir: &Path) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let families: [(&str, Replay); 5] = [
        ("rules/from", from_rules),
        ("rules/to", outbound_rules),
        ("rules/single", single_rules),
        ("inbound/inboundrules", inbound_rules),
        ("outbound/sort", sorted_items),
    ];
    for (family, replay) in families {
        for case in cases(&dir.join(family), ".input.yaml") {
            let at = dir.join(family);
            let actual = resources(&at.join(format!("{case}.input.yaml"))).and_then(|r| replay(&r));
            let outcome = compare(actual, &at.join(format!("{case}.golden.yaml")));
            outcomes.push((format!("{family}/{case}"), outcome));
        }
    }
    let family = "outbound/resourcerules";
    for case in cases(&dir.join(family), ".input.yaml") {
        let input = resources(&dir.join(family).join(format!("{case}.input.yaml")));
        for variant in cases(&dir.join(family).join(&case), ".golden.yaml") {
            let golden = dir.join(family).join(&case).join(format!("{variant}.golden.yaml"));
            let actual = input.clone().and_then(|r| resource_rules(&r, &variant));
            outcomes.push((format!("{family}/{case}/{variant}"), compare(actual, &golden)));
        }
    }
    outcomes
}

type Replay = fn(&[Arc<Resource>]) -> Result<Value, String>;

/// Whether `actual` is what the golden file holds.
pub(super) fn compare(actual: Result<Value, String>, golden: &Path) -> Result<(), String> {
    let actual = actual?;
    let expected = yaml_documents(&read(golden)?)?.into_iter().next().unwrap_or_default();
    match difference(&expected, &actual, "") {
        None => Ok(()),
        Some(difference) => Err(difference),
    }
}

/// The first place where two documents differ.
fn difference(expected: &Value, actual: &Value, at: &str) -> Option<String> {
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => {
            let names = e.keys().chain(a.keys().filter(|k| !e.contains_key(*k)));
            let null = &Value::Null;
            let member = |o: &Map<String, Value>, k: &str| o.contains_key(k);
            names.into_iter().find_map(|k| {
                let path = format!("{at}/{k}");
                if member(e, k) != member(a, k) {
                    let which = if member(e, k) { "missing" } else { "unexpected" };
                    return Some(format!("{path}: {which}"));
                }
                difference(e.get(k).unwrap_or(null), a.get(k).unwrap_or(null), &path)
            })
        }
        (Value::Array(e), Value::Array(a)) if e.len() == a.len() => {
            let pairs = e.iter().zip(a).enumerate();
            pairs.into_iter().find_map(|(i, (e, a))| difference(e, a, &format!("{at}/{i}")))
        }
        (e, a) if e == a => None,
        (e, a) => Some(format!("{at}: expected {e}, got {a}")),
    }
}

/// The resources of a file, as of the beginning of time.
pub(super) fn resources(file: &Path) -> Result<Vec<Arc<Resource>>, String> {
    let start = DateTime::parse_from_rfc3339("0001-01-01T00:00:00Z").map_err(|e| e.to_string())?.to_utc();
    let documents = yaml_documents(&read(file)?)?;
    let parse = |d: &Value| Document::parse(d).map(|d| Arc::new(d.into_resource(start)));
    documents.iter().map(parse).collect::<Result<_, _>>().map_err(|e| format!("{}: {e}", file.display()))
}

/// The policies a case is about, in its order: those of its first kind that is not only there to be pointed
/// at.
pub(super) fn policies(resources: &[Arc<Resource>]) -> Result<Vec<Arc<Policy>>, String> {
    let is_policy = |r: &&Arc<Resource>| r.kind().policy.is_some_and(|p| p.target_ref);
    let is_route = |r: &&Arc<Resource>| r.kind() == &mesh_http_route::KIND;
    let first = resources.iter().filter(is_policy).find(|r| !is_route(r));
    let kind = first.or_else(|| resources.iter().find(is_route)).ok_or("no policy in this case")?.kind();
    let parse =
        |r: &Arc<Resource>| Policy::parse(Arc::clone(r)).map(Arc::new).map_err(|e| format!("{}: {e}", r.key));
    resources.iter().filter(|r| r.kind() == kind).map(parse).collect()
}

/// The policies that a case marks as matched, whatever their kind.
fn matched(resources: &[Arc<Resource>]) -> Result<Vec<Arc<Policy>>, String> {
    let matched = resources.iter().filter(|r| r.display_name().starts_with(MATCHED));
    let parse = |r: &Arc<Resource>| Policy::parse(Arc::clone(r)).map(Arc::new).map_err(|e| e.to_string());
    matched.map(parse).collect()
}

fn from_rules(resources: &[Arc<Resource>]) -> Result<Value, String> {
    let policies = policies(resources)?;
    let clients = TagRules::of_clients(&policies).map_err(|e| e.to_string())?;
    let inbound = InboundRules::build(&policies);
    let key = "127.0.0.1:80";
    Ok(json!({"InboundRules": {key: inbound_list(&inbound)}, "Rules": {key: tag_list(&clients)}}))
}

fn outbound_rules(resources: &[Arc<Resource>]) -> Result<Value, String> {
    let policies = policies(resources)?;
    let rules = to_rules(&policies, &Destinations::new(resources)).map_err(|e| e.to_string())?;
    Ok(to_value(&rules))
}

fn single_rules(resources: &[Arc<Resource>]) -> Result<Value, String> {
    let selection = Selection { policies: policies(resources)?, ..Selection::default() };
    let rule = |(conf, origins): (Value, Vec<RuleOrigin>)| json!({"Conf": conf, "Origin": metas(&origins), "OriginByMatches": {}, "Subset": []});
    Ok(json!({"Rules": selection.single().map(rule).into_iter().collect::<Vec<_>>()}))
}

fn inbound_rules(resources: &[Arc<Resource>]) -> Result<Value, String> {
    Ok(json!({"rules": inbound_list(&InboundRules::build(&matched(resources)?))}))
}

fn sorted_items(resources: &[Arc<Resource>]) -> Result<Value, String> {
    let policies = matched(resources)?;
    let mut items: Vec<_> = policies
        .iter()
        .flat_map(|p| p.to.iter().enumerate().map(move |(index, item)| (p, index, item)))
        .collect();
    items.sort_by(|(a, _, x), (b, _, y)| {
        order::by_attributes(a, b)
            .then_with(|| order::by_destination(&x.target, &y.target))
            .then_with(|| order::by_name(a, b))
    });
    let shown = items.into_iter().map(|(policy, index, item)| {
        json!({
            "Entry": {"default": item.conf, "targetRef": item.target},
            "Meta": meta(&policy.resource),
            "RuleIndex": index,
            "TopLevel": policy.top,
        })
    });
    Ok(shown.collect())
}

fn resource_rules(resources: &[Arc<Resource>], variant: &str) -> Result<Value, String> {
    let view = View::of(variant)?;
    let resources: Vec<Arc<Resource>> = resources.iter().map(|r| view.apply(r)).collect();
    let rules = ResourceRules::build(&matched(&resources)?, &Destinations::new(&resources));
    Ok(resource_map(&rules, &|r| view.meta(r)))
}

/// A rule set in the form of the golden files.
pub(super) fn to_value(rules: &ToRules) -> Value {
    json!({
        "ResourceRules": resource_map(&rules.resources, &meta),
        "Rules": tag_list(&rules.tags),
    })
}

pub(super) fn tag_list(rules: &TagRules) -> Value {
    rules.0.iter().map(tag_rule).collect()
}

pub(super) fn inbound_list(rules: &InboundRules) -> Value {
    rules.0.iter().map(inbound_rule).collect()
}

fn tag_rule(rule: &TagRule) -> Value {
    let tags = rule.subset.0.iter().map(|t| json!({"Key": t.key, "Not": t.not, "Value": t.value}));
    let by_matches: Map<String, Value> =
        rule.origin_by_matches.iter().map(|(hash, o)| (hash.clone(), meta(&o.policy.resource))).collect();
    json!({
        "Conf": rule.conf,
        "Origin": metas(&rule.origins),
        "OriginByMatches": by_matches,
        "Subset": tags.collect::<Vec<_>>(),
    })
}

fn inbound_rule(rule: &InboundRule) -> Value {
    json!({"conf": rule.conf, "match": rule.condition, "origin": origin(&rule.origin, &meta)})
}

fn resource_map(rules: &ResourceRules, meta: &dyn Fn(&Resource) -> Value) -> Value {
    let rule = |(kri, rule): (&crate::model::kri::Kri, &crate::policy::rules::ResourceRule)| {
        let by_matches: Map<String, Value> =
            rule.origin_by_matches.iter().map(|(hash, o)| (hash.clone(), origin(o, meta))).collect();
        let shown = json!({
            "Conf": rule.confs,
            "Origin": rule.origins.iter().map(|o| origin(o, meta)).collect::<Vec<_>>(),
            "OriginByMatches": by_matches,
            "Resource": meta(&rule.resource),
            "ResourceSectionName": rule.section,
        });
        (kri.to_string(), shown)
    };
    Value::Object(rules.0.iter().map(rule).collect())
}

fn origin(origin: &RuleOrigin, meta: &dyn Fn(&Resource) -> Value) -> Value {
    json!({"Resource": meta(&origin.policy.resource), "RuleIndex": origin.index})
}

fn metas(origins: &[RuleOrigin]) -> Value {
    origins.iter().map(|o| meta(&o.policy.resource)).collect()
}

fn meta(resource: &Resource) -> Value {
    Value::Object(document::meta(resource))
}

/// Where resources were made, and where they are looked at: `zone-k8s`, `global-uni-2-zone-k8s`.
pub(super) struct View {
    zone: Option<String>,
    made_in_kubernetes: bool,
    seen_in: Option<Platform>,
}

#[derive(Clone, Copy, PartialEq)]
enum Platform {
    Universal,
    Kubernetes,
}

const NAMESPACE: &str = "ns-k8s";
const SYSTEM_NAMESPACE: &str = "kuma-system";

impl View {
    /// The view a golden file is named after.
    pub(super) fn of(variant: &str) -> Result<Self, String> {
        let (made, seen) = match variant.split_once("-2-") {
            Some((made, seen)) => (made, Some(seen)),
            None => (variant, None),
        };
        let platform = |text: &str| match text.rsplit_once('-') {
            Some((_, "uni")) => Ok(Platform::Universal),
            Some((_, "k8s")) => Ok(Platform::Kubernetes),
            _ => Err(format!("{variant:?} names no control plane")),
        };
        Ok(Self {
            zone: made.starts_with("zone").then(|| made.to_owned()),
            made_in_kubernetes: platform(made)? == Platform::Kubernetes,
            seen_in: seen.map(platform).transpose()?,
        })
    }

    /// The resource as that control plane has it; the mesh itself looks the same everywhere.
    pub(super) fn apply(&self, resource: &Arc<Resource>) -> Arc<Resource> {
        if resource.kind().name == "Mesh" {
            return Arc::clone(resource);
        }
        let mut seen = Resource::clone(resource);
        let name = resource.name();
        let mut set = |key: &str, value: &str| {
            seen.labels.or_insert(key, value);
        };
        set(labels::DISPLAY_NAME, name);
        match &self.zone {
            Some(zone) => {
                set(labels::ORIGIN, labels::ORIGIN_ZONE);
                set(labels::ZONE, zone);
            }
            None => set(labels::ORIGIN, labels::ORIGIN_GLOBAL),
        }
        if self.made_in_kubernetes {
            set(labels::NAMESPACE, NAMESPACE);
            set(labels::MESH, resource.mesh());
        }
        let hashed = names::hashed_name(&seen);
        let core = match self.seen_in {
            None if self.made_in_kubernetes => format!("{name}.{NAMESPACE}"),
            None => name.to_owned(),
            Some(Platform::Universal) => hashed,
            Some(Platform::Kubernetes) => format!("{hashed}.{SYSTEM_NAMESPACE}"),
        };
        seen.key = ResourceKey::new(resource.kind(), resource.mesh(), &core);
        Arc::new(seen)
    }

    /// The meta of a resource after [`View::apply`].
    fn meta(&self, resource: &Resource) -> Value {
        if resource.kind().name == "Mesh" {
            return meta(resource);
        }
        let in_kubernetes = match self.seen_in {
            None => self.made_in_kubernetes,
            Some(platform) => platform == Platform::Kubernetes,
        };
        let parts = resource.name().rsplit_once('.').filter(|_| in_kubernetes);
        let extensions = parts
            .map(|(name, namespace)| json!({"k8s.kuma.io/name": name, "k8s.kuma.io/namespace": namespace}));
        json!({
            "CreationTime": document::time(resource.created),
            "Labels": resource.labels,
            "Mesh": resource.mesh(),
            "ModificationTime": document::time(resource.modified),
            "Name": resource.name(),
            "NameExtensions": extensions,
            "Version": "",
        })
    }
}
