//! The proxy through which a zone reaches other zones and the outside.

use super::address::{check_host, check_port};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::ZoneEgress,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneEgress", "zoneegresses", "kuma.mesh.v1alpha1.ZoneEgress")
    .global()
    .flow(12)
    .named("zoneegress", "ze")
    .typed::<ZoneEgress>();

impl MessageSpec for ZoneEgress {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        let Some(networking) = &self.networking else {
            violations.add(path, "must be set");
            return violations;
        };
        if !networking.address.is_empty() {
            check_host(&networking.address, path.field("address"), &mut violations);
        }
        check_port(networking.port, path.field("port"), &mut violations);
        if let Some(admin) = &networking.admin {
            let same = admin.port != 0 && admin.port == networking.port;
            violations.check(same, path.field("admin").field("port"), "must differ from port");
        }
        violations
    }
}
