//! Pieces that several pages are made of.

use std::time::Duration;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::visit::{Visit, address, encode};
use crate::{
    ages,
    checks::{CheckLine, CheckVerdict},
    model::{labels, text},
};

/// How long the shortest difference of two texts is looked for; what is found by then is shown.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// Rows on one page of a table.
pub(super) const ROWS: usize = 50;

/// How long ago the time at `value` was; the script counts on.
pub(super) fn since(value: &Value, now: DateTime<Utc>) -> Markup {
    html! {
        @match ages::time(value) {
            Some(time) => time datetime=(time.to_rfc3339()) data-age title=(exact(time)) { (ages::span(time, now)) },
            None => { "-" }
        }
    }
}

/// How long the time at `value` is still ahead.
pub(super) fn until(value: &Value, now: DateTime<Utc>) -> Markup {
    html! {
        @match ages::time(value) {
            Some(time) if time <= now => span.chip.bad { "✗ over" },
            Some(time) => span title=(exact(time)) { (ages::span(now, time)) },
            None => { "never" }
        }
    }
}

/// A time to the second.
pub(super) fn exact(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// What a state means: how it is shown, and its sign.
pub(super) fn tone(state: &str) -> (&'static str, &'static str) {
    match state {
        "online" | "acknowledged" | "available" | "connected" | "finished" => ("good", "✓"),
        "unknown" | "waiting" | "partially degraded" | "partially_degraded" | "proxies" | "withheld"
        | "held back" | "running" | "paused" => ("warn", "◌"),
        "offline" | "refused" | "halted" | "not_available" => ("bad", "✗"),
        _ => ("", "–"),
    }
}

/// A state in a word.
pub(super) fn chip(state: &str) -> Markup {
    let (tone, sign) = tone(state);
    html! { span class={ "chip " (tone) } { (sign) " " (state.replace('_', " ")) } }
}

/// What was found, the worst first; what is well is left out.
pub(super) fn findings(lines: &[CheckLine]) -> Markup {
    let mut wrong: Vec<&CheckLine> = lines.iter().filter(|line| line.verdict != CheckVerdict::Ok).collect();
    wrong.sort_by_key(|line| std::cmp::Reverse(line.verdict));
    html! {
        @if wrong.is_empty() {
            p.note.good { "✓ Nothing is wrong." }
        } @else {
            ol.findings {
                @for line in wrong {
                    @let is_failure = line.verdict == CheckVerdict::Failure;
                    li class=[is_failure.then_some("bad")] {
                        span class={ "chip " (if is_failure { "bad" } else { "warn" }) } {
                            (if is_failure { "✗ failure" } else { "! warning" })
                        }
                        " " (line.found)
                        @if !line.remedy.is_empty() { span.remedy { (in_code(&line.remedy)) } }
                    }
                }
            }
        }
    }
}

/// A text in which commands stand in backticks.
pub(super) fn in_code(text: &str) -> Markup {
    html! {
        @for (n, part) in text.split('`').enumerate() {
            @if n % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Figures in a row.
pub(super) fn figures(figures: &[(&str, String)]) -> Markup {
    html! {
        dl.figures {
            @for (name, figure) in figures { div { dt { (name) } dd { (figure) } } }
        }
    }
}

/// A table that scrolls for itself. A heading that begins with `#` is of numbers.
pub(super) fn table(headings: &[&str], rows: &[Vec<Markup>], nothing: &str) -> Markup {
    let class = |heading: &str| heading.starts_with('#').then_some("n");
    html! {
        @if rows.is_empty() {
            p.quiet { (nothing) }
        } @else {
            div.scroll {
                table {
                    thead { tr { @for heading in headings {
                        th scope="col" class=[class(heading)] { (heading.trim_start_matches('#')) }
                    } } }
                    tbody { @for row in rows { tr {
                        @for (n, cell) in row.iter().enumerate() {
                            td class=[class(headings.get(n).copied().unwrap_or_default()).or((n == 0).then_some("name"))] { (cell) }
                        }
                    } } }
                }
            }
        }
    }
}

/// The number of the page that is asked for, from 0.
pub(super) fn page_of(visit: &Visit) -> usize {
    visit.parameter("page").parse::<usize>().unwrap_or(1).clamp(1, 1_000_000) - 1
}

/// Links to the pages around this one.
pub(super) fn pages(visit: &Visit, page: usize, total: usize) -> Markup {
    let last = total.div_ceil(ROWS).max(1) - 1;
    let first_row = if total == 0 { 0 } else { (page * ROWS + 1).min(total) };
    html! {
        p.pages {
            span { (first_row) "–" (((page + 1) * ROWS).min(total)) " of " (total) }
            @if page > 0 { a rel="prev" href=(visit.with("page", &page.min(last + 1).to_string())) { "← earlier" } }
            @if page < last { a rel="next" href=(visit.with("page", &(page + 2).to_string())) { "later →" } }
        }
    }
}

/// A field in which a part of a name is written.
pub(super) fn search(visit: &Visit) -> Markup {
    html! { label { "Name contains" input type="search" name="search" value=(visit.parameter("search")) autocomplete="off"; } }
}

/// A choice of one of several values, or of all.
pub(super) fn choice(visit: &Visit, label: &str, name: &str, values: &[String]) -> Markup {
    let chosen = visit.parameter(name);
    html! {
        label { (label) select name=(name) {
            option value="" selected[chosen.is_empty()] { "all" }
            @for value in values { option value=(value) selected[value == chosen] { (value) } }
        } }
    }
}

/// Where the page of a resource is.
pub(super) fn resource_address(path: &str, mesh: &str, name: &str) -> String {
    address(&format!("/gui/resources/{}/{}", encode(path), encode(name)), &[("mesh", mesh)])
}

/// Where the page of a dataplane is.
pub(super) fn dataplane_address(mesh: &str, name: &str) -> String {
    format!("/gui/dataplanes/{}/{}", encode(mesh), encode(name))
}

/// A document as people read it.
pub(super) fn yaml(document: &Value) -> String {
    text::to_yaml(document).unwrap_or_else(|error| format!("# cannot be shown: {error}"))
}

/// How two texts differ, with some lines around.
pub(super) fn diff(old: &str, new: &str) -> Markup {
    // Of long texts that have nothing in common the shortest difference takes very long to find.
    let differences = TextDiff::configure().timeout(LONGEST_LOOK).diff_lines(old, new);
    let groups = differences.grouped_ops(3);
    html! {
        @if groups.is_empty() {
            p.quiet { "Nothing differs." }
        } @else {
            pre.diff { @for (n, group) in groups.iter().enumerate() {
                @if n > 0 { span.gap { "⋯" } }
                @for change in group.iter().flat_map(|op| differences.iter_changes(op)) {
                    @let line = change.value().trim_end_matches('\n');
                    @match change.tag() {
                        ChangeTag::Insert => span.plus { "+ " (line) },
                        ChangeTag::Delete => span.minus { "- " (line) },
                        ChangeTag::Equal => span { "  " (line) },
                    }
                }
            } }
        }
    }
}

/// The name a resource was given; what was synced has a longer one here.
pub(super) fn title_of(item: &Value) -> &str {
    match item["labels"][labels::DISPLAY_NAME].as_str() {
        Some(name) if !name.is_empty() => name,
        _ => text_of(&item["name"]),
    }
}

/// What a list of changes, the newest first, may lack.
pub(super) fn gaps(found: &Value) -> Markup {
    let known_after = found["knownAfter"].as_u64().unwrap_or(0);
    let reaches = items(&found["items"]).last().and_then(|oldest| oldest["revision"].as_u64());
    html! {
        @if reaches.is_some_and(|oldest| oldest <= known_after) {
            p.quiet { "Up to revision " (known_after) ", some changes may not be kept any more." }
        }
    }
}

/// The list at `value`.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text at `value`, empty where there is none.
pub(super) fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
