//! `MeshTrafficPermission`: who may call whom.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTrafficPermission", "meshtrafficpermissions")
    .flow(61)
    .named("meshtrafficpermission", "mtp")
    .policy(PolicyTraits { target_ref: true, to: false, from: true, rules: true, from_as_rules: false });
