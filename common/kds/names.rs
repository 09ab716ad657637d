//! Names of resources inside delta messages: `<name>.<mesh>`, always with the dot.

use crate::model::{Kind, names::MAX_NAME};

/// Bytes of the longest part of a delta name: a name may stand below that of a zone.
const LONGEST: usize = 2 * MAX_NAME;

/// The delta name of a resource; a global-scoped one ends with the dot.
pub fn delta_name(name: &str, mesh: &str) -> String {
    let mut joined = String::with_capacity(name.len() + 1 + mesh.len());
    joined.push_str(name);
    joined.push('.');
    joined.push_str(mesh);
    joined
}

/// The mesh and the name a delta name may mean, likeliest first. The mesh stands behind the last dot; a mesh whose own
/// name has dots is found behind an earlier one. Without any dot it is a global-scoped name.
pub fn candidates<'a>(
    kind: &'static Kind,
    delta_name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let (whole, parted) = match kind.is_mesh_scoped() {
        true => (None, delta_name),
        false => (Some(("", delta_name.strip_suffix('.').unwrap_or(delta_name))), ""),
    };
    let parted = parted.rmatch_indices('.').map(|(at, _)| (&parted[at + 1..], &parted[..at]));
    // What is longer is the name of nothing, and all the ways to part it are a square of its length.
    whole.into_iter().chain(parted).filter(|(mesh, name)| mesh.len() <= LONGEST && name.len() <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::kinds, policy::mesh_timeout};

    fn found(kind: &'static Kind, delta_name: &str) -> Vec<(String, String)> {
        let owned = |(mesh, name): (&str, &str)| (mesh.to_owned(), name.to_owned());
        candidates(kind, delta_name).map(owned).collect()
    }

    fn pair(mesh: &str, name: &str) -> (String, String) {
        (mesh.to_owned(), name.to_owned())
    }

    #[test]
    fn global_scoped_names_end_with_a_dot() {
        assert_eq!(delta_name("default", ""), "default.");
        for text in ["default.", "default"] {
            assert_eq!(found(&kinds::mesh::KIND, text), [pair("", "default")]);
        }
    }

    #[test]
    fn the_mesh_stands_behind_the_last_dot() {
        assert_eq!(found(&mesh_timeout::KIND, "a.b.c"), [pair("c", "a.b"), pair("b.c", "a")]);
    }

    #[test]
    fn a_mesh_scoped_name_without_a_mesh_means_nothing() {
        assert!(found(&mesh_timeout::KIND, "lonely").is_empty());
    }

    #[test]
    fn what_is_too_long_for_a_name_means_nothing() {
        let longest = "n".repeat(LONGEST);
        assert_eq!(found(&mesh_timeout::KIND, &delta_name(&longest, &longest)), [pair(&longest, &longest)]);
        assert_eq!(found(&mesh_timeout::KIND, &".".repeat(1 << 20)), []);
        assert_eq!(found(&kinds::mesh::KIND, &"n".repeat(1 << 20)), []);
    }
}
