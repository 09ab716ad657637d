//! Addresses that users may write as host names.

use std::{collections::BTreeMap, net::IpAddr};

/// Host names someone resolved before a context was built; building itself asks no resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(pub BTreeMap<String, IpAddr>);

impl Hosts {
    /// The address of `host`: itself when it is one, else what it was resolved to.
    ///
    /// # Errors
    /// The host name that nobody resolved.
    pub fn resolve(&self, host: &str) -> Result<IpAddr, String> {
        host.parse().or_else(|_| self.0.get(host).copied().ok_or_else(|| host.to_owned()))
    }
}
