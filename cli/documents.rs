//! Documents from files, folders, standard input or the web, checked before anything is sent.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use common::{
    document::{self, Document, DocumentError},
    model::{
        Kind,
        kinds::mesh,
        labels,
        text::{self, TextLimits},
    },
};
use serde_json::{Value, json};

use crate::{client, kinds};

const STDIN: &str = "standard input";

/// A document that may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) kind: &'static Kind,
    /// Empty for kinds outside meshes.
    pub(crate) mesh: String,
    pub(crate) name: String,
    /// The body of a put.
    pub(crate) json: Value,
    /// What is accepted but probably not meant.
    pub(crate) warnings: Vec<String>,
}

/// Reads all sources; `mesh` is the one of documents that name none. All documents are good, or there is
/// an error that names the first bad one.
pub(crate) async fn load(
    sources: &[String],
    variables: &[(String, String)],
    mesh: &str,
) -> anyhow::Result<Vec<Checked>> {
    let mut documents = Vec::new();
    for source in sources {
        for (name, text) in texts(source).await? {
            let text = substitute(&text, variables);
            let parsed = parse(&text, mesh).map_err(|error| match placeholder(&text) {
                Some(variable) => error.context(format!("variable {variable} has no value; -v gives it one")),
                None => error,
            });
            let parsed = parsed.with_context(|| format!("{name} was not applied"))?;
            documents.extend(parsed);
        }
    }
    if documents.is_empty() {
        let names: Vec<&str> = sources.iter().map(|s| if s == "-" { STDIN } else { s.as_str() }).collect();
        bail!("there is no document in {}", names.join(", "));
    }
    // A mesh has to exist before what lives in it.
    documents.sort_by_key(|document| document.kind != &mesh::KIND);
    Ok(documents)
}

/// The texts of one source, with the name to show for each.
async fn texts(source: &str) -> anyhow::Result<Vec<(String, String)>> {
    if source == "-" {
        let text = read(std::io::stdin()).context("read standard input")?;
        return Ok(vec![(STDIN.to_owned(), text)]);
    }
    if source.starts_with("http://") || source.starts_with("https://") {
        let text = client::fetch(source).await?;
        return Ok(vec![(source.to_owned(), text)]);
    }
    let path = Path::new(source);
    let files = if path.is_dir() { files_in(path)? } else { vec![path.to_owned()] };
    let open = |file: PathBuf| {
        let name = file.display().to_string();
        let text = fs::File::open(&file).map_err(anyhow::Error::from).and_then(read);
        let text = text.with_context(|| format!("read {name}"))?;
        Ok((name, text))
    };
    files.into_iter().map(open).collect()
}

/// All of a file, unless it is longer than any file of documents; some never end.
fn read(file: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.take(TextLimits::FILE.bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > TextLimits::FILE.bytes {
        bail!("it is longer than {} bytes: split it", TextLimits::FILE.bytes);
    }
    String::from_utf8(bytes).context("it is no text: save it as UTF-8")
}

/// The YAML and JSON files right in `folder`, by name.
fn files_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let extension = file.extension().and_then(|e| e.to_str());
        file.is_file() && matches!(extension, Some("yaml" | "yml" | "json"))
    });
    files.sort();
    if files.is_empty() {
        bail!("there is no .yaml, .yml or .json file in folder {}", folder.display());
    }
    Ok(files)
}

/// Replaces `{{ name }}` by the value of each variable.
fn substitute(text: &str, variables: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        for form in [format!("{{{{ {name} }}}}"), format!("{{{{{name}}}}}")] {
            text = text.replace(&form, value);
        }
    }
    text
}

/// The first variable that is still in `text`.
fn placeholder(text: &str) -> Option<&str> {
    let name = text.split_once("{{")?.1.split_once("}}")?.0.trim();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    // A template of a host name starts with a dot.
    (plain && !name.starts_with('.')).then_some(name)
}

fn parse(text: &str, mesh: &str) -> anyhow::Result<Vec<Checked>> {
    let mut checked = Vec::new();
    for (i, value) in text::yaml_documents(text, TextLimits::FILE)?.into_iter().enumerate() {
        let place = || format!("document {}", i + 1);
        let items = match value {
            Value::Null => Vec::new(),
            // What `get -o yaml` prints for a list.
            Value::Object(mut list) if !list.contains_key("type") && list.contains_key("items") => {
                match list.remove("items") {
                    Some(Value::Array(items)) => items,
                    _ => bail!("{}: items is not a list", place()),
                }
            }
            one => vec![one],
        };
        for item in items {
            checked.push(check(item, mesh).with_context(place)?);
        }
    }
    Ok(checked)
}

