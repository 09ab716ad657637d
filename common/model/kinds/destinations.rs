//! Services as resources, and what names and vouches for them: stored, served and synced.

mod shapes;

use crate::model::Kind;

/// A service outside the mesh, reached through an egress.
pub static MESH_EXTERNAL_SERVICE: Kind = Kind::json("MeshExternalService", "meshexternalservices")
    .flow(29)
    .named("meshexternalservice", "extsvc")
    .with_status()
    .empty_status(r#"{"vip":{}}"#)
    .shaped(&shapes::MESH_EXTERNAL_SERVICE);

/// One service made of the services of several zones.
pub static MESH_MULTI_ZONE_SERVICE: Kind = Kind::json("MeshMultiZoneService", "meshmultizoneservices")
    .flow(17)
    .named("meshmultizoneservice", "mzsvc")
    .with_status()
    .shaped(&shapes::MESH_MULTI_ZONE_SERVICE);

/// Template for the host names of services.
pub static HOSTNAME_GENERATOR: Kind = Kind::json("HostnameGenerator", "hostnamegenerators")
    .global()
    .flow(29)
    .named("hostnamegenerator", "hg")
    .shaped(&shapes::HOSTNAME_GENERATOR);

/// Public address of a zone's ingress.
pub static MESH_ZONE_ADDRESS: Kind = Kind::json("MeshZoneAddress", "meshzoneaddresses")
    .flow(44)
    .named("meshzoneaddress", "mza")
    .shaped(&shapes::MESH_ZONE_ADDRESS);

/// Who issues the identity of which workloads.
pub static MESH_IDENTITY: Kind = Kind::json("MeshIdentity", "meshidentities")
    .flow(29)
    .named("meshidentity", "mid")
    .with_status()
    .shaped(&shapes::MESH_IDENTITY);

/// A trust domain and its CA bundles.
pub static MESH_TRUST: Kind = Kind::json("MeshTrust", "meshtrusts")
    .flow(29)
    .named("meshtrust", "mtrust")
    .with_status()
    .shaped(&shapes::MESH_TRUST);

/// Where telemetry goes.
pub static MESH_OPEN_TELEMETRY_BACKEND: Kind =
    Kind::json("MeshOpenTelemetryBackend", "meshopentelemetrybackends")
        .flow(29)
        .named("meshopentelemetrybackend", "motb")
        .with_status()
        .shaped(&shapes::MESH_OPEN_TELEMETRY_BACKEND);

/// A group of dataplanes that run the same program.
pub static WORKLOAD: Kind = Kind::json("Workload", "workloads")
    .flow(12)
    .named("workload", "wl")
    .with_status()
    .empty_status(r#"{"dataplaneProxies":{"connected":0,"healthy":0,"total":0}}"#)
    .shaped(&shapes::WORKLOAD);
