//! Reading: one resource, a list, or by identifier.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{MatchedPath, Path, Query as QueryOf, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Api, ApiError, Endpoint, User,
    body::json_response,
    filter::Filter,
    kubernetes,
    page::{self, Page, Query},
    precondition::{Conditions, tagged},
};
use crate::{
    model::{Kind, Resource, ResourceKey, Violations, document, kinds::mesh, kri::Kri, labels, names},
    redact,
    store::index::Index,
};

const ITEM: &str = "Could not retrieve a resource";
const LIST: &str = "Could not retrieve resources";

/// Mesh and name in the URL, empty where the route has none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    pub(super) mesh: String,
    pub(super) name: String,
}

/// How much of a document its reader sees.
#[derive(Clone, Copy)]
pub(super) enum Sight {
    /// As it is stored.
    Whole,
    /// Without the keys and passwords that an author put into it.
    WithoutSecrets,
}

impl Sight {
    pub(super) fn of(self, mut document: Value) -> Value {
        if matches!(self, Self::WithoutSecrets) {
            redact::json(&mut document);
        }
        document
    }
}

impl Api {
    /// Answers `user` from these resources. The search for secrets takes a stranger's answer off the threads
    /// that serve everybody; it is made there as a whole, so that those in line hold no documents.
    pub(super) async fn shown_to(
        &self,
        user: &User,
        resources: &[Arc<Resource>],
        answer: impl FnOnce(Sight) -> Result<Response, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        if self.trusts(user) {
            return answer(Sight::Whole);
        }
        let bytes = resources.iter().map(|resource| resource.spec.len()).sum();
        self.searching.run(bytes, || answer(Sight::WithoutSecrets)).await
    }
}

impl Endpoint {
    pub(super) fn key(&self, target: &Target) -> ResourceKey {
        ResourceKey::new(self.kind, &target.mesh, &target.name)
    }

    /// 404 unless the mesh in the URL exists.
    pub(super) fn require_mesh(&self, index: &Index, target: &Target) -> Result<(), ApiError> {
        let missing = !target.mesh.is_empty() && index.find(&mesh::KIND, "", &target.mesh).is_none();
        if missing { Err(ApiError::not_found("Failed to retrieve Mesh")) } else { Ok(()) }
    }

    /// 403 unless `user` may touch resources of this kind.
    pub(super) fn require_access(&self, user: &User) -> Result<(), ApiError> {
        if !self.kind.admin_only {
            return Ok(());
        }
        let what = format!("access the resource of type {:?}", self.kind.name);
        self.api.config.access.admin_resources.check(user, &what)
    }
}

/// `GET` of one resource.
pub(super) async fn item(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let form = Form::parse(&query)?;
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    at.require_access(&user)?;
    let resource = index.get(&at.key(&target)).ok_or_else(|| ApiError::not_found(ITEM))?;
    // The tag stands for the whole document in the form in which it is written.
    if !matches!(form, Form::Universal) || !at.api.trusts(&user) {
        return one(&at.api, &user, resource, query).await;
    }
    let document = form.render(resource)?;
    if Conditions::of(&headers)?.has_already(resource) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), resource));
    }
    Ok(tagged(json_response(StatusCode::OK, &document), resource))
}

/// One resource in the form that is asked for.
async fn one(api: &Api, user: &User, resource: &Arc<Resource>, query: Query) -> Result<Response, ApiError> {
    let shown = Arc::clone(resource);
    let answer = move |sight: Sight| {
        let document = Form::parse(&query)?.render(&shown)?;
        Ok(json_response(StatusCode::OK, &sight.of(document)))
    };
    api.shown_to(user, std::slice::from_ref(resource), answer).await
}

/// `GET` of a list, of one mesh or of all.
pub(super) async fn list(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    route: MatchedPath,
    request: Request,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    at.require_access(&user)?;
    let found = Found::search(&index, at.kind, &target, &query, route.as_str())?;
    found.respond(&at.api, &user, request, query, |resource| render(LIST, resource)).await
}

/// The resources a list request asks for.
pub(super) struct Found {
    total: usize,
    on_page: Vec<Arc<Resource>>,
    next: Option<usize>,
}

