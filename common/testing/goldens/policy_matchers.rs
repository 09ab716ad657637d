//! Replays the cases of `policy-matchers`: which policies are for a proxy.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{
    Outcome, cases,
    policy_rules::{View, compare, inbound_list, policies, resources, tag_list, to_value},
};
use crate::{
    document,
    model::{Resource, ResourceKey, labels},
    policy::rules::{
        Destinations, InboundKey, Policy, PolicySet, SelectableProxy, Selection, TagRules, order,
    },
    proto::kuma::mesh::v1alpha1::ExternalService,
};

/// All cases below `dir`, which is the folder `policy-matchers`.
pub fn policy_matchers(dir: &Path) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let families: [(&str, Replay); 5] = [
        ("matchedpolicies/dataplanepolicies", |case| Ok(list(&case.select()?))),
        ("matchedpolicies/fromrules", |case| inbound_rules(&case.select()?)),
        ("matchedpolicies/torules", to_rules),
        ("matchedpolicies/meshexternalservice", to_rules),
        ("matchedpolicies/meshgateways", gateway_rules),
    ];
    for (family, replay) in families {
        for name in cases(&dir.join(family), ".policies.yaml") {
            let actual = Case::read(&dir.join(family), &name).and_then(|case| replay(&case));
            let golden = dir.join(family).join(format!("{name}.golden.yaml"));
            outcomes.push((format!("{family}/{name}"), compare(actual, &golden)));
        }
    }
    let family = "matchedpolicies/dataplane-kind";
    for name in cases(&dir.join(family), ".policies.yaml") {
        for variant in cases(&dir.join(family).join(&name), ".golden.yaml") {
            let case = Case::read(&dir.join(family), &name);
            let actual = case.and_then(|case| case.seen(&variant)).and_then(|case| Ok(list(&case.select()?)));
            let golden = dir.join(family).join(&name).join(format!("{variant}.golden.yaml"));
            outcomes.push((format!("{family}/{name}/{variant}"), compare(actual, &golden)));
        }
    }
    let families: [(&str, ReplayOuter); 2] = [
        ("egressmatchedpolicies/fromrules", |case| inbound_rules(&case.select()?)),
        ("egressmatchedpolicies/torules", Outer::caller_rules),
    ];
    for (family, replay) in families {
        for name in cases(&dir.join(family), ".policies.yaml") {
            let actual = Outer::read(&dir.join(family), &name).and_then(|case| replay(&case));
            let golden = dir.join(family).join(format!("{name}.golden.yaml"));
            outcomes.push((format!("{family}/{name}"), compare(actual, &golden)));
        }
    }
    outcomes
}

type Replay = fn(&Case) -> Result<Value, String>;
type ReplayOuter = fn(&Outer) -> Result<Value, String>;

/// A proxy, and everything else in its mesh.
struct Case {
    dataplane: Arc<Resource>,
    resources: Vec<Arc<Resource>>,
}

impl Case {
    fn read(dir: &Path, name: &str) -> Result<Self, String> {
        let file = |part: &str| dir.join(format!("{name}.{part}.yaml"));
        let mut all = resources(&file("policies"))?;
        if file("mes").exists() {
            all.extend(resources(&file("mes"))?);
        }
        let dataplane = resources(&file("dataplane"))?.pop().ok_or("no dataplane in this case")?;
        Ok(Self { dataplane, resources: all })
    }

    fn proxy(&self) -> Result<SelectableProxy, String> {
        let proxy = SelectableProxy::of(&self.dataplane).map_err(|e| e.to_string())?;
        Ok(proxy.ok_or("not a dataplane")?.with_gateway(&self.resources))
    }

    fn destinations(&self) -> Destinations {
        Destinations::new(&self.resources)
    }

    /// Policies are asked one by one, because in some cases two have the same name. Where names are unique,
    /// an index has to find the same.
    fn select(&self) -> Result<Selection, String> {
        let (policies, proxy, destinations) =
            (policies(&self.resources)?, self.proxy()?, self.destinations());
        let selection = Selection::among(&policies, &proxy, &destinations, false);
        let keys = |policies: &[Arc<Policy>]| -> BTreeSet<ResourceKey> {
            policies.iter().map(|policy| policy.resource.key.clone()).collect()
        };
        let kind = policies.first().ok_or("no policy in this case")?.resource.kind();
        let set = PolicySet::parse(kind, policies.iter().map(|policy| &policy.resource));
        let found = Selection::of(&set, &proxy, &destinations, false);
        if set.policies.len() == policies.len() && keys(&found.policies) != keys(&selection.policies) {
            return Err("the index of policies does not find those that select the proxy".to_owned());
        }
        Ok(selection)
    }

    /// The case as a control plane has it on which policies and proxies are seen in this way.
    fn seen(&self, variant: &str) -> Result<Self, String> {
        let (_, dataplane, policy, role) = VARIANTS
            .iter()
            .find(|(name, ..)| *name == variant)
            .ok_or_else(|| format!("{variant:?} is no known way to look at this"))?;
        let view = View::of(policy)?;
        let resources = self.resources.iter().map(|r| in_role(view.apply(r), role)).collect();
        Ok(Self { dataplane: View::of(dataplane)?.apply(&self.dataplane), resources })
    }
}

/// A service outside the mesh, for which an egress stands, and policies.
struct Outer {
    proxy: SelectableProxy,
    policies: Vec<Arc<Policy>>,
}