fn check(mut json: Value, mesh: &str) -> anyhow::Result<Checked> {
    let document = Document::parse(&json).map_err(explain)?;
    let (kind, name) = (document.kind, document.name.clone());
    if name.is_empty() {
        bail!("{}: name must be set", kind.name);
    }
    let mesh = match &document.mesh {
        _ if !kind.is_mesh_scoped() => String::new(),
        Some(mesh) if !mesh.is_empty() => mesh.clone(),
        _ => {
            json["mesh"] = json!(mesh);
            mesh.to_owned()
        }
    };
    let title = super::kinds::title(kind, &mesh, &name);
    let mut violations = kind.validate_authored(&document.spec).with_context(|| title.clone())?;
    if let Some(problem) = labels::subdomain_problem(&name) {
        violations.add("name".into(), problem);
    }
    if !violations.is_empty() {
        let lines: Vec<String> =
            violations.iter().map(|v| format!("\n  {}: {}", v.field, v.reason)).collect();
        return Err(anyhow!("{title} is not valid:{}", lines.concat()));
    }
    let ignored = document::unknown_members(kind, &json);
    let warnings = ignored.iter().map(|path| format!("ignored {path}: there is no such field")).collect();
    Ok(Checked { kind, mesh, name, json, warnings })
}

/// Says what to do about a document that is none.
fn explain(error: DocumentError) -> anyhow::Error {
    match error {
        DocumentError::UnknownType(name) => kinds::unknown(&name),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn documents_are_split_completed_and_checked() {
        let text = "type: Mesh\nname: m\n---\n---\ntype: MeshTrace\nname: r\nspec: {default: {backends: []}}\n---\n\
                    items:\n- {type: Zone, name: z}\n";
        let found = parse(text, "m").unwrap();
        let titles: Vec<String> =
            found.iter().map(|d| super::super::kinds::title(d.kind, &d.mesh, &d.name)).collect();
        assert_eq!(titles, ["Mesh m", "MeshTrace m/r", "Zone z"]);
        assert_eq!(found[1].json["mesh"], "m");

        let error = |text: &str| format!("{:#}", parse(text, "m").unwrap_err());
        for (text, says) in [
            ("type: Mesh\n", "document 1: Mesh: name must be set"),
            ("type: Meshtimeout\nname: x\n", "did you mean MeshTimeout?"),
            ("type: [Mesh\n", "document 1: "),
            ("hello\n", "the document is not an object"),
            ("type: Mesh\nname: a\nname: b\n", "duplicate mapping key: name"),
            ("type: Mesh\nname: 7\n", "name: must be a string"),
            ("type: Mesh\nname: x\nlabels: {a: 7}\n", "labels[\"a\"]: must be a string"),
            ("apiVersion: kuma.io/v1alpha1\nkind: Mesh\n", "write type, name and mesh at the top"),
            ("type: Mesh\nname: a/b\n", "name: a lowercase RFC 1123 subdomain"),
        ] {
            assert!(error(text).contains(says), "{text}: {}", error(text));
        }
        let dataplane = error("type: Dataplane\nname: d\nnetworking: {address: a b}\n");
        assert!(dataplane.contains("networking.address: address has to be"), "{dataplane}");
    }

    #[test]
    fn members_that_are_ignored_are_warned_of() {
        let text = "type: MeshTimeout\nname: t\nspec:\n  from: []\n  to:\n  - targetRef: {kind: Mesh}\n    default: \
                    {idleTimout: 1s, connectionTimeout: 1s}\n";
        let found = parse(text, "m").unwrap();
        assert_eq!(found[0].warnings, ["ignored spec.to[0].default.idleTimout: there is no such field"]);
    }

    #[test]
    fn variables_without_a_value_are_named() {
        assert_eq!(placeholder("name: {{ zone }}"), Some("zone"));
        assert_eq!(placeholder("template: \"{{ .Name }}.mesh\""), None);
        assert_eq!(placeholder("a: {b: {c: d}}"), None);
    }

    #[test]
    fn variables_are_replaced() {
        let variables = [("zone".to_owned(), "east".to_owned())];
        assert_eq!(substitute("a: {{ zone }}\nb: {{zone}}", &variables), "a: east\nb: east");
    }
}
