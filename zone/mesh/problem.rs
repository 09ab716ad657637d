//! What could not be used while a context or a configuration was made.

use std::{fmt, sync::Arc};

use common::model::{Resource, ResourceKey};
use prost::Message;

/// What a problem is about. What an Envoy lacks comes first where not all are told, and what it lacks for nothing but what
/// others are called comes last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A resource that an Envoy would refuse.
    Refused(EnvoyResource),
    /// A resource in whose place there is another one.
    Contested(EnvoyResource),
    /// The same where the other one is rightly there: somebody called a service like it.
    Displaced(EnvoyResource),
    /// A resource of the mesh.
    Resource(ResourceKey),
    /// A part of the generator: a policy type, an outbound.
    Part(String),
    /// A server name by which nobody gets in, because another one has it.
    ServerName(String),
}

/// Names a resource for an Envoy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvoyResource {
    /// Its type.
    pub type_url: &'static str,
    /// Its name within the type.
    pub name: Arc<str>,
}

impl Subject {
    /// That resource.
    pub fn of(resource: &Resource) -> Self {
        Self::Resource(resource.key.clone())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(resource) | Self::Contested(resource) | Self::Displaced(resource) => {
                resource.fmt(f)
            }
            Self::Resource(key) => key.fmt(f),
            Self::Part(part) => f.write_str(part),
            Self::ServerName(name) => write!(f, "server name {name:?}"),
        }
    }
}

impl fmt::Display for EnvoyResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_type = self.type_url.rsplit('.').next().unwrap_or(self.type_url);
        write!(f, "{of_type} {:?}", self.name)
    }
}

/// Something that was left out, and why. The rest of the configuration stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What was left out.
    pub subject: Subject,
    /// Why, readable without the subject's content.
    pub reason: String,
}

impl Problem {
    /// The resource that is not sent because an Envoy would refuse it, if it is about one.
    pub(crate) fn refused(&self) -> Option<&EnvoyResource> {
        match &self.subject {
            Subject::Refused(resource) => Some(resource),
            Subject::Contested(_)
            | Subject::Displaced(_)
            | Subject::Resource(_)
            | Subject::Part(_)
            | Subject::ServerName(_) => None,
        }
    }

    /// Whether it is about what an Envoy gets, rather than about what was written.
    pub(crate) fn is_of_envoy(&self) -> bool {
        matches!(self.subject, Subject::Refused(_) | Subject::Contested(_) | Subject::Displaced(_))
    }

    /// Whether something was not to be made for the proxy. That a name is another one's, who may call himself whatever he
    /// likes and is somewhere else, is told, but it holds nothing up.
    pub(crate) fn is_lack(&self) -> bool {
        !matches!(self.subject, Subject::Displaced(_) | Subject::ServerName(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.reason)
    }
}

/// Decodes a protobuf spec; a broken one is a problem.
pub(super) fn decode<M: Message + Default>(resource: &Arc<Resource>) -> Result<M, Problem> {
    M::decode(&resource.spec[..]).map_err(|error| unreadable(resource, &error))
}

/// The problem of a spec that does not decode.
pub(super) fn unreadable(resource: &Arc<Resource>, error: &dyn fmt::Display) -> Problem {
    Problem { subject: Subject::of(resource), reason: format!("the spec does not decode: {error}") }
}
