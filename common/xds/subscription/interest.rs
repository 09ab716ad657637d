//! What a peer asked for.

use super::{NameSet, wide::WideNames};
use crate::xds::variant;

/// Which resources of the type the peer asked for.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// All of them.
    pub wildcard: bool,
    /// These by name, besides.
    pub(super) names: NameSet,
    /// Of these names what is more than the name of a resource.
    pub(super) wide: Option<Box<WideNames>>,
}

impl Interest {
    /// Whether it includes this name.
    pub fn covers(&self, name: &str) -> bool {
        let is_meant = self.wildcard && !variant::is_variant(name) && !variant::is_locator(name);
        is_meant || self.names.contains(name) || self.wide.as_ref().is_some_and(|wide| wide.covers(name))
    }

    /// The names that were asked for one by one.
    pub fn names(&self) -> &NameSet {
        &self.names
    }
}
