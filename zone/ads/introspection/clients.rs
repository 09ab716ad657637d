//! Who is connected, how far they are, and a way to let them go.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::{Query, State},
    response::Response,
};
use common::{
    access::User,
    document,
    rest::ApiError,
    store::index::Index,
    structure,
    xds::{Interest, envoy},
};
use serde_json::{Map, Value, json};

use super::{
    Room,
    answer::{AnswerRoom, RedactedDocument},
    connection::ReportedClient,
    query::{DebugQuery, connection_id},
    request::DebugRequest,
};
use crate::ads::{
    inquiry::{InquiryScope, StreamReport},
    node::{Proxy, ProxyKind},
    proxies::{ProxyView, StreamView, TypeView},
};

/// What members of `syncz` are called, by type.
const SYNCED: [(&str, &str); 5] = [
    ("cluster", envoy::CLUSTER),
    ("listener", envoy::LISTENER),
    ("route", envoy::ROUTE),
    ("endpoint", envoy::ENDPOINTS),
    ("extensionconfig", envoy::EXTENSION_CONFIG),
];

pub(super) async fn syncz(request: DebugRequest) -> Result<Response, ApiError> {
    let clients = request.clients();
    let (zone, instance) = (Arc::clone(&request.seen().zone), Arc::clone(&request.seen().instance));
    let make = move |space: &mut AnswerRoom| {
        let mut all = Vec::new();
        for client in &clients {
            for stream in &client.streams {
                all.push(sync_of(client, stream, (&zone, &instance), space)?);
            }
        }
        Ok(RedactedDocument::assembled(RedactedDocument::list(all)))
    };
    request.answer(make).await
}

fn sync_of(
    client: &ProxyView,
    stream: &StreamView,
    (zone, instance): (&str, &str),
    space: &mut AnswerRoom,
) -> Result<RedactedDocument, ApiError> {
    let proxy = &client.proxy;
    let mut item = json!({
        "cluster_id": zone,
        "proxy": proxy.id.to_string(),
        "proxy_type": proxy_type(proxy),
        "proxy_version": envoy_version(proxy),
        "istio_version": proxy.version("kumaDp", "version"),
        "connection_id": connection_id(&proxy.id, stream.id),
        "instance": instance,
    });
    for (name, type_url) in SYNCED {
        let seen = stream.types.get(type_url);
        item[format!("{name}_sent")] = nonce(seen.map_or(0, |seen| seen.nonce)).into();
        item[format!("{name}_acked")] = nonce(seen.map_or(0, |seen| seen.acknowledged_nonce)).into();
    }
    space.admit(&item)?;
    let told: BTreeMap<String, Value> =
        stream.types.iter().map(|(type_url, seen)| (type_url.clone(), sync_of_type(seen))).collect();
    let told = RedactedDocument::by_type(told);
    space.admit(&told)?;
    Ok(RedactedDocument::of(item).with("resources", told))
}

fn sync_of_type(seen: &TypeView) -> Value {
    json!({
        "sent": nonce(seen.nonce),
        "acked": nonce(seen.acknowledged_nonce),
        "sentTime": seen.sent_at.map(document::time),
        "lastError": seen.last_rejection.as_deref().unwrap_or_default(),
    })
}

/// As it stands in messages; nothing for one that never was.
fn nonce(nonce: u64) -> String {
    if nonce == 0 { String::new() } else { nonce.to_string() }
}

fn envoy_version(proxy: &Proxy) -> &str {
    Some(proxy.version("envoy", "version")).filter(|version| !version.is_empty()).unwrap_or(&proxy.user_agent)
}

/// In the words of Pilot.
fn proxy_type(proxy: &Proxy) -> &'static str {
    match proxy.id.kind {
        _ if proxy.id.is_of_no_mesh() => "node",
        ProxyKind::Dataplane => "sidecar",
        ProxyKind::Ingress | ProxyKind::Egress => "router",
    }
}

pub(super) async fn adsz(request: DebugRequest) -> Result<Response, ApiError> {
    if request.query.push {
        return Err(ApiError::bad_request(
            "nothing is pushed on demand: what differs is sent at once, and what a proxy refused is offered again; \
             POST /debug/force_disconnect makes a proxy ask for everything",
        ));
    }
    let clients = request.reports(InquiryScope::Interests).await;
    let (index, zone) = (request.seen().index.current(), Arc::clone(&request.seen().zone));
    let make = move |space: &mut AnswerRoom| {
        let mut all = Vec::new();
        for client in &clients {
            for (stream, told) in &client.streams {
                all.push(watching(client, (stream, told.as_ref()), (&index, &zone), space)?);
            }
        }
        Ok(listed(all))
    };
    request.answer(make).await
}

