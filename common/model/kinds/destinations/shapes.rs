//! What the specs in [`super`] look like: the members of each and what they hold.

use crate::model::shape::{
    Member,
    Shape::{self, *},
};

const fn must(name: &'static str, shape: &'static Shape) -> Member {
    Member::required(name, shape)
}

const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member::optional(name, shape)
}

const LABELS: Shape = Object(&[may("matchLabels", &Map(&Text))]);
const EXTENSION: Shape = Object(&[must("type", &Text)]);
const PROTOCOL: Shape = OneOf(&["tcp", "grpc", "http", "http2", "kafka"]);

pub(super) static MESH_MULTI_ZONE_SERVICE: Shape = Object(&[
    must("selector", &Object(&[must("meshService", &LABELS)])),
    must("ports", &List(&Object(&[may("name", &Text), must("port", &Port), may("appProtocol", &PROTOCOL)]))),
]);

pub(super) static HOSTNAME_GENERATOR: Shape = Object(&[
    may(
        "selector",
        &Object(&[
            may("meshService", &LABELS),
            may("meshExternalService", &LABELS),
            may("meshMultiZoneService", &LABELS),
        ]),
    ),
    may("template", &Text),
    may("extension", &EXTENSION),
]);
