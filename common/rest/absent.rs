//! What a resource refers to and nobody has stored: told to the author of a put, who may bring it later. References by
//! labels are left alone, since they choose among whatever there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost::Message;
use serde_json::Value;

use crate::{
    model::{
        FieldPath, Kind, Resource, decode,
        kinds::{legacy::EXTERNAL_SERVICE, mesh_gateway, mesh_gateway_route, secret, zone_ingress},
        labels, transcode,
    },
    policy::legacy::traffic_route,
    proto::kuma::mesh::v1alpha1::ZoneIngress,
    registry,
    store::index::Index,
};

/// The older kinds in which something is referred to.
static OLDER: [&Kind; 4] =
    [&EXTERNAL_SERVICE, &mesh_gateway::KIND, &mesh_gateway_route::KIND, &traffic_route::KIND];

/// Names that mean a service by its tag, unless a resource is called so.
const BY_TAG: [&str; 2] = ["MeshService", "MeshServiceSubset"];

/// Resources of one kind that are read in search of a name. Where a mesh has more, nothing is said about a name that is
/// not the key of a resource: a put may not cost more the more there is.
const READ: usize = 100;

/// Something that is referred to, and where.
struct NamedReference {
    field: FieldPath,
    kind: String,
    name: String,
}

/// What of the references in `resource` leads nowhere, in words.
pub(super) fn of(resource: &Resource, index: &Index) -> Vec<String> {
    let kind = resource.kind();
    let (spec, root) = if kind.is_json() {
        (decode::spec(&resource.spec).ok(), FieldPath::new("spec"))
    } else if OLDER.contains(&kind) {
        (transcode::to_json(kind, &resource.spec).ok(), FieldPath::root())
    } else {
        return Vec::new();
    };
    let mut named = Vec::new();
    spec.iter().for_each(|spec: &Value| collect(&root, spec, &mut named));
    let mesh = resource.mesh();
    named.truncate(READ);
    named.retain(|one| !is_stored(one, mesh, index));
    let services = named.iter().filter(|one| BY_TAG.contains(&&*one.kind)).map(|one| one.name.clone());
    let unserved = unserved(services.collect(), mesh, index);
    named.retain(|one| !BY_TAG.contains(&&*one.kind) || unserved.contains(&one.name));
    let told = named.iter().map(|NamedReference { field, kind, name }| {
        format!("{field}: there is no {kind} {name:?} in mesh {mesh:?} yet")
    });
    told.collect()
}

/// Collects everything `value` refers to by a name.
fn collect(path: &FieldPath, value: &Value, named: &mut Vec<NamedReference>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| collect(&path.index(i), item, named));
        }
        Value::Object(members) => {
            for (member, value) in members {
                let path = path.field(member);
                let found = match (member.as_str(), value) {
                    ("secret", Value::String(name)) => Some((secret::SECRET.name, name)),
                    ("destination", value) => text(&value[labels::TAG_SERVICE]).map(|name| (BY_TAG[0], name)),
                    ("targetRef" | "backendRef" | "secretRef", value) => reference(value),
                    ("backendRefs", Value::Array(items)) => {
                        let each = items.iter().enumerate();
                        let each = each.filter_map(|(i, item)| Some((path.index(i), reference(item)?)));
                        named.extend(each.map(|(field, (kind, name))| NamedReference::of(field, kind, name)));
                        None
                    }
                    _ => None,
                };
                named.extend(found.map(|(kind, name)| NamedReference::of(path.clone(), kind, name)));
                collect(&path, value, named);
            }
        }
        _ => {}
    }
}

impl NamedReference {
    fn of(field: FieldPath, kind: &str, name: &str) -> Self {
        Self { field, kind: kind.to_owned(), name: name.to_owned() }
    }
}

fn text(value: &Value) -> Option<&String> {
    match value {
        Value::String(text) => Some(text).filter(|text| !text.is_empty()),
        _ => None,
    }
}

fn reference(value: &Value) -> Option<(&str, &String)> {
    Some((value["kind"].as_str()?, text(&value["name"])?))
}

/// Whether a resource is called so, by its name or by the name its author gave it.
fn is_stored(one: &NamedReference, mesh: &str, index: &Index) -> bool {
    // Of a kind nobody knows nothing can be said, and any service is one.
    let Some(kind) = registry::by_name(&one.kind) else {
        return !BY_TAG.contains(&&*one.kind) || one.name == "*";
    };
    one.name == "*"
        || index.find(kind, mesh, &one.name).is_some()
        || search(index.list_in_mesh(kind, mesh), |resource| resource.display_name() == one.name)
}

/// Whether one of a few is what is looked for; where there are many, it counts as found.
fn search<'a>(
    mut of: impl Iterator<Item = &'a Arc<Resource>>,
    is_found: impl FnMut(&Arc<Resource>) -> bool,
) -> bool {
    of.by_ref().take(READ).any(is_found) || of.next().is_some()
}

/// Those of `services` that nobody serves: no proxy here, no ingress for another zone, nothing outside.
fn unserved(mut services: BTreeSet<String>, mesh: &str, index: &Index) -> BTreeSet<String> {
    if services.is_empty() {
        return services;
    }
    let mut serves = |tags: &BTreeMap<String, String>| {
        tags.get(labels::TAG_SERVICE).is_some_and(|service| services.remove(service)) && services.is_empty()
    };
    let tagged = registry::ALL.iter().filter_map(|kind| Some((kind, kind.tag_sets?)));
    for (kind, tag_sets) in tagged {
        let serves_all = |resource: &Arc<Resource>| {
            tag_sets(&resource.spec).is_ok_and(|sets| sets.iter().any(&mut serves))
        };
        if search(index.list_in_mesh(kind, mesh), serves_all) {
            return BTreeSet::new();
        }
    }
    let announces_all = |ingress: &Arc<Resource>| {
        let Ok(ingress) = ZoneIngress::decode(&*ingress.spec) else { return false };
        let mut announced = ingress.available_services.iter().filter(|service| service.mesh == mesh);
        announced.any(|service| serves(&service.tags))
    };
    if search(index.list(&zone_ingress::KIND), announces_all) { BTreeSet::new() } else { services }
}
