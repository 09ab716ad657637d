//! Services, who serves them, and where other zones are entered: read from what is stored when somebody asks.

mod endpoints;
mod registry;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::response::Response;
use common::rest::ApiError;
use serde_json::{Map, Value, json};

use self::registry::ServiceNames;
use super::{
    answer::{AnswerRoom, RedactedDocument},
    request::DebugRequest,
};
use crate::{
    ads::node::ProxyId,
    mesh::{Dataplane, Destination, MeshContext, MeshState, Protocol},
};

/// The meshes that are meant.
struct MeantMeshes {
    read: Vec<MeshState>,
    /// Those that cannot be read, and why.
    unreadable: Vec<(Arc<str>, String)>,
}

impl DebugRequest {
    /// The meshes that are meant.
    ///
    /// # Errors
    /// 409 when the only one that is meant cannot be read.
    async fn meshes(&self) -> Result<MeantMeshes, ApiError> {
        let of = self.query.mesh.clone();
        let all = self.seen().previews.meshes(of.as_deref()).await;
        let (mut read, mut unreadable) = (Vec::new(), Vec::new());
        for (mesh, state) in all {
            match state {
                Ok(state) => read.push(state),
                Err(error) if of.is_some() => return Err(ApiError::conflict(error.to_string())),
                Err(error) => unreadable.push((mesh, error.to_string())),
            }
        }
        Ok(MeantMeshes { read, unreadable })
    }
}

pub(super) async fn registryz(request: DebugRequest) -> Result<Response, ApiError> {
    let meshes = request.meshes().await?;
    let make = move |space: &mut AnswerRoom| {
        let mut all = Vec::new();
        let unreadable = meshes.unreadable.iter().map(|(mesh, reason)| registry::unreadable(mesh, reason));
        let services = meshes.read.iter().flat_map(|state| registry::services(state.context()));
        for service in services.chain(unreadable) {
            space.admit(&service)?;
            all.push(RedactedDocument::of(service));
        }
        Ok(RedactedDocument::assembled(RedactedDocument::list(all)))
    };
    request.answer(make).await
}

pub(super) async fn endpoint_shardz(request: DebugRequest) -> Result<Response, ApiError> {
    let meshes = request.meshes().await?;
    let make = move |space: &mut AnswerRoom| {
        let mut shards: Map<String, Value> = Map::new();
        for mesh in meshes.read.iter().map(MeshState::context) {
            for (service, shard) in endpoints::shards(mesh) {
                space.admit(&shard)?;
                shards.entry(service).or_insert_with(|| json!({}))[&*mesh.mesh] = shard;
            }
        }
        Ok(RedactedDocument::of(shards.into()))
    };
    request.answer(make).await
}

/// What the connected proxies serve.
pub(super) async fn instancesz(request: DebugRequest) -> Result<Response, ApiError> {
    let meshes = request.meshes().await?;
    let connected: BTreeSet<(Arc<str>, Arc<str>)> =
        request.clients().into_iter().map(|client| key(&client.proxy.id)).collect();
    let make = move |space: &mut AnswerRoom| {
        let mut instances = Map::new();
        for state in &meshes.read {
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
    request.answer(make).await
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
pub(super) async fn networkz(request: DebugRequest) -> Result<Response, ApiError> {
    let meshes = request.meshes().await?;
    let make = move |space: &mut AnswerRoom| {
        let all: BTreeMap<_, Value> =
            meshes.read.iter().flat_map(|state| gateways(state.context())).collect();
        let all = Value::Array(all.into_values().collect());
        space.admit(&all)?;
        Ok(RedactedDocument::of(all))
    };
    request.answer(make).await
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
