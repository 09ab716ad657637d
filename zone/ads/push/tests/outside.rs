//! What happens to services outside the mesh and to the egresses before them, at random.

use chrono::DateTime;
use common::{
    model::{
        Resource, ResourceKey,
        kinds::{legacy, mesh_external_service, secret, zone_egress},
    },
    token,
};
use rand::Rng;

use super::World;

impl World {
    /// An egress of this zone.
    pub(super) fn put_egress(&mut self, name: &str, last: usize) {
        let yaml = format!(
            "{{type: ZoneEgress, name: {name}, zone: east, networking: {{address: 10.0.1.{last}, port: 1}}}}"
        );
        self.put(&yaml, "east");
    }

    /// Something outside the mesh, or the way there, comes, goes or changes.
    pub(super) fn change_outside(&mut self, n: usize, service: &str) {
        match self.rng.random_range(0..8_u32) {
            0 | 1 => self.put_older(n, service),
            2 | 3 => {
                let tls = [
                    "",
                    ", tls: {enabled: true, verification: {caCert: {secret: outside}}}",
                    ", tls: {enabled: true}",
                ][n % 3];
                let zone = ["", "labels: {kuma.io/zone: west}, "][usize::from(n == 9)];
                let yaml = format!(
                    "{{type: MeshExternalService, mesh: default, name: mes-{}, {zone}spec: {{match: {{port: 80, protocol: \
                     {}}}, endpoints: [{{address: 10.9.0.{n}, port: 1}}, {{address: a.example, port: 2}}]{tls}}}, status: \
                     {{vip: {{ip: 242.0.0.{}}}, addresses: [{{hostname: out.test}}]}}}}",
                    n % 2,
                    ["http", "tcp", "grpc"][n % 3],
                    n % 3
                );
                self.put(&yaml, "");
            }
            4 => {
                let (kind, name) = match n % 3 {
                    0 => (&legacy::EXTERNAL_SERVICE, format!("out-{}", n % 2)),
                    1 => (&mesh_external_service::KIND, format!("mes-{}", n % 2)),
                    _ => return self.apply(ResourceKey::new(&zone_egress::KIND, "", "more-out"), None),
                };
                self.apply(ResourceKey::new(kind, "default", &name), None);
            }
            5 => self.put_egress(["east-out", "more-out"][n % 2], n + 1),
            6 => {
                let key = ResourceKey::new(&secret::SECRET, "default", "outside");
                let secret = Resource::new(key.clone(), DateTime::UNIX_EPOCH)
                    .with_spec(token::secret_spec(format!("certificate {n}").as_bytes()));
                self.apply(key, (!n.is_multiple_of(3)).then_some(secret));
            }
            _ => {
                let routing = [
                    "{zoneEgress: true}",
                    "{}",
                    "{zoneEgress: true, defaultForbidMeshExternalServiceAccess: true}",
                ];
                let mtls = "mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}";
                self.put(&format!("{{type: Mesh, name: default, routing: {}, {mtls}}}", routing[n % 3]), "");
            }
        }
    }

    fn put_older(&mut self, n: usize, service: &str) {
        let tls = ["", ", tls: {enabled: true, caCert: {secret: outside}}", ", tls: {enabled: true}"][n % 3];
        let zone = ["", ", kuma.io/zone: west", ", version: v1"][n % 3];
        let known = if n < 3 { service } else { "ext" };
        let yaml = format!(
            "{{type: ExternalService, mesh: default, name: out-{}, networking: {{address: '10.8.0.{n}:80'{tls}}}, tags: \
             {{kuma.io/service: {known}, kuma.io/protocol: {}{zone}}}}}",
            n % 2,
            ["http", "tcp", "http2"][n % 3]
        );
        self.put(&yaml, "");
    }
}
