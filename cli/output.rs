//! Standard output, and the forms an answer is printed in. A reader that has seen enough, like `head`, must
//! not stop what is being done.

use std::io::{Write, stdout};

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
    let _reader_left = writeln!(stdout(), "{text}");
}

/// Prints text that ends its lines itself.
pub(crate) fn text(text: &str) {
    let mut out = stdout();
    let _reader_left = write!(out, "{text}").and_then(|()| out.flush());
}
