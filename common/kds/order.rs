//! Which types are requested per direction, and in which order.

use crate::{model::Kind, registry};

/// What a zone asks of global.
pub fn requested_by_zone() -> Vec<&'static Kind> {
    ordered(registry::ALL.iter().copied().filter(|k| k.flow.requested_by_zone() && k.known_by.is_none()))
}

/// What global asks of a zone.
pub fn requested_by_global() -> Vec<&'static Kind> {
    ordered(registry::ALL.iter().copied().filter(|k| k.flow.requested_by_global()))
}

/// What a zone asks for besides, of a global that says it has it.
pub fn requested_among_ours() -> Vec<&'static Kind> {
    let asked = |kind: &&Kind| kind.flow.requested_by_zone() || kind.flow.across_our_zones();
    ordered(registry::ALL.iter().copied().filter(|kind| kind.known_by.is_some()).filter(asked))
}

/// What global has for zones, if they ask for it.
pub fn served_to_zones() -> Vec<&'static Kind> {
    let mut kinds = requested_by_zone();
    kinds.extend(requested_among_ours());
    kinds
}

fn ordered(kinds: impl Iterator<Item = &'static Kind>) -> Vec<&'static Kind> {
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(|kind| (kind.sync_stage, kind.name));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_come_before_what_lives_in_them() {
        let first: Vec<_> = requested_by_zone().iter().map(|kind| kind.name).take(4).collect();
        assert_eq!(first, ["Mesh", "Config", "GlobalSecret", "Secret"]);
        assert_eq!(requested_by_global()[0].name, "Dataplane");
        assert_eq!(requested_by_zone().len(), 45);
        assert_eq!(requested_by_global().len(), 31);
        let ours: Vec<_> = requested_among_ours().iter().map(|kind| kind.name).collect();
        assert_eq!(ours, ["AccessRole", "AccessRoleBinding", "ZoneIngressInsight"]);
    }
}
