//! `docs/reference`: what there is to measure and to set, as the code says it.

use std::fmt::Write;

use common::{
    config::{Config, Setting, settings},
    metering::{self, LabelValues, Metric, MetricKind},
    testing::reference::{assert_current, cell},
};
use global::{config::GlobalConfig, relay::config::RelayConfig};
use serde_json::Value;
use zone::config::ZoneConfig;

/// Where the values of a label come from, for people.
fn values(values: LabelValues) -> String {
    let these = |all: &[&str]| {
        let quoted =
            all.iter().map(|value| if value.is_empty() { "empty".to_owned() } else { format!("`{value}`") });
        quoted.collect::<Vec<_>>().join(", ")
    };
    match values {
        LabelValues::These(all) => these(all),
        LabelValues::Constants => "words of the program".to_owned(),
        LabelValues::Methods => "methods of routes; `other`".to_owned(),
        LabelValues::Routes => "routes, with names in braces; `none` for refusals".to_owned(),
        LabelValues::Statuses => "status codes of HTTP".to_owned(),
        LabelValues::Kinds => "types of resources".to_owned(),
        LabelValues::TypeUrls => "types of xDS".to_owned(),
        LabelValues::Zones => "zones".to_owned(),
        LabelValues::Meshes => "meshes".to_owned(),
        LabelValues::Process => "of this process".to_owned(),
    }
}

fn row(metric: &Metric) -> String {
    let labels = metric.labels.iter().map(|(label, from)| format!("`{label}`: {}", values(*from)));
    let labels = labels.collect::<Vec<_>>().join("; ");
    let Metric { name, kind, unit, help, is_kumas, .. } = metric;
    let kumas = if *is_kumas { "yes" } else { "" };
    format!("| `{name}` | {} | {} | {} | {kumas} | {} |", kind.name(), unit.name(), cell(&labels), cell(help))
}

#[test]
fn the_page_of_metrics_says_what_there_is() {
    let mut page = "# Metrics\n\n\
        Made from the table in the code; `UPDATE_REFERENCES=1 cargo test --test cli references` writes it anew.\n\n\
        `/metrics` on the diagnostics port (5680) shows what has been counted so far, in the text form of Prometheus. \
        Every metric carries the label `zone`: the name of the zone or of the relay, `Global` on global. A histogram \
        `x` is seen as `x_bucket`, `x_sum` and `x_count`. Kuma has those marked so under the same name; \
        [dashboards](../dashboards.md) says what its dashboards show of them.\n\n\
        What a label says is one of a closed set. Values that are in none are `other`; of zones 4096 and of meshes \
        1024 have a value of their own in one process, the rest are `other`.\n\n\
        | metric | type | in | labels | Kuma | what it says |\n| --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for metric in metering::ALL {
        let _fits = writeln!(page, "{}", row(metric));
    }
    page.push_str("\n## Bounds of histograms\n\n| metric | upper bounds |\n| --- | --- |\n");
    for metric in metering::ALL {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let bounds = bounds.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            let _fits = writeln!(page, "| `{}` | {bounds} |", metric.name);
        }
    }
    assert_current("docs/reference/metrics.md", &page);
}

/// A setting, and the processes that have it so.
struct SharedSetting {
    setting: Setting,
    of: Vec<&'static str>,
}

fn collect<C: Config>(process: &'static str, all: &mut Vec<SharedSetting>) {
    let mut at = 0;
    for setting in settings::<C>() {
        // What stands beside each other stays so.
        match all.iter().position(|known| known.setting == setting) {
            Some(known) => {
                all[known].of.push(process);
                at = known + 1;
            }
            None => {
                all.insert(at, SharedSetting { setting, of: vec![process] });
                at += 1;
            }
        }
    }
}

fn shown(default: &Value) -> String {
    match default {
        Value::String(text) if text.is_empty() => String::new(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Array(items) => {
            let items =
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            format!("`{}`", items.collect::<Vec<_>>().join(","))
        }
        Value::Null => String::new(),
        other => format!("`{other}`"),
    }
}

#[test]
fn the_page_of_settings_says_what_there_is() {
    let mut all = Vec::new();
    collect::<ZoneConfig>("zone", &mut all);
    collect::<GlobalConfig>("global", &mut all);
    collect::<RelayConfig>("relay", &mut all);
    let mut page = "# Settings\n\n\
        Made from the settings in the code; `UPDATE_REFERENCES=1 cargo test --test cli references` writes it anew.\n\n\
        A setting has one name: it is the path in the YAML file (`--config-file`), the flag (`--store.type`) and, in \
        upper snake case, the variable of the environment (`STRAIT_STORE_TYPE`). Kuma's names with `KUMA_` in place of \
        `STRAIT_` work too; ours win. A flag wins over the environment, the environment over the file, the file over \
        the default. A section or setting that stands twice in the file stops the start. Lists are written `a,b` in flags \
        and variables, times as `1m30s`. `--print-config` shows what is in force, without secrets. \
        [Compatibility](../compatibility.md) lists settings of Kuma that have no effect here.\n"
        .to_owned();
    let section = |shared: &SharedSetting| shared.setting.path.split('.').next().map(str::to_owned);
    let order: Vec<_> = all.iter().map(section).collect();
    all.sort_by_key(|shared| order.iter().position(|known| *known == section(shared)));
    let mut last = None;
    for shared in &all {
        if last != section(shared) {
            last = section(shared);
            let head = "| setting | variable | default | in | meaning |\n| --- | --- | --- | --- | --- |";
            let _fits = writeln!(page, "\n## {}\n\n{head}", last.as_deref().unwrap_or_default());
        }
        let SharedSetting { setting, of } = shared;
        assert!(!setting.help.is_empty(), "{} does not say what it is for", setting.path);
        // Those of Kuma's prefix are told of above.
        let ours = setting.variables.iter().filter(|name| name.starts_with("STRAIT_"));
        let variables = ours.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let (default, meaning) = (cell(&shown(&setting.default)), cell(setting.help));
        let _fits = writeln!(
            page,
            "| `{}` | {variables} | {default} | {} | {meaning} |",
            setting.path,
            of.join(", ")
        );
    }
    assert_current("docs/reference/settings.md", &page);
}
