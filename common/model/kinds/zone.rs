//! A zone as global knows it: whether its cross-zone resources may be used.

use crate::{
    model::{Kind, MessageSpec},
    proto::kuma::system::v1alpha1::Zone,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("Zone", "zones", "kuma.system.v1alpha1.Zone")
    .global()
    .flow(24)
    .named("zone", "z")
    .typed::<Zone>();

impl MessageSpec for Zone {}
