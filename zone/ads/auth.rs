//! Whether a proxy is who it says it is.

use std::sync::Arc;

use common::{
    model::{document::Document, labels},
    proto::kuma::mesh::v1alpha1::Dataplane,
    runtime::Env,
    store::index::Index,
    token::{self, DataplaneClaims, TokenError, scope, validate_dataplane, validate_zone},
};
use prost::Message;
use thiserror::Error;
use tonic::Status;

use super::node::{ProxyId, ProxyKind};

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
    /// Whether the token of a dataplane that brings its own resource must say which services or which
    /// workload that may be.
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
}

/// Why a proxy is not let in.
#[derive(Debug, Error)]
pub enum AuthError {
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

impl From<AuthError> for Status {
    fn from(error: AuthError) -> Self {
        let code = match &error {
            AuthError::Token { source: TokenError::Mismatch(_), .. } | AuthError::Unbound(_) => {
                tonic::Code::PermissionDenied
            }
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
}

impl Authenticator {
    /// For the proxies of `zone`.
    pub fn new(requirement: Requirement, zone: Arc<str>, env: Env) -> Self {
        Self { requirement, zone, env }
    }

    /// What tells the token a proxy of this kind was let in with from others; `None` where none is demanded,
    /// and anything may be shown.
    pub fn credential(&self, kind: ProxyKind, token: Option<&str>) -> Option<String> {
        self.requirement.token_of(kind).and(token).map(token::fingerprint)
    }

    /// Whether the bearer of `token` can be any proxy at all, judged before it says which.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn screen(&self, token: Option<&str>, index: &Index) -> Result<(), AuthError> {
        if [self.requirement.dataplane, self.requirement.zone_proxy].contains(&Credential::None) {
            return Ok(());
        }
        let token = token.filter(|t| !t.is_empty()).ok_or(AuthError::Anonymous)?;
        token::screen(index, token, self.env.now()).map_err(AuthError::Worthless)
    }

    /// Whether the bearer of `token` may be `proxy`, whatever that is made of.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn check_bearer(&self, proxy: &ProxyId, token: &str, index: &Index) -> Result<(), AuthError> {
        self.check_as(proxy, None, Some(token), index).map(|_| ())
    }

    /// Whether the bearer of `token` may be `proxy` as it is stored. Of a dataplane that is not stored
    /// yet, everything is checked but its tags and workload; whoever serves it later checks again.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn check(&self, proxy: &ProxyId, token: Option<&str>, index: &Index) -> Result<(), AuthError> {
        let stored = index.get(&proxy.key());
        let workload = stored.and_then(|r| r.label(labels::WORKLOAD));
        self.check_as(proxy, stored.map(|r| (&r.spec[..], workload)), token, index).map(|_| ())
    }

    /// Whether the bearer of `token` may be `proxy` as it describes itself.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn check_inline(
        &self,
        proxy: &ProxyId,
        document: &Document,
        token: Option<&str>,
        index: &Index,
    ) -> Result<(), AuthError> {
        let workload = document.labels.get(labels::WORKLOAD).map(String::as_str);
        let claims = self.check_as(proxy, Some((&document.spec, workload)), token, index)?;
        let bound = |claims: &DataplaneClaims| {
            claims.tags.contains_key(labels::TAG_SERVICE) || !claims.workload.is_empty()
        };
        match claims {
            Some(claims) if self.requirement.bound && !bound(&claims) => {
                Err(AuthError::Unbound(proxy.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Checks the token, and gives what one of a dataplane says.
    fn check_as(
        &self,
        proxy: &ProxyId,
        described: Option<(&[u8], Option<&str>)>,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Option<DataplaneClaims>, AuthError> {
        let Some(name) = self.requirement.token_of(proxy.kind) else { return Ok(None) };
        let token = token.filter(|t| !t.is_empty());
        let remedy = || self.remedy(proxy);
        let missing = || AuthError::Missing { token: name, proxy: proxy.clone(), remedy: remedy() };
        let token = token.ok_or_else(missing)?;
        let now = self.env.now();
        let zone_token = |scope| validate_zone(index, token, scope, &self.zone, now).map(|_| None);
        let accepted = match proxy.kind {
            ProxyKind::Ingress => zone_token(scope::INGRESS),
            ProxyKind::Egress => zone_token(scope::EGRESS),
            ProxyKind::Dataplane => {
                let described = match described {
                    Some((spec, workload)) => {
                        let dataplane = Dataplane::decode(spec);
                        Some((dataplane.map_err(|_| AuthError::Unreadable(proxy.clone()))?, workload))
                    }
                    None => None,
                };
                let described = described.as_ref().map(|(dataplane, workload)| (dataplane, *workload));
                validate_dataplane(index, token, &proxy.mesh, &proxy.name, described, now).map(Some)
            }
        };
        accepted.map_err(|source| AuthError::Token {
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
