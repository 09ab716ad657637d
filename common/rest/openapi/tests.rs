#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rest::tests::described;

/// Every `$ref` in `value`.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(reference) if name == "$ref" => drop(found.insert(reference)),
                    _ => references(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_is_valid() {
    for document in [described(false).await, described(true).await] {
        assert_eq!(document["openapi"], "3.1.0");
        for member in ["title", "version"] {
            assert!(document["info"][member].is_string(), "info.{member}");
        }
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 60, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            let meant = document.pointer(pointer);
            assert!(meant.is_some_and(Value::is_object), "{reference} is {meant:?}");
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(!name.is_empty() && name.chars().all(good), "{name} is no name of a component");
        }
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let in_path: BTreeSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            let declared = item["parameters"].as_array().unwrap().iter();
            let declared: BTreeSet<&str> = declared
                .inspect(|one| assert!(one["in"] == "path" && one["required"] == true, "{path}: {one}"))
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            assert_eq!(declared, in_path, "{path}");
            for (method, operation) in
                item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters")
            {
                assert!(["get", "put", "post", "delete"].contains(&method.as_str()), "{path}: {method}");
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} twice");
                assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.len() > 1, "{method} {path}");
                for (status, response) in responses {
                    assert!(
                        status == "default" || status.parse::<u16>().is_ok(),
                        "{method} {path}: {status}"
                    );
                    assert!(response["$ref"].is_string() || response["description"].is_string());
                }
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let mut once = BTreeSet::new();
                for parameter in parameters {
                    assert_eq!(parameter["in"], "query", "{path}");
                    assert!(once.insert(parameter["name"].as_str().unwrap()), "{path}: {parameter}");
                }
            }
        }
        let timeout = &document["components"]["schemas"]["MeshTimeout"]["properties"]["spec"];
        assert_eq!(timeout["properties"]["to"]["type"], "array", "{timeout}");
        let dataplane = &document["components"]["schemas"]["kuma.mesh.v1alpha1.Dataplane"];
        assert!(dataplane["properties"]["networking"]["$ref"].is_string(), "{dataplane}");
        let secret = &document["paths"]["/globalsecrets/{name}"];
        assert_eq!(secret["get"]["x-strait-needs"], "view-secrets");
        assert_eq!(secret["put"]["x-strait-needs"], "admin");
        assert_eq!(document["paths"]["/global-secrets/{name}"]["get"]["deprecated"], true);
    }
}
