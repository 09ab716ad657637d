//! What global has seen of a zone's sync: subscriptions, pings, streams.

use crate::{
    model::{Kind, MessageSpec},
    proto::kuma::system::v1alpha1::ZoneInsight,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneInsight", "zone-insights", "kuma.system.v1alpha1.ZoneInsight")
    .global()
    .flow(24)
    .insight()
    .typed::<ZoneInsight>();

impl MessageSpec for ZoneInsight {}
