//! What `/openapi.json` says, and what is answered.

use std::path::Path;

use jsonschema::Draft;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, wait::eventually};

/// A name of something there is in the list that `path` belongs to.
async fn name_in(cp: &ControlPlane, path: &str) -> String {
    let list = path.split("/{name}").next().unwrap_or(path).replace("{mesh}", "default");
    let (_, list) = cp.call(Method::GET, &list, None).await;
    list["items"][0]["name"].as_str().unwrap_or("nobody").to_owned()
}

/// The same path of something there is, as far as there is something.
async fn filled(cp: &ControlPlane, path: &str) -> String {
    let name = if path.contains("/{name}") { name_in(cp, path).await } else { String::new() };
    let parts = [
        ("/sync/zones/{zone}/{kind}/{name}", "/sync/zones/zone-1/meshes/default"),
        ("{mesh}", "default"),
        ("{name}", &name),
        ("{revision}", "1"),
        ("{kri}", "kri_mt_default___mesh-timeout-all-default_"),
        ("{route}", "nobody"),
        ("{id}", "nobody"),
    ];
    parts.iter().fold(path.to_owned(), |path, (part, value)| path.replace(part, value))
}

/// Asks for every path that can be read, and compares. Returns how many were answered with what was asked for.
async fn compare(cp: &ControlPlane) -> usize {
    let document = cp.get("/openapi.json").await;
    let mut found = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(operation) = item.get("get") else { continue };
        let url = filled(cp, path).await;
        let answer = cp.admin().get(cp.url(&url)).send().await.unwrap();
        let status = answer.status();
        let form = answer.headers().get("content-type").map(|form| form.to_str().unwrap().to_owned());
        let text = answer.text().await.unwrap();
        let what = format!("GET {url} ({path}): {status} {text}");
        assert!(status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN, "{what}");
        let declared = &operation["responses"];
        let declared = declared.get(status.as_str()).unwrap_or(&declared["default"]);
        let declared = match declared["$ref"].as_str() {
            Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
            None => declared,
        };
        found += usize::from(status.is_success());
        let form = form.unwrap_or_default();
        let form = form.split(';').next().unwrap_or_default();
        let content = declared["content"].get(form);
        let content =
            content.unwrap_or_else(|| panic!("{what}\nis {form}, not one of {}", declared["content"]));
        let Some(schema) = content.get("schema") else { continue };
        let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {what}"));
        let schema = json!({ "allOf": [schema], "components": document["components"] });
        let validator = jsonschema::options().with_draft(Draft::Draft202012).build(&schema).unwrap();
        let problems: Vec<String> =
            validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(problems.is_empty(), "{what}\n{problems:#?}");
    }
    found
}

#[tokio::test]
async fn answers_are_as_they_are_described() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let file = |name: &str| examples.join(name).display().to_string();
    global.straitctl(&["apply", "-f", &file("policies")]);
    zone.straitctl(&["apply", "-f", &file("zone-1")]);
    eventually("the zone and its proxies", || async {
        global.try_get("/zones/zone-1").await?;
        let proxies = global.get("/meshes/default/dataplanes").await;
        if proxies["total"].as_u64() > Some(0) { Ok(()) } else { Err(proxies.to_string()) }
    })
    .await;
    for cp in [&global.cp, &zone.cp] {
        let found = compare(cp).await;
        assert!(found > 250, "{found} paths were answered with something");
    }
}
