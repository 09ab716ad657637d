//! Settings the control plane keeps for itself; it has no REST path.

use crate::{
    model::{Kind, MessageSpec, SyncStage},
    proto::kuma::system::v1alpha1::Config,
};

/// Name of the one that says which control plane this is, and that zones need.
pub const CLUSTER_ID: &str = "kuma-cluster-id";

/// The descriptor.
pub static KIND: Kind = Kind::proto("Config", "", "kuma.system.v1alpha1.Config")
    .global()
    .flow(25)
    .keeps_name()
    .synced(SyncStage::Settings)
    .typed::<Config>();

impl MessageSpec for Config {}
