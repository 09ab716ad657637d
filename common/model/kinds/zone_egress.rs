//! The proxy through which a zone reaches other zones and the outside.

use super::address::{check_host, check_port, is_loopback};
use crate::{
    model::{FieldPath, Kind, KubernetesForm, MessageSpec, Violations, ZoneField, ZoneFieldForm, labels},
    proto::kuma::mesh::v1alpha1::ZoneEgress,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneEgress", "zoneegresses", "kuma.mesh.v1alpha1.ZoneEgress")
    .global()
    .flow(12)
    .named("zoneegress", "ze")
    .proxy()
    .kubernetes(KubernetesForm::Namespaced)
    .labelled(|egress| labels::set(egress, labels::PROXY_TYPE, Some("zoneegress")))
    .zone_fields(&[ZoneField { shown: "zone", path: &["zone"], form: ZoneFieldForm::Name }])
    .typed::<ZoneEgress>();

impl MessageSpec for ZoneEgress {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        let networking = self.networking.clone().unwrap_or_default();
        if let Some(admin) = &networking.admin {
            let same = admin.port != 0 && admin.port == networking.port && is_loopback(&networking.address);
            violations.check(same, path.field("admin").field("port"), "must differ from port");
        }
        if !networking.address.is_empty() {
            check_host(&networking.address, path.field("address").field("address"), &mut violations);
        }
        check_port(networking.port, path.field("port"), &mut violations);
        violations
    }
}
