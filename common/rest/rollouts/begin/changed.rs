//! What a run changes of what zones get, and what was there before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::http::StatusCode;

use crate::{
    model::{
        Resource, ResourceKey,
        kinds::{
            mesh::{self, CA_BUILTIN},
            rollout_insight::RolloutChange,
        },
        labels,
    },
    proto::kuma::mesh::v1alpha1::{Mesh, mesh::Mtls},
    rest::{ApiError, rollouts::TITLE},
    store::{Write, index::Index},
};

/// Resources one run may change.
const MOST_CHANGES: usize = 200;
/// Bytes of what they were before.
const MOST_BYTES: usize = 4 << 20;

/// What to do instead.
const WITHOUT: &str = "do that without a rollout first";

pub(super) type BeforeRollout = Vec<(usize, Arc<Resource>)>;

/// What `writes` change of what zones get, and what of that was there before.
pub(super) fn changed(
    index: &Index,
    writes: &[Write],
) -> Result<(Vec<RolloutChange>, BeforeRollout), ApiError> {
    let mut last: BTreeMap<&ResourceKey, &Write> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.key().kind.flow.global_to_zone()) {
        last.insert(write.key(), write);
    }
    let (mut changes, mut kept, mut bytes) = (Vec::new(), BeforeRollout::new(), 0);
    for (key, write) in last {
        let before = index.get(key);
        if let (Write::Put { resource, .. }, Some(before)) = (write, before) {
            require_contained(before, resource)?;
        }
        let op = match (write, before) {
            (Write::PutStatus { .. }, _) | (Write::Delete { .. }, None) => continue,
            (Write::Put { resource, .. }, Some(before)) => {
                if before.spec == resource.spec && before.labels == resource.labels {
                    continue;
                }
                "update"
            }
            (Write::Put { .. }, None) => "create",
            (Write::Delete { .. }, Some(_)) => "delete",
        };
        // Nobody could be kept waiting for it: what it was is not kept, because that would have to be a secret too.
        if key.kind.admin_only && before.is_some() {
            let detail = format!("{key} would change along with it, for all zones at once: {WITHOUT}");
            return Err(ApiError::bad_request(detail));
        }
        if let Some(before) = before {
            bytes += before.spec.len() + before.labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            kept.push((changes.len(), Arc::clone(before)));
        }
        changes.push(RolloutChange {
            kind: key.kind.name.to_owned(),
            mesh: key.mesh.to_string(),
            name: key.name.to_string(),
            op: op.to_owned(),
            kept: before.is_some(),
        });
    }
    if changes.is_empty() {
        return Err(ApiError::bad_request("nothing would change: everything is like that already"));
    }
    if changes.len() > MOST_CHANGES {
        let detail = format!(
            "these are {} changes, and a rollout keeps at most {MOST_CHANGES} for going back: make it smaller",
            changes.len()
        );
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TITLE, detail));
    }
    if bytes > MOST_BYTES {
        let detail = format!(
            "what is there now has {bytes} bytes, and a rollout keeps at most {MOST_BYTES} for going back: make it \
             smaller"
        );
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TITLE, detail));
    }
    Ok((changes, kept))
}

/// Refuses a change of a mesh by which something else changes that no run keeps back: the certificates and keys of its
/// zones follow from the mesh as it is stored, for those who wait as well.
fn require_contained(before: &Resource, after: &Resource) -> Result<(), ApiError> {
    if before.kind() != &mesh::KIND {
        return Ok(());
    }
    let refused = |what: String| {
        let detail =
            format!("{}: {what} changes keys and certificates of all zones at once: {WITHOUT}", before.key);
        Err(ApiError::bad_request(detail))
    };
    if before.label(labels::ISSUING) != after.label(labels::ISSUING) {
        return refused(format!("another {}", labels::ISSUING));
    }
    let mtls = |mesh: &Resource| mesh.spec::<Mesh>().unwrap_or_default().mtls.unwrap_or_default();
    let (before_mtls, after_mtls) = (mtls(before), mtls(after));
    if !before_mtls.enabled_backend.is_empty() && after_mtls.enabled_backend.is_empty() {
        return refused("switching mTLS off".to_owned());
    }
    let kept = builtin(&after_mtls);
    match builtin(&before_mtls).into_iter().find(|backend| !kept.contains(backend)) {
        Some(gone) => refused(format!("a mesh without the builtin mTLS backend {gone:?}")),
        None => Ok(()),
    }
}

fn builtin(mtls: &Mtls) -> BTreeSet<&str> {
    let backends = mtls.backends.iter().filter(|backend| backend.r#type == CA_BUILTIN);
    backends.map(|backend| backend.name.as_str()).collect()
}
