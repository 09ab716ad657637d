//! What an Envoy tells, searched: its configuration in entries, its stats and clusters in lines.

use maud::{Markup, html};
use serde_json::Value;

use super::{parts::text_of, visit::Visit};

/// Entries and lines that are shown at once.
const MOST: usize = 400;

/// One part of a configuration.
struct DumpEntry {
    section: String,
    name: String,
    text: String,
}

/// The field in which it is said what is looked for.
pub(super) fn search(visit: &Visit, show: &str) -> Markup {
    html! {
        form.filters method="get" role="search" {
            input type="hidden" name="show" value=(show);
            label { "Contains" input type="search" name="find" value=(visit.parameter("find")) autocomplete="off"; }
            button { "Search" }
        }
    }
}

/// A configuration dump, each resource for itself.
pub(super) fn config(dump: &Value, wanted: &str) -> Markup {
    let all = entries(dump);
    let total = all.len();
    let wanted_lower = wanted.to_lowercase();
    let fits = |entry: &DumpEntry| wanted.is_empty() || entry.text.to_lowercase().contains(&wanted_lower);
    let found: Vec<DumpEntry> = all.into_iter().filter(fits).collect();
    html! {
        p.quiet { (found.len()) " of " (total) " parts" @if found.len() > MOST { ", the first " (MOST) " are shown" } }
        @for (n, entry) in found.iter().take(MOST).enumerate() {
            details #{ "part-" (n) } open[!wanted.is_empty() && found.len() <= 3] {
                summary { span.soft { (entry.section) } " " (entry.name) }
                pre { (marked(&entry.text, wanted)) }
            }
        }
    }
}

/// Lines of text that contain what is wanted.
pub(super) fn lines(text: &str, wanted: &str) -> Markup {
    let wanted_lower = wanted.to_lowercase();
    let total = text.lines().count();
    let found: Vec<&str> = text.lines().filter(|line| line.to_lowercase().contains(&wanted_lower)).collect();
    let shown: Vec<&str> = found.iter().copied().take(MOST * 10).collect();
    html! {
        p.quiet { (found.len()) " of " (total) " lines" @if shown.len() < found.len() { ", the first " (shown.len()) " are shown" } }
        pre.whole { (marked(&shown.join("\n"), wanted)) }
    }
}

/// A text in which what was looked for is marked.
fn marked(text: &str, wanted: &str) -> Markup {
    html! {
        @if wanted.is_empty() { (text) } @else {
            @for (n, part) in text.split(wanted).enumerate() { @if n > 0 { mark { (wanted) } } (part) }
        }
    }
}

fn entries(dump: &Value) -> Vec<DumpEntry> {
    let dump = if dump["xds"].is_object() { &dump["xds"] } else { dump };
    let mut found = Vec::new();
    let sections: Vec<(String, &Value)> = match dump["configs"].as_array() {
        Some(configs) => configs.iter().map(|config| (short(text_of(&config["@type"])), config)).collect(),
        None => dump.as_object().into_iter().flatten().map(|(name, part)| (name.clone(), part)).collect(),
    };
    for (section, part) in sections {
        let lists = part
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(member, list)| Some((member, list.as_array()?)));
        let mut has_list = false;
        for (member, list) in lists {
            has_list = true;
            found.extend(list.iter().map(|entry| DumpEntry {
                section: format!("{section} {}", member.replace('_', " ")),
                name: name(entry, 4).unwrap_or("without a name").to_owned(),
                text: serde_json::to_string_pretty(entry).unwrap_or_default(),
            }));
        }
        if !has_list {
            let text = serde_json::to_string_pretty(part).unwrap_or_default();
            found.push(DumpEntry { section, name: String::new(), text });
        }
    }
    found
}

/// `type.googleapis.com/envoy.admin.v3.ListenersConfigDump` is `Listeners`.
fn short(kind: &str) -> String {
    kind.rsplit('.').next().unwrap_or(kind).trim_end_matches("ConfigDump").to_owned()
}

/// The name of a part, in it or in what it wraps.
fn name(entry: &Value, depth: usize) -> Option<&str> {
    let members = entry.as_object()?;
    let own = ["name", "cluster_name", "clusterName"].iter().find_map(|key| members.get(*key)?.as_str());
    own.or_else(|| match depth {
        0 => None,
        _ => members.values().find_map(|member| name(member, depth - 1)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dump_is_cut_into_parts_with_names_and_searched() {
        let dump = json!({ "configs": [
            { "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [
                { "version_info": "1", "cluster": { "name": "backend" } },
                { "version_info": "1", "cluster": { "name": "<b>other" } } ] },
            { "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": { "node": {} } } ] });
        let shown = config(&dump, "BACKEND").into_string();
        assert!(
            shown.contains("1 of 3 parts") && shown.contains("Clusters dynamic active clusters"),
            "{shown}"
        );
        let shown = config(&dump, "").into_string();
        assert!(shown.contains("&lt;b&gt;other") && !shown.contains("<b>other"), "{shown}");
        let shown = lines("a: 1\nb: 2\nab: 3", "a").into_string();
        assert!(shown.contains("2 of 3 lines") && shown.contains("<mark>a</mark>b: 3"), "{shown}");
    }
}
