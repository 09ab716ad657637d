//! Services, who serves them, and where other zones are entered: read from what is stored when somebody asks.

mod endpoints;
mod registry;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use common::{access::User, rest::ApiError, runtime::http::Client};
use serde_json::{Map, Value, json};

use self::registry::ServiceNames;
use super::{
    Room,
    answer::{AnswerRoom, RedactedDocument},
    query::DebugQuery,
};
use crate::{
    ads::node::ProxyId,
    mesh::{Dataplane, Destination, MeshContext, MeshState, Protocol},
};

impl Room {
    /// The meshes that are meant.
    async fn meshes(&self, query: &DebugQuery) -> Vec<MeshState> {
        let mut all = self.seen.previews.meshes().await;
        all.retain(|state| query.mesh.as_ref().is_none_or(|mesh| **mesh == *state.context().mesh));
        all
    }
}

pub(super) async fn registryz(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let query = DebugQuery::read(&query)?;
    let meshes = room.meshes(&query).await;
    let make = move |space: &mut AnswerRoom| {
        let mut all = Vec::new();
        for service in meshes.iter().flat_map(|state| registry::services(state.context())) {
            space.admit(&service)?;
            all.push(RedactedDocument::of(service));
        }
        Ok(RedactedDocument::assembled(RedactedDocument::list(all)))
    };
    room.answer(&client, &query, make).await
}

pub(super) async fn endpoint_shardz(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let query = DebugQuery::read(&query)?;
    let meshes = room.meshes(&query).await;
    let make = move |space: &mut AnswerRoom| {
        let mut shards: Map<String, Value> = Map::new();
        for mesh in meshes.iter().map(MeshState::context) {
            for (service, shard) in endpoints::shards(mesh) {
                space.admit(&shard)?;
                shards.entry(service).or_insert_with(|| json!({}))[&*mesh.mesh] = shard;
            }
        }
        Ok(RedactedDocument::of(shards.into()))
    };
    room.answer(&client, &query, make).await
}

/// What the connected proxies serve.
pub(super) async fn instancesz(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let query = DebugQuery::read(&query)?;
    let meshes = room.meshes(&query).await;
    let connected: BTreeSet<(Arc<str>, Arc<str>)> =
        room.clients(&query).into_iter().map(|client| key(&client.proxy.id)).collect();
    let make = move |space: &mut AnswerRoom| {
        let mut instances = Map::new();
        for state in &meshes {
            let mesh = state.context();
            let names = ServiceNames::of(mesh);
            for (name, dataplane) in &mesh.dataplanes {
                if connected.contains(&(Arc::clone(&mesh.mesh), Arc::clone(name))) {
                    let served = Value::Array(instances_of(state, dataplane, &names));
                    space.admit(&served)?;
                    instances.insert(format!("{}.{name}", mesh.mesh), served);
                }
            }
        }
        Ok(RedactedDocument::of(instances.into()))
    };
    room.answer(&client, &query, make).await
}

fn key(id: &ProxyId) -> (Arc<str>, Arc<str>) {
    (Arc::clone(&id.mesh), Arc::clone(&id.name))
}

fn instances_of(state: &MeshState, dataplane: &Dataplane, names: &ServiceNames<'_>) -> Vec<Value> {
    let mesh = state.context();
    let mut all = Vec::new();
    for destination in state.served_by(dataplane) {
        let service = names.instance(&destination, mesh);
        let behind: Vec<_> = match &destination {
            Destination::Port(name, number) => {
                let service = mesh.mesh_services.get(name);
                let port = service.and_then(|service| Some((service, service.numbered(*number)?)));
                port.into_iter()
                    .flat_map(|(service, port)| {
                        service.inbounds(dataplane, port).map(move |i| (port.port, i))
                    })
                    .collect()
            }
            other => {
                let is_of =
                    |tag: Option<&str>| matches!(other, Destination::Service(name) if tag == Some(&**name));
                let inbounds = dataplane.inbounds.iter().filter(|inbound| is_of(inbound.service()));
                inbounds.map(|inbound| (inbound.port, inbound)).collect()
            }
        };
        for (port, inbound) in behind {
            let port = json!({
                "name": inbound.section,
                "port": port,
                "protocol": protocol(inbound.protocol),
                "TargetPort": inbound.port,
            });
            all.push(json!({ "Service": service, "Port": port }));
        }
    }
    all
}

/// Where other zones, and this one from others, are entered.
pub(super) async fn networkz(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let query = DebugQuery::read(&query)?;
    let meshes = room.meshes(&query).await;
    let make = move |space: &mut AnswerRoom| {
        let all: BTreeMap<_, Value> = meshes.iter().flat_map(|state| gateways(state.context())).collect();
        let all = Value::Array(all.into_values().collect());
        space.admit(&all)?;
        Ok(RedactedDocument::of(all))
    };
    room.answer(&client, &query, make).await
}

/// The ways into zones that a mesh knows, each once.
fn gateways(mesh: &MeshContext) -> Vec<((String, String, u32), Value)> {
    let ingresses = mesh.ingresses.values().filter_map(|ingress| {
        let (address, port) = ingress.public?;
        Some((ingress.zone().unwrap_or(&mesh.zone).to_owned(), address.to_string(), port))
    });
    let own = mesh.zone_addresses.values();
    let own = own.map(|at| (at.zone.clone(), at.door.0.to_string(), at.door.1));
    let shown = |place: (String, String, u32)| {
        let (zone, address, port) = &place;
        let gateway = json!({
            "Network": zone,
            "Cluster": zone,
            "Addr": address,
            "Port": port,
            "HBONEPort": 0,
            "ServiceAccount": "",
        });
        (place, gateway)
    };
    ingresses.chain(own).map(shown).collect()
}

/// In the words of Pilot.
fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Unknown => "UnsupportedProtocol",
        Protocol::Tcp | Protocol::Kafka => "TCP",
        Protocol::Http => "HTTP",
        Protocol::Http2 => "HTTP2",
        Protocol::Grpc => "GRPC",
    }
}
