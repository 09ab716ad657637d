//! What comes with a mesh: its signing key, its certificate authority, its first policies.

use serde_json::{Value, json};

use super::{DefaultsError, authority};
use crate::{
    issuing,
    keys::{KeyForm, KeySupply},
    mode::Mode,
    model::{Kind, Resource, ResourceKey, Violations, kinds, labels, transcode},
    policy::{mesh_circuit_breaker, mesh_retry, mesh_timeout},
    proto::kuma::mesh::v1alpha1::Mesh,
    rest::{Admission, Put},
    runtime::Env,
    store::{Precondition, Write, index::Index},
    token::{self, Purpose},
};

/// Value of `skipCreatingInitialPolicies` that stands for all of them.
const ALL: &str = "*";

/// Commits what comes with a mesh in the batch that creates or updates it.
pub struct MeshDefaults;

impl Admission for MeshDefaults {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &kinds::mesh::KIND || kind == &kinds::secret::SECRET
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        if put.resource.kind() == &kinds::secret::SECRET {
            if let Some(mesh) = put.index.find(&kinds::mesh::KIND, "", put.resource.mesh()) {
                issuing::mark(put.resource, mesh);
            }
            return Ok(());
        }
        choose_issuing(put.resource, put.existing, put.mode);
        let chosen = put.resource.label(labels::ISSUING);
        if chosen.is_some_and(|by| !known_issuing(put.mode).contains(&by)) {
            let reason = format!("must be one of {}", known_issuing(put.mode).join(", "));
            return Err(Violations::one(format!("labels[{:?}]", labels::ISSUING).as_str(), reason));
        }
        let writes = match put.existing {
            None => for_new_mesh(put.resource, put.index, put.env, put.mode, put.keys),
            Some(_) => for_any_mesh(put.resource, put.index, put.env, put.mode, put.keys),
        };
        let writes = writes.map_err(|error| Violations::one("mesh", error.to_string()))?;
        put.also.extend(writes);
        Ok(())
    }
}

/// Who may sign the workloads of a mesh. A zone on its own has nobody that certifies its key.
fn known_issuing(mode: &Mode) -> &'static [&'static str] {
    match mode {
        Mode::Global => &[labels::ISSUING_ZONE, labels::ISSUING_ZONE_ONLY, labels::ISSUING_MESH],
        Mode::Zone { .. } => &[labels::ISSUING_ZONE, labels::ISSUING_MESH],
    }
}

/// Says who signs the workloads of a mesh where its author did not: as before, and in a new mesh each zone with
/// a key of its own.
pub(super) fn choose_issuing(mesh: &mut Resource, existing: Option<&Resource>, mode: &Mode) {
    let before = match existing {
        Some(existing) => existing.label(labels::ISSUING),
        None => (*mode == Mode::Global).then_some(labels::ISSUING_ZONE),
    };
    if let Some(before) = before {
        mesh.labels.or_insert(labels::ISSUING, before);
    }
}

/// The writes that go along with a new mesh.
pub(super) fn for_new_mesh(
    mesh: &Resource,
    index: &Index,
    env: &Env,
    mode: &Mode,
    keys: &mut KeySupply,
) -> Result<Vec<Write>, DefaultsError> {
    let mut writes = for_any_mesh(mesh, index, env, mode, keys)?;
    let skipped = mesh.spec::<Mesh>()?.skip_creating_initial_policies;
    for (kind, prefix, spec) in policies() {
        if skipped.iter().any(|skip| skip == ALL || skip == kind.name) {
            continue;
        }
        let spec = kind.normalize(&transcode::from_json(kind, &spec)?)?;
        let policy = owned(mesh, kind, &format!("{prefix}-{}", mesh.name()), env, mode).with_spec(spec);
        put_absent(policy, index, &mut writes);
    }
    Ok(writes)
}