impl Found {
    /// Filters, then cuts the page.
    pub(super) fn search(
        index: &Index,
        kind: &Kind,
        target: &Target,
        query: &Query,
        route: &str,
    ) -> Result<Self, ApiError> {
        let page = Page::parse(query, LIST)?;
        let filter = Filter::parse(kind, query, route, LIST)?;
        let matching = |resource: &&Arc<Resource>| filter.matches(resource);
        let all: Vec<Arc<Resource>> = if target.mesh.is_empty() {
            index.list(kind).filter(matching).cloned().collect()
        } else {
            index.list_in_mesh(kind, &target.mesh).filter(matching).cloned().collect()
        };
        let total = all.len();
        let (on_page, next) = page.cut(all);
        Ok(Self { total, on_page, next })
    }

    /// The answer for `user`, each resource in the form `show` gives it.
    pub(super) async fn respond(
        self,
        api: &Api,
        user: &User,
        request: Request,
        query: Query,
        show: impl Fn(&Resource) -> Result<Value, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Self { total, on_page, next } = self;
        let shown = on_page.clone();
        let answer = move |sight: Sight| {
            let items = shown.iter().map(|resource| Ok(sight.of(show(resource)?)));
            let items = items.collect::<Result<Vec<_>, ApiError>>()?;
            Ok(page::respond(&request, &query, total, items, next))
        };
        api.shown_to(user, &on_page, answer).await
    }
}

/// `GET /_kri/{kri}`.
pub(super) async fn by_kri(
    State(api): State<Arc<Api>>,
    Path(text): Path<String>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    Form::parse(&query)?;
    let kri = Kri::parse(&text).map_err(|error| ApiError::bad_request(format!("bad request: {error}")))?;
    let at = Endpoint { api, kind: kri.kind() };
    let index = at.api.index.current();
    let target = |name: String| Target { mesh: kri.mesh.clone(), name };
    at.require_mesh(&index, &target(String::new()))?;
    at.require_access(&user)?;
    let stored = stored_names(&at, &kri).into_iter().filter_map(|name| index.get(&at.key(&target(name))));
    // Two zones may use one name; of one that says no zone, the identifier is believed.
    let mut of_zone = stored.filter(|resource| resource.label(labels::ZONE).is_none_or(|z| z == kri.zone));
    let resource = of_zone.next().ok_or_else(|| ApiError::not_found(ITEM))?;
    one(&at.api, &user, resource, query).await
}

/// What was written here keeps its name, what was synced has a hashed one. A zone that was on its own
/// before it followed a global has both without a zone in the identifier.
fn stored_names(at: &Endpoint, kri: &Kri) -> Vec<String> {
    let part = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (zone, namespace) = (part(&kri.zone), part(&kri.namespace));
    let hashed = names::hashed(&kri.mesh, &kri.name, zone.as_deref(), namespace.as_deref());
    if at.kind.keeps_name {
        return vec![kri.name.clone()];
    }
    match at.api.config.mode.zone() {
        _ if kri.zone.is_empty() => vec![kri.name.clone(), hashed],
        Some(own) if kri.zone == own => vec![kri.name.clone()],
        _ => vec![hashed],
    }
}

/// The form in which one resource is asked for.
enum Form<'a> {
    Universal,
    Kubernetes { namespace: Option<&'a str> },
}

impl<'a> Form<'a> {
    fn parse(query: &'a Query) -> Result<Self, ApiError> {
        match page::value(query, "format") {
            None | Some("universal") => Ok(Self::Universal),
            Some("k8s" | "kubernetes") => Ok(Self::Kubernetes { namespace: page::value(query, "namespace") }),
            Some(other) => {
                let reason = format!("unknown format {other:?}, use universal, k8s or kubernetes");
                Err(ApiError::invalid(ITEM, &Violations::one("format", reason)))
            }
        }
    }

    fn render(&self, resource: &Resource) -> Result<Value, ApiError> {
        match self {
            Self::Universal => render(ITEM, resource),
            Self::Kubernetes { namespace } => kubernetes::render(resource, *namespace)
                .map_err(|error| ApiError::internal(ITEM, format!("{}: {error}", resource.key))),
        }
    }
}

/// The document of a stored resource.
pub(super) fn render(title: &'static str, resource: &Resource) -> Result<Value, ApiError> {
    document::render(resource)
        .map_err(|error| ApiError::internal(title, format!("{}: {error}", resource.key)))
}
