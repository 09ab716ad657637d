//! Which types are requested per direction, and in which order: what others refer to comes first, so that
//! a policy does not arrive before its mesh.

use crate::model::{Kind, registry};

/// Types whose resources others refer to, in the order they are asked for.
const FIRST: [&str; 5] = ["Mesh", "Config", "GlobalSecret", "Secret", "Dataplane"];

/// What a zone asks of global.
pub fn requested_by_zone() -> Vec<&'static Kind> {
    ordered(registry::ALL.iter().copied().filter(|k| k.flow.requested_by_zone()))
}

/// What global asks of a zone.
pub fn requested_by_global() -> Vec<&'static Kind> {
    ordered(registry::ALL.iter().copied().filter(|k| k.flow.requested_by_global()))
}

fn ordered(kinds: impl Iterator<Item = &'static Kind>) -> Vec<&'static Kind> {
    let rank = |kind: &Kind| FIRST.iter().position(|name| *name == kind.name).unwrap_or(FIRST.len());
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(|kind| (rank(kind), kind.name));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_come_before_what_lives_in_them() {
        assert_eq!(requested_by_zone()[0].name, "Mesh");
        assert_eq!(requested_by_zone().len(), 45);
        assert_eq!(requested_by_global().len(), 31);
    }
}
