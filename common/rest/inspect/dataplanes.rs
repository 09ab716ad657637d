//! Which dataplanes a policy selects, and which serve a service.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, Request, State},
    response::Response,
};
use serde_json::Value;

use super::{matched, meta, older, proxy};
use crate::{
    model::{
        Resource,
        kinds::{dataplane, mesh_service::MeshService},
        labels,
    },
    policy::rules::{Policy, SelectableProxy, Selection},
    rest::{
        ApiError, KindApi, User,
        page::{self, Page, PageLink, Query},
        read::{self, ResourcePath},
    },
    runtime::http::Client,
    store::index::Index,
};

const TITLE: &str = "Could not retrieve policy";

/// Those that a policy selects.
pub(super) async fn of_policy(
    at: State<KindApi>,
    target: Path<ResourcePath>,
    query: QueryOf<Query>,
    user: Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    respond(at, target, query, user, client, request, selector).await
}

/// Those that serve a service.
pub(super) async fn of_service(
    at: State<KindApi>,
    target: Path<ResourcePath>,
    query: QueryOf<Query>,
    user: Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    respond(at, target, query, user, client, request, server).await
}

/// Decides about one dataplane after the other.
type Decide = Box<dyn Fn(&Resource, &SelectableProxy) -> bool>;

/// Whom `policy` selects, policies that are only being tried out included.
fn selector(index: &Index, policy: &Arc<Resource>) -> Result<Decide, ApiError> {
    if !policy.kind().policy.is_some_and(|traits| traits.target_ref) {
        let selects = older::selector(policy)?;
        return Ok(Box::new(move |_, proxy| selects(proxy)));
    }
    let parsed = Policy::parse(Arc::clone(policy))
        .map_err(|error| ApiError::internal(TITLE, format!("{}: {error}", policy.key)))?;
    let (policies, destinations) = ([Arc::new(parsed)], matched::destinations(index, policy.mesh()));
    let selects = move |_: &Resource, proxy: &SelectableProxy| {
        !Selection::among(&policies, proxy, &destinations, true).policies.is_empty()
    };
    Ok(Box::new(selects))
}

/// The dataplanes that `policy` is for, which need not be stored, as far as they are `shown`.
pub(in crate::rest) fn selected(
    index: &Index,
    policy: &Arc<Resource>,
    shown: impl Fn(&Resource) -> bool,
) -> Result<Vec<Value>, ApiError> {
    let decide = selector(index, policy)?;
    let mut found = Vec::new();
    for dataplane in index.list_in_mesh(&dataplane::KIND, policy.mesh()) {
        if shown(dataplane) && decide(dataplane, &proxy(index, dataplane, TITLE)?) {
            found.push(meta(dataplane));
        }
    }
    Ok(found)
}

/// Who serves `service`.
fn server(_: &Index, service: &Arc<Resource>) -> Result<Decide, ApiError> {
    let spec: MeshService =
        service.spec().map_err(|error| ApiError::internal(TITLE, format!("{}: {error}", service.key)))?;
    let zone = service.label(labels::ZONE).map(str::to_owned);
    let serves = move |dataplane: &Resource, proxy: &SelectableProxy| {
        let elsewhere = zone.as_deref().zip(dataplane.label(labels::ZONE)).is_some_and(|(a, b)| a != b);
        !elsewhere && serves(&spec, dataplane, proxy)
    };
    Ok(Box::new(serves))
}

fn serves(service: &MeshService, dataplane: &Resource, proxy: &SelectableProxy) -> bool {
    let Some(selector) = &service.selector else { return false };
    if let Some(one) = &selector.dataplane_ref {
        return one.name == dataplane.name();
    }
    if let Some(wanted) = &selector.dataplane_labels {
        let wanted = wanted["matchLabels"].as_object().into_iter().flatten();
        return wanted.into_iter().all(|(key, value)| dataplane.labels.get(key) == value.as_str());
    }
    let has = |tags: &BTreeMap<String, String>| {
        selector.dataplane_tags.iter().all(|(key, value)| tags.get(key) == Some(value))
    };
    !selector.dataplane_tags.is_empty() && proxy.inbounds.iter().any(|i| !i.zone_listener && has(&i.tags))
}

async fn respond(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
    decider: fn(&Index, &Arc<Resource>) -> Result<Decide, ApiError>,
) -> Result<Response, ApiError> {
    let page = Page::parse(&query, TITLE)?;
    let index = at.api.index.current();
    let subject = at.subject(&index, &target, TITLE)?;
    let contains = page::value(&query, "name").unwrap_or_default().to_owned();
    let (link, used) = (PageLink::of(request, query), Arc::clone(&index));
    let readable = at.api.rights.readable(&user);
    let answer = move || {
        let decide = decider(&used, &subject)?;
        let mut found = Vec::new();
        for dataplane in used.list_in_mesh(&dataplane::KIND, subject.mesh()) {
            let is_shown = dataplane.name().contains(&contains) && readable.shows(dataplane);
            if is_shown && decide(dataplane, &proxy(&used, dataplane, TITLE)?) {
                found.push(meta(dataplane));
            }
        }
        Ok(page.brief(&link, found))
    };
    at.inspect(&user, &client, weight(&index, &target.mesh), answer).await
}

/// Bytes of what such an answer is made from.
pub(super) fn weight(index: &Index, mesh: &str) -> usize {
    read::weight_of_all(index.list_in_mesh(&dataplane::KIND, mesh)) + matched::weight(index, mesh)
}

/// The dataplanes of a mesh as proxies.
pub(super) fn proxies<'a>(
    index: &'a Index,
    mesh: &'a str,
) -> impl Iterator<Item = Result<(Arc<Resource>, SelectableProxy), ApiError>> + 'a {
    let dataplanes = index.list_in_mesh(&dataplane::KIND, mesh);
    dataplanes.map(|dataplane| Ok((Arc::clone(dataplane), proxy(index, dataplane, TITLE)?)))
}
