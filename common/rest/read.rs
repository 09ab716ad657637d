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
    Api, ApiError, KindApi, User,
    body::json_response,
    confidential::Confidential,
    filter::ListFilter,
    kubernetes,
    page::{self, Page, PageLink, Query},
    precondition::{Conditions, tagged},
};
use crate::{
    document,
    model::{
        Kind, Resource, ResourceKey, Violations,
        kinds::{access_role::RoleVerb, mesh},
        kri::Kri,
        labels, names,
    },
    redact, registry,
    roles::Readable,
    runtime::{
        Offload,
        http::{Client, FairTurn},
    },
    store::index::Index,
};

const ITEM: &str = "Could not retrieve a resource";
const LIST: &str = "Could not retrieve resources";

/// Mesh and name in the URL, empty where the route has none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourcePath {
    pub(super) mesh: String,
    pub(super) name: String,
}

/// How much of a document its reader sees.
#[derive(Clone, Copy)]
pub(super) enum Sight {
    /// As it is stored.
    Whole,
    /// Without the keys and passwords that an author put into it, and without what is written in Envoy's own terms.
    WithoutSecrets,
}

impl Sight {
    /// What control planes tell about others is for reading, and nobody writes it back: what a peer let slip
    /// into it is shown to nobody.
    pub(super) fn on(self, kind: &Kind) -> Self {
        if kind.read_only { Self::WithoutSecrets } else { self }
    }

    pub(super) fn of(self, mut document: Value) -> Value {
        if matches!(self, Self::WithoutSecrets) {
            redact::patches(&mut document);
            redact::json(&mut document);
        }
        document
    }
}

impl Api {
    /// Makes an answer for `client` from so many bytes of resources. A long one waits for its turn and is made
    /// off the threads that serve everybody, as a whole, so that those in line hold no documents.
    pub(super) async fn make(
        &self,
        client: &Client,
        bytes: usize,
        answer: impl FnOnce() -> Result<Response, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        if !Offload::is_worth(bytes) {
            return answer();
        }
        self.make_in(client.turn().await?, answer).await
    }

    /// The same in a turn that was taken before what the answer is made of was read.
    pub(super) async fn make_in(
        &self,
        turn: FairTurn,
        answer: impl FnOnce() -> Result<Response, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        self.making.long(|| Ok(turn.made(answer()?))).await
    }

    /// How much of a document `user` sees.
    pub(super) fn sight(&self, user: &User) -> Sight {
        if self.trusts(user) { Sight::Whole } else { Sight::WithoutSecrets }
    }
}

/// What looking at one more resource is worth, in bytes.
const LOOK: usize = 64;

/// Bytes that an answer about all of `resources` is made from. They are counted until they are many: what an answer takes
/// to make is no reason to look through everything before it has its turn.
pub(super) fn weight_of_all<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> usize {
    let mut bytes = 0;
    for resource in resources {
        bytes += LOOK + weight(resource);
        if Offload::is_worth(bytes) {
            break;
        }
    }
    bytes
}

/// Bytes that a resource is shown from.
pub(super) fn weight(resource: &Resource) -> usize {
    let labels = resource.labels.iter().map(|(name, value)| name.len() + value.len());
    let status = resource.status.as_ref().map_or(0, |status| status.len());
    resource.spec.len() + status + labels.sum::<usize>()
}

impl KindApi {
    pub(super) fn key(&self, target: &ResourcePath) -> ResourceKey {
        ResourceKey::new(self.kind, &target.mesh, &target.name)
    }

    /// 404 unless the mesh in the URL exists.
    pub(super) fn require_mesh(&self, index: &Index, target: &ResourcePath) -> Result<(), ApiError> {
        let missing = !target.mesh.is_empty() && index.find(&mesh::KIND, "", &target.mesh).is_none();
        if missing { Err(ApiError::not_found("Failed to retrieve Mesh")) } else { Ok(()) }
    }
}

/// `GET` of one resource.
pub(super) async fn item(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let form = ResourceForm::parse(&query)?;
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let resource = index.get(&at.key(&target)).ok_or_else(|| ApiError::not_found(ITEM))?;
    // The tag stands for the whole document in the form in which it is written.
    if !matches!(form, ResourceForm::Universal) || !at.api.trusts(&user) {
        return one(&at.api, &user, &client, resource, query).await;
    }
    if Conditions::of(&headers)?.has_already(resource) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), resource));
    }
    Ok(tagged(one(&at.api, &user, &client, resource, query).await?, resource))
}

/// One resource in the form that is asked for.
async fn one(
    api: &Api,
    user: &User,
    client: &Client,
    resource: &Arc<Resource>,
    query: Query,
) -> Result<Response, ApiError> {
    let (shown, sight) = (Arc::clone(resource), api.sight(user).on(resource.kind()));
    let answer = move || {
        let document = ResourceForm::parse(&query)?.render(&shown)?;
        Ok(json_response(StatusCode::OK, &sight.of(document)))
    };
    api.make(client, weight(resource), answer).await
}

