//! Addresses that users may write as host names.

use std::net::IpAddr;

use imbl::{OrdMap, ordmap::DiffItem};

/// Host names someone resolved before a context was built; building itself asks no resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(pub OrdMap<String, IpAddr>);

impl Hosts {
    /// The address of `host`: itself when it is one, else what it was resolved to.
    ///
    /// # Errors
    /// The host name that nobody resolved.
    pub fn resolve(&self, host: &str) -> Result<IpAddr, String> {
        host.parse().or_else(|_| self.0.get(host).copied().ok_or_else(|| host.to_owned()))
    }

    /// The names that stand for something else in `other`, at the cost of what differs.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let name = |item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) => Clone::clone(name),
            DiffItem::Update { new: (name, _), .. } => Clone::clone(name),
        };
        self.0.diff(&other.0).map(name).collect()
    }
}
