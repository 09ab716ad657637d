//! What somebody may do, and why: the checks of the other routes, asked without doing anything.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query as QueryOf, State},
    http::StatusCode,
    response::Response,
};
use serde_json::json;

use super::{
    Admission, Api, ApiError, KindApi, Put, User,
    body::json_response,
    commit::Prepared,
    page::{self, Query},
    read::ResourcePath,
};
use crate::{
    access::{Denied, WAY_IN},
    model::{
        FieldPath, Kind, ResourceKey, Spec, Violations,
        kinds::access_role::{self, ANY, AccessRole, RoleVerb, VerbLimit},
    },
    registry,
    roles::{AskedFor, Extent, UserRights},
    store::{Write, index::Index},
    token::scope,
};

/// Groups somebody may be asked about as a member of.
const GROUPS: usize = 100;
/// What can be asked about besides the verbs of roles.
const VIEW_HISTORY: &str = "view-history";

/// A role names types that there are.
pub(super) struct RoleRules;

impl Admission for RoleRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &access_role::ROLE
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        let mut violations = Violations::none();
        let role = AccessRole::decode(&put.resource.spec).unwrap_or_default();
        let field = |rule: usize, kind: usize| {
            FieldPath::new("spec").field("rules").index(rule).field("kinds").index(kind)
        };
        for (rule, of_rule) in role.rules.iter().enumerate() {
            for (n, kind) in of_rule.kinds.iter().enumerate() {
                let unknown = kind != ANY && registry::by_name(kind).is_none();
                let reason = "must be a type of resource, as GET /_resources lists them, or *";
                violations.check(unknown, field(rule, n), reason);
            }
        }
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

impl KindApi {
    /// 403 unless `user` may do this to a resource, which the guard has looked at before the index was this one.
    pub(super) fn require_right(
        &self,
        index: &Index,
        user: &User,
        verb: RoleVerb,
        key: &ResourceKey,
    ) -> Result<(), ApiError> {
        Ok(self.api.rights.check_resource_in(index, user, verb, key)?)
    }

    /// The same for a put, of the resource as it is and as it will be: its labels may move it to another zone, or give it
    /// another name.
    pub(super) fn require_written(
        &self,
        index: &Index,
        rights: &UserRights<'_>,
        prepared: Prepared,
    ) -> Result<Prepared, ApiError> {
        for write in prepared.batch.writes.iter().filter(|write| write.key().kind == self.kind) {
            if let Write::Put { resource, .. } = write
                && index
                    .get(&resource.key)
                    .is_none_or(|is| is.spec != resource.spec || is.labels != resource.labels)
            {
                rights.check_resource(index, RoleVerb::Write, &resource.key)?;
                rights.check_version(RoleVerb::Write, resource)?;
                rights.check_called(index, resource)?;
                self.require_rollout(index, rights, resource)?;
            }
        }
        Ok(prepared)
    }
}

/// `GET /access/can-i?verb=put&kind=MeshTimeout&mesh=default&name=quick`: for the caller, or, asked by an
/// administrator, for another `user` and `groups`. Tokens of zones have a `scope` as well.
pub(super) async fn can_i(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<Query>,
    Extension(caller): Extension<User>,
) -> Result<Response, ApiError> {
    let user = subject(&api, &query, caller)?;
    let outcome = judge(&api, &user, &query)?;
    let reason = outcome.as_ref().err().map(|error| error.to_string());
    let body =
        json!({ "allowed": outcome.is_ok(), "reason": reason, "user": user.name, "groups": user.groups });
    Ok(json_response(StatusCode::OK, &body))
}

/// Whom it is about.
fn subject(api: &Api, query: &Query, caller: User) -> Result<User, ApiError> {
    let Some(name) = page::value(query, "user") else { return Ok(caller) };
    if api.rights.check(&caller, RoleVerb::Admin, &AskedFor::everything(None)).is_err() {
        return Err(Denied::new(&caller, "ask what others may do").into());
    }
    let groups =
        page::value(query, "groups").unwrap_or_default().split(',').filter(|group| !group.is_empty());
    let groups: Vec<String> = groups.map(str::to_owned).collect();
    if groups.len() > GROUPS {
        return Err(ApiError::bad_request(format!("groups: must be at most {GROUPS}")));
    }
    Ok(User::authenticated(name.to_owned(), groups))
}

