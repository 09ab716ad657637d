//! What a proxy shows to others, and where it has that from.

use std::sync::Arc;

use crate::mesh::{AgentIdentity, GivenIdentity, WorkloadCertificate};

/// What a proxy shows to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// What was signed for it in the zone.
    Certificate(Arc<WorkloadCertificate>),
    /// Whatever the agent beside it gives it.
    FromAgent(Arc<AgentIdentity>),
}

/// By whom a proxy was given the identity that it shows, where that is not one of its mesh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Giver {
    /// The zone, as the `MeshIdentity` with this identifier says.
    Zone(Arc<str>),
    /// An agent of SPIRE, which knows it by this SPIFFE identity.
    Agent(Arc<str>),
}

impl Shown {
    /// By whom it was given; `None` for what the mesh gives everybody.
    pub fn given(&self) -> Option<Giver> {
        match self {
            Self::Certificate(certificate) => certificate.given_by().cloned().map(Giver::Zone),
            Self::FromAgent(identity) => Some(Giver::Agent(identity.given.id.as_str().into())),
        }
    }

    /// What a `MeshIdentity` calls it; `None` for what the mesh gives everybody.
    pub fn name(&self) -> Option<&GivenIdentity> {
        match self {
            Self::Certificate(certificate) => certificate.identity.given.as_ref(),
            Self::FromAgent(identity) => Some(&identity.given),
        }
    }

    /// What was signed in the zone; `None` for what it has from elsewhere.
    pub fn certificate(&self) -> Option<&Arc<WorkloadCertificate>> {
        match self {
            Self::Certificate(certificate) => Some(certificate),
            Self::FromAgent(_) => None,
        }
    }
}
