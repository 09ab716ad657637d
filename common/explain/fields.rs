//! Which policy a field comes from, and which lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::labels;
use serde_json::{Value, json};

/// Policies by type and name.
pub type PolicyDocuments = BTreeMap<(String, String), Value>;

/// What one policy says by itself.
struct Contribution<'a> {
    from: String,
    conf: &'a Value,
}

/// The types and names of all policies that rules come from.
pub(super) fn origins(rules: &Value, found: &mut BTreeSet<(String, String)>) {
    match rules {
        Value::Object(members) => {
            for origin in list(&rules["origin"]) {
                let meta = if origin["resourceMeta"].is_object() { &origin["resourceMeta"] } else { origin };
                found.extend(identity(meta));
            }
            members.values().for_each(|member| origins(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| origins(item, found)),
        _ => {}
    }
}

pub(super) fn identity(meta: &Value) -> Option<(String, String)> {
    Some((meta["type"].as_str()?.to_owned(), meta["name"].as_str()?.to_owned()))
}

fn list(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// Every field of every rule.
pub(super) fn all(rules: &Value, policies: &PolicyDocuments) -> Vec<Value> {
    let mut rows = Vec::new();
    for kind in list(&rules["rules"]) {
        let policy = kind["type"].as_str().unwrap_or_default();
        let mut explain = |part: &str, conf: &Value, said: &[Contribution<'_>]| {
            fields(conf, said, |field, value, from, lost| {
                rows.push(json!({
                    "part": part, "policy": policy, "field": field, "value": value, "from": from, "lost": lost,
                }));
            });
        };
        if kind["proxyRule"].is_object() {
            let rule = &kind["proxyRule"];
            let said: Vec<Contribution<'_>> = list(&rule["origin"])
                .filter_map(|meta| {
                    Some(Contribution {
                        from: from(meta),
                        conf: &policies.get(&identity(meta)?)?["spec"]["default"],
                    })
                })
                .collect();
            explain("proxy", &rule["conf"], &said);
        }
        for entry in list(&kind["inboundRules"]) {
            inbound(entry, policies, &mut explain);
        }
        // Where there are rules for inbounds, what is said of groups of clients is the same once more.
        for entry in list(&kind["fromRules"]).filter(|_| list(&kind["inboundRules"]).next().is_none()) {
            let at = port(&entry["inbound"]);
            for rule in list(&entry["rules"]) {
                let part = format!("{at} from {}", group(&rule["matchers"], "everybody"));
                explain(&part, &rule["conf"], &by_group(rule, "from", policies));
            }
        }
        for rule in list(&kind["toResourceRules"]) {
            let meta = &rule["resourceMeta"];
            let section = rule["resourceSectionName"].as_str().filter(|section| !section.is_empty());
            let name =
                [meta["type"].as_str(), meta["name"].as_str()].map(Option::unwrap_or_default).join(" ");
            let part =
                format!("to {name}{}", section.map(|section| format!(" {section}")).unwrap_or_default());
            for conf in list(&rule["conf"]) {
                explain(&part, conf, &by_index(rule, &["to"], policies));
            }
        }
        for rule in list(&kind["toRules"]) {
            let part = format!("to {}", group(&rule["matchers"], "everything"));
            explain(&part, &rule["conf"], &by_group(rule, "to", policies));
        }
    }
    rows
}

/// The rules of an inbound: those without a condition are merged, the others stand alone.
fn inbound(
    entry: &Value,
    policies: &PolicyDocuments,
    explain: &mut dyn FnMut(&str, &Value, &[Contribution<'_>]),
) {
    let at = port(&entry["inbound"]);
    let mut merged = json!({});
    let mut said = Vec::new();
    for rule in list(&entry["rules"]) {
        let of_rule = by_index(rule, &["rules", "from"], policies);
        let conf = &rule["conf"][0];
        if rule["match"].is_null() {
            crate::policy::rules::merge::patch(&mut merged, conf);
            said.extend(of_rule);
        } else {
            explain(&format!("{at} where {}", rule["match"]), conf, &of_rule);
        }
    }
    explain(&at, &merged, &said);
}

fn port(inbound: &Value) -> String {
    match inbound["name"].as_str() {
        Some(name) => format!("inbound {} ({name})", inbound["port"]),
        None => format!("inbound {}", inbound["port"]),
    }
}

/// A policy as its author calls it.
pub(super) fn from(meta: &Value) -> String {
    let name = meta["labels"][labels::DISPLAY_NAME].as_str().or_else(|| meta["name"].as_str());
    [meta["type"].as_str(), name].map(Option::unwrap_or_default).join("/")
}

/// What the items say that a rule names by their index in one of `lists`.
fn by_index<'a>(rule: &Value, lists: &[&str], policies: &'a PolicyDocuments) -> Vec<Contribution<'a>> {
    let said = |origin: &Value| {
        let meta = &origin["resourceMeta"];
        let spec = &policies.get(&identity(meta)?)?["spec"];
        let index = usize::try_from(origin["ruleIndex"].as_u64()?).ok()?;
        let item = lists.iter().find_map(|list| spec[*list].as_array()?.get(index))?;
        Some(Contribution { from: from(meta), conf: conf(item) })
    };
    list(&rule["origin"]).filter_map(said).collect()
}

/// What the items of `list` say that are for the group of a rule, as far as their services tell.
fn by_group<'a>(rule: &Value, list_name: &str, policies: &'a PolicyDocuments) -> Vec<Contribution<'a>> {
    let positive = |tag: &&Value| tag["not"] == false && tag["key"] == "kuma.io/service";
    let service = list(&rule["matchers"]).find(positive).and_then(|tag| tag["value"].as_str());
    let is_meant = |item: &&Value| match item["targetRef"]["kind"].as_str() {
        Some("MeshService" | "MeshServiceSubset") => {
            item["targetRef"]["name"].as_str().unwrap_or_default() == service.unwrap_or_default()
        }
        _ => true,
    };
    let mut said = Vec::new();
    for meta in list(&rule["origin"]) {
        let Some(policy) = identity(meta).and_then(|identity| policies.get(&identity)) else { continue };
        let items = list(&policy["spec"][list_name]).filter(is_meant);
        said.extend(items.map(|item| Contribution { from: from(meta), conf: conf(item) }));
    }
    said
}

/// Routes keep what they say beside the target.
fn conf(item: &Value) -> &Value {
    if item["rules"].is_array() { item } else { &item["default"] }
}

fn group(matchers: &Value, all: &str) -> String {
    let tag = |tag: &Value| {
        let sign = if tag["not"] == true { "!=" } else { "=" };
        let text = |member: &str| tag[member].as_str().unwrap_or_default().to_owned();
        format!("{}{sign}{}", text("key"), text("value"))
    };
    let tags: Vec<String> = list(matchers).map(tag).collect();
    if tags.is_empty() { all.to_owned() } else { tags.join(" ") }
}

/// Every field of the policies of the older generation. Of those for one part one is in force as a whole, unless newer
/// ones say the same.
pub(super) fn older(items: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for item in list(&items["items"]) {
        let text = |member: &str| item[member].as_str().unwrap_or_default();
        let part = match text("type") {
            "service" => format!("to service {}", text("service")),
            "dataplane" => "proxy".to_owned(),
            other => format!("{other} {} {}", text("name"), text("service")).trim_end().to_owned(),
        };
        let of = |policy: &Value| from(&policy["resourceMeta"]);
        let winner = &item["policy"];
        for (field, value) in leaves("", &winner["conf"]) {
            let lost = list(&item["lost"]).map(|one| {
                let value = one["conf"].pointer(&field).unwrap_or(&Value::Null);
                json!({"from": of(one), "value": value})
            });
            let (from, value, lost): (String, &Value, Vec<Value>) = match item["overriddenBy"].as_str() {
                None => (of(winner), value, lost.collect()),
                Some(newer) => {
                    let first = json!({"from": of(winner), "value": value});
                    (newer.to_owned(), &Value::Null, std::iter::once(first).chain(lost).collect())
                }
            };
            let field =
                if value.is_null() && field.is_empty() { "(all)".to_owned() } else { name_of(&field, value) };
            rows.push(json!({
                "part": part, "policy": text("policyType"), "field": field, "value": value, "from": from, "lost": lost,
            }));
        }
    }
    rows
}

/// Each field of a merged configuration with who said it last, and who said something before.
fn fields(conf: &Value, said: &[Contribution<'_>], mut show: impl FnMut(&str, &Value, &str, Vec<Value>)) {
    for (field, value) in leaves("", conf) {
        // Where a rule of a route stands in a list is decided by what it matches.
        let mut sources: Vec<(&Contribution<'_>, &Value)> =
            said.iter().filter_map(|one| Some((one, find(one.conf, &field, value)?))).collect();
        let winner = sources.pop();
        let lost = sources.into_iter().rev().map(|(one, value)| json!({"from": one.from, "value": value}));
        let name = winner.as_ref().map_or("-", |(one, _)| one.from.as_str());
        show(&name_of(&field, value), value, name, lost.collect());
    }
}

/// The members that hold no members, by their paths; rules of routes one by one.
fn leaves<'a>(path: &str, value: &'a Value) -> Vec<(String, &'a Value)> {
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().flat_map(|(name, value)| leaves(&format!("{path}/{name}"), value)).collect()
        }
        Value::Array(rules) if path == "/rules" => rules.iter().map(|rule| (path.to_owned(), rule)).collect(),
        _ => vec![(path.to_owned(), value)],
    }
}

