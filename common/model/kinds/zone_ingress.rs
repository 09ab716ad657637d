//! The proxy through which other zones reach the services of a zone.

use super::{
    address::{check_host, check_port},
    tags,
};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::ZoneIngress,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneIngress", "zoneingresses", "kuma.mesh.v1alpha1.ZoneIngress")
    .global()
    .flow(44)
    .named("zoneingress", "zi")
    .alias("zone-ingresses")
    .typed::<ZoneIngress>();

impl MessageSpec for ZoneIngress {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        let Some(networking) = &self.networking else {
            violations.add(path, "must be set");
            return violations;
        };
        // Both advertised parts may be empty: the zone control plane learns them later.
        let advertised = (networking.advertised_address.as_str(), networking.advertised_port);
        if !advertised.0.is_empty() {
            check_host(advertised.0, path.field("advertisedAddress"), &mut violations);
        }
        if advertised.1 != 0 {
            check_port(advertised.1, path.field("advertisedPort"), &mut violations);
        }
        if !networking.address.is_empty() {
            check_host(&networking.address, path.field("address"), &mut violations);
        }
        check_port(networking.port, path.field("port"), &mut violations);
        if let Some(admin) = &networking.admin {
            let same = admin.port != 0 && admin.port == networking.port;
            violations.check(same, path.field("admin").field("port"), "must differ from port");
        }
        for (i, service) in self.available_services.iter().enumerate() {
            let path = FieldPath::new("availableServices").index(i).field("tags");
            tags::check_service(&service.tags, &path, &mut violations);
            tags::check(&service.tags, &path, &mut violations);
        }
        violations
    }
}