/// `GET` of a list, of one mesh or of all.
pub(super) async fn list(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    route: MatchedPath,
    request: Request,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let asked = ListQuery::parse(&at, &user, target.mesh, &query, route.as_str())?;
    let (sight, link) = (at.api.sight(&user).on(at.kind), PageLink::of(request, query));
    let bytes = weight_of_all(asked.among(&index));
    let answer = move || asked.search(&index).respond(link, |one| Ok(sight.of(render(LIST, one)?)));
    at.api.make(&client, bytes, answer).await
}

/// What a list request asks for.
pub(super) struct ListQuery {
    kind: &'static Kind,
    /// Empty for all of them.
    mesh: String,
    page: Page,
    filter: ListFilter,
    readable: Readable,
}

impl ListQuery {
    /// What `user` asks for at `route`.
    pub(super) fn parse(
        at: &KindApi,
        user: &User,
        mesh: String,
        query: &Query,
        route: &str,
    ) -> Result<Self, ApiError> {
        let page = Page::parse(query, LIST)?;
        let filter = ListFilter::parse(at.kind, query, route, LIST)?;
        Ok(Self { kind: at.kind, mesh, page, filter, readable: at.api.rights.readable(user) })
    }

    /// Among which resources they are looked for.
    pub(super) fn among<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = &'a Arc<Resource>> {
        let is_everywhere = self.mesh.is_empty();
        let all = is_everywhere.then(|| index.list(self.kind)).into_iter().flatten();
        let in_mesh = (!is_everywhere).then(|| index.list_in_mesh(self.kind, &self.mesh));
        all.chain(in_mesh.into_iter().flatten())
    }

    /// Filters, leaves out what may not be read, then cuts the page.
    pub(super) fn search(self, index: &Index) -> ListPage {
        self.search_for(index, |_| true)
    }

    /// The same of those that are `wanted`, which is asked of no others.
    pub(super) fn search_for(self, index: &Index, wanted: impl Fn(&Resource) -> bool) -> ListPage {
        let matching =
            |one: &&Arc<Resource>| self.filter.matches(one) && self.readable.shows(one) && wanted(one);
        let all: Vec<Arc<Resource>> = self.among(index).filter(matching).cloned().collect();
        ListPage { total: all.len(), page: self.page, on_page: self.page.cut(all) }
    }
}

/// The resources a list request asks for.
pub(super) struct ListPage {
    total: usize,
    page: Page,
    on_page: Vec<Arc<Resource>>,
}

impl ListPage {
    /// The answer, each resource in the form `show` gives it.
    pub(super) fn respond(
        self,
        link: PageLink,
        show: impl Fn(&Resource) -> Result<Value, ApiError>,
    ) -> Result<Response, ApiError> {
        let shown = self.on_page.iter().map(|resource| show(resource));
        self.page.respond(link, self.total, shown)
    }
}

/// `GET /_kri/{kri}`.
pub(super) async fn by_kri(
    State(api): State<Arc<Api>>,
    Path(text): Path<String>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    ResourceForm::parse(&query)?;
    let kri = Kri::parse(&text, registry::by_short)
        .map_err(|error| ApiError::bad_request(format!("bad request: {error}")))?;
    let at = KindApi { api, kind: registry::of_kri(&kri) };
    let index = at.api.index.current();
    let target = |name: String| ResourcePath { mesh: kri.mesh.clone(), name };
    at.require_mesh(&index, &target(String::new()))?;
    let stored = stored_names(&at, &kri).into_iter().filter_map(|name| index.get(&at.key(&target(name))));
    // Two zones may use one name; of one that says no zone, the identifier is believed.
    let mut of_zone = stored.filter(|resource| resource.label(labels::ZONE).is_none_or(|z| z == kri.zone));
    let resource = of_zone.next();
    // Whether there is one is for those who may read it, too.
    let key = resource.map_or_else(|| at.key(&target(kri.name.clone())), |resource| resource.key.clone());
    at.api.rights.check_resource_in(&index, &user, RoleVerb::Read, &key)?;
    let resource = resource.ok_or_else(|| ApiError::not_found(ITEM))?;
    let mut shown = one(&at.api, &user, &client, resource, query).await?;
    if at.kind.admin_only {
        Confidential::mark(&mut shown);
    }
    Ok(shown)
}

/// What was written here keeps its name, what was synced has a hashed one. A zone that was on its own
/// before it followed a global has both without a zone in the identifier.
fn stored_names(at: &KindApi, kri: &Kri) -> Vec<String> {
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
pub(super) enum ResourceForm<'a> {
    /// As files have it.
    Universal,
    /// As Kubernetes has it.
    Kubernetes {
        /// Where it is to be there.
        namespace: Option<&'a str>,
    },
}

impl<'a> ResourceForm<'a> {
    pub(super) fn parse(query: &'a Query) -> Result<Self, ApiError> {
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
