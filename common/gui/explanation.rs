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

/// Bytes of policies that are looked into.
const MOST_POLICIES: usize = 8 << 20;

/// Of the dataplane that the API has at `path`, whose certificate the backend `issued_by` signed.
/// Its Envoy has this configuration.
pub(super) async fn show(
    gui: &Gui,
    visit: &Visit,
    (mesh, path): (&str, &str),
    issued_by: String,
    config: AskedConfig,
) -> Markup {
    match gathered(gui, visit, (mesh, path), issued_by, config).await {
        Ok(gathered) => gui.desk.work(gathered.bytes, move || gathered.explained()).await,
        Err(why) => html! { p.note.bad { (why) } },
    }
}

/// What the Envoy of a dataplane has, with how long that was.
pub(super) struct AskedConfig(Result<(Value, usize), Unanswered>);

impl AskedConfig {
    /// Of the dataplane that the API has at `path`. Its zone is asked, which may take its time.
    pub(super) async fn of(gui: &Gui, visit: &Visit, path: &str) -> Self {
        let mut asked = Gathered::default();
        let config = asked.get(gui, visit, &format!("{path}/_config")).await;
        Self(config.map(|config| (config, asked.bytes)))
    }
}

/// What an explanation is made of.
#[derive(Default)]
struct Gathered {
    dataplane: Value,
    issued_by: String,
    rules: Value,
    older: Value,
    gateways: Vec<Value>,
    policies: PolicyDocuments,
    config: Value,
    /// What is missing.
    hidden: Vec<String>,
    /// How long all of it is, about.
    bytes: usize,
}

impl Gathered {
    /// What `GET` answers, counted.
    async fn get(&mut self, gui: &Gui, visit: &Visit, path: &str) -> Result<Value, Unanswered> {
        let answer = gui.desk.get(&visit.asker, path).await;
        if !answer.status.is_success() {
            return Err(Unanswered::from(&answer));
        }
        self.bytes += answer.bytes();
        Ok(gui.desk.read(answer, |answer| answer).await)
    }

    fn explained(&self) -> Markup {
        let Self { rules, older, policies, .. } = self;
        let subject = ExplainedProxy::of(&self.dataplane)
            .with_gateways(&self.gateways)
            .with_policies(rules, older)
            .issued_by(&self.issued_by);
        let parts = envoy_resources(&subject, &self.config, rules, policies);
        let parts: Vec<Vec<Markup>> = parts
            .iter()
            .map(|part| ["type", "name", "from"].map(|member| html! { (text_of(&part[member])) }).to_vec())
            .collect();
        let fields = policy_fields(rules, older, policies);
        let fields: Vec<Vec<Markup>> = fields.iter().map(field).collect();
        html! {
            @for warning in self.hidden.iter().cloned().chain(warnings(rules, None)) {
                p.note.warn { "! " (warning) }
            }
            section.panel {
                h2 { "What policies say" }
                (table(&["Part", "Policy", "Field", "Value", "From", "Lost"], &fields, "No policy is for this dataplane."))
            }
            section.panel {
                h2 { "What its Envoy has, and what it is there for" }
                (table(&["Part", "Name", "From"], &parts, "It is not shown."))
            }
            p.quiet { (in_code("The same as `straitctl explain dataplane`.")) }
        }
    }
}

async fn gathered(
    gui: &Gui,
    visit: &Visit,
    (mesh, path): (&str, &str),
    issued_by: String,
    config: AskedConfig,
) -> Result<Gathered, Unanswered> {
    let mut all = Gathered { issued_by, ..Gathered::default() };
    all.rules = all.get(gui, visit, &format!("{path}/_rules")).await?;
    all.dataplane = all.get(gui, visit, path).await?;
    all.older = all.get(gui, visit, &format!("{path}/_older")).await.unwrap_or_default();
    if is_builtin_gateway(&all.dataplane) {
        let gateways = format!("/meshes/{}/meshgateways", encode(mesh));
        all.gateways = gui.list(visit, &gateways, <[Value]>::to_vec).await;
    }
    let before = all.bytes;
    for (kind, name) in named_policies(&all.rules) {
        let Some(known) = registry::by_name(&kind) else { continue };
        if all.bytes - before > MOST_POLICIES {
            let why = "the policies are too long to look into all of them: `straitctl explain` does";
            all.hidden.push(why.to_owned());
            break;
        }
        // One that went meanwhile explains nothing any more.
        let path = list_path(known, mesh, &format!("/{}", encode(&name)));
        if let Ok(policy) = all.get(gui, visit, &path).await {
            all.policies.insert((kind, name), policy);
        }
    }
    match config.0 {
        Ok((config, bytes)) => {
            all.config = config;
            all.bytes += bytes;
        }
        Err(why) => all.hidden.push(format!("the configuration of its Envoy is not shown: {why}")),
    }
    Ok(all)
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
