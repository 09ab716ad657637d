//! Replays which changes concern a mesh. Recorded was whether a hash of everything known about it differs; a zone here
//! has no such hash but learns from every change what follows from it.

use std::{path::Path, sync::Arc};

use common::{
    document::Document,
    model::{Resource, ResourceKey, kinds},
    store::{Snapshot, StoreIdentity, index::Index},
    testing::goldens::{Outcome, cases, read, yaml_documents},
};
use zone::mesh::{MeshChange, MeshState, Surroundings};

/// How much of what is known is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// What all meshes have in common.
    Zone,
    /// What a mesh has without its proxies and those of others.
    Base,
    /// All of a mesh.
    Mesh,
}

/// Runs the cases in the folders of `dir`.
pub(crate) fn mesh_contexts(dir: &Path) -> Vec<Outcome> {
    let folders = [
        ("globalcontext_hash", Scope::Zone),
        ("basemeshcontext_hash", Scope::Base),
        ("meshcontext_hash", Scope::Mesh),
    ];
    let of = |(folder, scope): (&'static str, Scope)| {
        let dir = dir.join(folder);
        let names = cases(&dir, ".input.yaml").into_iter();
        names.map(move |case| (format!("{folder}/{case}"), replay(&dir, &case, scope))).collect::<Vec<_>>()
    };
    folders.into_iter().flat_map(of).collect()
}

fn replay(dir: &Path, case: &str, scope: Scope) -> Result<(), String> {
    let input = read(&dir.join(format!("{case}.input.yaml")))?;
    let head = input.lines().next().and_then(|line| line.strip_prefix('#')).ok_or("no head")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let (mesh, expected) = match words[..] {
        [mesh, expected] => (mesh, expected),
        [expected] => ("mesh-1", expected),
        _ => return Err(format!("{head:?} says neither mesh nor what is expected")),
    };
    // What did not change is the same to an index before and after.
    let shared = |resources: Vec<Resource>| resources.into_iter().map(Arc::new).collect::<Vec<_>>();
    let before = shared(resources(&input)?);
    let change = shared(resources(&read(&dir.join(format!("{case}.change.yaml")))?)?);
    let keys: Vec<ResourceKey> = change.iter().map(|resource| resource.key.clone()).collect();
    let mut after = before.clone();
    after.retain(|resource| !keys.contains(&resource.key));
    after.extend(change);

    let (before, after) = (index(before), index(after));
    let mut around = Surroundings { zone: "east".into(), ..Surroundings::default() };
    let all: Vec<ResourceKey> = before.iter().map(|resource| resource.key.clone()).collect();
    around.update(&all, &before);
    let mut state = MeshState::new(mesh, &before, &around).map_err(|error| error.to_string())?;
    let (ingresses, egresses) = (around.ingresses.clone(), around.egresses.clone());
    let meshes = around.neighbours.clone();
    around.update(&keys, &after);
    let change = state.update(&keys, &after, &around).map_err(|error| error.to_string())?;
    let concerned = match scope {
        Scope::Zone => {
            let same =
                |(name, ingress)| around.ingresses.get(name).is_some_and(|now| Arc::ptr_eq(now, ingress));
            let same_egress =
                |(name, egress)| around.egresses.get(name).is_some_and(|now| Arc::ptr_eq(now, egress));
            ingresses.len() != around.ingresses.len()
                || egresses.len() != around.egresses.len()
                || !meshes.ptr_eq(&around.neighbours)
                || !ingresses.iter().all(same)
                || !egresses.iter().all(same_egress)
        }
        Scope::Base => change.everything || !change.policies.is_empty() || !change.references.is_empty(),
        Scope::Mesh => concerns(&change),
    };
    let expected: bool = expected.parse().map_err(|_| format!("{expected:?} is neither true nor false"))?;
    match (expected, concerned) {
        (expected, concerned) if expected == concerned => Ok(()),
        (true, _) => Err(format!("the change does not concern {mesh}")),
        (false, _) => Err(format!("the change concerns {mesh}: {change:?}")),
    }
}

fn concerns(change: &MeshChange) -> bool {
    change.everything
        || change.zones
        || change.meshes
        || !change.services.is_empty()
        || !change.references.is_empty()
        || !change.dataplanes.is_empty()
        || !change.policies.is_empty()
        || !change.gateway_routes.is_empty()
}

fn resources(yaml: &str) -> Result<Vec<Resource>, String> {
    let resource = |document: &serde_json::Value| {
        // Settings are no resource of the API and lie outside of every mesh.
        if document["type"] == "Config" {
            let name = document["name"].as_str().unwrap_or_default();
            return Ok(Resource::new(
                ResourceKey::global(&kinds::config::KIND, name),
                chrono::DateTime::UNIX_EPOCH,
            ));
        }
        let document = Document::parse(document).map_err(|error| error.to_string())?;
        Ok(document.into_resource(chrono::DateTime::UNIX_EPOCH))
    };
    yaml_documents(yaml)?.iter().map(resource).collect()
}

fn index(resources: Vec<Arc<Resource>>) -> Index {
    let store = StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 };
    Index::of(store, Snapshot { revision: 1, commit: None, resources })
}
