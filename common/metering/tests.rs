#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs, path::Path};

use regex::Regex;

use super::*;

#[test]
fn what_a_peer_makes_up_is_one_value() {
    assert_eq!(method(&Method::PUT), "PUT");
    assert_eq!(method(&Method::from_bytes(b"INVENTED").unwrap()), OTHER);
    assert_eq!(method(&Method::from_bytes(b"get").unwrap()), OTHER);
    assert_eq!((kind("MeshTimeout"), kind("Invented")), ("MeshTimeout", OTHER));
    let mut seen = BTreeSet::new();
    let mut label = |name: &str| within(&mut seen, name, 2).map(|name| name.to_string());
    assert_eq!(
        [label("a"), label("b"), label("c"), label("a")],
        [Some("a"), Some("b"), None, Some("a")].map(|l| l.map(str::to_owned))
    );
}

/// The sources of the control planes, but not their tests.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "testing" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
}

/// A metric as the sources record it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recorded {
    kinds: BTreeSet<String>,
    labels: BTreeSet<String>,
    /// The values of labels that stand in the call.
    values: BTreeSet<(String, String)>,
}

/// Metrics as the sources record them.
fn recorded() -> BTreeMap<String, Recorded> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut texts = Vec::new();
    for folder in ["common", "global", "zone"] {
        sources(&root.join(folder), &mut texts);
    }
    let call = Regex::new(r#"\b(counter|gauge|histogram)!\(\s*("?)([A-Za-z0-9_]+)"?([^;]*?)\)\s*\.(?:increment|decrement|record|set|absolute)\("#).unwrap();
    let any_call = Regex::new(r"\b(?:counter|gauge|histogram)!\(").unwrap();
    let label = Regex::new(r#""([a-z_]+)"\s*=>(?:\s*"([a-z_]+)")?"#).unwrap();
    let mut recorded: BTreeMap<String, Recorded> = BTreeMap::new();
    for text in texts {
        let calls: Vec<_> = call.captures_iter(&text).collect();
        assert_eq!(calls.len(), any_call.find_iter(&text).count(), "a call of another shape in\n{text}");
        for of in calls {
            let name = named(&text, &of[3], of[2].is_empty());
            let entry = recorded.entry(name).or_default();
            entry.kinds.insert(of[1].to_owned());
            for label in label.captures_iter(&of[4]) {
                entry.labels.insert(label[1].to_owned());
                entry
                    .values
                    .extend(label.get(2).map(|value| (label[1].to_owned(), value.as_str().to_owned())));
            }
        }
        sampled(&text, &mut recorded);
    }
    recorded
}

/// The name of a metric: what stands there, or the constant of that name in the same file.
fn named(text: &str, said: &str, is_constant: bool) -> String {
    if !is_constant {
        return said.to_owned();
    }
    let constant = Regex::new(&format!(r#"(?:const {said}: &str|let {said}) = "([a-z0-9_]+)";"#)).unwrap();
    let found = constant.captures(text);
    found.unwrap_or_else(|| panic!("{said} is no constant of its file"))[1].to_owned()
}

/// What is looked up when somebody asks.
fn sampled(text: &str, recorded: &mut BTreeMap<String, Recorded>) {
    let call = Regex::new(r#"\bsamples\.add\(\s*"([a-z0-9_]+)",\s*&\[([^;\]]*)\],"#).unwrap();
    let pair = Regex::new(r#"\("([a-z_]+)",(?:\s*"([a-zA-Z_]+)")?"#).unwrap();
    let calls: Vec<_> = call.captures_iter(text).collect();
    assert_eq!(calls.len(), text.matches("samples.add(").count(), "a call of another shape in\n{text}");
    for of in calls {
        let entry = recorded.entry(of[1].to_owned()).or_default();
        entry.kinds.insert(by_name(&of[1]).map_or("unknown", |metric| metric.kind.name()).to_owned());
        for pair in pair.captures_iter(&of[2]) {
            entry.labels.insert(pair[1].to_owned());
            entry.values.extend(pair.get(2).map(|value| (pair[1].to_owned(), value.as_str().to_owned())));
        }
    }
}

/// Fails when someone adds a metric or a label: its values must come from a closed set, which is declared
/// in [`ALL`].
#[test]
fn every_metric_and_label_is_declared() {
    let kinds_and_labels = |kinds: &BTreeSet<String>, labels: &BTreeSet<String>| {
        let listed = |of: &BTreeSet<String>| of.iter().cloned().collect::<Vec<_>>().join(", ");
        format!("{} of {}", listed(kinds), listed(labels))
    };
    let recorded = recorded();
    let declared: BTreeMap<&str, String> = ALL
        .iter()
        .map(|metric| {
            let labels = metric.labels.iter().map(|(label, _)| (*label).to_owned()).collect();
            (metric.name, kinds_and_labels(&[metric.kind.name().to_owned()].into(), &labels))
        })
        .collect();
    let shown: BTreeMap<&str, String> = recorded
        .iter()
        .map(|(name, metric)| (name.as_str(), kinds_and_labels(&metric.kinds, &metric.labels)))
        .collect();
    assert_eq!(shown, declared, "left: what is recorded, right: what `metering::ALL` declares");
    for (name, metric) in &recorded {
        for (label, value) in &metric.values {
            let declared = by_name(name).unwrap().labels.iter().find(|(known, _)| known == label).unwrap();
            if let LabelValues::These(all) = declared.1 {
                assert!(
                    all.contains(&value.as_str()),
                    "{name}: {label} is never {value}, says `metering::ALL`"
                );
            }
        }
    }
}

#[test]
fn the_table_is_in_order_and_says_what_everything_is() {
    assert!(ALL.is_sorted_by(|a, b| a.name < b.name));
    for metric in ALL {
        let Metric { name, help, .. } = metric;
        assert_eq!(by_name(name).map(|found| found.name), Some(*name));
        assert!(help.len() > 15 && !help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        if let MetricKind::Histogram(bounds) = metric.kind {
            assert!(bounds.is_sorted_by(|a, b| a < b), "{name}");
        }
    }
}

/// What `/metrics` says of each metric, whichever of its series come first.
#[test]
fn what_is_asked_for_has_the_help_and_the_type_of_the_table() {
    let mut builder = metrics_exporter_prometheus::PrometheusBuilder::new();
    for metric in ALL {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let named = metrics_exporter_prometheus::Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(named, bounds).unwrap();
        }
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        describe();
        for Metric { name, kind, .. } in ALL {
            match kind {
                MetricKind::Counter => metrics::counter!(*name).increment(1),
                MetricKind::Gauge => metrics::gauge!(*name).set(1.0),
                MetricKind::Histogram(_) => metrics::histogram!(*name).record(1.0),
            }
        }
    });
    let text = handle.render();
    for Metric { name, kind, help, .. } in ALL {
        for line in [format!("# HELP {name} {help}"), format!("# TYPE {name} {}", kind.name())] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
