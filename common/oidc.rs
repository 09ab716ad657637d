//! OpenID Connect: people for whom a provider of their organisation vouches.
//!
//! ```text
//!  provider ──► ProviderWeb ──► keeper ──► what is known: endpoints, keys
//!                                               │
//!  token ──► verify: signature, issuer, audience, times ──► claims ──► User
//! ```
//!
//! A request never waits for the provider. What is known of it is fetched beside, and again when a token names a key that
//! is not among its keys, at most every [`keeper::SOONEST`]. While nothing is known, its tokens are refused and
//! everything else goes on.

mod claims;
mod flow;
mod keeper;
mod metadata;
mod provider_keys;
mod provider_web;
mod session;
mod verify;

use thiserror::Error;

pub use self::{
    claims::ClaimMapping,
    flow::{CodeFlow, IdTokenFields, OAuthClient, ProviderTokens, oauth_client, refusal},
    keeper::OpenIdProvider,
    metadata::{ProviderMetadata, discovery_url},
    provider_keys::ProviderKeys,
    provider_web::ProviderWeb,
    session::PageSession,
    verify::{ExpectedToken, LONGEST_TOKEN, ProviderClaims, issuer_of, verify},
};

/// Bytes of a name, or of the words of a provider, in an error.
const SHOWN: usize = 200;

/// Why a token of a provider is not accepted, or a login came to nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OidcError {
    /// Nothing is known of the provider yet.
    #[error("the provider {issuer} could not be asked for its keys yet, so its tokens are refused: {reason}")]
    Unknown {
        /// Which provider.
        issuer: String,
        /// What went wrong, or that it was not asked yet.
        reason: String,
    },
    /// The token is longer than any that is looked at.
    #[error("the token is longer than {LONGEST_TOKEN} bytes")]
    Long,
    /// It is no token, or its signature is not one of the provider.
    #[error("the token is not one that this provider signed: {0}")]
    Invalid(String),
    /// It is signed in a way that proves nothing, or for something else.
    #[error("{0} is not accepted in the header of a token")]
    Header(String),
    /// It names a key the provider does not show.
    #[error(
        "the provider has no such key as the token names ({0}); it is asked again, so try again in some seconds"
    )]
    Key(String),
    /// Somebody else made it.
    #[error("the token is of {0:?}, which is not the provider here")]
    Issuer(String),
    /// It was made for somebody else.
    #[error("the token is for {0}, which is no client of this control plane")]
    Audience(String),
    /// Its time is over or has not come.
    #[error("the token is {0}")]
    Time(&'static str),
    /// It belongs to another login.
    #[error("the token is not of this login")]
    Nonce,
    /// A claim does not say who somebody is.
    #[error("the claim {claim:?} of the token {reason}")]
    Claim {
        /// Which claim.
        claim: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The provider says something unusable about itself.
    #[error("{what} of the provider is not usable: {reason}")]
    Document {
        /// Which document.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It was not reached, or did not answer as it should.
    #[error("the provider did not answer: {0}")]
    Web(String),
    /// It refused what it was asked for.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// The settings say nothing of a client for this.
    #[error("{0} is not set, so nobody can log in this way")]
    NoClient(&'static str),
    /// There is no key to seal with what a browser keeps.
    #[error("what your browser would keep cannot be sealed: {0}")]
    Unsealed(String),
    /// Too many log in at once.
    #[error("too many log in at the moment, try again")]
    Busy,
}

#[cfg(test)]
pub(crate) mod signer;
#[cfg(test)]
mod tests;
