//! By whose word a service exists, which decides where several want what only one can have.

/// In the order in which they come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Provenance {
    /// A proxy of this zone serves it, healthy or not.
    Here,
    /// Global says so: it is outside the mesh, or made of what several zones have.
    Global,
    /// Another zone says so.
    #[default]
    Elsewhere,
}
