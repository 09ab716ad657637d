//! The label vocabulary shared with Kuma.

mod map;
mod syntax;

pub use map::Labels;
pub use syntax::{dns_1035_problem, dns_1123_problem, key_problems, subdomain_problem, value_problem};

use super::Resource;

/// `global` or `zone`, seen from where the resource is stored.
pub const ORIGIN: &str = "kuma.io/origin";
/// Value of [`ORIGIN`] for what global owns.
pub const ORIGIN_GLOBAL: &str = "global";
/// Value of [`ORIGIN`] for what a zone owns.
pub const ORIGIN_ZONE: &str = "zone";
/// Owning zone.
pub const ZONE: &str = "kuma.io/zone";
/// On a mesh: who signs its workloads. [`ISSUING_ZONE`] and [`ISSUING_ZONE_ONLY`] let each zone sign with a key of
/// its own; anything else lets every zone sign with the key of the mesh. On the secret of that key it says the same.
pub const ISSUING: &str = "strait.io/issuing";
/// Value of [`ISSUING`].
pub const ISSUING_ZONE: &str = "zone";
/// Value of [`ISSUING`]: and who has no key of its own gets none of the mesh either.
pub const ISSUING_ZONE_ONLY: &str = "zone-only";
/// Value of [`ISSUING`].
pub const ISSUING_MESH: &str = "mesh";
/// On the certificate with which a zone signs: that zone.
pub const ISSUER: &str = "strait.io/issuer";
/// Name as its author gave it, before hashing.
pub const DISPLAY_NAME: &str = "kuma.io/display-name";
/// Mesh of a mesh-scoped resource.
pub const MESH: &str = "kuma.io/mesh";
/// `universal` or `kubernetes`.
pub const ENV: &str = "kuma.io/env";
/// Value of [`ENV`] for everything created here.
pub const ENV_UNIVERSAL: &str = "universal";
/// Kubernetes namespace; part of the hashed name.
pub const NAMESPACE: &str = "k8s.kuma.io/namespace";
/// Value of [`NAMESPACE`] for what belongs to the control plane.
pub const SYSTEM_NAMESPACE: &str = "kuma-system";
/// Service account of a workload on Kubernetes.
pub const SERVICE_ACCOUNT: &str = "k8s.kuma.io/service-account";
/// `system`, `producer`, `consumer` or `workload-owner`.
pub const POLICY_ROLE: &str = "kuma.io/policy-role";
/// `sidecar`, `gateway`, `zoneingress` or `zoneegress`.
pub const PROXY_TYPE: &str = "kuma.io/proxy-type";
/// `enabled` when a dataplane has a zone ingress listener.
pub const LISTENER_ZONE_INGRESS: &str = "kuma.io/listener-zoneingress";
/// `enabled` when a dataplane has a zone egress listener.
pub const LISTENER_ZONE_EGRESS: &str = "kuma.io/listener-zoneegress";
/// `enabled` or `disabled`: the author's word on whether the resource is synced.
pub const KDS_SYNC: &str = "kuma.io/kds-sync";
/// When a generated resource lost its last reason to exist; never synced.
pub const DELETION_GRACE_PERIOD_STARTED_AT: &str = "kuma.io/deletion-grace-period-started-at";
/// Who made a resource that nobody wrote.
pub const MANAGED_BY: &str = "kuma.io/managed-by";
/// Value of [`MANAGED_BY`] for services made of the tags of proxies.
pub const MANAGED_BY_SERVICE_GENERATOR: &str = "meshservice-generator";
/// Value of [`MANAGED_BY`] for workloads that proxies name.
pub const MANAGED_BY_WORKLOAD_GENERATOR: &str = "workload-generator";
/// How labels begin that note which others a generated service has from its proxies.
pub const PROPAGATED_PREFIX: &str = "kuma.io/pkey-";
/// `proxy`: a proxy brought the resource along, so it may replace it, and the resource goes when it does.
/// Whatever lacks this was applied by somebody.
pub const REGISTERED: &str = "kuma.io/registered-by";
/// Value of [`REGISTERED`].
pub const REGISTERED_BY_PROXY: &str = "proxy";
/// On a zone: what becomes of what it exports. Written by global, which takes it away again.
pub const EXPORTS: &str = "strait.io/exports";
/// Nothing of it is sent to other zones: the zone is lost.
pub const EXPORTS_WITHDRAWN: &str = "withdrawn";
/// `files`: the resource is in a file of its control plane, and goes when it is there no more.
pub const PROVIDED_BY: &str = "strait.io/provided-by";
/// Value of [`PROVIDED_BY`].
pub const PROVIDED_BY_FILES: &str = "files";
/// On what a zone has from global: the signature it came with. On the wire it has a field of its own.
pub const SIGNATURE: &str = "strait.io/signature";
/// On a signing key on its way to a relay: the signature of the public half.
pub const SIGNATURE_OF_HALF: &str = "strait.io/signature-of-half";
/// Workload of a dataplane.
pub const WORKLOAD: &str = "kuma.io/workload";
/// `shadow`: computed but not applied.
pub const EFFECT: &str = "kuma.io/effect";

/// Tag that names the service of an inbound.
pub const TAG_SERVICE: &str = "kuma.io/service";
/// Tag that names the protocol of an inbound.
pub const TAG_PROTOCOL: &str = "kuma.io/protocol";

/// Sets or removes a label the control plane computes.
pub(crate) fn set(resource: &mut Resource, key: &str, value: Option<&str>) {
    match value {
        Some(value) => resource.labels.insert(key, value),
        None => resource.labels.remove(key),
    };
}
