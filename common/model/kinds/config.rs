//! Settings the control plane keeps for itself; it has no REST path.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("Config", "", "kuma.system.v1alpha1.Config").global().flow(25).keeps_name();
