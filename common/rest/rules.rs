//! The rules of Kuma's control planes that look beyond one resource.

mod provided;

use std::sync::Arc;

use super::{
    Admission, Deletion, Put, ZoneHealth, ZoneStatusSource, rights::RoleRules, rollouts::RolloutRules,
};
use crate::{
    ca,
    model::{
        FieldPath, Kind, Resource, Violations,
        kinds::{
            dataplane, dataplane_networking::change_served, mesh, secret, zone, zone_egress, zone_ingress,
        },
        labels,
    },
    proto::kuma::mesh::v1alpha1::{
        Mesh, ZoneEgress, ZoneIngress,
        dataplane::networking::{Gateway, Inbound, inbound},
        mesh::mesh_services,
    },
    store::index::Index,
};

/// The rules of a server, in order. `unsafe_delete` lifts those that guard deletes.
pub fn standard(unsafe_delete: bool, zones: Option<Arc<dyn ZoneStatusSource>>) -> Vec<Arc<dyn Admission>> {
    vec![
        Arc::new(MeshRules { unsafe_delete }),
        Arc::new(ZoneRules { unsafe_delete, zones }),
        Arc::new(DataplaneRules),
        Arc::new(ZoneProxyRules),
        Arc::new(SecretRules),
        Arc::new(RoleRules),
        Arc::new(RolloutRules),
    ]
}

/// The name of a mesh becomes part of trust domains and of the names of servers.
const MAX_MESH_NAME: usize = 63;

struct MeshRules {
    unsafe_delete: bool,
}

impl Admission for MeshRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &mesh::KIND
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        if put.existing.is_none() && put.resource.name().len() > MAX_MESH_NAME {
            let reason = format!("cannot be longer than {MAX_MESH_NAME} characters");
            return Err(Violations::one("name", reason));
        }
        let old = put.existing.map(enabled_backend).unwrap_or_default();
        let new = enabled_backend(put.resource);
        let swapped = !old.is_empty() && !new.is_empty() && old != new;
        let known = put.existing.is_some_and(|mesh| has_backend(mesh, &new));
        if swapped && !(known && has_backend(put.resource, &old)) {
            let reason = format!(
                "changing the enabled backend from {old:?} to {new:?} while mTLS is on would break traffic: first add \
                 {new:?} to mtls.backends, so that proxies trust both, then enable it, and take {old:?} out last"
            );
            return Err(Violations::one("mtls.enabledBackend", reason));
        }
        let violations = provided::check(put.resource, put.index);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result<(), Violations> {
        let mesh = deletion.resource.name();
        let used = deletion.index.list_in_mesh(&dataplane::KIND, mesh).count();
        if used == 0 || self.unsafe_delete {
            return Ok(());
        }
        let reason = format!("unable to delete mesh, there are still {used} dataplanes attached");
        Err(Violations::one("mesh", reason))
    }
}

fn enabled_backend(mesh: &Resource) -> String {
    let spec = mesh.spec::<Mesh>().unwrap_or_default();
    spec.mtls.map(|m| m.enabled_backend).unwrap_or_default()
}

fn has_backend(mesh: &Resource, name: &str) -> bool {
    let spec = mesh.spec::<Mesh>().unwrap_or_default();
    spec.mtls.is_some_and(|mtls| mtls.backends.iter().any(|backend| backend.name == name))
}

struct ZoneRules {
    unsafe_delete: bool,
    zones: Option<Arc<dyn ZoneStatusSource>>,
}

impl Admission for ZoneRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &zone::KIND
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result<(), Violations> {
        let zone = deletion.resource.name();
        let status = self.zones.as_ref().and_then(|z| z.zone_status(zone, deletion.index));
        if self.unsafe_delete || status.is_none_or(|s| s.status != ZoneHealth::Online) {
            return Ok(());
        }
        let reason = "unable to delete zone, the zone control plane is still connected: stop it first";
        Err(Violations::one("zone", reason))
    }
}

struct DataplaneRules;

impl Admission for DataplaneRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &dataplane::KIND
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        let Some(mesh) = put.index.find(&mesh::KIND, "", put.resource.mesh()) else { return Ok(()) };
        let mesh = mesh.spec::<Mesh>().unwrap_or_default();
        let mut violations = Violations::none();
        let spec = change_served(&put.resource.spec, |inbounds, gateway| {
            if let Some(zone) = put.mode.zone() {
                complete(inbounds, gateway.as_mut(), &mesh, zone, put.existing.is_none());
            }
            violations = check_membership(inbounds, gateway.as_ref(), &mesh);
        });
        // What does not decode was refused before.
        let Ok(spec) = spec else { return Ok(()) };
        if !violations.is_empty() {
            return Err(violations);
        }
        put.resource.spec = spec;
        Ok(())
    }
}

