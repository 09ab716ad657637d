//! What an expression of PromQL asks for: enough to compare it with what there is. `promtool` says whether it is one.

/// Words that stand where names of metrics could.
const WORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "inf", "nan"];
/// Operators that may be followed by how they group.
const AGGREGATIONS: &[&str] =
    &["sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "stddev", "group", "count_values"];
/// Words before a list of labels.
const LISTS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];

/// A metric with the labels by which its series are chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) labels: Vec<String>,
}

/// What an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) selectors: Vec<Selector>,
    /// Labels by which series are put together.
    pub(crate) grouping: Vec<String>,
}

/// Of `expression`.
pub(crate) fn asked(expression: &str) -> Asked {
    let mut asked = Asked::default();
    let mut rest = expression;
    let mut names_labels = false;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            rest = after_string(rest);
        } else if c == '[' {
            rest = rest.split_once(']').map_or("", |(_, rest)| rest);
        } else if c.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if c == '(' && names_labels {
            let (list, after) = rest[1..].split_once(')').unwrap_or((&rest[1..], ""));
            asked
                .grouping
                .extend(list.split(',').map(|label| label.trim().to_owned()).filter(|l| !l.is_empty()));
            (rest, names_labels) = (after, false);
        } else if c.is_ascii_alphabetic() || c == '_' {
            let end =
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            let next = after.trim_start();
            names_labels = LISTS.contains(&word);
            if names_labels || WORDS.contains(&word) || AGGREGATIONS.contains(&word) || next.starts_with('(')
            {
                continue;
            }
            let (labels, after) = matchers(next);
            rest = after;
            asked.selectors.push(Selector { metric: word.to_owned(), labels });
        } else {
            rest = &rest[c.len_utf8()..];
        }
    }
    asked
}

/// The labels in the braces at the beginning, if there are some, and what follows them.
fn matchers(text: &str) -> (Vec<String>, &str) {
    let Some(mut rest) = text.strip_prefix('{') else { return (Vec::new(), text) };
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (label, after) = rest.split_at(end);
        if label.is_empty() {
            return (labels, after.strip_prefix('}').unwrap_or(after));
        }
        labels.push(label.to_owned());
        let value = after.find('"').map_or("", |at| &after[at..]);
        rest = after_string(value);
    }
}

/// What follows the text in quotes at the beginning.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Labels that whoever collects adds to every series.
const COLLECTED: [&str; 2] = ["instance", "job"];

/// Fails unless every metric has the labels it is asked by, and every label of a grouping is one of some metric in
/// the expression. `labels` knows the labels of a series by its name.
pub(crate) fn assert_exists(expression: &str, labels: impl Fn(&str) -> Option<Vec<&'static str>>) {
    let asked = asked(expression);
    assert!(!asked.selectors.is_empty(), "no metric in {expression}");
    let mut all: Vec<&str> = COLLECTED.to_vec();
    for selector in &asked.selectors {
        let known = labels(&selector.metric);
        let known = known.unwrap_or_else(|| panic!("{} is no metric: {expression}", selector.metric));
        for label in &selector.labels {
            let is_known = COLLECTED.contains(&label.as_str()) || known.contains(&label.as_str());
            assert!(is_known, "{} has no label {label}: {expression}", selector.metric);
        }
        all.extend(known);
    }
    for label in &asked.grouping {
        assert!(all.contains(&label.as_str()), "nothing has the label {label}: {expression}");
    }
}

/// The labels of a series of ours: of a metric, or of what Prometheus makes of a histogram.
pub(crate) fn labels_of_ours(series: &str) -> Option<Vec<&'static str>> {
    use common::metering::{MetricKind, by_name};
    let parts = ["_bucket", "_sum", "_count"];
    let of_histogram = parts.iter().find_map(|part| {
        let metric = by_name(series.strip_suffix(part)?)?;
        matches!(metric.kind, MetricKind::Histogram(_))
            .then_some((metric, (*part == "_bucket").then_some("le")))
    });
    let plain = || by_name(series).filter(|metric| !matches!(metric.kind, MetricKind::Histogram(_)));
    let (metric, le) = of_histogram.or_else(|| Some((plain()?, None)))?;
    Some(metric.labels.iter().map(|(label, _)| *label).chain(le).chain(["zone"]).collect())
}

#[test]
fn an_expression_is_taken_apart() {
    let selector = |metric: &str, labels: &[&str]| Selector {
        metric: metric.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let found = asked(
        "topk(5, sum by (a, b) (rate(x_total{c=\"by (d) \\\" }\", e=~\"f\"}[5m])) > 1.5e3) or vector(0) \
         / on(g) group_left max(y) unless z{} offset 5m",
    );
    let selectors = vec![selector("x_total", &["c", "e"]), selector("y", &[]), selector("z", &[])];
    assert_eq!(found, Asked { selectors, grouping: ["a", "b", "g"].map(str::to_owned).to_vec() });
    assert_eq!(labels_of_ours("store_bucket"), Some(vec!["operation", "resource_type", "le", "zone"]));
    assert_eq!((labels_of_ours("store"), labels_of_ours("store_writable_count")), (None, None));
}