/// The same field in what one policy says.
fn find<'a>(conf: &'a Value, field: &str, value: &Value) -> Option<&'a Value> {
    let found = conf.pointer(field)?;
    if field != "/rules" {
        return Some(found);
    }
    list(found).find(|rule| rule["matches"] == value["matches"])
}

/// A field as people write it.
fn name_of(field: &str, value: &Value) -> String {
    match field {
        "/rules" => format!("rule {}", value["matches"]),
        "" => "(nothing)".to_owned(),
        field => field.trim_start_matches('/').replace('/', "."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(kind: &str, name: &str, spec: Value) -> ((String, String), Value) {
        ((kind.to_owned(), name.to_owned()), json!({"type": kind, "name": name, "spec": spec}))
    }

    fn row(rows: &[Value], part: &str, field: &str) -> (String, String, String) {
        let row = rows.iter().find(|row| row["part"] == part && row["field"] == field);
        let row = row.unwrap_or_else(|| panic!("no {field} of {part} in {rows:#?}"));
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let lost: Vec<String> =
            list(&row["lost"]).map(|one| format!("{}={}", text(&one["from"]), text(&one["value"]))).collect();
        (text(&row["value"]), text(&row["from"]), lost.join(","))
    }

    #[test]
    fn the_last_one_wins_and_the_others_are_named() {
        let of = |name: &str, index: u32| {
            let labels = json!({"kuma.io/display-name": name});
            let meta = json!({"type": "MeshTimeout", "name": format!("{name}-x1"), "labels": labels});
            json!({"resourceMeta": meta, "ruleIndex": index})
        };
        let rules = json!({"rules": [{
            "type": "MeshTimeout",
            "inboundRules": [{
                "inbound": {"port": 8080, "name": "main"},
                "rules": [
                    {"conf": [{"idleTimeout": "1s", "http": {"requestTimeout": "2s"}}], "origin": [of("all", 0)]},
                    {"conf": [{"idleTimeout": "9s"}], "origin": [of("own", 0)]},
                ],
            }],
            "toResourceRules": [{
                "conf": [{"idleTimeout": "5s"}],
                "origin": [of("all", 1)],
                "resourceMeta": {"type": "MeshService", "name": "backend"},
                "resourceSectionName": "main",
            }],
            "toRules": [{
                "conf": {"idleTimeout": "4s"},
                "matchers": [{"key": "kuma.io/service", "not": false, "value": "backend"}],
                "origin": [{"type": "MeshTimeout", "name": "all-x1"}],
            }],
        }]});
        let policies: PolicyDocuments = [
            policy("MeshTimeout", "all-x1", json!({
                "rules": [{"default": {"idleTimeout": "1s", "http": {"requestTimeout": "2s"}}}],
                "to": [
                    {"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "3s"}},
                    {"targetRef": {"kind": "MeshService", "name": "backend"}, "default": {"idleTimeout": "5s"}},
                ],
            })),
            policy("MeshTimeout", "own-x1", json!({"rules": [{"default": {"idleTimeout": "9s"}}]})),
        ]
        .into();
        let mut named = BTreeSet::new();
        origins(&rules, &mut named);
        assert_eq!(named.len(), 2);
        let rows = all(&rules, &policies);
        let check = |part: &str, field: &str, expected: [&str; 3]| {
            let (value, from, lost) = row(&rows, part, field);
            assert_eq!([value.as_str(), from.as_str(), lost.as_str()], expected, "{part} {field}");
        };
        check("inbound 8080 (main)", "idleTimeout", ["9s", "MeshTimeout/own", "MeshTimeout/all=1s"]);
        check("inbound 8080 (main)", "http.requestTimeout", ["2s", "MeshTimeout/all", ""]);
        check("to MeshService backend main", "idleTimeout", ["5s", "MeshTimeout/all", ""]);
        check(
            "to kuma.io/service=backend",
            "idleTimeout",
            ["4s", "MeshTimeout/all-x1", "MeshTimeout/all-x1=3s"],
        );
    }

    #[test]
    fn of_older_policies_one_is_in_force_unless_newer_ones_say_the_same() {
        let policy = |name: &str, seconds: &str| {
            json!({
                "resourceMeta": {"type": "Timeout", "name": name}, "conf": {"connectTimeout": seconds},
            })
        };
        let mut item = json!({
            "type": "service", "name": "api", "service": "api", "policyType": "Timeout",
            "policy": policy("exact", "1s"), "lost": [policy("all", "9s")],
        });
        let rows = older(&json!({"items": [item]}));
        let (value, from, lost) = row(&rows, "to service api", "connectTimeout");
        assert_eq!([value, from, lost], ["1s", "Timeout/exact", "Timeout/all=9s"]);
        item["overriddenBy"] = json!("MeshTimeout/first");
        let rows = older(&json!({"items": [item]}));
        let (value, from, lost) = row(&rows, "to service api", "connectTimeout");
        assert_eq!([value, from, lost], ["null", "MeshTimeout/first", "Timeout/exact=1s,Timeout/all=9s"]);
        let permission = json!({"type": "inbound", "name": "10.0.0.1:80:80", "service": "web",
            "policyType": "TrafficPermission", "policy": {"resourceMeta": {"type": "TrafficPermission", "name": "all"}}});
        let rows = older(&json!({"items": [permission]}));
        assert_eq!(row(&rows, "inbound 10.0.0.1:80:80 web", "(all)").1, "TrafficPermission/all");
    }

    #[test]
    fn a_rule_of_a_route_is_found_by_what_it_matches() {
        let rule =
            |path: &str, to: &str| json!({"matches": [{"path": path}], "default": {"backendRefs": [to]}});
        let rules = json!({"rules": [{
            "type": "MeshHTTPRoute",
            "toRules": [{
                "conf": {"rules": [rule("/a", "new"), rule("/b", "old")]},
                "matchers": [],
                "origin": [{"type": "MeshHTTPRoute", "name": "x"}, {"type": "MeshHTTPRoute", "name": "y"}],
            }],
        }]});
        let to = |rules: Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "rules": rules}]});
        let policies: PolicyDocuments = [
            policy("MeshHTTPRoute", "x", to(json!([rule("/a", "old"), rule("/b", "old")]))),
            policy("MeshHTTPRoute", "y", to(json!([rule("/a", "new")]))),
        ]
        .into();
        let rows = all(&rules, &policies);
        assert_eq!(rows[0]["from"], "MeshHTTPRoute/y");
        assert_eq!(rows[0]["lost"][0]["from"], "MeshHTTPRoute/x");
        assert_eq!(
            (rows[1]["from"].as_str(), rows[1]["lost"].as_array().map(Vec::len)),
            (Some("MeshHTTPRoute/x"), Some(0))
        );
    }
}
