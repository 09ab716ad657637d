//! Names of resources inside delta messages: `<name>.<mesh>`, always with the dot.

use crate::model::{Kind, ResourceKey};

/// The delta name of a resource; a global-scoped one ends with the dot.
pub fn delta_name(name: &str, mesh: &str) -> String {
    let mut joined = String::with_capacity(name.len() + 1 + mesh.len());
    joined.push_str(name);
    joined.push('.');
    joined.push_str(mesh);
    joined
}

/// The keys a delta name may mean, likeliest first. The mesh stands behind the last dot; a mesh whose own
/// name has dots is found behind an earlier one. Without any dot it is a global-scoped name.
pub fn candidates(kind: &'static Kind, delta_name: &str) -> Vec<ResourceKey> {
    let dots = delta_name.rmatch_indices('.').map(|(at, _)| at);
    if !kind.is_mesh_scoped() {
        let name = delta_name.strip_suffix('.').unwrap_or(delta_name);
        return vec![ResourceKey::global(kind, name)];
    }
    dots.map(|at| ResourceKey::new(kind, &delta_name[at + 1..], &delta_name[..at])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::kinds, policy::mesh_timeout};

    #[test]
    fn global_scoped_names_end_with_a_dot() {
        assert_eq!(delta_name("default", ""), "default.");
        for text in ["default.", "default"] {
            assert_eq!(
                candidates(&kinds::mesh::KIND, text),
                [ResourceKey::global(&kinds::mesh::KIND, "default")]
            );
        }
    }

    #[test]
    fn the_mesh_stands_behind_the_last_dot() {
        let kind = &mesh_timeout::KIND;
        let keys = candidates(kind, "a.b.c");
        assert_eq!(keys, [ResourceKey::new(kind, "c", "a.b"), ResourceKey::new(kind, "b.c", "a")]);
    }

    #[test]
    fn a_mesh_scoped_name_without_a_mesh_means_nothing() {
        assert!(candidates(&mesh_timeout::KIND, "lonely").is_empty());
    }
}
