//! Agents of SPIRE beside proxies, who hand out identities that no control plane has.

use std::{path::Path, sync::Arc, time::Duration};

use super::GivenIdentity;

/// An identity that a proxy takes from the agent beside it, as it takes from there whom to believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// What the workload is called, by which the agent knows its certificate.
    pub given: GivenIdentity,
    /// How long the agent may take to answer a connection.
    pub connect_timeout: Duration,
}

/// Where agents listen on the machines of proxies that do not say it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSocket(Arc<str>);

impl Default for AgentSocket {
    fn default() -> Self {
        Self("/tmp/spire-agent/public/api.sock".into())
    }
}

impl AgentSocket {
    /// A Unix socket; `None` for what cannot be one.
    pub fn at(path: &str) -> Option<Self> {
        // As long as the address of one may be, with its end.
        const LONGEST: usize = 107;
        (Path::new(path).is_absolute() && path.len() <= LONGEST && !path.contains('\0'))
            .then(|| Self(path.into()))
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.0
    }
}
