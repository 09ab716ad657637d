//! Tables and ages.

use crate::output;
use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};
pub(crate) use common::ages::text;
use common::{
    ages,
    runtime::{Clock, SystemClock},
};
use serde_json::Value;

/// Prints rows under headings, folded to the width of the terminal when there is one.
pub(crate) fn print(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    if std::io::stdout().is_terminal()
        && let Some((_, columns)) = console::Term::stdout().size_checked()
    {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| output::in_line(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    for line in table.to_string().lines() {
        output::line(line.trim_end());
    }
}

/// How long ago the RFC 3339 time at `value` was: `3d`, `2h`, `5m`, `10s`, or `-`.
pub(crate) fn age(value: &Value) -> String {
    ages::age(value, SystemClock.now())
}

/// How long it is until the RFC 3339 time at `value`, in the same form.
pub(crate) fn left(value: &Value) -> String {
    ages::left(value, SystemClock.now())
}
