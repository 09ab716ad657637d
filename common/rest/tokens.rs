//! `POST /tokens/…`: makes a token for whoever may ask for one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Api, ApiError, Mounted, User, routes};
use crate::{
    config::Interval,
    model::{
        Violations,
        kinds::{access_role::RoleVerb, mesh},
    },
    roles::{AskedFor, Extent},
    token::{self, Claims, DataplaneClaims, Purpose, TokenError, UserClaims, ZoneClaims, scope},
};

const TITLE: &str = "Failed to generate a token";
const NO_KEY: &str = "Signing Key not found";
const INVALID: &str = "Invalid request";
/// What somebody whose role is for some zones has to know.
const OF_RELAYS: &str = "A token of the scope relay is one of all zones: a role with zones makes none";
/// Longest request in bytes; a token has to fit into a header.
const BODY_LIMIT: usize = 64 << 10;

pub(super) fn routes(api: &Arc<Api>) -> Mounted {
    Mounted::new()
        .on(const { routes::post("/tokens/dataplane") }, dataplane, api)
        .on(const { routes::post("/tokens/zone") }, zone, api)
        .on(const { routes::post("/tokens/user") }, user_token, api)
}

/// What a token would stand for, of the zone this is or of all.
fn all_of<'a>(api: &'a Api) -> AskedFor<'a> {
    AskedFor::everything(api.rights.zone())
}

