//! Cases of the REST API: seed a store, send requests, compare status and body.

use std::path::Path;

use chrono::DateTime;
use serde_json::{Value, json};

use super::{Outcome, cases, cases_below, read, yaml_documents};
use crate::{
    mode::Mode,
    registry,
    rest::{ApiConfig, Mounted},
    runtime::Env,
    store::index::IndexReader,
    testing::api::{HOST, TestApi},
};

/// The family `rest-api/crud`.
pub fn rest_crud(dir: &Path) -> Vec<Outcome> {
    run_all(cases(dir, ".input.yaml"), async |case| crud(dir, case).await)
}

/// The family `rest-api/inspect`, with the routes `extra` that a zone has beside the API.
pub fn rest_inspect(dir: &Path, extra: fn(&IndexReader, &Env) -> Mounted) -> Vec<Outcome> {
    run_all(cases_below(dir, ".input.yaml"), async |case| inspect(dir, case, extra).await)
}

/// The family `rest-validation`.
pub fn rest_validation(dir: &Path) -> Vec<Outcome> {
    run_all(cases(dir, ".input.yaml"), async |case| validation(dir, case).await)
}

fn run_all(cases: Vec<String>, run: impl AsyncFn(&str) -> Result<(), String>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a single-threaded runtime needs nothing that can be missing");
    cases.into_iter().map(|case| (case.clone(), runtime.block_on(run(&case)))).collect()
}

/// One line `#/path STATUS [method=PUT]` of a case.
struct Action<'a> {
    path: &'a str,
    status: u16,
    method: &'a str,
}

fn actions(input: &str) -> Vec<Action<'_>> {
    let lines = input.lines().filter(|line| line.starts_with("#/"));
    let actions = lines.filter_map(|line| {
        let mut words = line[1..].split_whitespace();
        let (path, status) = (words.next()?, words.next()?.parse().ok()?);
        let method = words.find_map(|word| word.strip_prefix("method=")).unwrap_or("GET");
        Some(Action { path, status, method })
    });
    actions.collect()
}

async fn crud(dir: &Path, case: &str) -> Result<(), String> {
    let input = read(&dir.join(format!("{case}.input.yaml")))?;
    let server =
        TestApi::start(ApiConfig::new(Mode::standalone_zone("default")), &yaml_documents(&input)?).await?;
    act(dir, case, &input, &server).await
}

async fn inspect(dir: &Path, case: &str, extra: fn(&IndexReader, &Env) -> Mounted) -> Result<(), String> {
    let input = read(&dir.join(format!("{case}.input.yaml")))?;
    let of_global = case.contains("/global/");
    let mode = if of_global { Mode::Global } else { Mode::standalone_zone("default") };
    // The records were made from documents without a line end, which a block of text would keep.
    let documents: Vec<Vec<Value>> =
        input.split("\n---").map(|document| yaml_documents(document.trim())).collect::<Result<_, _>>()?;
    // Global has routes of its own in their place.
    let extra = if of_global { |_: &IndexReader, _: &Env| Mounted::new() } else { extra };
    let server = TestApi::start_with(ApiConfig::new(mode), &documents.concat(), extra).await?;
    act(dir, case, &input, &server).await
}

