//! Settings the control plane keeps for itself; it has no REST path.

use crate::{
    model::{Kind, MessageSpec},
    proto::kuma::system::v1alpha1::Config,
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("Config", "", "kuma.system.v1alpha1.Config").global().flow(25).keeps_name().typed::<Config>();

impl MessageSpec for Config {}
