//! The forms an answer is printed in.

use clap::ValueEnum;
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
            Self::Json => println!("{}", serde_json::to_string_pretty(document)?),
            Self::Yaml => print!("{}", serde_norway::to_string(document)?),
            Self::Table => table(),
        }
        Ok(())
    }
}

/// Items as the API lists them.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({ "total": items.len(), "items": items, "next": null })
}
