//! The identity of a resource.

use std::{cmp::Ordering, fmt, sync::Arc};

use super::{Kind, Scope};

/// `(type, mesh, name)`, where `name` is the KDS core name: hashed for what was synced, as given for
/// what was written here. Global-scoped kinds have an empty mesh.
///
/// Ordered by kind name, then mesh, then name, which is the order of REST lists.
#[derive(Clone)]
pub struct ResourceKey {
    /// What kind of resource this is.
    pub kind: &'static Kind,
    /// Mesh name; empty for global-scoped kinds.
    pub mesh: Arc<str>,
    /// Core name.
    pub name: Arc<str>,
}

impl ResourceKey {
    /// A key of `kind`; the mesh of a global-scoped kind is dropped.
    pub fn new(kind: &'static Kind, mesh: &str, name: &str) -> Self {
        let mesh = if kind.scope == Scope::Mesh { mesh } else { "" };
        Self { kind, mesh: mesh.into(), name: name.into() }
    }

    /// A key of a global-scoped kind.
    pub fn global(kind: &'static Kind, name: &str) -> Self {
        Self::new(kind, "", name)
    }

    fn parts(&self) -> (&'static str, &str, &str) {
        (self.kind.name, &self.mesh, &self.name)
    }
}

impl PartialEq for ResourceKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ResourceKey {}

impl PartialOrd for ResourceKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl std::hash::Hash for ResourceKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mesh.is_empty() {
            write!(f, "{} {}", self.kind.name, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind.name, self.mesh, self.name)
        }
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