/// Does what the lines of a case say, and compares.
async fn act(dir: &Path, case: &str, input: &str, server: &TestApi) -> Result<(), String> {
    let actions = actions(input);
    for (i, action) in actions.iter().enumerate() {
        let name = if actions.len() == 1 { case.to_owned() } else { format!("{case}_{i:02}") };
        let body =
            (action.method == "PUT").then(|| read(&dir.join(format!("{name}.request.json")))).transpose()?;
        let (status, body) = server.send(action.method, action.path, body).await?;
        let golden = dir.join(format!("{name}.golden.json"));
        let expected = if golden.exists() { read(&golden)? } else { String::new() };
        compare((status, &body), (action.status, &expected)).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

async fn validation(dir: &Path, case: &str) -> Result<(), String> {
    let mode = match case.split('.').next() {
        Some("global") => Mode::Global,
        Some("zone-uni") => Mode::federated_zone("kuma-4"),
        Some("zone-k8s") => return manifest(dir, case).await,
        _ => return Err("cases of this platform are not run".to_owned()),
    };
    let input = read(&dir.join(format!("{case}.input.yaml")))?;
    let document = yaml_documents(&input)?.into_iter().next().ok_or("no document")?;
    let text = |member: &str| document[member].as_str().unwrap_or_default().to_owned();
    let (mesh, name) = (text("mesh"), text("name"));
    let kind = registry::by_name(&text("type")).ok_or("unknown type")?;
    let server = TestApi::start(ApiConfig::new(mode), &[json!({ "type": "Mesh", "name": mesh })]).await?;
    let path = format!("/meshes/{mesh}/{}/{name}", kind.path);
    let (status, body) = server.send("PUT", &path, Some(document.to_string())).await?;

    let golden = read(&dir.join(format!("{case}.golden.yaml")))?;
    let (head, expected) = golden.split_once("\n\n").ok_or("golden has no body")?;
    let expected_status = head.split_whitespace().nth(1).and_then(|s| s.parse().ok());
    compare((status, &body), (expected_status.ok_or("golden has no status")?, expected))
}

/// A case of a zone in Kubernetes: the same document, given to a zone as it is here. The words are those of an
/// admission there, so what is compared is whether it was taken.
async fn manifest(dir: &Path, case: &str) -> Result<(), String> {
    let input = read(&dir.join(format!("{case}.input.yaml")))?.replace("{{ .KumaNamespace }}", "kuma-system");
    let manifest = yaml_documents(&input)?.into_iter().next().ok_or("no document")?;
    let kind = registry::by_name(manifest["kind"].as_str().unwrap_or_default()).ok_or("unknown kind")?;
    let (name, labels) = (&manifest["metadata"]["name"], &manifest["metadata"]["labels"]);
    let known = "multizone-label-validation";
    let mesh = labels["kuma.io/mesh"].as_str().unwrap_or(known);
    let document =
        json!({ "type": kind.name, "mesh": mesh, "name": name, "labels": labels, "spec": manifest["spec"] });
    let path = format!("/meshes/{mesh}/{}/{}", kind.path, name.as_str().unwrap_or_default());
    let documents = [json!({ "type": "Mesh", "name": known })];
    let server = TestApi::start(ApiConfig::new(Mode::federated_zone("kuma-1")), &documents).await?;
    let (status, body) = server.send("PUT", &path, Some(document.to_string())).await?;
    let refused = read(&dir.join(format!("{case}.golden.yaml")))?.starts_with("error");
    if refused == (400..500).contains(&status) { Ok(()) } else { Err(format!("status {status}: {body}")) }
}

fn compare(actual: (u16, &str), expected: (u16, &str)) -> Result<(), String> {
    if actual.0 != expected.0 {
        return Err(format!("status {} instead of {}: {}", actual.0, expected.0, actual.1));
    }
    let (is, should) = (normal(actual.1)?, normal(expected.1)?);
    if is == should { Ok(()) } else { Err(format!("\n  got      {is}\n  expected {should}")) }
}

/// A body as JSON value, with addresses and times that change from run to run replaced.
fn normal(body: &str) -> Result<Value, String> {
    if body.trim().is_empty() {
        return Ok(Value::Null);
    }
    let mut value = serde_json::from_str(body).map_err(|e| format!("{e}: {body}"))?;
    replace(&mut value);
    Ok(value)
}

fn replace(value: &mut Value) {
    match value {
        Value::String(text) if DateTime::parse_from_rfc3339(text).is_ok() => {
            "0001-01-01T00:00:00Z".clone_into(text);
        }
        Value::String(text) => *text = text.replace(HOST, "{{address}}"),
        Value::Array(items) => items.iter_mut().for_each(replace),
        Value::Object(members) => members.values_mut().for_each(replace),
        _ => {}
    }
}