/// One that is named, or all.
fn named(text: &str) -> Extent<&str> {
    if text.is_empty() { Extent::All } else { Extent::One(text) }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DataplaneRequest {
    name: String,
    mesh: String,
    tags: Option<BTreeMap<String, BTreeSet<String>>>,
    r#type: String,
    workload: String,
    valid_for: String,
}

async fn dataplane(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: DataplaneRequest = match decode(&api, request).await? {
        Ok(asked) => asked,
        Err(response) => return Ok(response),
    };
    let mut violations = Violations::none();
    violations.check(asked.mesh.is_empty(), "mesh".into(), "cannot be empty");
    let of_mesh = ["", "dataplane"];
    let known = of_mesh.iter().chain(&["ingress", "egress"]).any(|known| *known == asked.r#type);
    violations.check(!known, "type".into(), "must be one of: dataplane, ingress, egress");
    let valid_for = valid_for(&asked.valid_for, Some(token::TEN_YEARS), &mut violations);
    refuse(&violations)?;
    // Proxies of zones carry the traffic of every mesh.
    let mesh = if of_mesh.contains(&asked.r#type.as_str()) { named(&asked.mesh) } else { Extent::All };
    let wanted = AskedFor { mesh, name: named(&asked.name), ..all_of(&api) };
    api.rights.check(&user, RoleVerb::GenerateDataplaneToken, &wanted)?;
    let index = api.index.current();
    if index.find(&mesh::KIND, "", &asked.mesh).is_none() {
        let detail = format!("there is no mesh {:?}, and so no key for tokens of its proxies", asked.mesh);
        return Err(ApiError::new(StatusCode::NOT_FOUND, NO_KEY, detail));
    }
    let claims = DataplaneClaims {
        name: asked.name,
        mesh: asked.mesh.clone(),
        tags: asked.tags.unwrap_or_default(),
        r#type: asked.r#type,
        workload: asked.workload,
    };
    issue(&api, Purpose::Dataplane { mesh: &asked.mesh }, &claims, valid_for)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ZoneRequest {
    zone: String,
    scope: Option<Vec<String>>,
    carries: Option<Vec<String>>,
    valid_for: String,
}

async fn zone(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: ZoneRequest = match decode(&api, request).await? {
        Ok(asked) => asked,
        Err(response) => return Ok(response),
    };
    let scopes = asked.scope.unwrap_or_default();
    let mut violations = Violations::none();
    violations.check(scopes.is_empty(), "scope".into(), "cannot be empty");
    let unknown = scopes.iter().any(|s| !scope::ALL.contains(&s.as_str()));
    violations.check(unknown, "scope".into(), format!("must be a list of: {}", scope::ALL.join(", ")));
    let carries = asked.carries.unwrap_or_default();
    let is_relay = scopes.iter().any(|asked| asked == scope::RELAY);
    violations.check(!carries.is_empty() && !is_relay, "carries".into(), "only a relay carries zones");
    let is_no_zone = |name: &String| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let name = name.strip_suffix('*').unwrap_or(name);
        name.is_empty() || !name.chars().all(allowed)
    };
    let text = "must be names of zones, or beginnings of names with a * behind";
    violations.check(carries.iter().any(is_no_zone), "carries".into(), text);
    let valid_for = valid_for(&asked.valid_for, Some(token::TEN_YEARS), &mut violations);
    refuse(&violations)?;
    let wanted = match is_relay {
        // Whatever its name, a relay is told what all zones are told together, keys of meshes among it.
        true => AskedFor::everything(None),
        false => AskedFor { zone: named(&asked.zone), ..all_of(&api) },
    };
    let judged = api.rights.check(&user, RoleVerb::GenerateZoneToken, &wanted);
    judged.map_err(|denied| match is_relay {
        true => ApiError::forbidden(format!("{denied}. {OF_RELAYS}")),
        false => denied.into(),
    })?;
    issue(&api, Purpose::Zone, &ZoneClaims { zone: asked.zone, scope: scopes, carries }, valid_for)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UserRequest {
    name: String,
    groups: Option<Vec<String>>,
    valid_for: String,
}

async fn user_token(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    api.rights.check(&user, RoleVerb::GenerateUserToken, &AskedFor::everything(None))?;
    if !api.config.issues_user_tokens {
        let reason = "this control plane makes no user tokens (apiServer.authn.tokens.enableIssuer is false)";
        return Err(ApiError::bad_request(reason));
    }
    let body = api.intake.read(request, BODY_LIMIT).await?;
    let asked: UserRequest = serde_json::from_slice(&body)
        .map_err(|e| ApiError::bad_request(format!("the request body is not a token request: {e}")))?;
    let mut violations = Violations::none();
    violations.check(asked.name.is_empty(), "name".into(), "cannot be empty");
    let valid_for = valid_for(&asked.valid_for, None, &mut violations);
    refuse(&violations)?;
    let claims = UserClaims { name: asked.name, groups: asked.groups.unwrap_or_default() };
    issue(&api, Purpose::User, &claims, valid_for)
}

/// An unreadable request of a dataplane or zone token has always been answered without a body.
async fn decode<T: DeserializeOwned>(api: &Api, request: Request) -> Result<Result<T, Response>, ApiError> {
    let body = api.intake.read(request, BODY_LIMIT).await?;
    Ok(serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST.into_response()))
}

fn refuse(violations: &Violations) -> Result<(), ApiError> {
    if violations.is_empty() { Ok(()) } else { Err(ApiError::invalid(INVALID, violations)) }
}

fn valid_for(text: &str, absent: Option<Duration>, violations: &mut Violations) -> Duration {
    let parsed = match (text.is_empty(), absent) {
        (true, Some(absent)) => Some(absent),
        (true, None) => None,
        (false, _) => Interval::parse(text).ok().map(|interval| interval.0),
    };
    let good = parsed.filter(|d| !d.is_zero());
    violations.check(good.is_none(), "validFor".into(), "must be a duration above zero, like 24h or 1h30m");
    good.unwrap_or_default()
}

fn issue<C: Claims>(
    api: &Api,
    purpose: Purpose<'_>,
    claims: &C,
    valid_for: Duration,
) -> Result<Response, ApiError> {
    match token::issue(&api.index.current(), purpose, claims, valid_for, &api.env) {
        Ok(token) => {
            let plain = HeaderValue::from_static("text/plain");
            Ok(([(header::CONTENT_TYPE, plain)], token).into_response())
        }
        Err(error @ TokenError::NoKey(..)) => {
            Err(ApiError::new(StatusCode::NOT_FOUND, NO_KEY, error.to_string()))
        }
        Err(error @ TokenError::OnlyPublic(_)) => Err(ApiError::read_only(error.to_string())),
        Err(error) => Err(ApiError::internal(TITLE, error)),
    }
}
