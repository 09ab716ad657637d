//! Which tokens proxies have to show.

use super::node::ProxyKind;

/// How proxies of one sort prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By a token in the `authorization` metadata of the stream.
    Token,
    /// Not at all. Only for a network where everybody may be anybody.
    None,
}

/// What is demanded of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Of dataplanes: a dataplane token.
    pub dataplane: Credential,
    /// Of zone ingresses and egresses: a zone token with their scope.
    pub zone_proxy: Credential,
}

impl Default for Requirement {
    fn default() -> Self {
        Self { dataplane: Credential::Token, zone_proxy: Credential::Token }
    }
}

impl Requirement {
    /// Name of the token a proxy of `kind` must show; `None` when none is demanded.
    pub fn token_of(&self, kind: ProxyKind) -> Option<&'static str> {
        let (credential, name) = match kind {
            ProxyKind::Dataplane => (self.dataplane, "dataplane"),
            ProxyKind::Ingress | ProxyKind::Egress => (self.zone_proxy, "zone"),
        };
        (credential == Credential::Token).then_some(name)
    }
}
