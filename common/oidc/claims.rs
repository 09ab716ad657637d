//! Whom the claims of a token mean here.

use serde::Serialize;
use serde_json::Value;

use super::{OidcError, ProviderClaims};
use crate::{
    access::User,
    config::{OpenIdConnectSection, RESERVED},
};

/// Longest name of a user or group.
const LONGEST_NAME: usize = 256;
/// Groups of one user, at most.
const MOST_GROUPS: usize = 256;

/// Which claims name a user and his groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClaimMapping {
    username: String,
    username_prefix: String,
    groups: String,
    groups_prefix: String,
}

impl From<&OpenIdConnectSection> for ClaimMapping {
    fn from(settings: &OpenIdConnectSection) -> Self {
        Self {
            username: settings.username_claim.clone(),
            username_prefix: settings.username_prefix.clone(),
            groups: settings.groups_claim.clone(),
            groups_prefix: settings.groups_prefix.clone(),
        }
    }
}

impl ClaimMapping {
    /// Who that is. Names that only a control plane gives are given to nobody: such a user is refused, such groups are
    /// left out.
    ///
    /// # Errors
    /// [`OidcError::Claim`] when the claims name no user, one who cannot be, or more groups than one has.
    pub fn user(&self, claims: &ProviderClaims) -> Result<User, OidcError> {
        let wrong = |claim: &str, reason: &str| OidcError::Claim {
            claim: claim.to_owned(),
            reason: reason.to_owned(),
        };
        let named = find(claims, &self.username).and_then(Value::as_str).filter(|name| !name.is_empty());
        let Some(named) = named else {
            return Err(wrong(&self.username, "names nobody; usernameClaim says which one does"));
        };
        let is_unproven = claims.get("email_verified").is_some_and(|is| *is != true && *is != "true");
        if self.username == "email" && is_unproven {
            return Err(wrong("email_verified", "says that the address may be somebody else's"));
        }
        let name = format!("{}{named}", self.username_prefix);
        if !is_name(&name) {
            return Err(wrong(&self.username, "is too long, or has characters in it that no name has"));
        }
        if is_reserved(&name) {
            return Err(wrong(&self.username, "is a name that only a control plane gives (mesh-system:)"));
        }
        let groups: Vec<&str> = match find(claims, &self.groups) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if groups.len() > MOST_GROUPS {
            return Err(wrong(&self.groups, "lists more than 256 groups: let the provider send fewer"));
        }
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        let groups = groups.map(|group| format!("{}{group}", self.groups_prefix));
        let groups = groups.filter(|group| is_name(group) && !is_reserved(group));
        Ok(User::vouched_for(name, groups.collect()))
    }
}

/// The claim of this name; else, `outer.inner`, the one inside of another.
fn find<'a>(claims: &'a ProviderClaims, name: &str) -> Option<&'a Value> {
    if name.is_empty() {
        return None;
    }
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let (outer, inner) = name.split_once('.')?;
    claims.get(outer)?.as_object().and_then(|inside| find(inside, inner))
}

fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.trim() == text && !text.chars().any(char::is_control)
}

/// Whether somebody could take it for a name that only a control plane gives.
fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}