impl Outer {
    fn read(dir: &Path, name: &str) -> Result<Self, String> {
        let file = |part: &str| dir.join(format!("{name}.{part}.yaml"));
        let service = resources(&file("es"))?.pop().ok_or("no service in this case")?;
        let tags = service.spec::<ExternalService>().map_err(|e| e.to_string())?.tags;
        let policies = policies(&resources(&file("policies"))?)?;
        Ok(Self { proxy: SelectableProxy::standing_for(&service, tags), policies })
    }

    fn select(&self) -> Result<Selection, String> {
        Ok(Selection::among(&self.policies, &self.proxy, &Destinations::default(), false))
    }

    fn caller_rules(&self) -> Result<Value, String> {
        let inbound = self.proxy.inbounds.first().ok_or("the service stands nowhere")?;
        let mut policies = self.policies.clone();
        policies.sort_by(|a, b| order::by_policy(a, b));
        let rules = TagRules::of_callers(&policies, &inbound.tags).map_err(|e| e.to_string())?;
        let rules = BTreeMap::from([(inbound.key.to_string(), tag_list(&rules))]);
        Ok(json!({ "InboundRules": null, "Rules": rules }))
    }
}

/// Where the proxy was made and is seen, the same of the policy, and the role of the policy.
const VARIANTS: &[(&str, &str, &str, &str)] = &[
    ("uni-zone", "zone-uni", "zone-uni", ""),
    ("k8s-zone", "zone-k8s", "zone-k8s", ""),
    ("policy-from-global-uni-zone-uni-on-global", "zone-uni-2-global-uni", "global-uni", "system"),
    ("policy-from-global-uni-zone-uni-on-zone", "zone-uni", "global-uni-2-zone-uni", "system"),
    ("policy-from-global-uni-zone-k8s-on-zone", "zone-k8s", "global-uni-2-zone-k8s", "system"),
    ("policy-from-global-uni-zone-k8s-on-global", "zone-k8s-2-global-uni", "global-uni", "system"),
    ("policy-from-global-k8s-zone-uni-on-zone", "zone-uni", "global-k8s-2-zone-uni", "system"),
    ("policy-from-global-k8s-zone-uni-on-global", "zone-uni-2-global-k8s", "global-k8s", "system"),
    ("policy-from-global-k8s-zone-k8s-on-zone", "zone-k8s", "global-k8s-2-zone-k8s", "system"),
    ("policy-from-global-k8s-zone-k8s-on-global", "zone-k8s-2-global-k8s", "global-k8s", "system"),
    ("policy-global-uni-dpp-k8s-on-zone", "zone-uni", "global-uni-2-zone-uni", "system"),
    ("policy-global-uni-dpp-k8s-on-global", "zone-uni-2-global-uni", "global-uni", "system"),
    ("policy-from-k8s-to-uni", "zone-uni", "zone-k8s-2-zone-uni", "producer"),
    ("policy-from-k8s-to-k8s", "zone-k8s", "zone-k8s-2-zone-k8s", "producer"),
];

/// Policies of the operator live in the namespace of the system.
fn in_role(resource: Arc<Resource>, role: &str) -> Arc<Resource> {
    let labelled = match role {
        "" => return resource,
        "system" => Resource::clone(&resource).with_label(labels::NAMESPACE, "kuma-system"),
        _ => Resource::clone(&resource),
    };
    Arc::new(labelled.with_label(labels::POLICY_ROLE, role))
}

fn list(selection: &Selection) -> Value {
    let shown = selection.policies.iter().map(|policy| {
        let mut object = document::meta(&policy.resource);
        let normalized = policy.resource.kind().normalize(&policy.resource.spec).unwrap_or_default();
        object.insert("spec".to_owned(), serde_json::from_slice(&normalized).unwrap_or_default());
        Value::Object(object)
    });
    json!({"items": shown.collect::<Vec<_>>(), "next": null, "total": 0})
}

fn per_inbound(
    selection: &Selection,
    show: impl Fn(&InboundKey) -> Result<Value, String>,
) -> Result<Value, String> {
    let shown = selection.inbounds.keys().map(|key| Ok((key.to_string(), show(key)?)));
    shown.collect::<Result<Map<_, _>, String>>().map(Value::Object)
}

fn inbound_rules(selection: &Selection) -> Result<Value, String> {
    Ok(json!({
        "InboundRules": per_inbound(selection, |key| Ok(inbound_list(&selection.inbound_rules(key))))?,
        "Rules": client_rules(selection)?,
    }))
}

fn client_rules(selection: &Selection) -> Result<Value, String> {
    per_inbound(selection, |key| selection.client_rules(key).map(|r| tag_list(&r)).map_err(|e| e.to_string()))
}

fn to_rules(case: &Case) -> Result<Value, String> {
    let rules = case.select()?.to_rules(&case.destinations()).map_err(|e| e.to_string())?;
    Ok(to_value(&rules))
}

fn gateway_rules(case: &Case) -> Result<Value, String> {
    let (selection, destinations) = (case.select()?, case.destinations());
    let rules = |policies: &[_]| {
        let rules = crate::policy::rules::to_rules(policies, &destinations);
        rules.map(|r| to_value(&r)).map_err(|e| e.to_string())
    };
    let by_hostname = selection
        .listeners
        .iter()
        .map(|(key, policies)| Ok((format!("{}:{}", key.inbound, key.hostname), rules(policies)?)));
    let by_hostname: Map<String, Value> = by_hostname.collect::<Result<_, String>>()?;
    let inbound = inbound_rules(&selection)?;
    Ok(json!({
        "FromRules": inbound["Rules"],
        "InboundRules": inbound["InboundRules"],
        "ToRules": {
            "ByListener": per_inbound(&selection, |key| rules(selection.inbound(key)))?,
            "ByListenerAndHostname": by_hostname,
        },
    }))
}
