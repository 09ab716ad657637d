//! Two resources that would be sent under one name. On the way to other control planes a name is made of labels, so that a
//! label, copied along with the rest of a document, can make one resource pass for another there.

use std::sync::Arc;

use super::ApiError;
use crate::{
    kds::filter::{self, Audience},
    mode::Mode,
    model::{Resource, labels, names},
    store::index::Index,
};

/// Looks for what would be sent under the name of `resource`, as it is going to replace `existing`. What has that name by
/// itself goes before what has it by its label, and is told whom it takes it from.
///
/// # Errors
/// 409 for what would not be sent, or in place of another.
pub(super) fn check(
    mode: &Mode,
    index: &Index,
    existing: Option<&Resource>,
    resource: &Resource,
) -> Result<Option<String>, ApiError> {
    let Some(sent) = sent_name(mode, resource).filter(|_| is_sent(mode, resource)) else { return Ok(None) };
    let is_same = |other: &Resource| sent_name(mode, other).as_ref() == Some(&sent) && is_sent(mode, other);
    if existing.is_some_and(is_same) {
        return Ok(None);
    }
    let (kind, mesh) = (resource.kind(), resource.mesh());
    let called = index.called(kind, mesh, resource.display_name());
    let mut others = called.chain(index.find(kind, mesh, &sent));
    let is_other = |other: &&Arc<Resource>| other.key != resource.key && is_same(other);
    let Some(other) = others.find(is_other) else { return Ok(None) };
    let other = &other.key;
    if resource.display_name() == resource.name() && is_plain(mode, resource) {
        return Ok(Some(format!(
            "{other} is sent under the same name because of its label {}, and is withheld from now on",
            labels::DISPLAY_NAME
        )));
    }
    let label = [labels::DISPLAY_NAME, labels::ZONE, labels::NAMESPACE];
    let label = label.into_iter().filter(|label| resource.label(label).is_some());
    let label: Vec<String> =
        label.map(|label| format!("{label}={:?}", resource.labels.get(label).unwrap_or_default())).collect();
    Err(ApiError::conflict(format!(
        "it would be sent to other control planes as {sent:?}, which is the name of {other} there: take away the label that was \
         copied ({}), or give another one",
        label.join(", ")
    )))
}

/// The name under which other control planes would get it; `None` when that has no hash.
fn sent_name(mode: &Mode, resource: &Resource) -> Option<String> {
    match mode {
        Mode::Global if resource.kind().keeps_name => None,
        Mode::Global => Some(names::hashed_name(resource)),
        Mode::Zone { federated: false, .. } => None,
        Mode::Zone { name, .. } => {
            let namespace = resource.label(labels::NAMESPACE);
            Some(names::hashed(resource.mesh(), resource.display_name(), Some(name), namespace))
        }
    }
}

/// Whether they get it.
fn is_sent(mode: &Mode, resource: &Resource) -> bool {
    match mode {
        Mode::Global => !Audience::of(resource).is_empty(),
        Mode::Zone { name, .. } => filter::goes_up(resource, name),
    }
}

/// Whether it has the name by no label of another owner's.
fn is_plain(mode: &Mode, resource: &Resource) -> bool {
    *mode != Mode::Global
        || [labels::ZONE, labels::NAMESPACE].iter().all(|label| resource.label(label).is_none())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use uuid::Uuid;

    use super::*;
    use crate::{
        kds::mapper,
        model::{Kind, Origin, ResourceKey, kinds},
        policy::mesh_timeout,
        store::{Change, StoreIdentity},
    };

    fn written(kind: &'static Kind, mode: &Mode, name: &str, called: &str) -> Resource {
        let key = ResourceKey::new(kind, "default", name);
        let resource = Resource { origin: mode.origin_of(kind), ..Resource::new(key, DateTime::UNIX_EPOCH) };
        if called.is_empty() { resource } else { resource.with_label(labels::DISPLAY_NAME, called) }
    }

    fn index(resources: impl IntoIterator<Item = Resource>) -> Index {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        for resource in resources {
            let (revision, key) = (index.revision + 1, resource.key.clone());
            index.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
        }
        index
    }

    #[test]
    fn a_label_makes_nothing_pass_for_another() {
        for (mode, kind) in
            [(Mode::Global, &mesh_timeout::KIND), (Mode::federated_zone("zone-1"), &kinds::dataplane::KIND)]
        {
            let of = |name: &str, called: &str| written(kind, &mode, name, called);
            let check = |held: &[Resource], existing: Option<&Resource>, new: &Resource| {
                check(&mode, &index(held.to_vec()), existing, new)
            };
            let held = [of("deny-all", ""), of("other", "")];
            let refused = check(&held, None, &of("payments-x", "deny-all")).unwrap_err().to_string();
            assert!(
                refused.contains("default/deny-all") && refused.contains("kuma.io/display-name"),
                "{refused}"
            );
            // To give the label later is the same.
            assert!(check(&held, Some(&of("other", "")), &of("other", "deny-all")).is_err());
            for (name, called) in [("deny-all", ""), ("deny-all", "deny-all"), ("payments-x", ""), ("x", "y")]
            {
                assert_eq!(check(&held, None, &of(name, called)), Ok(None), "{name} {called}");
            }
            // Whose name it is can always have it, and who has it by a label stays as it is.
            let squatter = of("payments-x", "deny-all");
            let told = check(std::slice::from_ref(&squatter), None, &of("deny-all", "")).unwrap().unwrap();
            assert!(told.contains("payments-x") && told.contains("withheld"), "{told}");
            assert_eq!(check(&[squatter.clone(), of("deny-all", "")], Some(&squatter), &squatter), Ok(None));
            assert!(check(std::slice::from_ref(&squatter), None, &of("payments-y", "deny-all")).is_err());
            // What stays here takes no name from anybody.
            let stays = of("payments-x", "deny-all").with_label(labels::KDS_SYNC, "disabled");
            assert_eq!(check(&held, None, &stays), Ok(None));
        }
        let alone = Mode::standalone_zone("zone-1");
        let of = |name: &str, called: &str| written(&kinds::dataplane::KIND, &alone, name, called);
        assert_eq!(check(&alone, &index([of("web", "")]), None, &of("x", "web")), Ok(None));
    }

    #[test]
    fn a_copy_from_a_zone_does_not_take_the_place_of_what_it_is_a_copy_of() {
        let produced = written(&mesh_timeout::KIND, &Mode::Global, "t", "")
            .with_label(labels::POLICY_ROLE, "producer")
            .with_label(labels::NAMESPACE, "demo")
            .with_spec(&br#"{"to":[{"targetRef":{"kind":"MeshService","name":"a"}}]}"#[..]);
        let of_zone = mapper::up(&produced, "zone-1", &[]).unwrap();
        let of_zone = Resource { origin: Origin::Zone("zone-1".into()), ..of_zone };
        let copy = written(&mesh_timeout::KIND, &Mode::Global, "t", "t")
            .with_label(labels::ZONE, "zone-1")
            .with_label(labels::NAMESPACE, "demo");
        let held = index([of_zone.clone()]);
        let refused = check(&Mode::Global, &held, None, &copy).unwrap_err().to_string();
        assert!(refused.contains(of_zone.name()) && refused.contains("kuma.io/zone=\"zone-1\""), "{refused}");
        let plain = written(&mesh_timeout::KIND, &Mode::Global, "t", "t");
        assert_eq!(check(&Mode::Global, &held, None, &plain), Ok(None));
    }
}
