//! On whose behalf a policy was written.

use crate::model::{Resource, labels};

/// Outside Kubernetes it is always the operator of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyRole {
    /// The operator of the mesh.
    System,
    /// Who runs the destination; valid for clients everywhere, also in other zones.
    Producer,
    /// Who runs the client.
    Consumer,
    /// Who runs the workload itself.
    WorkloadOwner,
}

impl PolicyRole {
    /// What the labels of a policy say; without a word the operator of the mesh wrote it.
    pub fn of(policy: &Resource) -> Self {
        let labelled = policy.label(labels::POLICY_ROLE);
        let roles = [Self::Producer, Self::Consumer, Self::WorkloadOwner];
        roles.into_iter().find(|role| Some(role.label()) == labelled).unwrap_or(Self::System)
    }

    /// Its value of [`labels::POLICY_ROLE`].
    pub const fn label(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::WorkloadOwner => "workload-owner",
        }
    }
}
