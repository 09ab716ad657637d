//! Standard output, and the forms an answer is printed in. A reader that has seen enough, like `head`, must
//! not stop what is being done.
//!
//! Much of what is printed was said by somebody else: a zone, an Envoy, whoever answers. What a terminal would take for
//! orders is written out.

use std::{
    borrow::Cow,
    io::{IsTerminal, Write, stderr, stdout},
};

use clap::ValueEnum;
use common::model::text::to_yaml;
use serde_json::{Value, json};

/// Chosen with `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Yaml,
    Json,
}

impl Output {
    /// Prints `document` when a document is wanted, and leaves the table to `table`.
    pub(crate) fn print(self, document: &Value, table: impl FnOnce()) -> anyhow::Result<()> {
        match self {
            Self::Json => line(&serde_json::to_string_pretty(document)?),
            Self::Yaml => text(&to_yaml(document)?),
            Self::Table => table(),
        }
        Ok(())
    }
}

/// Items as the API lists them.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({ "total": items.len(), "items": items, "next": null })
}

/// Prints a line.
pub(crate) fn line(text: &str) {
    let _reader_left = writeln!(stdout(), "{}", for_reader(text));
}

/// Prints a line whose beginning is ours, with what may move a terminal, and whose end may be somebody else's.
pub(crate) fn styled_line(ours: &str, theirs: &str) {
    let _reader_left = writeln!(stdout(), "{ours}{}", in_line(theirs));
}

/// Prints text that ends its lines itself.
pub(crate) fn text(text: &str) {
    let mut out = stdout();
    let _reader_left = write!(out, "{}", for_reader(text)).and_then(|()| out.flush());
}

/// A program gets what there is, a terminal what it can show.
fn for_reader(text: &str) -> Cow<'_, str> {
    if stdout().is_terminal() { plain(text, is_order) } else { Cow::Borrowed(text) }
}

/// Says something beside the answer, on standard error.
macro_rules! note {
    ($($said:tt)*) => { crate::output::aside(&format!($($said)*)) };
}
pub(crate) use note;

/// What [`note`] prints.
pub(crate) fn aside(text: &str) {
    let _nobody_reads = writeln!(stderr(), "{}", plain(text, is_order));
}

/// Words of somebody else in one line: nothing in them moves or ends it.
pub(crate) fn in_line(text: &str) -> Cow<'_, str> {
    plain(text, |c| c == '\n' || is_order(c))
}

fn plain(text: &str, is_order: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_order) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match is_order(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Whether a terminal does something else with a character than to show it: control characters, and what turns the
/// direction of writing.
fn is_order(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let said = "a\u{1b}]0;x\u{7}\r\n\u{9b}2J\u{202e}b\tö";
        assert_eq!(plain(said, is_order), "a\\u{1b}]0;x\\u{7}\\r\n\\u{9b}2J\\u{202e}b\tö");
        assert_eq!(in_line("a\nb"), "a\\nb");
        assert!(matches!(in_line("web-1.default"), Cow::Borrowed(_)));
    }
}
