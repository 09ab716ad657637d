//! `GET /openapi.json`: what is served, in OpenAPI 3.1, made of the routes that are mounted and the registry of kinds.

mod schemas;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    API_VERSION, Api, ApiError,
    routes::{Mounted, Needs, Route, RouteAnswer, RouteMethod},
};
use crate::{
    model::{Kind, transcode::SchemaCollection},
    runtime::http::Client,
};

/// What one control plane serves.
pub(super) struct ServedRoutes {
    title: &'static str,
    routes: Vec<(&'static Route, Option<&'static Kind>, String)>,
    text: OnceLock<Bytes>,
}

impl ServedRoutes {
    pub(super) fn of(api: &Api, mounted: &Mounted) -> Self {
        let title = match api.config.mode.zone() {
            Some(_) => "The API of a zone control plane",
            None => "The API of a global control plane",
        };
        let routes = mounted.routes.iter().map(|one| (one.route, one.kind, one.path.clone()));
        Self {
            title,
            routes: routes.chain([(OWN, None, OWN.path().to_owned())]).collect(),
            text: OnceLock::new(),
        }
    }

    fn text(&self) -> Bytes {
        self.text.get_or_init(|| self.document().to_string().into()).clone()
    }

    /// The whole document.
    pub(super) fn document(&self) -> Value {
        let mut schemas = SchemaCollection::default();
        schemas::common(&mut schemas);
        let mut paths = Map::new();
        let mut names = BTreeSet::new();
        for (route, kind, path) in &self.routes {
            let operation = operation(route, *kind, path, &mut names, &mut schemas);
            let at = paths.entry(path.clone()).or_insert_with(|| json!({ "parameters": in_path(path) }));
            at[route.method().as_str().to_ascii_lowercase()] = operation;
        }
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": self.title,
                "version": API_VERSION,
                "description": "Who shows no user token reads what is not for a few. `x-strait-needs` names the verb \
                    that a role, or the settings, must allow.",
            },
            "security": [{}, { "userToken": [] }],
            "paths": paths,
            "components": {
                "schemas": schemas.into_schemas(),
                "responses": {
                    "Error": {
                        "description": "Why it did not go well",
                        "content": { "application/json": { "schema": SchemaCollection::reference("Error") } },
                    },
                },
                "securitySchemes": { "userToken": { "type": "http", "scheme": "bearer" } },
            },
        })
    }
}

/// Where it is served itself.
pub(super) const OWN: &Route = super::routes::get("/openapi.json");

pub(super) async fn document(
    State(served): State<Arc<ServedRoutes>>,
    client: Client,
) -> Result<Response, ApiError> {
    let turn = client.turn().await?;
    let mut response = Body::from(served.text()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(turn.made(response))
}

fn operation(
    route: &'static Route,
    kind: Option<&'static Kind>,
    path: &str,
    names: &mut BTreeSet<String>,
    schemas: &mut SchemaCollection,
) -> Value {
    let mut operation = Map::new();
    operation.insert("operationId".into(), name(route, path, names).into());
    operation.insert("summary".into(), route.summary().into());
    operation.insert("tags".into(), json!([kind.map_or("general", |kind| kind.name)]));
    if !route.parameters().is_empty() {
        let parameters = route.parameters().iter().map(|name| parameter(name, "query", false));
        operation.insert("parameters".into(), parameters.collect());
    }
    let body = match (route.method(), kind) {
        (RouteMethod::Put, Some(kind)) => Some(SchemaCollection::reference(kind.name)),
        (RouteMethod::Post, _) => Some(json!({ "type": "object" })),
        _ => None,
    };
    if let Some(schema) = body {
        let required = route.method() == RouteMethod::Put;
        let content = json!({ "application/json": { "schema": schema } });
        operation.insert("requestBody".into(), json!({ "required": required, "content": content }));
    }
    operation.insert("responses".into(), responses(route, kind, schemas));
    if let Some(verb) = route.needs().verb() {
        let verb = kind.map_or(verb, |kind| verb.on(kind));
        operation.insert("x-strait-needs".into(), verb.as_str().into());
    }
    if kind.is_some_and(|kind| route.paths_of(kind).first().is_none_or(|first| first != path))
        || route.path().starts_with("<overviews>")
        || route.path().starts_with("<all overviews>")
    {
        operation.insert("deprecated".into(), true.into());
    }
    Value::Object(operation)
}

/// A name no other operation has.
fn name(route: &Route, path: &str, names: &mut BTreeSet<String>) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = route.method().as_str().to_ascii_lowercase();
    for word in words {
        name.push_str(&word[..1].to_ascii_uppercase());
        name.push_str(&word[1..]);
    }
    let mut free = name.clone();
    let mut n = 2;
    while !names.insert(free.clone()) {
        free = format!("{name}{n}");
        n += 1;
    }
    free
}

fn in_path(path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| parameter(name, "path", true)).collect()
}

fn parameter(name: &str, place: &str, required: bool) -> Value {
    json!({ "name": name, "in": place, "required": required, "schema": { "type": "string" } })
}

fn responses(route: &Route, kind: Option<&'static Kind>, schemas: &mut SchemaCollection) -> Value {
    let content = match route.answer() {
        RouteAnswer::Text(form) => json!({ form: {} }),
        answer => json!({ "application/json": { "schema": schemas::of(answer, kind, schemas) } }),
    };
    let mut responses = Map::new();
    for status in route.statuses() {
        responses.insert(status.to_string(), json!({ "description": route.summary(), "content": content }));
    }
    let error = json!({ "$ref": "#/components/responses/Error" });
    responses.insert("401".into(), error.clone());
    if !matches!(route.needs(), Needs::Nothing) {
        responses.insert("403".into(), error.clone());
    }
    responses.insert("default".into(), error);
    Value::Object(responses)
}

#[cfg(test)]
mod tests;
