//! Overviews: a resource together with what the control plane knows about it.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{MatchedPath, Path, Query as QueryOf, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{
    ApiError, KindApi, User, ZoneHealth,
    body::json_response,
    condition::{LostZones, ProxyCondition},
    page::{self, PageLink, Query},
    read::{self, ListQuery, ResourceForm, ResourcePath, Sight},
};
use crate::{
    document,
    model::{
        Kind, Origin, Resource, ResourceKey, Violations,
        kinds::{
            dataplane, dataplane_insight, zone, zone_egress, zone_egress_insight, zone_ingress,
            zone_ingress_insight, zone_insight,
        },
        transcode,
    },
    runtime::http::Client,
    store::index::Index,
};

const ITEM: &str = "Could not retrieve a resource";
const LIST: &str = "Could not retrieve resources";
const TITLE: &str = "Could not retrieve insights";

/// How the overview of a kind is made.
pub(super) struct Overview {
    base: &'static Kind,
    insight: &'static Kind,
    /// `type` of the overview.
    name: &'static str,
    /// Members that hold the specs of both.
    members: (&'static str, &'static str),
    /// Path of older clients.
    pub(super) legacy_path: &'static str,
}

static ALL: [Overview; 4] = [
    Overview {
        base: &dataplane::KIND,
        insight: &dataplane_insight::KIND,
        name: "DataplaneOverview",
        members: ("dataplane", "dataplaneInsight"),
        legacy_path: "dataplanes+insights",
    },
    Overview {
        base: &zone::KIND,
        insight: &zone_insight::KIND,
        name: "ZoneOverview",
        members: ("zone", "zoneInsight"),
        legacy_path: "zones+insights",
    },
    Overview {
        base: &zone_ingress::KIND,
        insight: &zone_ingress_insight::KIND,
        name: "ZoneIngressOverview",
        members: ("zoneIngress", "zoneIngressInsight"),
        legacy_path: "zoneingresses+insights",
    },
    Overview {
        base: &zone_egress::KIND,
        insight: &zone_egress_insight::KIND,
        name: "ZoneEgressOverview",
        members: ("zoneEgress", "zoneEgressInsight"),
        legacy_path: "zoneegressoverviews",
    },
];

/// The overview of `kind`, where there is one.
pub(super) fn of(kind: &Kind) -> Option<&'static Overview> {
    ALL.iter().find(|overview| overview.base == kind)
}

/// `GET` of one overview.
pub(super) async fn item(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    if matches!(ResourceForm::parse(&query)?, ResourceForm::Kubernetes { .. }) {
        return Err(ApiError::bad_request("an overview is no resource that Kubernetes has a form of"));
    }
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let resource = index.get(&at.key(&target)).ok_or_else(|| ApiError::not_found(ITEM))?;
    let (resource, api) = (Arc::clone(resource), Arc::clone(&at.api));
    // Of a zone that is away, what it has missed is counted.
    let counted = (at.kind == &zone::KIND).then(|| index.iter()).into_iter().flatten();
    let bytes = weight(&at, &index, &resource) + read::weight_of_all(counted);
    let sight = api.sight(&user);
    let answer = move || Ok(json_response(StatusCode::OK, &sight.of(show(&at, &index, &resource)?)));
    api.make(&client, bytes, answer).await
}

/// `GET` of a list of overviews; pages over the base resources.
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
    let wanted = wanted(at.kind, &query)?;
    let (api, sight, link) = (Arc::clone(&at.api), at.api.sight(&user), PageLink::of(request, query));
    let insights = of(at.kind).map(|overview| index.list(overview.insight)).into_iter().flatten();
    let bytes = read::weight_of_all(asked.among(&index).chain(insights));
    let answer = move || {
        let lost = wanted.map(|_| LostZones::owning(&at.api, asked.among(&index))).unwrap_or_default();
        let is_wanted = |one: &Resource| wanted.is_none_or(|is| ProxyCondition::of(&index, one, &lost) == is);
        asked.search_for(&index, is_wanted).respond(link, |one| Ok(sight.of(show(&at, &index, one)?)))
    };
    api.make(&client, bytes, answer).await
}

/// How dataplanes do that are asked for with `status`; of any other kind that is asked nothing.
fn wanted(kind: &Kind, query: &Query) -> Result<Option<ProxyCondition>, ApiError> {
    let word = page::value(query, "status").filter(|_| kind == &dataplane::KIND);
    let invalid = |reason| ApiError::invalid(LIST, &Violations::one("status", reason));
    word.map(|word| ProxyCondition::parse(word).map_err(invalid)).transpose()
}

/// Bytes that an overview is made from.
fn weight(at: &KindApi, index: &Index, resource: &Resource) -> usize {
    let insight = of(at.kind).and_then(|overview| {
        index.get(&ResourceKey::new(overview.insight, resource.mesh(), resource.name()))
    });
    read::weight(resource) + insight.map_or(0, |insight| read::weight(insight))
}

fn show(at: &KindApi, index: &Index, resource: &Resource) -> Result<Value, ApiError> {
    let Some(overview) = of(at.kind) else { return Err(ApiError::not_found(TITLE)) };
    let spec = |resource: &Resource| {
        transcode::to_json(resource.kind(), &resource.spec)
            .map_err(|error| ApiError::internal(TITLE, format!("{}: {error}", resource.key)))
    };
    let mut object = document::meta(resource);
    object.insert("type".into(), overview.name.into());
    object.insert(overview.members.0.into(), spec(resource)?);
    let key = ResourceKey::new(overview.insight, resource.mesh(), resource.name());
    if let Some(insight) = index.get(&key) {
        object.insert(overview.members.1.into(), Sight::Whole.on(overview.insight).of(spec(insight)?));
    }
    if resource.kind() == &zone::KIND {
        let source = at.api.config.zone_status.as_ref();
        if let Some(status) = source.and_then(|s| s.zone_status(resource.name(), index)) {
            object.insert("strait".into(), json!(status));
        }
    }
    // What its insight says is what its zone told last.
    if resource.kind().is_proxy
        && let Origin::Zone(owner) = &resource.origin
        && let Some(source) = &at.api.config.zone_status
    {
        let status = source.zone_progress(owner);
        if status.status != ZoneHealth::Online {
            let zone = json!({ "name": owner, "status": status.status, "since": status.since });
            object.insert("strait".into(), json!({ "status": ZoneHealth::Unknown, "zone": zone }));
        }
    }
    Ok(Value::Object(object))
}
