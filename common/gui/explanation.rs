//! Where what a dataplane has comes from, as `straitctl explain` says it.

use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    parts::{in_code, items, table, text_of},
    tables::list_path,
    visit::{Unanswered, Visit, encode},
};
use crate::{
    explain::{
        ExplainedProxy, PolicyDocuments, envoy_resources, is_builtin_gateway, named_policies, policy_fields,
        warnings,
    },
    registry,
};

/// Of the dataplane that the API has at `path`.
pub(super) async fn show(gui: &Gui, visit: &Visit, mesh: &str, path: &str, insight: &Value) -> Markup {
    match explained(gui, visit, mesh, path, insight).await {
        Ok(shown) => shown,
        Err(why) => html! { p.note.bad { (why) } },
    }
}

async fn explained(
    gui: &Gui,
    visit: &Visit,
    mesh: &str,
    path: &str,
    insight: &Value,
) -> Result<Markup, Unanswered> {
    let rules = gui.get(visit, &format!("{path}/_rules")).await?;
    let dataplane = gui.get(visit, path).await?;
    let older = gui.get(visit, &format!("{path}/_older")).await.unwrap_or_default();
    let gateways = match is_builtin_gateway(&dataplane) {
        true => gui.list(visit, &format!("/meshes/{}/meshgateways", encode(mesh))).await,
        false => Vec::new(),
    };
    let mut policies = PolicyDocuments::new();
    for (kind, name) in named_policies(&rules) {
        let Some(known) = registry::by_name(&kind) else { continue };
        // One that went meanwhile explains nothing any more.
        if let Ok(policy) = gui.get(visit, &list_path(known, mesh, &format!("/{}", encode(&name)))).await {
            policies.insert((kind, name), policy);
        }
    }
    let (config, hidden) = match gui.get(visit, &format!("{path}/_config")).await {
        Ok(config) => (config, None),
        Err(why) => (Value::Null, Some(format!("the configuration of its Envoy is not shown: {why}"))),
    };
    let subject = ExplainedProxy::of(&dataplane)
        .with_gateways(&gateways)
        .with_policies(&rules, &older)
        .issued_by(text_of(&insight["mTLS"]["issuedBackend"]));
    let parts = envoy_resources(&subject, &config, &rules, &policies);
    let parts: Vec<Vec<Markup>> = parts
        .iter()
        .map(|part| ["type", "name", "from"].map(|member| html! { (text_of(&part[member])) }).to_vec())
        .collect();
    let fields = policy_fields(&rules, &older, &policies);
    let fields: Vec<Vec<Markup>> = fields.iter().map(field).collect();
    Ok(html! {
        @for warning in warnings(&rules, hidden) { p.note.warn { "! " (warning) } }
        section.panel {
            h2 { "What policies say" }
            (table(&["Part", "Policy", "Field", "Value", "From", "Lost"], &fields, "No policy is for this dataplane."))
        }
        section.panel {
            h2 { "What its Envoy has, and what it is there for" }
            (table(&["Part", "Name", "From"], &parts, "It is not shown."))
        }
        p.quiet { (in_code("The same as `straitctl explain dataplane`.")) }
    })
}

/// A field of a policy, with who won and who lost.
fn field(field: &Value) -> Vec<Markup> {
    let lost = items(&field["lost"])
        .iter()
        .map(|one| format!("{} ({})", text_of(&one["from"]), value(&one["value"])));
    let lost: Vec<String> = lost.collect();
    vec![
        html! { (text_of(&field["part"])) },
        html! { (text_of(&field["policy"])) },
        html! { (text_of(&field["field"])) },
        html! { code { (value(&field["value"])) } },
        html! { (text_of(&field["from"])) },
        html! { (lost.join(", ")) },
    ]
}

fn value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
