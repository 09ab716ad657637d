//! Whether a proxy is who it says it is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use common::{
    document::Document,
    model::{Labels, Resource, Violations, labels},
    proto::kuma::mesh::v1alpha1::Dataplane,
    runtime::Env,
    store::index::Index,
    token::{
        self, DataplaneClaims, NODE_GROUP, Purpose, TokenError, scope, validate_dataplane, validate_node,
        validate_zone,
    },
};
use prost::Message;
use thiserror::Error;
use tonic::Status;

use super::{
    brought,
    grant::Grant,
    node::{ProxyId, ProxyKind},
    resource,
};

/// How proxies of one sort prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// By a token in the `authorization` metadata of the stream.
    #[default]
    Token,
    /// Not at all. Only for a network where everybody may be anybody.
    None,
}

/// What is demanded of whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Of dataplanes: a dataplane token.
    pub dataplane: Credential,
    /// Of zone ingresses and egresses: a zone token with their scope.
    pub zone_proxy: Credential,
    /// Of nodes that belong to no mesh: a user token in their name, of the group of nodes.
    pub node: Credential,
    /// Whether the token of a dataplane that brings its own resource must name all tags and the workload of
    /// that, and so says which services it may be.
    pub bound: bool,
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

    /// Name of the token `proxy` must show; `None` when none is demanded.
    pub fn token_for(&self, proxy: &ProxyId) -> Option<&'static str> {
        match proxy.is_of_no_mesh() {
            true => (self.node == Credential::Token).then_some("user"),
            false => self.token_of(proxy.kind),
        }
    }
}

/// Why a proxy is not let in.
#[derive(Debug, Error)]
pub enum ProxyAuthError {
    /// It shows no token.
    #[error("{proxy} must show a {token} token in the authorization metadata; {remedy}")]
    Missing {
        /// Which token.
        token: &'static str,
        /// Of whom.
        proxy: ProxyId,
        /// Which command makes a right one.
        remedy: Box<str>,
    },
    /// It shows no token, and whoever it is, it would need one.
    #[error(
        "a proxy must show a token in the authorization metadata; `straitctl generate dataplane-token` makes \
         one, for a zone proxy `straitctl generate zone-token`"
    )]
    Anonymous,
    /// Its token opens nothing here.
    #[error("the token is not accepted: {0}")]
    Worthless(#[source] TokenError),
    /// Its token does not say what it may be.
    #[error(
        "{0} brings its own resource, so its token must name its services or its workload; make one with \
         `straitctl generate dataplane-token --mesh {mesh} --name {name} --tag kuma.io/service=...`",
        mesh = .0.mesh, name = .0.name
    )]
    Unbound(ProxyId),
    /// It brings a resource that says more than its token.
    #[error("{proxy} may not say all of what it brings along by its token: dataplane.resource: {violations}")]
    Exceeds {
        /// Who.
        proxy: ProxyId,
        /// What of it.
        violations: Violations,
    },
    /// Its token is not accepted.
    #[error("the {token} token of {proxy} is not accepted: {source}; {remedy}")]
    Token {
        /// Which token.
        token: &'static str,
        /// Of whom.
        proxy: ProxyId,
        /// Why.
        source: TokenError,
        /// Which command makes a right one.
        remedy: Box<str>,
    },
    /// What the token has to fit cannot be read.
    #[error("{0} cannot be checked against its token: its resource does not decode")]
    Unreadable(ProxyId),
}

impl From<ProxyAuthError> for Status {
    fn from(error: ProxyAuthError) -> Self {
        let code = match &error {
            ProxyAuthError::Token { source: TokenError::Mismatch(_), .. }
            | ProxyAuthError::Unbound(_)
            | ProxyAuthError::Exceeds { .. } => tonic::Code::PermissionDenied,
            _ => tonic::Code::Unauthenticated,
        };
        Status::new(code, error.to_string())
    }
}

/// Checks tokens of proxies.
#[derive(Clone)]
pub struct Authenticator {
    requirement: Requirement,
    zone: Arc<str>,
    env: Env,
    /// Tokens of known proxies that were verified so far.
    verified: Arc<AtomicU64>,
}

impl Authenticator {
    /// For the proxies of `zone`.
    pub fn new(requirement: Requirement, zone: Arc<str>, env: Env) -> Self {
        Self { requirement, zone, env, verified: Arc::default() }
    }

