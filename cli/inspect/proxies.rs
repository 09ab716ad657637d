//! Proxies: connected or not, and what they made of what they were sent.

use std::collections::BTreeMap;

use common::model::{kinds::dataplane, labels};
use serde_json::Value;

use super::RowTrouble;
use crate::table;

/// What stands over the rows of dataplanes.
pub(crate) const PROXY_HEADINGS: [&str; 10] =
    ["MESH", "NAME", "STATUS", "SERVICES", "ZONE", "CONNECTED", "ENVOY", "REJECTED", "PROBLEMS", "CERT AGE"];

/// Dataplanes, with their mesh when there may be several.
pub(super) fn print(items: &[Value], with_mesh: bool) {
    let headings = if with_mesh { &PROXY_HEADINGS[..] } else { &PROXY_HEADINGS[1..] };
    table::print(headings, items.iter().map(|item| proxy_row(item, with_mesh)).collect());
    print_notes(items.iter().map(|item| (item, &item["dataplaneInsight"])));
}

/// One dataplane, with its mesh when there may be several.
pub(crate) fn proxy_row(item: &Value, with_mesh: bool) -> Vec<String> {
    let last = last_subscription(&item["dataplaneInsight"]);
    let mut row = if with_mesh { vec![table::text(&item["mesh"])] } else { vec![] };
    row.extend([
        table::text(&item["name"]),
        status(item, &item["dataplane"], &item["dataplaneInsight"]).to_owned(),
        dataplane::services(&item["dataplane"]),
        table::text(&item["labels"][labels::ZONE]),
        table::age(&last["connectTime"]),
        table::text(&last["version"]["envoy"]["version"]),
        table::text(&last["status"]["total"]["responsesRejected"]),
        count_of_problems(&item["dataplaneInsight"]),
        table::age(&item["dataplaneInsight"]["mTLS"]["lastCertificateRegeneration"]),
    ]);
    row
}

/// How bad it is with one dataplane.
pub(crate) fn trouble(item: &Value) -> RowTrouble {
    let insight = &item["dataplaneInsight"];
    let refuses = insight["metadata"]["strait"]["rejections"].as_object().is_some_and(|all| !all.is_empty());
    match status(item, &item["dataplane"], insight) {
        "online" if !refuses && problems(insight).next().is_none() => RowTrouble::None,
        "online" => RowTrouble::Noted,
        _ => RowTrouble::Away,
    }
}

/// An ingress or egress with its insight.
fn of_zone(item: &Value) -> (&Value, &Value) {
    match item["type"].as_str() {
        Some("ZoneIngressOverview") => (&item["zoneIngress"], &item["zoneIngressInsight"]),
        _ => (&item["zoneEgress"], &item["zoneEgressInsight"]),
    }
}

/// Zone ingresses or egresses.
pub(super) fn print_of_zones(items: &[Value]) {
    let row = |item: &Value| {
        let (proxy, insight) = of_zone(item);
        let last = last_subscription(insight);
        let networking = &proxy["networking"];
        let zone = item["labels"][labels::ZONE].as_str().or_else(|| proxy["zone"].as_str());
        vec![
            table::text(&item["name"]),
            status(item, proxy, insight).to_owned(),
            zone.unwrap_or("-").to_owned(),
            address(&networking["address"], &networking["port"]),
            address(&networking["advertisedAddress"], &networking["advertisedPort"]),
            table::age(&last["connectTime"]),
            table::text(&last["version"]["envoy"]["version"]),
            table::text(&last["status"]["total"]["responsesRejected"]),
            count_of_problems(insight),
        ]
    };
    let headings =
        ["NAME", "STATUS", "ZONE", "ADDRESS", "ADVERTISED", "CONNECTED", "ENVOY", "REJECTED", "PROBLEMS"];
    table::print(&headings, items.iter().map(row).collect());
    print_notes(items.iter().map(|item| (item, of_zone(item).1)));
}

/// What else to know about proxies, on standard error: what each refuses, and what was left out, once for all of whom
/// it is true.
fn print_notes<'a>(proxies: impl Iterator<Item = (&'a Value, &'a Value)>) {
    let mut left_out: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (item, insight) in proxies {
        for note in rejections(item, insight) {
            crate::output::note!("{note}");
        }
        for problem in problems(insight) {
            left_out.entry(problem).or_default().push(table::text(&item["name"]));
        }
    }
    for (problem, names) in left_out {
        crate::output::note!("{}: left out of its configuration: {problem}", some_of(&names));
    }
}

