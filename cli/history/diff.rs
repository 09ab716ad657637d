//! `straitctl diff`: how a resource differs between two revisions.

use clap::Args;
use common::model::text::to_yaml;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use similar::TextDiff;

use super::at;
use crate::{client::ApiClient, kinds, output};

#[derive(Args)]
#[command(after_help = kinds::help())]
pub(crate) struct Diff {
    /// Type: argument, path, type name or short name
    r#type: String,
    /// Name
    name: String,
    /// Mesh
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// The older revision
    #[arg(long, value_name = "REVISION")]
    from: u64,
    /// The newer revision; what is stored now when absent
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,
}

impl Diff {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let older = at(client, kind, &self.mesh, &self.name, self.from).await?;
        let (newer, called) = match self.to {
            Some(to) => (at(client, kind, &self.mesh, &self.name, to).await?, format!("revision {to}")),
            None => {
                let path = kinds::item(kind, &self.mesh, &self.name);
                let answer = client.send(Method::GET, &path, None).await?;
                match answer.status {
                    StatusCode::NOT_FOUND => (Value::Null, "deleted".to_owned()),
                    _ => (answer.success()?.json()?, "now".to_owned()),
                }
            }
        };
        let text = lines(&older, &newer, &format!("revision {}", self.from), &called)?;
        match text.is_empty() {
            true => crate::output::note!("nothing differs"),
            false => output::text(&text),
        }
        Ok(())
    }
}

/// The lines that differ, in the form `patch` reads; empty when none do. `Null` stands for a resource that is not
/// there.
pub(super) fn lines(older: &Value, newer: &Value, from: &str, to: &str) -> anyhow::Result<String> {
    let (older, newer) = (authored(older)?, authored(newer)?);
    let diff = TextDiff::from_lines(&older, &newer);
    Ok(diff.unified_diff().header(from, to).to_string())
}

/// What an author is responsible for, without the times and the status, which the control plane writes.
fn authored(document: &Value) -> anyhow::Result<String> {
    let Some(members) = document.as_object() else { return Ok(String::new()) };
    let mut members = members.clone();
    for name in ["creationTime", "modificationTime", "status"] {
        members.shift_remove(name);
    }
    Ok(to_yaml(&Value::Object(members))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_an_author_wrote_is_compared() {
        let document = |value: &str, time: &str| json!({"type": "Mesh", "name": "m", "modificationTime": time, "status": time, "spec": {"a": value}});
        assert_eq!(lines(&document("x", "1"), &document("x", "2"), "a", "b").unwrap(), "");
        let changed = lines(&document("x", "1"), &document("y", "2"), "revision 1", "now").unwrap();
        assert!(changed.starts_with("--- revision 1\n+++ now\n"), "{changed}");
        assert!(changed.contains("-  a: x\n+  a: y\n"), "{changed}");
        let gone = lines(&document("x", "1"), &Value::Null, "a", "b").unwrap();
        assert!(gone.contains("-type: Mesh") && !gone.lines().skip(2).any(|l| l.starts_with('+')), "{gone}");
    }
}
