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
use prost::Message;
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
/// Bytes of everything else in it.
const ENTRIES: usize = 32 << 20;

/// A proxy and what its streams say, the newest last.
pub(super) struct ClientReport {
    pub(super) proxy: Arc<Proxy>,
    pub(super) config: Option<Arc<ProxyConfig>>,
    pub(super) streams: Vec<StreamReport>,
    /// Another stream did not say anything in time.
    pub(super) is_silent: bool,
}

/// An answer would take too long to look through.
#[derive(Debug, Error)]
pub(super) enum TooMuch {
    #[error(
        "what these clients should have is more than {CONTENTS} bytes: mean fewer with node_matchers, or leave the \
         contents out with exclude_resource_contents"
    )]
    Contents,
    #[error(
        "what there is to say about these clients is more than {ENTRIES} bytes: mean fewer with node_matchers"
    )]
    Entries,
}

/// An answer that is being made.
pub(super) struct StatusAnswer {
    config: Vec<ClientConfig>,
    room: StatusRoom,
}

/// What still fits into it.
struct StatusRoom {
    /// None are shown where there is none.
    contents: Option<usize>,
    entries: usize,
}

impl StatusAnswer {
    /// About nobody yet.
    pub(super) fn new(with_contents: bool) -> Self {
        let room = StatusRoom { contents: with_contents.then_some(CONTENTS), entries: ENTRIES };
        Self { config: Vec::new(), room }
    }

    /// The same with what there is to say about `clients`.
    pub(super) fn with(mut self, clients: &[ClientReport]) -> Result<Self, TooMuch> {
        for client in clients {
            self.config.push(shown(client, &mut self.room)?);
        }
        Ok(self)
    }

    pub(super) fn into_response(self) -> ClientStatusResponse {
        ClientStatusResponse { config: self.config }
    }
}

fn shown(client: &ClientReport, room: &mut StatusRoom) -> Result<ClientConfig, TooMuch> {
    let node = node(&client.proxy);
    room.take_entry(node.encoded_len())?;
    let mut generic_xds_configs = Vec::new();
    for type_url in type_url::ALL {
        // What the newest stream says that is about this type counts.
        let of_type = client.streams.iter().rev().flat_map(|stream| &stream.types);
        let told = of_type.into_iter().find(|told| told.type_url == type_url);
        let untold = if told.is_none() { untold(client, type_url) } else { Vec::new() };
        // A stream that did not say so may have sent it.
        let is_unknown = told.is_none() && client.is_silent;
        for resource in told.map_or(&untold, |told| &told.resources) {
            let mut entry = entry(told, resource);
            if is_unknown {
                entry.config_status = ConfigStatus::Unknown.into();
            }
            room.take_entry(entry.encoded_len())?;
            entry.xds_config =
                room.contents.as_mut().map(|room| contents(&resource.wanted, room)).transpose()?.flatten();
            generic_xds_configs.push(entry);
        }
    }
    Ok(ClientConfig { node: Some(node), generic_xds_configs, ..ClientConfig::default() })
}

impl StatusRoom {
    fn take_entry(&mut self, bytes: usize) -> Result<(), TooMuch> {
        /// What stands around it in memory.
        const AROUND: usize = 64;
        self.entries = self.entries.checked_sub(bytes + AROUND).ok_or(TooMuch::Entries)?;
        Ok(())
    }
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

fn entry(told: Option<&TypeReport>, resource: &ResourceReport) -> GenericXdsConfig {
    let version = resource.wanted.told_version().into_owned();
    let error_state = resource.refusal.as_ref().map(|refusal| UpdateFailureState {
        details: refusal.to_string(),
        version_info: version.clone(),
        ..UpdateFailureState::default()
    });
    GenericXdsConfig {
        type_url: resource.wanted.type_url.to_owned(),
        name: resource.wanted.name.to_string(),
        version_info: told.and_then(|told| told.version.clone()).unwrap_or(version),
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
    *room = room.checked_sub(wanted.value.len()).ok_or(TooMuch::Contents)?;
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
        cluster: proxy.cluster.to_string(),
        metadata: Some(metadata),
        user_agent_version_type: version.map(UserAgentVersionType::UserAgentVersion),
        ..Node::default()
    }
}
