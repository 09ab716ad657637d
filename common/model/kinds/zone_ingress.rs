//! The proxy through which other zones reach the services of a zone.

use super::{
    address::{check_host, check_port, is_loopback},
    tags,
};
use crate::{
    model::{
        FieldPath, FieldStep, Kind, KubernetesForm, MessageSpec, Violations, ZoneField, ZoneFieldForm, labels,
    },
    proto::kuma::mesh::v1alpha1::ZoneIngress,
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneIngress", "zoneingresses", "kuma.mesh.v1alpha1.ZoneIngress")
    .global()
    .flow(44)
    .named("zoneingress", "zi")
    .alias("zone-ingresses")
    .proxy()
    // It lists all services of its zone.
    .largest(4 * 1024 * 1024)
    .kubernetes(KubernetesForm::Namespaced)
    .labelled(|ingress| labels::set(ingress, labels::PROXY_TYPE, Some("zoneingress")))
    .zone_fields(&[
        ZoneField { shown: "zone", path: &["zone"], form: ZoneFieldForm::Name },
        ZoneField {
            shown: "availableServices[].tags[\"kuma.io/zone\"]",
            path: &["availableServices", "tags"],
            form: ZoneFieldForm::Tags,
        },
    ])
    .typed::<ZoneIngress>();

impl MessageSpec for ZoneIngress {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        let networking = self.networking.clone().unwrap_or_default();
        if let Some(admin) = &networking.admin {
            let same = admin.port != 0 && admin.port == networking.port && is_loopback(&networking.address);
            violations.check(same, path.field("admin").field("port"), "must differ from port");
        }
        // Both advertised parts may be empty: the zone control plane learns them later.
        let advertised = (networking.advertised_address.as_str(), networking.advertised_port);
        let (address, port) = (path.field("advertisedAddress"), path.field("advertisedPort"));
        let half = advertised.0.is_empty() && advertised.1 != 0;
        violations.check(half, address.clone(), "has to be defined with advertisedPort");
        let half = !advertised.0.is_empty() && advertised.1 == 0;
        violations.check(half, port.clone(), "has to be defined with advertisedAddress");
        if !networking.address.is_empty() {
            check_host(&networking.address, path.field("address").field("address"), &mut violations);
        }
        if !advertised.0.is_empty() {
            check_host(advertised.0, address.field("address"), &mut violations);
        }
        check_port(networking.port, path.field("port"), &mut violations);
        if advertised.1 != 0 {
            check_port(advertised.1, port, &mut violations);
        }
        for (i, service) in self.available_services.iter().enumerate() {
            let path = FieldStep::Root;
            let path = path.field("availableService");
            let path = path.index(i);
            let path = path.field("tags");
            tags::check_service(&service.tags, &path, &mut violations);
            tags::check_values(&service.tags, &path, &mut violations);
        }
        violations
    }
}
