//! What is answered about each proxy.

use std::sync::Arc;

use common::{
    proto::{
        envoy::{
            admin::v3::UpdateFailureState,
            config::core::v3::{Node, node::UserAgentVersionType},
            service::status::v3::{
                ClientConfig, ClientStatusResponse, ConfigStatus, client_config::GenericXdsConfig,
            },
        },
        google::protobuf::Any,
    },
    redact,
    xds::{Standing, Want, Wanted},
};
use thiserror::Error;

use crate::{
    ads::{
        config::ProxyConfig,
        inquiry::{ResourceReport, StreamReport, TypeReport},
        node::Proxy,
    },
    generator::{from_json, to_json, type_url},
};

/// Bytes of contents in an answer: all of them are looked through for secrets.
const CONTENTS: usize = 8 << 20;

/// A proxy and what its streams say, the newest last.
pub(super) struct ClientReport {
    pub(super) proxy: Arc<Proxy>,
    pub(super) config: Option<Arc<ProxyConfig>>,
    pub(super) streams: Vec<StreamReport>,
}

/// An answer would take too long to look through.
#[derive(Debug, Error)]
#[error(
    "what these proxies should have is more than {CONTENTS} bytes: mean fewer with node_matchers, or leave the contents \
     out with exclude_resource_contents"
)]
pub(super) struct TooMuch;

/// The answer about `clients`.
pub(super) fn response(
    clients: &[ClientReport],
    with_contents: bool,
) -> Result<ClientStatusResponse, TooMuch> {
    let mut room = with_contents.then_some(CONTENTS);
    let config = clients.iter().map(|client| shown(client, room.as_mut()));
    Ok(ClientStatusResponse { config: config.collect::<Result<_, _>>()? })
}

fn shown(client: &ClientReport, mut room: Option<&mut usize>) -> Result<ClientConfig, TooMuch> {
    let mut generic_xds_configs = Vec::new();
    for type_url in type_url::ALL {
        // What the newest stream says that is about this type counts.
        let of_type = client.streams.iter().rev().flat_map(|stream| &stream.types);
        let told = of_type.into_iter().find(|told| told.type_url == type_url);
        let untold = if told.is_none() { untold(client, type_url) } else { Vec::new() };
        for resource in told.map_or(&untold, |told| &told.resources) {
            let contents = room.as_deref_mut().map(|room| contents(&resource.wanted, room)).transpose()?;
            generic_xds_configs.push(entry(told, resource, contents.flatten()));
        }
    }
    Ok(ClientConfig { node: Some(node(&client.proxy)), generic_xds_configs, ..ClientConfig::default() })
}

/// Of a type that no stream is about.
fn untold(client: &ClientReport, type_url: &str) -> Vec<ResourceReport> {
    let mut resources = Vec::new();
    if let Some(all) = client.config.as_ref().and_then(|config| config.collection(type_url)) {
        all.each(&mut |wanted| {
            resources.push(ResourceReport { wanted, standing: Standing::NotSent, refusal: None });
        });
    }
    resources
}

fn entry(told: Option<&TypeReport>, resource: &ResourceReport, contents: Option<Any>) -> GenericXdsConfig {
    let version = resource.wanted.version.to_string();
    let error_state = resource.refusal.as_ref().map(|refusal| UpdateFailureState {
        details: refusal.to_string(),
        version_info: version.clone(),
        ..UpdateFailureState::default()
    });
    GenericXdsConfig {
        type_url: resource.wanted.type_url.to_owned(),
        name: resource.wanted.name.to_string(),
        version_info: told.and_then(|told| told.version.clone()).unwrap_or(version),
        xds_config: contents,
        config_status: status(resource.standing).into(),
        error_state,
        ..GenericXdsConfig::default()
    }
}

fn status(standing: Standing) -> ConfigStatus {
    match standing {
        Standing::NotSent => ConfigStatus::NotSent,
        Standing::Sent => ConfigStatus::Stale,
        Standing::Taken => ConfigStatus::Synced,
        Standing::Refused => ConfigStatus::Error,
    }
}

/// A resource without what is secret in it; nothing where that cannot be told.
fn contents(wanted: &Wanted, room: &mut usize) -> Result<Option<Any>, TooMuch> {
    *room = room.checked_sub(wanted.value.len()).ok_or(TooMuch)?;
    if wanted.type_url == type_url::SECRET {
        return Ok(None);
    }
    let Ok(mut json) = to_json(wanted.type_url, &wanted.value) else { return Ok(None) };
    redact::json(&mut json);
    let value = from_json(wanted.type_url, json).ok();
    Ok(value.map(|value| Any { type_url: wanted.type_url.to_owned(), value }))
}

fn node(proxy: &Proxy) -> Node {
    let mut metadata = (*proxy.metadata).clone();
    redact::structure(&mut metadata);
    let version = Some(proxy.user_agent.clone()).filter(|version| !version.is_empty());
    Node {
        id: proxy.id.to_string(),
        metadata: Some(metadata),
        user_agent_version_type: version.map(UserAgentVersionType::UserAgentVersion),
        ..Node::default()
    }
}
