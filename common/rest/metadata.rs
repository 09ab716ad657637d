//! What the control plane says about itself and about the kinds it serves.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{Api, ApiConfig, User, body::json_response};
use crate::{
    model::{Kind, Scope, kinds::config},
    proto::kuma::system::v1alpha1::Config,
    registry,
    store::index::Index,
};

/// The product and version clients of Kuma look for before they talk to a control plane.
const PRODUCT: &str = "Kuma";
/// The API we serve.
pub const API_VERSION: &str = "2.14.3";

/// Told in the log and in `GET /`.
pub(crate) const ANONYMOUS_MAY_WRITE: &str =
    "whoever reaches the API may write, without a token (apiServer.authn.anonymousMayWrite is true)";

/// Told in the log and in `GET /`.
pub(crate) const LOCALHOST_IS_ADMIN: &str = "callers on this machine are administrators, and a proxy here that adds no header makes its callers so \
     (apiServer.authn.localhostIsAdmin is true)";

/// `GET /`.
pub(super) async fn index(State(api): State<Arc<Api>>) -> Response {
    let body = json!({
        "hostname": api.config.hostname,
        "product": PRODUCT,
        "version": API_VERSION,
        "instanceId": &*api.env.instance_id,
        "clusterId": cluster_id(&api.index.current()),
        "gui": api.config.gui,
        "strait": {
            "version": env!("CARGO_PKG_VERSION"),
            "mode": if api.config.mode.zone().is_some() { "zone" } else { "global" },
            "zone": api.config.mode.zone().unwrap_or_default(),
            "warnings": api.config.warnings(),
        },
    });
    json_response(StatusCode::OK, &body)
}

impl ApiConfig {
    /// What an operator should know about these settings.
    fn warnings(&self) -> Vec<&'static str> {
        let warnings =
            [(self.anonymous_may_write, ANONYMOUS_MAY_WRITE), (self.localhost_is_admin, LOCALHOST_IS_ADMIN)];
        warnings.into_iter().filter_map(|(is_so, warning)| is_so.then_some(warning)).collect()
    }
}

/// The identifier of the deployment; empty until it is made or synced.
pub fn cluster_id(index: &Index) -> String {
    let config = index.find(&config::KIND, "", config::CLUSTER_ID);
    config.and_then(|c| c.spec::<Config>().ok()).map(|c| c.config).unwrap_or_default()
}

/// `GET /config`.
pub(super) async fn config(State(api): State<Arc<Api>>) -> Response {
    json_response(StatusCode::OK, &api.config.shown_config)
}

/// `GET /who-am-i`.
pub(super) async fn who_am_i(Extension(user): Extension<User>) -> Response {
    json_response(StatusCode::OK, &user)
}

/// `GET /authn`. What stands here is for everybody: whoever wants to log in asks before he has.
pub(super) async fn authn(State(api): State<Arc<Api>>) -> Response {
    let provider = api.config.open_id.as_ref().map(|provider| {
        let settings = provider.settings();
        json!({
            "issuer": settings.issuer,
            "cliClientId": settings.cli_client_id,
            "scopes": settings.scopes,
            "page": api.has_pages() && !settings.client_id.is_empty(),
        })
    });
    json_response(StatusCode::OK, &json!({ "tokens": true, "openIdConnect": provider }))
}

/// `GET /policies`.
pub(super) async fn policies(State(api): State<Arc<Api>>) -> Response {
    let policies = registry::ALL.iter().filter_map(|kind| {
        let traits = kind.policy?;
        Some(json!({
            "name": kind.name,
            "readOnly": !api.may_write(kind),
            "path": kind.path,
            "singularDisplayName": singular(kind.name),
            "pluralDisplayName": plural(kind.name),
            "isExperimental": false,
            "isTargetRefBased": traits.target_ref,
            "isInbound": traits.from,
            "isOutbound": traits.to,
        }))
    });
    json_response(StatusCode::OK, &json!({ "policies": policies.collect::<Vec<Value>>() }))
}

/// `GET /_resources`.
pub(super) async fn resources(State(api): State<Arc<Api>>) -> Response {
    let served = registry::ALL.iter().filter(|kind| !kind.path.is_empty());
    let resources: Vec<Value> = served.map(|kind| describe(&api, kind)).collect();
    json_response(StatusCode::OK, &json!({ "resources": resources }))
}

fn describe(api: &Api, kind: &Kind) -> Value {
    let mut shown = json!({
        "name": kind.name,
        "readOnly": !api.may_write(kind),
        "path": kind.path,
        "singularDisplayName": singular(kind.name),
        "pluralDisplayName": plural(kind.name),
        "scope": if kind.scope == Scope::Mesh { "Mesh" } else { "Global" },
        "shortName": kind.short,
        "includeInFederation": kind.flow.global_to_zone() && !kind.read_only,
    });
    if let Some(traits) = kind.policy {
        shown["policy"] = json!({
            "hasToTargetRef": traits.to,
            "hasFromTargetRef": traits.from,
            "hasRulesTargetRef": traits.rules,
            "isTargetRef": traits.target_ref,
            "isFromAsRules": traits.from_as_rules,
        });
    }
    shown
}

impl Api {
    fn may_write(&self, kind: &Kind) -> bool {
        !self.config.read_only && self.config.mode.may_write(kind)
    }
}

/// A type name as words: `MeshHTTPRoute` is `Mesh HTTP Route`.
fn singular(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut words = String::with_capacity(name.len() + 4);
    for (i, &c) in characters.iter().enumerate() {
        let after_lower = i > 0 && characters[i - 1].is_lowercase();
        let before_lower = characters.get(i + 1).is_some_and(|n| n.is_lowercase());
        if i > 0 && c.is_uppercase() && (after_lower || before_lower) {
            words.push(' ');
        }
        words.push(c);
    }
    // A name that is one word although it does not look like it.
    words.replace("Open Telemetry", "OpenTelemetry")
}

fn plural(name: &str) -> String {
    let singular = singular(name);
    match singular.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if ["s", "S", "sh", "ch"].iter().any(|end| singular.ends_with(end)) => format!("{singular}es"),
        _ => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_become_words() {
        let check = |name, one: &str, many: &str| {
            assert_eq!((singular(name).as_str(), plural(name).as_str()), (one, many));
        };
        check("MeshHTTPRoute", "Mesh HTTP Route", "Mesh HTTP Routes");
        check("MeshTLS", "Mesh TLS", "Mesh TLSes");
        check("MeshIdentity", "Mesh Identity", "Mesh Identities");
        check("ZoneIngress", "Zone Ingress", "Zone Ingresses");
        check("Retry", "Retry", "Retries");
        check("Mesh", "Mesh", "Meshes");
        check("MeshProxyPatch", "Mesh Proxy Patch", "Mesh Proxy Patches");
        check("MeshPassthrough", "Mesh Passthrough", "Mesh Passthroughs");
        check("MeshOpenTelemetryBackend", "Mesh OpenTelemetry Backend", "Mesh OpenTelemetry Backends");
    }
}
