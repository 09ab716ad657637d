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
    page::{self, Query},
    read::ResourcePath,
};
use crate::{
    access::AccessRule,
    model::{
        FieldPath, Kind, ResourceKey, Spec, Violations,
        kinds::access_role::{self, ANY, AccessRole, WriteVerb},
    },
    registry,
    roles::{self, RoleVerdict},
};

/// Groups somebody may be asked about as a member of.
const GROUPS: usize = 100;
/// What can be asked about besides what is done to resources.
const OTHER_VERBS: &str = "view, put, delete, generate-dataplane-token, generate-user-token, generate-zone-token, \
    view-config-dump, view-stats, view-clusters, view-settings, view-history, view-audit, backup";

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
    /// 403 unless `user` may write this resource: kinds for administrators by the settings, all others by roles where
    /// there are any.
    pub(super) fn require_right(
        &self,
        user: &User,
        verb: WriteVerb,
        key: &ResourceKey,
    ) -> Result<(), ApiError> {
        self.require_access(user)?;
        let access = &self.api.config.access;
        let verdict = roles::judge(&self.api.index.current(), user, verb, key);
        let RoleVerdict::Denied(roles) = verdict else { return Ok(()) };
        if access.admin_resources.check(user, "").is_ok() {
            return Ok(());
        }
        let roles: Vec<String> = roles.into_iter().collect();
        let has = if roles.is_empty() {
            "has no role".to_owned()
        } else {
            format!("has the roles {}", roles.join(", "))
        };
        Err(ApiError::forbidden(format!(
            "user \"{}/{}\" cannot {} {key}: an AccessRole must allow it, and this user {has}",
            user.name,
            user.groups.join(","),
            verb.as_str()
        )))
    }
}

/// `GET /access/can-i?verb=put&kind=MeshTimeout&mesh=default&name=quick`: for the caller, or, asked by an
/// administrator, for another `user` and `groups`.
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
    api.config.access.admin_resources.check(&caller, "ask what others may do")?;
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
    let access = &api.config.access;
    let by_rule = |rule: &AccessRule, what: &str| Ok(rule.check(user, what).map_err(ApiError::from));
    match verb {
        "view" | "put" | "delete" => {}
        "generate-dataplane-token" => {
            return by_rule(&access.generate_dp_token, "generate a dataplane token");
        }
        "generate-user-token" => return by_rule(&access.generate_user_token, "generate a user token"),
        "generate-zone-token" => return by_rule(&access.generate_zone_token, "generate a zone token"),
        "view-config-dump" => return by_rule(&access.view_config_dump, "see configurations of proxies"),
        "view-stats" => return by_rule(&access.view_stats, "see stats of proxies"),
        "view-clusters" => return by_rule(&access.view_clusters, "see clusters of proxies"),
        "view-settings" => return by_rule(&access.control_plane_metadata, "see the settings"),
        "view-audit" => return by_rule(&access.admin_resources, "look into the audit log"),
        "backup" => return by_rule(&access.admin_resources, "take a backup"),
        "view-history" => return Ok(api.require_known(user)),
        _ => return Err(ApiError::bad_request(format!("verb: must be one of {OTHER_VERBS}"))),
    }
    let kind = page::value(query, "kind").unwrap_or_default();
    let kind = registry::by_name(kind).or_else(|| registry::by_argument(kind));
    let kind = kind.filter(|kind| !kind.path.is_empty()).ok_or_else(|| ApiError::unsupported("kind"))?;
    let at = KindApi { api: Arc::clone(api), kind };
    let mesh = page::value(query, "mesh").unwrap_or("default").to_owned();
    let name = page::value(query, "name").unwrap_or_default().to_owned();
    let key = at.key(&ResourcePath { mesh, name });
    let right = |verb| {
        at.require_writable()?;
        at.require_written_here()?;
        super::auth::may_write(api, user)?;
        at.require_right(user, verb, &key)
    };
    Ok(match verb {
        "put" => right(WriteVerb::Put),
        "delete" => right(WriteVerb::Delete),
        _ => at.require_access(user),
    })
}
