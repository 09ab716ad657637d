//! One dataplane: how it does, what policies say to it, and what its Envoy says.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui, dump,
    explanation::{self, AskedConfig},
    layout::PageFrame,
    parts::{chip, items, resource_address, since, table, text_of, title_of, until, yaml},
    tables::condition,
    visit::{Unanswered, Visit, address, encode},
};
use crate::{ages, model::labels, registry};

const TABS: [(&str, &str); 7] = [
    ("", "State"),
    ("rules", "Policies and rules"),
    ("explain", "Explanation"),
    ("config", "Configuration"),
    ("stats", "Stats"),
    ("clusters", "Clusters"),
    ("resource", "Resource"),
];

pub(super) async fn show(
    State(gui): State<Arc<Gui>>,
    Path((mesh, name)): Path<(String, String)>,
    visit: Visit,
) -> Response {
    let back = address("/gui/dataplanes", &[("mesh", &mesh)]);
    let trail = [("/gui/dataplanes", "Dataplanes"), (back.as_str(), mesh.as_str())];
    let watches = "zones Dataplane DataplaneInsight";
    let frame = PageFrame { title: &name, section: "Dataplanes", trail: &trail, watches };
    let path = format!("/meshes/{}/dataplanes/{}", encode(&mesh), encode(&name));
    let (tab, now) = (visit.parameter("show").to_owned(), gui.desk.now());
    let look = {
        let tab = tab.clone();
        move |overview: Value| SeenDataplane::of(&overview, &tab, now)
    };
    // Others are asked before anything is made: nobody waits for them in the turn in which a page is made.
    let asked = AskedOthers::of(&gui, &visit, &path, &tab).await;
    let seen = match gui.part(&visit, &format!("{path}/_overview"), look).await {
        Ok(seen) => seen,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let frame = PageFrame { title: &seen.title, ..frame };
    let content = html! {
        nav.tabs aria-label="Views of this dataplane" {
            @for (show, title) in TABS {
                a href=(address(&visit.path, &[("show", show)])) aria-current=[(show == tab).then_some("page")] { (title) }
            }
        }
        @match asked {
            AskedOthers::Envoy(shown) => (shown),
            AskedOthers::Config(config) => (explanation::show(&gui, &visit, (&mesh, &path), seen.issued_by, config).await),
            AskedOthers::Nobody if tab == "rules" => (rules(&gui, &visit, &path).await),
            AskedOthers::Nobody => (seen.shown),
        }
    };
    frame.respond(&gui, &visit, &content)
}

/// What others say for a view, who may take their time.
enum AskedOthers {
    Nobody,
    Config(AskedConfig),
    Envoy(Markup),
}

impl AskedOthers {
    async fn of(gui: &Gui, visit: &Visit, path: &str, tab: &str) -> Self {
        match tab {
            "explain" => Self::Config(AskedConfig::of(gui, visit, path).await),
            "config" => Self::Envoy(of_envoy(gui, visit, path, "xds").await),
            "stats" | "clusters" => Self::Envoy(of_envoy(gui, visit, path, tab).await),
            _ => Self::Nobody,
        }
    }
}

/// What is kept of an overview.
struct SeenDataplane {
    title: String,
    /// The backend that signed its certificate.
    issued_by: String,
    /// What the overview itself shows.
    shown: Markup,
}

impl SeenDataplane {
    fn of(overview: &Value, tab: &str, now: DateTime<Utc>) -> Self {
        let shown = match tab {
            "resource" => html! { section.panel { pre.whole { (yaml(overview)) } } },
            "rules" | "explain" | "config" | "stats" | "clusters" => html! {},
            _ => state(overview, now),
        };
        let issued_by = text_of(&overview["dataplaneInsight"]["mTLS"]["issuedBackend"]).to_owned();
        Self { title: title_of(overview).to_owned(), issued_by, shown }
    }
}

fn state(overview: &Value, now: DateTime<Utc>) -> Markup {
    let (networking, insight) = (&overview["dataplane"]["networking"], &overview["dataplaneInsight"]);
    let last = items(&insight["subscriptions"]).last().unwrap_or(&Value::Null);
    let tls = &insight["mTLS"];
    let lost = &overview["strait"]["zone"];
    html! {
        div.grid.two {
            section.panel { h2 { "State" } div #state data-live {
                dl.facts {
                    dt { "Status" } dd {
                        (chip(condition(overview)))
                        @if lost.is_object() { " its zone " (text_of(&lost["name"])) " is " (text_of(&lost["status"])) " for " (since(&lost["since"], now)) }
                    }
                    dt { "Zone" } dd { (ages::text(&overview["labels"][labels::ZONE])) }
                    dt { "Address" } dd { code { (text_of(&networking["address"])) } }
                    dt { "Connected" } dd { (since(&last["connectTime"], now)) @if let Some(instance) = last["controlPlaneInstanceId"].as_str() { " to " (instance) } }
                    @if last["disconnectTime"].is_string() { dt { "Lost" } dd { (since(&last["disconnectTime"], now)) " ago" } }
                    dt { "Envoy" } dd { (ages::text(&last["version"]["envoy"]["version"])) }
                    dt { "Agent" } dd { (ages::text(&last["version"]["kumaDp"]["version"])) }
                }
                (problems(insight))
            } }
            section.panel { h2 { "Certificate" } div #certificate data-live {
                @if tls.is_object() {
                    dl.facts {
                        dt { "Good for" } dd { (until(&tls["certificateExpirationTime"], now)) }
                        dt { "Made" } dd { (since(&tls["lastCertificateRegeneration"], now)) " ago" }
                        dt { "Made so far" } dd { (ages::text(&tls["certificateRegenerations"])) }
                        dt { "Signed by" } dd { (ages::text(&tls["issuedBackend"])) }
                        dt { "Believes" } dd { (items(&tls["supportedBackends"]).iter().map(text_of).collect::<Vec<_>>().join(", ")) }
                    }
                } @else { p.quiet { "It has none: mTLS is off, or it is not connected." } }
            } }
            section.panel { h2 { "Inbounds" } div #inbounds data-live { (inbounds(networking)) } }
            section.panel { h2 { "Outbounds" } div #outbounds data-live { (outbounds(networking)) } }
        }
        section.panel { h2 { "Counts by type, in the last session" } div #counts data-live { (counts(last)) } }
    }
}

/// What it refused, and what could not be made for it.
fn problems(insight: &Value) -> Markup {
    let strait = &insight["metadata"]["strait"];
    let refused = strait["rejections"].as_object().into_iter().flatten();
    let refused: Vec<(String, String)> =
        refused.map(|(kind, why)| (format!("refused: {kind}"), words(why))).collect();
    let other = strait
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| *name != "rejections" && !is_empty(value));
    let other: Vec<(String, String)> = other.map(|(name, value)| (name.clone(), words(value))).collect();
    html! {
        @for (what, why) in &refused { p.note.bad { "✗ " (what) ": " (why) } }
        @if !other.is_empty() { dl.facts { @for (what, why) in &other { dt { (what) } dd { (why) } } } }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

fn tags(tags: &Value) -> String {
    let pairs = tags.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", text_of(value))).collect::<Vec<_>>().join(" ")
}

fn inbounds(networking: &Value) -> Markup {
    let rows = items(&networking["inbound"]).iter().map(|one| {
        let state = match one["state"].as_str() {
            None | Some("Ready") => chip("online"),
            Some(other) => html! { span.chip.warn { "◌ " (other) } },
        };
        let service_port = if one["servicePort"].is_u64() { &one["servicePort"] } else { &one["port"] };
        vec![html! { (one["port"]) " → " (service_port) }, state, html! { (tags(&one["tags"])) }]
    });
    let gateway = &networking["gateway"];
    html! {
        @if gateway.is_object() { p { "A " (gateway["type"].as_str().unwrap_or("DELEGATED").to_lowercase()) " gateway: " (tags(&gateway["tags"])) } }
        (table(&["Port", "State", "Tags"], &rows.collect::<Vec<_>>(), "It has none."))
    }
}

fn outbounds(networking: &Value) -> Markup {
    let rows = items(&networking["outbound"]).iter().map(|one| {
        let to = if one["tags"].is_object() { tags(&one["tags"]) } else { tags(&one["backendRef"]) };
        vec![
            html! { code { (one["address"].as_str().unwrap_or("127.0.0.1")) ":" (one["port"]) } },
            html! { (to) },
        ]
    });
    let transparent = &networking["transparentProxying"];
    let reachable: Vec<&str> = items(&transparent["reachableServices"]).iter().map(text_of).collect();
    html! {
        (table(&["Listens at", "To"], &rows.collect::<Vec<_>>(), "It names none."))
        @if transparent.is_object() {
            p.quiet { "Its traffic is redirected; it reaches " (if reachable.is_empty() { "every service".to_owned() } else { reachable.join(", ") }) "." }
        }
    }
}

fn counts(last: &Value) -> Markup {
    let status = last["status"].as_object().into_iter().flatten().filter(|(_, counts)| counts.is_object());
    let number = |value: &Value| ages::text(value).replace('-', "0");
    let rows = status.map(|(kind, counts)| {
        vec![
            html! { (kind.to_uppercase()) },
            html! { (number(&counts["responsesSent"])) },
            html! { (number(&counts["responsesAcknowledged"])) },
            html! { (number(&counts["responsesRejected"])) },
        ]
    });
    table(&["Type", "#Sent", "#Acknowledged", "#Refused"], &rows.collect::<Vec<_>>(), "Nothing was sent yet.")
}

async fn rules(gui: &Gui, visit: &Visit, path: &str) -> Markup {
    let shown = gui.part(visit, &format!("{path}/_rules"), |found| all_rules(&found)).await;
    shown.unwrap_or_else(|why| html! { p.note.bad { (why) } })
}

fn all_rules(found: &Value) -> Markup {
    let all = items(&found["rules"]);
    html! {
        div #rules data-live {
            @if all.is_empty() { p.quiet { "No policy of the newer generation is for this dataplane." } }
            @for (n, of_kind) in all.iter().enumerate() {
                section.panel {
                    h2 { (text_of(&of_kind["type"])) @for warning in items(&of_kind["warnings"]) { span.chip.warn { "! " (text_of(warning)) } } }
                    (one_rule("to the proxy", &of_kind["proxyRule"], &format!("rule-{n}")))
                    @for (m, rule) in items(&of_kind["toRules"]).iter().enumerate() { (one_rule("to", rule, &format!("rule-{n}-t{m}"))) }
                    @for (m, rule) in items(&of_kind["toResourceRules"]).iter().enumerate() { (one_rule("to", rule, &format!("rule-{n}-r{m}"))) }
                    @if let Some(rules) = of_kind["toResourceRules"].as_object() {
                        @for (m, (to, rule)) in rules.iter().enumerate() { (one_rule(&format!("to {to}"), rule, &format!("rule-{n}-r{m}"))) }
                    }
                    @for (m, inbound) in items(&of_kind["fromRules"]).iter().enumerate() { @for (k, rule) in items(&inbound["rules"]).iter().enumerate() {
                        (one_rule(&format!("at port {}, from", inbound["inbound"]["port"]), rule, &format!("rule-{n}-f{m}-{k}")))
                    } }
                    @for (m, inbound) in items(&of_kind["inboundRules"]).iter().enumerate() { @for (k, rule) in items(&inbound["rules"]).iter().enumerate() {
                        (one_rule(&format!("at port {}", inbound["inbound"]["port"]), rule, &format!("rule-{n}-i{m}-{k}")))
                    } }
                }
            }
        }
    }
}

/// One rule with the policies it came from.
fn one_rule(place: &str, rule: &Value, id: &str) -> Markup {
    if !rule.is_object() {
        return html! {};
    }
    let matchers = items(&rule["matchers"]).iter().map(|one| {
        let not = if one["not"] == true { "≠" } else { "=" };
        format!("{}{not}{}", text_of(&one["key"]), text_of(&one["value"]))
    });
    let matchers = matchers.collect::<Vec<_>>().join(", ");
    let target = &rule["resourceMeta"];
    let subject = match place {
        _ if target.is_object() => format!("{} {}", text_of(&target["type"]), title_of(target)),
        place if matchers.is_empty() && place.ends_with("from") => "everybody".to_owned(),
        "to" if matchers.is_empty() => "everything".to_owned(),
        _ => matchers,
    };
    let origins = items(&rule["origin"]).iter().chain(items(&rule["origins"]));
    html! {
        details id=(id) {
            summary {
                (place) " " (subject)
                span.soft { " by " @for (n, origin) in origins.enumerate() { @if n > 0 { ", " } (policy(origin)) } }
            }
            pre { (yaml(&rule["conf"])) }
        }
    }
}

fn policy(origin: &Value) -> Markup {
    let meta = if origin["resourceMeta"].is_object() { &origin["resourceMeta"] } else { origin };
    let name = text_of(&meta["name"]);
    let kind = registry::by_name(text_of(&meta["type"]));
    html! {
        @match kind {
            Some(kind) => a href=(resource_address(kind.path, text_of(&meta["mesh"]), name)) { (name) },
            None => (name),
        }
    }
}

/// The part of the page that it says itself.
async fn told_by_envoy(gui: &Gui, visit: &Visit, path: &str, what: &str) -> Result<Markup, Unanswered> {
    let wanted = visit.parameter("find").to_owned();
    let _turn = gui.desk.turn_of_envoys(&visit.asker).await?;
    match what {
        "xds" => {
            let path = format!("{path}/xds?include_eds=true");
            gui.part(visit, &path, move |dump| dump::config(&dump, &wanted)).await
        }
        what => gui.text_part(visit, &format!("{path}/{what}"), move |text| dump::lines(text, &wanted)).await,
    }
}

async fn of_envoy(gui: &Gui, visit: &Visit, path: &str, what: &str) -> Markup {
    let shown = told_by_envoy(gui, visit, path, what).await;
    html! {
        (dump::search(visit, visit.parameter("show")))
        @match shown {
            Ok(shown) => section.panel { (shown) },
            Err(why) => p.note.bad { (why) },
        }
        p.quiet { "This is what its Envoy says now; load the page again for what it says then." }
    }
}