fn watching(
    client: &ReportedClient,
    (stream, told): (&StreamView, Option<&StreamReport>),
    (index, zone): (&Index, &str),
    space: &mut AnswerRoom,
) -> Result<RedactedDocument, ApiError> {
    let proxy = &client.proxy;
    let labels = index.get(&proxy.id.key()).map(|resource| json!(resource.labels));
    let mut item = connected(proxy, stream);
    item["labels"] = labels.unwrap_or_else(|| json!({}));
    item["metadata"] = Value::Object(structure::to_json((*proxy.metadata).clone()));
    item["locality"] = json!({ "zone": zone });
    item["problems"] = json!(client.problems);
    if told.is_none() {
        // It is not idle: it did not say in time what its client watches, or ended meanwhile.
        item["silent"] = true.into();
    }
    space.admit(&item)?;
    let mut watches = BTreeMap::new();
    for of in told.into_iter().flat_map(|told| &told.types) {
        space.take(of.interest.names().bytes() + 4 * of.interest.names().len())?;
        watches.insert(of.type_url.to_owned(), names(&of.interest));
    }
    Ok(RedactedDocument::of(item).with("watches", RedactedDocument::by_type(watches)))
}

/// The names that were asked for, in order; `*` for all there are.
fn names(interest: &Interest) -> Vec<String> {
    let mut names: Vec<String> = interest.names().iter().map(str::to_owned).collect();
    names.sort_unstable();
    if interest.wildcard && names.first().is_none_or(|first| first != "*") {
        names.insert(0, "*".to_owned());
    }
    names
}

pub(super) async fn connections(request: DebugRequest) -> Result<Response, ApiError> {
    let clients = request.clients();
    let make = move |space: &mut AnswerRoom| {
        let mut all = Vec::new();
        for client in &clients {
            for stream in &client.streams {
                let item = connected(&client.proxy, stream);
                space.admit(&item)?;
                all.push(RedactedDocument::of(item));
            }
        }
        Ok(listed(all))
    };
    request.answer(make).await
}

fn connected(proxy: &Proxy, stream: &StreamView) -> Value {
    json!({
        "connectionId": connection_id(&proxy.id, stream.id),
        "connectedAt": document::time(stream.connected),
        "address": stream.peer,
    })
}

fn listed(clients: Vec<RedactedDocument>) -> RedactedDocument {
    let mut list = Map::new();
    list.insert("totalClients".to_owned(), clients.len().into());
    list.insert("clients".to_owned(), RedactedDocument::list(clients));
    RedactedDocument::assembled(list.into())
}

/// Ends the connections that are meant.
pub(super) async fn force_disconnect(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiError> {
    let query = DebugQuery::read(&query)?;
    let meant = query.required_proxy()?;
    let in_mesh = |proxy: &Proxy| query.mesh.as_ref().is_none_or(|mesh| **mesh == *proxy.id.mesh);
    let means = |proxy: &Proxy, stream| {
        in_mesh(proxy) && (proxy.id.to_string() == meant || connection_id(&proxy.id, stream) == meant)
    };
    let ended = room.seen.proxies.dismiss(means) + room.seen.nodes.dismiss(means);
    if ended == 0 {
        // A part of a name would end the connections of web-10 with those of web-1.
        return Err(ApiError::not_found(
            "The proxy is not connected to this control plane; proxyID is the whole id of a node or of a connection, \
             see /debug/connections",
        ));
    }
    tracing::warn!(user = user.name, meant, ended, "an operator ended connections of proxies");
    Ok(Json(json!({ "disconnected": ended })))
}

#[cfg(test)]
mod tests {
    use common::store::StoreIdentity;

    use super::*;
    use crate::ads::node::ProxyId;

    #[test]
    fn a_stream_that_does_not_say_what_it_watches_is_not_shown_as_one_that_watches_nothing() {
        let proxy = Proxy {
            id: ProxyId::new(ProxyKind::Dataplane, "default", "web-1"),
            cluster: Arc::default(),
            metadata: Arc::default(),
            user_agent: String::new(),
        };
        let client = ReportedClient {
            proxy: Arc::new(proxy),
            config: None,
            problems: Arc::default(),
            streams: Vec::new(),
        };
        let index = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        let (stream, idle) = (StreamView::default(), StreamReport::default());
        let shown = |told| {
            let shown = watching(&client, (&stream, told), (&index, "east"), &mut AnswerRoom::default());
            shown.map(RedactedDocument::part).unwrap_or_default()
        };
        assert_eq!(shown(None)["silent"], true);
        let idle = shown(Some(&idle));
        assert_eq!((&idle["silent"], &idle["watches"]), (&Value::Null, &json!({})));
    }
}
