//! What could not be used while a context or a configuration was made.

use std::{fmt, sync::Arc};

use common::model::{Resource, ResourceKey};
use prost::Message;

/// What a problem is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A resource of the mesh.
    Resource(ResourceKey),
    /// A part of the generator: a policy type, an outbound.
    Part(String),
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
            Self::Resource(key) => key.fmt(f),
            Self::Part(part) => f.write_str(part),
        }
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
