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

pub(super) static MESH_EXTERNAL_SERVICE: Shape = Object(&[
    must(
        "match",
        &Object(&[
            may("type", &OneOf(&["HostnameGenerator"])),
            must("port", &Port),
            may("protocol", &PROTOCOL),
        ]),
    ),
    may("extension", &EXTENSION),
    may(
        "endpoints",
        &List(&Object(&[must("address", &Text), may("port", &Port), may("priority", &Integer)])),
    ),
    may(
        "tls",
        &Object(&[
            may("enabled", &Flag),
            may("version", &Object(&[may("min", &Text), may("max", &Text)])),
            may("allowRenegotiation", &Flag),
            may("verification", &VERIFICATION),
        ]),
    ),
]);
const VERIFICATION: Shape = Object(&[
    may("mode", &Text),
    may("serverName", &Text),
    may("subjectAltNames", &List(&Object(&[may("type", &Text), must("value", &Text)]))),
    may("caCert", &Object(&[])),
    may("clientCert", &Object(&[])),
    may("clientKey", &Object(&[])),
]);

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

pub(super) static MESH_ZONE_ADDRESS: Shape = Object(&[must("address", &Text), must("port", &Port)]);

pub(super) static MESH_IDENTITY: Shape = Object(&[
    may("selector", &Object(&[may("dataplane", &LABELS)])),
    may("spiffeID", &Object(&[may("trustDomain", &Text), may("path", &Text)])),
    may(
        "provider",
        &Tagged {
            by: &[("Bundled", ""), ("Spire", ""), ("Extension", "")],
            members: &[
                may("bundled", &BUNDLED),
                may("spire", &Object(&[may("agent", &Object(&[may("timeout", &Duration)]))])),
                may("extension", &Object(&[must("name", &Text)])),
            ],
        },
    ),
]);
const BUNDLED: Shape = Object(&[
    may("meshTrustCreation", &OneOf(&["Enabled", "Disabled"])),
    may("insecureAllowSelfSigned", &Flag),
    may("autogenerate", &Object(&[may("enabled", &Flag)])),
    may("ca", &Object(&[may("certificate", &Object(&[])), may("privateKey", &Object(&[]))])),
    may("certificateParameters", &Object(&[may("expiry", &Text)])),
]);

pub(super) static MESH_TRUST: Shape = Object(&[
    may("origin", &Object(&[may("kri", &Text)])),
    must("trustDomain", &Text),
    must(
        "caBundles",
        &List(&Tagged { by: &[("Pem", "pem")], members: &[may("pem", &Object(&[must("value", &Text)]))] }),
    ),
]);

pub(super) static MESH_OPEN_TELEMETRY_BACKEND: Shape = Object(&[
    may("endpoint", &Object(&[may("address", &Text), may("port", &Port), may("path", &Text)])),
    may("protocol", &OneOf(&["grpc", "http"])),
    may("env", &Object(&[may("mode", &Text), may("precedence", &Text), may("allowSignalOverrides", &Flag)])),
]);

pub(super) static WORKLOAD: Shape = Object(&[]);