/// The first names of a list, and how many there are besides.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What could not be done for a proxy.
pub(crate) fn problems(insight: &Value) -> impl Iterator<Item = &str> {
    let problems = insight["metadata"]["strait"]["problems"].as_array();
    problems.into_iter().flatten().filter_map(Value::as_str)
}

fn count_of_problems(insight: &Value) -> String {
    match problems(insight).count() {
        0 => "-".to_owned(),
        some => some.to_string(),
    }
}

/// What a proxy refuses at the moment, why, and what to do.
fn rejections(item: &Value, insight: &Value) -> Vec<String> {
    let rejections = insight["metadata"]["strait"]["rejections"].as_object();
    let said = rejections.into_iter().flatten().map(|(type_name, reason)| {
        format!(
            "{}: Envoy refused its {type_name} and keeps what it had; correct the cause and it is taken at the \
             next attempt: {}",
            table::text(&item["name"]),
            reason.as_str().unwrap_or_default().trim()
        )
    });
    said.collect()
}

fn address(host: &Value, port: &Value) -> String {
    match host.as_str().filter(|host| !host.is_empty()) {
        Some(host) => format!("{host}:{}", table::text(port)),
        None => "-".to_owned(),
    }
}

fn last_subscription(insight: &Value) -> &Value {
    insight["subscriptions"].as_array().and_then(|all| all.last()).unwrap_or(&Value::Null)
}

/// Whether a proxy is connected and its inbounds are ready; below a zone that is lost nobody knows.
fn status(overview: &Value, proxy: &Value, insight: &Value) -> &'static str {
    if overview["strait"]["status"] == "unknown" {
        return "unknown";
    }
    let subscriptions = insight["subscriptions"].as_array().into_iter().flatten();
    let mut open = subscriptions.filter(|s| s["connectTime"].is_string() && !s["disconnectTime"].is_string());
    if open.next().is_none() {
        return "offline";
    }
    let inbounds: Vec<&Value> = proxy["networking"]["inbound"].as_array().into_iter().flatten().collect();
    // An absent state is the default one, ready.
    let ready = inbounds.iter().filter(|i| matches!(i["state"].as_str(), None | Some("Ready"))).count();
    match (ready, inbounds.len()) {
        (ready, all) if ready == all => "online",
        (0, _) => "offline",
        _ => "degraded",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_proxy_refuses_is_told_with_its_name() {
        let insight = json!({ "metadata": { "strait": { "rejections": { "Listener": "cannot bind\n" } } } });
        let told = rejections(&json!({ "name": "web" }), &insight);
        assert!(told[0].starts_with("web: Envoy refused its Listener") && told[0].ends_with(": cannot bind"));
        assert!(rejections(&json!({ "name": "web" }), &Value::Null).is_empty());
    }

    #[test]
    fn what_was_left_out_is_counted_and_told_once_for_all() {
        let insight = json!({ "metadata": { "strait": { "problems": ["MeshTrace: nothing is traced"] } } });
        assert_eq!(problems(&insight).collect::<Vec<_>>(), ["MeshTrace: nothing is traced"]);
        assert_eq!([count_of_problems(&insight), count_of_problems(&Value::Null)], ["1", "-"]);
        let names: Vec<String> = (1..=5).map(|n| format!("web-{n}")).collect();
        assert_eq!([some_of(&names[..1]), some_of(&names)], ["web-1", "web-1, web-2, web-3 and 2 more"]);
    }

    #[test]
    fn a_proxy_is_as_good_as_its_stream_and_its_inbounds() {
        let check = |inbounds: Value, disconnected: Option<&str>, expected: &str| {
            let proxy = json!({ "networking": { "inbound": inbounds } });
            let subscription =
                json!({ "connectTime": "2026-01-01T00:00:00Z", "disconnectTime": disconnected });
            let insight = json!({ "subscriptions": [subscription] });
            assert_eq!(status(&Value::Null, &proxy, &insight), expected, "{proxy} {insight}");
            let lost = json!({ "strait": { "status": "unknown" } });
            assert_eq!(status(&lost, &proxy, &insight), "unknown", "{proxy} {insight}");
        };
        check(json!([{}]), None, "online");
        check(json!([{}]), Some("2026-01-01T00:00:01Z"), "offline");
        check(json!([{}, { "state": "NotReady" }]), None, "degraded");
        check(json!([{ "state": "NotReady" }]), None, "offline");
        check(Value::Null, None, "online");
        assert_eq!(status(&Value::Null, &json!({}), &Value::Null), "offline");
    }
}