/// The outer error is about the question, the inner one is the answer no.
fn judge(api: &Arc<Api>, user: &User, query: &Query) -> Result<Result<(), ApiError>, ApiError> {
    let verb = page::value(query, "verb").unwrap_or_default();
    if verb == VIEW_HISTORY {
        return Ok(match api.trusts(user) {
            true => Ok(()),
            false => {
                Err(ApiError::forbidden(format!("anonymous callers may not look into the history{WAY_IN}")))
            }
        });
    }
    let Some(verb) = RoleVerb::parse(verb) else {
        let known = RoleVerb::ALL.map(RoleVerb::as_str).join(", ");
        return Err(ApiError::bad_request(format!("verb: must be one of {known}, {VIEW_HISTORY}")));
    };
    let named = |parameter: &str| page::value(query, parameter).filter(|value| !value.is_empty());
    let scopes = named("scope").unwrap_or_default();
    let mut scopes = scopes.split(',').filter(|scope| !scope.is_empty());
    if scopes.clone().any(|asked| !scope::ALL.contains(&asked)) {
        return Err(ApiError::bad_request(format!("scope: must be some of {}", scope::ALL.join(", "))));
    }
    let makes_zone_tokens = verb.parts().contains(&RoleVerb::GenerateZoneToken);
    // As where such a token is made: it is one of all zones.
    let is_of_relay = makes_zone_tokens && scopes.any(|asked| asked == scope::RELAY);
    let zone = named("zone").or(api.rights.zone()).filter(|_| !is_of_relay);
    if !verb.names_kinds() && named("kind").is_none() {
        let extent = |limit, parameter| match named(parameter) {
            Some(value) if verb.has_limit(limit) => Extent::One(value),
            _ => Extent::All,
        };
        // Who asks about the configuration of proxies and names none means that of all.
        let is_of_all = verb.has_limit(VerbLimit::Kind);
        let asked = AskedFor {
            mesh: if is_of_all { Extent::All } else { extent(VerbLimit::Mesh, "mesh") },
            name: if is_of_all { Extent::All } else { extent(VerbLimit::Name, "name") },
            ..AskedFor::everything(zone.filter(|_| verb.has_limit(VerbLimit::Zone)))
        };
        return Ok(api.rights.check(user, verb, &asked).map_err(ApiError::from));
    }
    if verb == RoleVerb::Admin && named("kind").is_none() {
        return Ok(api.rights.check(user, verb, &AskedFor::everything(zone)).map_err(ApiError::from));
    }
    let kind = named("kind").unwrap_or_default();
    let kind = registry::by_name(kind).or_else(|| registry::by_argument(kind));
    let kind = kind.filter(|kind| !kind.path.is_empty()).ok_or_else(|| ApiError::unsupported("kind"))?;
    let at = KindApi { api: Arc::clone(api), kind };
    let mesh = if kind.is_mesh_scoped() { named("mesh").unwrap_or("default") } else { "" }.to_owned();
    let right = || {
        let Some(name) = named("name") else {
            let zone = zone.map_or(Extent::All, Extent::One);
            let asked = AskedFor { name: Extent::All, zone, ..AskedFor::some_of(kind, &mesh) };
            return Ok(api.rights.check(user, verb, &asked)?);
        };
        let key = at.key(&ResourcePath { mesh: mesh.clone(), name: name.to_owned() });
        match named("zone") {
            Some(zone) => Ok(api.rights.check(user, verb, &AskedFor::one(&key, Some(zone)))?),
            None => Ok(api.rights.check_resource(user, verb, &key)?),
        }
    };
    Ok(match verb {
        RoleVerb::Write | RoleVerb::Delete => at
            .require_writable()
            .and_then(|()| at.require_written_here())
            .and_then(|()| super::auth::may_write(api, user))
            .and_then(|()| right()),
        _ => right(),
    })
}
