//! The guard before every route: nothing of a request is looked at before it is known that its caller may ask.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Query as QueryOf, RawPathParams, Request, State, rejection::RawPathParamsRejection},
    http::{Method, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    ApiError, User,
    access::WAY_IN,
    browser::{PAGE, SESSION},
    confidential::Confidential,
    page::Query,
    routes::{Mounted, MountedRoute, Needs, Route, RoutePlace},
    write::DRY_RUN,
};
use crate::{
    access::Denied,
    metering::requests,
    model::{
        Kind, ResourceKey,
        kinds::{access_role::RoleVerb, zone},
    },
    roles::{AskedFor, Rights},
};

/// What stands before one handler.
struct RouteGuard {
    rights: Arc<Rights>,
    route: &'static Route,
    kind: Option<&'static Kind>,
}

impl Mounted {
    /// All of it, each route behind its guard. Who asks is an extension of the request; who is not there is nobody.
    pub fn guarded(self, rights: &Arc<Rights>) -> Router {
        self.routes.into_iter().fold(Router::new(), |router, mounted| {
            let MountedRoute { route, kind, path, handler } = mounted;
            let guard = Arc::new(RouteGuard { rights: Arc::clone(rights), route, kind });
            router.route(&path, handler.route_layer(middleware::from_fn_with_state(guard, judge)))
        })
    }
}

async fn judge(
    State(guard): State<Arc<RouteGuard>>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let path = match path {
        Ok(path) => path,
        Err(unreadable) => return unreadable.into_response(),
    };
    let nobody = User::anonymous();
    let user = request.extensions().get::<User>().unwrap_or(&nobody);
    let is_of_few = guard.route.needs().is_of_few() || guard.kind.is_some_and(|kind| kind.admin_only);
    let is_stranger = !guard.rights.trusts(user);
    let admitted = guard.admit(user, &path).and_then(|()| guard.knows_of_dry_run(&request));
    let mut response = match admitted {
        Ok(()) => {
            let answer = next.run(request).await;
            // Strangers can be wrong on every route, in every way there is.
            match is_stranger && answer.status().is_client_error() {
                true => answer,
                false => requests::handled(guard.route.method().as_str(), answer),
            }
        }
        // Somebody with a browser is led to where he can say who he is.
        Err(_) if guard.route.place() == RoutePlace::Page && request.method() == Method::GET => {
            Redirect::to(&sign_in(request.uri())).into_response()
        }
        Err(refused) => refused.into_response(),
    };
    if is_of_few {
        Confidential::mark(&mut response);
    }
    response
}

/// Where somebody says who he is, to come back to where he was then.
fn sign_in(was: &Uri) -> String {
    let was = was.path_and_query().map_or(PAGE, |was| was.as_str());
    if was == PAGE {
        SESSION.to_owned()
    } else {
        format!("{SESSION}?to={}", utf8_percent_encode(was, NON_ALPHANUMERIC))
    }
}

impl RouteGuard {
    /// Whoever only tries something wants nothing done where that is not known.
    fn knows_of_dry_run(&self, request: &Request) -> Result<(), ApiError> {
        let query = || QueryOf::<Query>::try_from_uri(request.uri());
        let named = || query().is_ok_and(|QueryOf(query)| query.iter().any(|(name, _)| name == DRY_RUN));
        if request.method().is_safe() || self.route.parameters().contains(&DRY_RUN) || !named() {
            return Ok(());
        }
        let (method, path) = (self.route.method().as_str(), self.route.path());
        Err(ApiError::bad_request(format!(
            "dryRun: {method} {path} does not have this parameter, so nothing was done"
        )))
    }

    fn admit(&self, user: &User, path: &RawPathParams) -> Result<(), ApiError> {
        let rights = &self.rights;
        let in_path = |name: &str| path.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let admitted: Result<(), Denied> = match self.route.needs() {
            Needs::Known | Needs::KnownOnPath(_) if !rights.trusts(user) => {
                let reason = format!("anonymous callers may not look into the history{WAY_IN}");
                return Err(ApiError::forbidden(reason));
            }
            Needs::Nothing | Needs::Known | Needs::Proxy | Needs::Shown => Ok(()),
            Needs::OnSomething(verb) => rights.check(user, verb, &AskedFor::something()),
            Needs::OnEverything(verb) => rights.check(user, verb, &AskedFor::everything(rights.zone())),
            Needs::ReadingZones => rights.check(user, RoleVerb::Read, &AskedFor::all_of(&zone::KIND)),
            Needs::OnPath(verb) | Needs::KnownOnPath(verb) => match (self.kind, in_path("name")) {
                (Some(kind), Some(name)) => {
                    let key = ResourceKey::new(kind, in_path("mesh").unwrap_or_default(), name);
                    rights.check_resource(user, verb, &key)
                }
                (Some(kind), None) => {
                    rights.check(user, verb, &AskedFor::some_of(kind, in_path("mesh").unwrap_or_default()))
                }
                (None, _) => rights.check(user, verb, &AskedFor::everything(rights.zone())),
            },
        };
        Ok(admitted?)
    }
}
