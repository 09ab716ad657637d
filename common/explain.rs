//! Where what a proxy has comes from: which resource each part of its configuration is there for, and for every field of
//! its policies which of them won and which lost. `straitctl explain` asks over the network, the page in the process.

mod envoy;
mod fields;
mod subject;

use std::collections::BTreeSet;

use serde_json::Value;

pub use self::{fields::PolicyDocuments, subject::ExplainedProxy};

/// What is there whatever anybody writes.
const CONTROL_PLANE: &str = "the control plane";

/// The policies that `rules` name, by type and name: they say what each of them said by itself.
pub fn named_policies(rules: &Value) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    fields::origins(rules, &mut found);
    found
}

/// Listeners, routes, clusters and secrets of a proxy, each with what it is there for.
pub fn envoy_resources(
    proxy: &ExplainedProxy<'_>,
    config: &Value,
    rules: &Value,
    policies: &PolicyDocuments,
) -> Vec<Value> {
    envoy::resources(proxy, config, &envoy::by_hash(rules, policies))
}

/// Every field that policies of both generations set, with who won and who lost.
pub fn policy_fields(rules: &Value, older: &Value, policies: &PolicyDocuments) -> Vec<Value> {
    let mut all = fields::all(rules, policies);
    all.extend(fields::older(older));
    all
}

/// What there is to say about `rules`, and what is `hidden` of the configuration.
pub fn warnings(rules: &Value, hidden: Option<String>) -> Vec<String> {
    let said = rules["rules"].as_array().into_iter().flatten().flat_map(|kind| {
        let warnings = kind["warnings"].as_array().into_iter().flatten();
        warnings.filter_map(|text| Some(format!("{}: {}", kind["type"].as_str()?, text.as_str()?)))
    });
    hidden.into_iter().chain(said).collect()
}

/// Whether a dataplane runs a builtin gateway, whose listeners stand in another resource.
pub fn is_builtin_gateway(dataplane: &Value) -> bool {
    dataplane["networking"]["gateway"]["type"] == "BUILTIN"
}
