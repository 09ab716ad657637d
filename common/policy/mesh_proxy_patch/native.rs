//! Envoy's own messages, as somebody writes them in YAML.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage};
use serde_json::Value;
use thiserror::Error;

use crate::{
    model::text::{self, TextError, TextLimits},
    proto::NATIVE_DESCRIPTORS,
};

/// Everything Envoy knows. It is large, so only who patches something loads it.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(NATIVE_DESCRIPTORS).expect("the build script wrote valid descriptors")
});

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Native {
    Cluster,
    Listener,
    VirtualHost,
    NetworkFilter,
    HttpFilter,
}

/// Why something is no message of Envoy's.
#[derive(Debug, Error)]
pub enum NativeError {
    /// It is not YAML.
    #[error("{0}")]
    Text(#[from] TextError),
    /// It is not the message it should be.
    #[error("{0}")]
    Message(#[from] serde_json::Error),
    /// Nobody knows the type of something packed in it.
    #[error("no message type {0:?}")]
    UnknownType(String),
    /// Bytes are not of their type.
    #[error("decode message: {0}")]
    Decode(#[from] prost::DecodeError),
}

impl Native {
    /// Its message type.
    pub fn descriptor(self) -> MessageDescriptor {
        let name = match self {
            Self::Cluster => "envoy.config.cluster.v3.Cluster",
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::VirtualHost => "envoy.config.route.v3.VirtualHost",
            Self::NetworkFilter => "envoy.config.listener.v3.Filter",
            Self::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        };
        POOL.get_message_by_name(name).expect("the build script compiles all of Envoy's messages")
    }

    /// The message that `yaml` stands for. Members nobody knows are passed over.
    ///
    /// # Errors
    /// [`NativeError`] when it is no such message.
    pub fn parse(self, yaml: &str) -> Result<DynamicMessage, NativeError> {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        read(self.descriptor(), &text::yaml(yaml, TextLimits::INLINE)?, &options)
    }

    /// What `yaml` has that nobody knows and that is passed over.
    pub fn unknown(self, yaml: &str) -> Option<String> {
        let json = text::yaml(yaml, TextLimits::INLINE).ok()?;
        of_json(self.descriptor(), &json).err().map(|error| error.to_string())
    }
}

/// The type of something packed.
///
/// # Errors
/// [`NativeError::UnknownType`].
pub fn packed(type_url: &str) -> Result<MessageDescriptor, NativeError> {
    let known = type_url.rsplit_once('/').and_then(|(_, name)| POOL.get_message_by_name(name));
    known.ok_or_else(|| NativeError::UnknownType(type_url.to_owned()))
}

/// The message with this JSON form.
///
/// # Errors
/// [`NativeError::Message`] when there is none, or something in it nobody knows.
pub fn of_json(descriptor: MessageDescriptor, json: &Value) -> Result<DynamicMessage, NativeError> {
    read(descriptor, json, &DeserializeOptions::new())
}

fn read(
    descriptor: MessageDescriptor,
    json: &Value,
    options: &DeserializeOptions,
) -> Result<DynamicMessage, NativeError> {
    Ok(DynamicMessage::deserialize_with_options(descriptor, json, options)?)
}

/// The JSON form of a message.
///
/// # Errors
/// [`NativeError::Message`] when something packed in it has none.
pub fn to_json(message: &DynamicMessage) -> Result<Value, NativeError> {
    let options = prost_reflect::SerializeOptions::new().stringify_64_bit_integers(true);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// The name a message bears.
pub fn name(message: &DynamicMessage) -> String {
    let field = message.descriptor().get_field_by_name("name");
    let name = field.as_ref().map(|field| message.get_field(field));
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