/// Adds what the author of a dataplane leaves to the zone control plane.
fn complete(inbounds: &mut [Inbound], gateway: Option<&mut Gateway>, mesh: &Mesh, zone: &str, create: bool) {
    let exclusive = mesh.mesh_services.as_ref().is_some_and(|m| m.mode() == mesh_services::Mode::Exclusive);
    for inbound in inbounds {
        if !(inbound.tags.is_empty() && exclusive) {
            inbound.tags.insert(labels::ZONE.to_owned(), zone.to_owned());
        }
        if create && inbound.service_probe.is_some() {
            inbound.set_state(inbound::State::NotReady);
            inbound.health = Some(inbound::Health { ready: false });
        }
    }
    if let Some(gateway) = gateway {
        gateway.tags.insert(labels::ZONE.to_owned(), zone.to_owned());
    }
}

/// Whether the mesh lets a proxy with these tags in.
fn check_membership(inbounds: &[Inbound], gateway: Option<&Gateway>, mesh: &Mesh) -> Violations {
    let mut violations = Violations::none();
    let constraints = mesh.constraints.as_ref().and_then(|c| c.dataplane_proxy.as_ref());
    let Some(constraints) = constraints else { return violations };
    let mut sets: Vec<_> = inbounds
        .iter()
        .enumerate()
        .map(|(i, inbound)| (FieldPath::new("networking").field("inbound").index(i), &inbound.tags))
        .collect();
    if let Some(gateway) = gateway {
        sets.push((FieldPath::new("networking").field("gateway"), &gateway.tags));
    }
    for (path, tags) in sets {
        let fits = |rule: &std::collections::BTreeMap<String, String>| {
            rule.iter().all(|(k, v)| tags.get(k).is_some_and(|have| v == "*" || v == have))
        };
        let required = constraints.requirements.is_empty()
            || constraints.requirements.iter().any(|rule| fits(&rule.tags));
        let restricted = constraints.restrictions.iter().any(|rule| fits(&rule.tags));
        violations.check(
            !required || restricted,
            path.field("tags"),
            "the mesh does not admit a proxy with these tags: see constraints.dataplaneProxy of the Mesh",
        );
    }
    violations
}

/// An ingress or egress serves the zone it is written in.
struct ZoneProxyRules;

impl Admission for ZoneProxyRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &zone_ingress::KIND || kind == &zone_egress::KIND
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        let Some(zone) = put.mode.zone() else { return Ok(()) };
        let named = match put.resource.kind() == &zone_ingress::KIND {
            true => put.resource.spec::<ZoneIngress>().unwrap_or_default().zone,
            false => put.resource.spec::<ZoneEgress>().unwrap_or_default().zone,
        };
        if named.is_empty() || named == zone {
            return Ok(());
        }
        let reason = format!(
            "must be {zone:?}, the zone of this control plane, or left out: {named:?} is another one"
        );
        Err(Violations::one("zone", reason))
    }
}

struct SecretRules;

impl Admission for SecretRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &secret::SECRET
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result<(), Violations> {
        if deletion.mode.is_federated_zone() {
            return Ok(());
        }
        let (mesh, name) = (deletion.resource.mesh(), deletion.resource.name());
        let Some(user) = backend_using(deletion.index, mesh, name) else { return Ok(()) };
        let reason = format!(
            "the secret {name:?} is in use by the mTLS backend {user:?} of mesh {mesh:?}: remove the backend first"
        );
        Err(Violations::one("name", reason))
    }
}

/// The mTLS backend of `mesh` that reads the secret `name`.
fn backend_using(index: &Index, mesh: &str, name: &str) -> Option<String> {
    let spec = index.find(&mesh::KIND, "", mesh)?.spec::<Mesh>().ok()?;
    let backend = spec.mtls?.backends.into_iter().find(|backend| {
        let builtin = [ca::certificate_secret, ca::key_secret].map(|name| name(mesh, &backend.name));
        let named = backend.conf.iter().flat_map(|conf| conf.fields.values()).any(|source| {
            use crate::proto::google::protobuf::value::Kind::{StringValue, StructValue};
            let Some(StructValue(source)) = &source.kind else { return false };
            let secret = source.fields.get("secret").and_then(|v| v.kind.as_ref());
            matches!(secret, Some(StringValue(secret)) if secret == name)
        });
        builtin.iter().any(|b| b == name) || named
    })?;
    Some(backend.name)
}
