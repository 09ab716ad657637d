//! Services as resources, and what names them: stored, served and synced.

mod shapes;

pub use super::identity::KIND as MESH_IDENTITY;
use super::{
    hostname_generator::HostnameGenerator, mesh_external_service::MeshExternalService,
    mesh_multi_zone_service::MeshMultiZoneService,
};
use crate::model::{Kind, PortsIn, Referent, Spec};

/// A service outside the mesh, reached through an egress.
pub static MESH_EXTERNAL_SERVICE: Kind = Kind::json("MeshExternalService", "meshexternalservices")
    .flow(29)
    .named("meshexternalservice", "extsvc")
    .with_status()
    .empty_status(r#"{"vip":{}}"#)
    .referent(Referent::Whole)
    .service(PortsIn::Match)
    .caveat(|spec| {
        let spec = MeshExternalService::decode(spec).ok()?;
        spec.caveat()
    })
    .typed::<MeshExternalService>();

/// One service made of the services of several zones.
pub static MESH_MULTI_ZONE_SERVICE: Kind = Kind::json("MeshMultiZoneService", "meshmultizoneservices")
    .flow(17)
    .named("meshmultizoneservice", "mzsvc")
    .with_status()
    .referent(Referent::Ports)
    .service(PortsIn::Ports)
    .shaped(&shapes::MESH_MULTI_ZONE_SERVICE)
    .typed::<MeshMultiZoneService>();

/// Template for the host names of services.
pub static HOSTNAME_GENERATOR: Kind = Kind::json("HostnameGenerator", "hostnamegenerators")
    .global()
    .flow(29)
    .named("hostnamegenerator", "hg")
    .shaped(&shapes::HOSTNAME_GENERATOR)
    .caveat(|spec| HostnameGenerator::decode(spec).ok()?.caveat())
    .typed::<HostnameGenerator>();