/// The writes that go along with every mesh that lacks them, as far as there are `keys` for them.
fn for_any_mesh(
    mesh: &Resource,
    index: &Index,
    env: &Env,
    mode: &Mode,
    keys: &mut KeySupply,
) -> Result<Vec<Write>, DefaultsError> {
    let mut writes = Vec::new();
    let purpose = Purpose::Dataplane { mesh: mesh.name() };
    if !purpose.has_key(index)
        && let Some(key) = keys.draw(KeyForm::TOKEN)
    {
        let place = purpose.key(1);
        let mut secret =
            owned(mesh, place.kind, &place.name, env, mode).with_spec(token::secret_spec(key.pem()));
        issuing::mark(&mut secret, mesh);
        put_absent(secret, index, &mut writes);
    }
    for (place, data) in authority::missing(mesh, index, env, keys)? {
        let mut secret = owned(mesh, place.kind, &place.name, env, mode).with_spec(token::secret_spec(data));
        issuing::mark(&mut secret, mesh);
        let when =
            index.get(&place).map_or(Precondition::Absent, |existing| Precondition::At(existing.revision));
        writes.push(Write::put_when(secret, when));
    }
    for marked in issuing::marks(mesh, index) {
        if !writes.iter().any(|write| write.key() == marked.key()) {
            writes.push(marked);
        }
    }
    Ok(writes)
}

/// A resource in the mesh that goes when the mesh goes.
fn owned(mesh: &Resource, kind: &'static Kind, name: &str, env: &Env, mode: &Mode) -> Resource {
    let mut resource = Resource::new(ResourceKey::new(kind, mesh.name(), name), env.now());
    resource.origin = mode.origin_of(kind);
    resource.owner = Some(mesh.key.clone());
    mode.label(&mut resource);
    resource
}

fn put_absent(resource: Resource, index: &Index, writes: &mut Vec<Write>) {
    if index.get(&resource.key).is_none() {
        writes.push(Write::put_when(resource, Precondition::Absent));
    }
}

/// The policies every mesh starts with: kind, name up to the mesh, spec.
fn policies() -> [(&'static Kind, &'static str, Value); 4] {
    let everything = || json!({ "kind": "Mesh" });
    let http_retry = json!({
        "numRetries": 5,
        "perTryTimeout": "16s",
        "backOff": { "baseInterval": "25ms", "maxInterval": "250ms" },
    });
    [
        (
            &mesh_timeout::KIND,
            "mesh-timeout-all",
            json!({
                "targetRef": { "kind": "Mesh", "proxyTypes": ["Sidecar"] },
                "from": [{ "targetRef": everything(), "default": {
                    "connectionTimeout": "10s",
                    "idleTimeout": "2h",
                    "http": { "requestTimeout": "0s", "streamIdleTimeout": "1h", "maxStreamDuration": "0s" },
                } }],
                "to": [{ "targetRef": everything(), "default": {
                    "connectionTimeout": "5s",
                    "idleTimeout": "1h",
                    "http": { "requestTimeout": "15s", "streamIdleTimeout": "30m" },
                } }],
            }),
        ),
        (
            &mesh_timeout::KIND,
            "mesh-gateways-timeout-all",
            json!({
                "targetRef": { "kind": "Mesh", "proxyTypes": ["Gateway"] },
                "from": [{ "targetRef": everything(), "default": {
                    "idleTimeout": "5m",
                    "http": { "streamIdleTimeout": "5s", "requestHeadersTimeout": "500ms" },
                } }],
                "to": [{ "targetRef": everything(), "default": {
                    "idleTimeout": "1h",
                    "http": { "streamIdleTimeout": "5s" },
                } }],
            }),
        ),
        (
            &mesh_circuit_breaker::KIND,
            "mesh-circuit-breaker-all",
            json!({
                "targetRef": everything(),
                "to": [{ "targetRef": everything(), "default": { "connectionLimits": {
                    "maxConnections": 1024,
                    "maxPendingRequests": 1024,
                    "maxRequests": 1024,
                    "maxRetries": 3,
                } } }],
            }),
        ),
        (
            &mesh_retry::KIND,
            "mesh-retry-all",
            json!({
                "targetRef": everything(),
                "to": [{ "targetRef": everything(), "default": {
                    "tcp": { "maxConnectAttempt": 5 },
                    "http": http_retry,
                    "grpc": http_retry,
                } }],
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_policies_are_valid() {
        for (kind, name, spec) in policies() {
            let spec = transcode::from_json(kind, &spec).unwrap();
            assert_eq!(kind.validate(&spec).unwrap(), Violations::none(), "{name}");
        }
    }
}