    /// How many tokens of known proxies were verified so far.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// What tells the token `proxy` was let in with from others; `None` where none is demanded,
    /// and anything may be shown.
    pub fn credential(&self, proxy: &ProxyId, token: Option<&str>) -> Option<String> {
        self.requirement.token_for(proxy).and(token).map(token::fingerprint)
    }

    /// Whether the bearer of `token` can be any proxy at all, judged before it says which.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn screen(&self, token: Option<&str>, index: &Index) -> Result<(), ProxyAuthError> {
        let Requirement { dataplane, zone_proxy, node, .. } = self.requirement;
        if [dataplane, zone_proxy, node].contains(&Credential::None) {
            return Ok(());
        }
        let token = token.filter(|t| !t.is_empty()).ok_or(ProxyAuthError::Anonymous)?;
        token::screen(index, token, self.env.now()).map_err(ProxyAuthError::Worthless)
    }

    /// Whether the bearer of `token` may be `proxy`, whatever that is made of.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check_bearer(&self, proxy: &ProxyId, token: &str, index: &Index) -> Result<(), ProxyAuthError> {
        self.check_as(proxy, None, Some(token), index).map(|_| ())
    }

    /// Whether the bearer of `token` may be `proxy` as it is stored. Of a dataplane that is not stored
    /// yet, everything is checked but its tags and workload; whoever serves it later checks again.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check(
        &self,
        proxy: &ProxyId,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Grant, ProxyAuthError> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        self.check_stored(proxy, token, index)?;
        Ok(self.grant(proxy, token, index))
    }

    /// The same of who brings a resource to replace the stored one with, for which it takes no more than to be that
    /// proxy.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check_successor(
        &self,
        proxy: &ProxyId,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Grant, ProxyAuthError> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        self.check_replaced(proxy, token, index)?;
        Ok(self.grant(proxy, token, index))
    }

    fn grant(&self, proxy: &ProxyId, token: Option<&str>, index: &Index) -> Grant {
        let demanded = token.filter(|_| self.requirement.token_for(proxy).is_some());
        let Some(token) = demanded else { return Grant::default() };
        let purpose = match proxy.kind {
            _ if proxy.is_of_no_mesh() => Purpose::User,
            ProxyKind::Dataplane => Purpose::Dataplane { mesh: &proxy.mesh },
            ProxyKind::Ingress | ProxyKind::Egress => Purpose::Zone,
        };
        let mut keys = purpose.rests_on(token);
        keys.push(proxy.key());
        Grant::new(keys, token::expiry(token), index)
    }

    /// The same without remembering what that rested on.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check_stored(
        &self,
        proxy: &ProxyId,
        token: Option<&str>,
        index: &Index,
    ) -> Result<(), ProxyAuthError> {
        let stored = index.get(&proxy.key());
        let claims = self.check_described(proxy, stored.map(Arc::as_ref), token, index)?;
        // What somebody applied says what it likes.
        let Some(brought) = stored.filter(|resource| resource::is_registered(resource)) else {
            return Ok(());
        };
        self.check_brought(proxy, claims, &brought.spec, &brought.labels)
    }

    /// [`Self::check_successor`] without remembering what that rested on.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check_replaced(
        &self,
        proxy: &ProxyId,
        token: Option<&str>,
        index: &Index,
    ) -> Result<(), ProxyAuthError> {
        let stored = index.get(&proxy.key());
        self.check_described(proxy, stored.map(Arc::as_ref), token, index).map(|_| ())
    }

    /// Whether what `grant` was given for is still so.
    pub fn upholds(&self, grant: &Grant, index: &Index) -> bool {
        grant.holds(index, self.env.now())
    }

    /// How long `grant` is good if nothing changes; `None` for ever.
    pub fn good_for(&self, grant: &Grant) -> Option<Duration> {
        Some((grant.until()? - self.env.now()).to_std().unwrap_or_default())
    }

    /// Whether the bearer of `token` may be `proxy` as it describes itself.
    ///
    /// # Errors
    /// [`ProxyAuthError`].
    pub fn check_inline(
        &self,
        proxy: &ProxyId,
        document: &Document,
        token: Option<&str>,
        index: &Index,
    ) -> Result<(), ProxyAuthError> {
        let workload = document.labels.get(labels::WORKLOAD);
        let claims = self.check_as(proxy, Some((&document.spec, workload)), token, index)?;
        // It has to be the same as what somebody applied, which says what it likes.
        if index.get(&proxy.key()).is_some_and(|stored| !resource::is_registered(stored)) {
            return Ok(());
        }
        self.check_brought(proxy, claims, &document.spec, &document.labels)
    }

    /// Whether the token, if it is one of a dataplane, says enough for what `proxy` brings or brought along.
    fn check_brought(
        &self,
        proxy: &ProxyId,
        claims: Option<DataplaneClaims>,
        spec: &[u8],
        labels: &Labels,
    ) -> Result<(), ProxyAuthError> {
        let Some(claims) = claims else { return Ok(()) };
        let is_bound = claims.tags.contains_key(labels::TAG_SERVICE) || !claims.workload.is_empty();
        if self.requirement.bound && !is_bound {
            return Err(ProxyAuthError::Unbound(proxy.clone()));
        }
        let dataplane = Dataplane::decode(spec).map_err(|_| ProxyAuthError::Unreadable(proxy.clone()))?;
        let violations = brought::check(&claims, &dataplane, labels, self.requirement.bound);
        match violations.is_empty() {
            true => Ok(()),
            false => Err(ProxyAuthError::Exceeds { proxy: proxy.clone(), violations }),
        }
    }

    /// Whether the bearer of `token` may be `proxy` with the tags and the workload of `stored`; what it claims.
    fn check_described(
        &self,
        proxy: &ProxyId,
        stored: Option<&Resource>,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Option<DataplaneClaims>, ProxyAuthError> {
        let described = stored.map(|stored| (&stored.spec[..], stored.label(labels::WORKLOAD)));
        self.check_as(proxy, described, token, index)
    }

    /// Checks the token, and gives what one of a dataplane says.
    fn check_as(
        &self,
        proxy: &ProxyId,
        described: Option<(&[u8], Option<&str>)>,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Option<DataplaneClaims>, ProxyAuthError> {
        let Some(name) = self.requirement.token_for(proxy) else { return Ok(None) };
        let token = token.filter(|t| !t.is_empty());
        let remedy = || self.remedy(proxy);
        let missing = || ProxyAuthError::Missing { token: name, proxy: proxy.clone(), remedy: remedy() };
        let token = token.ok_or_else(missing)?;
        let now = self.env.now();
        let zone_token = |scope| validate_zone(index, token, scope, &self.zone, now).map(|_| None);
        let accepted = match proxy.kind {
            _ if proxy.is_of_no_mesh() => validate_node(index, token, &proxy.name, now).map(|()| None),
            ProxyKind::Ingress => zone_token(scope::INGRESS),
            ProxyKind::Egress => zone_token(scope::EGRESS),
            ProxyKind::Dataplane => {
                let described = match described {
                    Some((spec, workload)) => {
                        let dataplane = Dataplane::decode(spec);
                        Some((dataplane.map_err(|_| ProxyAuthError::Unreadable(proxy.clone()))?, workload))
                    }
                    None => None,
                };
                let described = described.as_ref().map(|(dataplane, workload)| (dataplane, *workload));
                validate_dataplane(index, token, &proxy.mesh, &proxy.name, described, now).map(Some)
            }
        };
        accepted.map_err(|source| ProxyAuthError::Token {
            token: name,
            proxy: proxy.clone(),
            source,
            remedy: remedy(),
        })
    }

    /// The command that makes a token `proxy` gets in with.
    fn remedy(&self, proxy: &ProxyId) -> Box<str> {
        let zone_token = |scope| {
            format!(
                "make one on global with `straitctl generate zone-token --zone {} --scope {scope}`",
                self.zone
            )
        };
        let text = match proxy.kind {
            _ if proxy.is_of_no_mesh() => format!(
                "make one on this control plane with `straitctl generate user-token --name {} --group {NODE_GROUP}`",
                proxy.name
            ),
            ProxyKind::Ingress => zone_token(scope::INGRESS),
            ProxyKind::Egress => zone_token(scope::EGRESS),
            ProxyKind::Dataplane => format!(
                "make one with `straitctl generate dataplane-token --mesh {} --name {}`",
                proxy.mesh, proxy.name
            ),
        };
        text.into_boxed_str()
    }
}
