//! Whether a token is good, and for whom.

use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use super::{
    Claims, DataplaneClaims, Purpose, TokenError, UserClaims, ZoneClaims,
    claims::{NODE_GROUP, Registered, TokenPayload},
    keys::data_of,
};
use crate::{proto::kuma::mesh::v1alpha1::Dataplane, store::index::Index};

/// Who the bearer of a user token is.
///
/// # Errors
/// [`TokenError`] saying why it is not accepted.
pub fn validate_user(index: &Index, token: &str, now: DateTime<Utc>) -> Result<UserClaims, TokenError> {
    check(index, Purpose::User, token, now)
}

/// Whether the bearer may be the node with this id, which belongs to no mesh.
///
/// # Errors
/// [`TokenError`] saying why it is not accepted.
pub fn validate_node(index: &Index, token: &str, id: &str, now: DateTime<Utc>) -> Result<(), TokenError> {
    let UserClaims { name, groups } = validate_user(index, token, now)?;
    if !groups.iter().any(|group| group == NODE_GROUP) {
        return Err(TokenError::Mismatch(format!("its groups are {groups:?}, {NODE_GROUP:?} is needed")));
    }
    if name != id {
        return Err(TokenError::Mismatch(format!("it was made for node {name:?}, not for {id:?}")));
    }
    Ok(())
}

/// Whether the bearer may act as `scope` for `zone`.
///
/// # Errors
/// [`TokenError`] saying why it is not accepted.
pub fn validate_zone(
    index: &Index,
    token: &str,
    scope: &str,
    zone: &str,
    now: DateTime<Utc>,
) -> Result<ZoneClaims, TokenError> {
    let claims: ZoneClaims = check(index, Purpose::Zone, token, now)?;
    if !claims.scope.iter().any(|s| s == scope) {
        let reason = format!("its scope is {:?}, {scope:?} is needed", claims.scope);
        return Err(TokenError::Mismatch(reason));
    }
    if !claims.zone.is_empty() && claims.zone != zone {
        let reason = format!("it was made for zone {:?}, not for {zone:?}", claims.zone);
        return Err(TokenError::Mismatch(reason));
    }
    Ok(claims)
}

/// Whether the bearer may be the dataplane `mesh`/`name`, `described` by its spec and `kuma.io/workload`.
/// Of one that is not known yet, workload, tags and listeners are not checked.
///
/// # Errors
/// [`TokenError`] saying why it is not accepted.
pub fn validate_dataplane(
    index: &Index,
    token: &str,
    mesh: &str,
    name: &str,
    described: Option<(&Dataplane, Option<&str>)>,
    now: DateTime<Utc>,
) -> Result<DataplaneClaims, TokenError> {
    let claims: DataplaneClaims = check(index, Purpose::Dataplane { mesh }, token, now)?;
    let fit = |what: &str, wanted: &str, is: &str| {
        if wanted.is_empty() || wanted == is {
            return Ok(());
        }
        Err(TokenError::Mismatch(format!("it was made for {what} {wanted:?}, not for {is:?}")))
    };
    fit("name", &claims.name, name)?;
    fit("mesh", &claims.mesh, mesh)?;
    let edge = DataplaneClaims::edge(&claims.r#type);
    if edge.is_none() {
        fit("proxy type", &claims.r#type, "dataplane")?;
    }
    let Some((dataplane, workload)) = described else { return Ok(claims) };
    if let Some(edge) = edge
        && !dataplane.networking.iter().flat_map(|n| &n.listeners).any(|listener| listener.r#type() == edge)
    {
        let reason = format!(
            "it was made for proxy type {:?}, and the dataplane has no listener of a {}",
            claims.r#type,
            edge.as_str_name()
        );
        return Err(TokenError::Mismatch(reason));
    }
    fit("workload", &claims.workload, workload.unwrap_or_default())?;
    for (tag, allowed) in &claims.tags {
        let values: Vec<&str> = tag_values(dataplane, tag).collect();
        if values.is_empty() {
            return Err(TokenError::Mismatch(format!("the dataplane has no tag {tag:?}, which it names")));
        }
        if let Some(value) = values.iter().find(|value| !allowed.contains(**value)) {
            let reason = format!("the dataplane has {tag}={value}, it allows {allowed:?}");
            return Err(TokenError::Mismatch(reason));
        }
    }
    Ok(claims)
}

/// Tells a token that was found valid from every other, and opens nothing.
pub fn fingerprint(token: &str) -> String {
    let digest = digest(&SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When a token that was found valid runs out; `None` when it never does.
pub fn expiry(token: &str) -> Option<DateTime<Utc>> {
    let registered: Registered = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    DateTime::from_timestamp(registered.exp?, 0)
}

/// Id and times of a token that was found valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTimes {
    /// What revokes it.
    pub id: String,
    /// When it was made.
    pub made: DateTime<Utc>,
    /// When it runs out; `None` when it never does.
    pub until: Option<DateTime<Utc>>,
}

/// Id and times of a token that was found valid.
pub fn times(token: &str) -> Option<TokenTimes> {
    let registered: Registered = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    let time = |at| DateTime::from_timestamp(at, 0);
    Some(TokenTimes { id: registered.jti, made: time(registered.iat)?, until: registered.exp.and_then(time) })
}

fn tag_values<'a>(dataplane: &'a Dataplane, tag: &'a str) -> impl Iterator<Item = &'a str> {
    let networking = dataplane.networking.as_ref().into_iter();
    let sets =
        networking.flat_map(|n| n.inbound.iter().map(|i| &i.tags).chain(n.gateway.iter().map(|g| &g.tags)));
    sets.filter_map(move |tags| tags.get(tag)).map(String::as_str)
}

/// Key, signature, times, revocation, in this order.
pub(super) fn check<C: Claims>(
    index: &Index,
    purpose: Purpose<'_>,
    token: &str,
    now: DateTime<Utc>,
) -> Result<C, TokenError> {
    let header = jsonwebtoken::decode_header(token)?;
    let kid = header.kid.unwrap_or_default();
    let key = purpose.public_key(index, &kid)?;
    let mut validation = Validation::new(Algorithm::RS256);
    // Times are compared with the clock of the process below, not with one the library reads.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.required_spec_claims.clear();
    let decoded =
        jsonwebtoken::decode::<TokenPayload<C>>(token, &DecodingKey::from_rsa_der(&key), &validation)?;
    let TokenPayload { claims, registered } = decoded.claims;
    check_times(&registered, now)?;
    check_revocation(index, purpose, &registered.jti)?;
    Ok(claims)
}

fn check_times(registered: &Registered, now: DateTime<Utc>) -> Result<(), TokenError> {
    let now = now.timestamp();
    if registered.exp.is_some_and(|exp| exp <= now) {
        return Err(TokenError::Time("expired"));
    }
    if registered.nbf > now {
        return Err(TokenError::Time("not valid yet"));
    }
    Ok(())
}

/// What a list of revocations names: parted by commas, or each in a line, as people write lists. One that is not found
/// because of how it was written would leave somebody in.
pub fn listed(revoked: &str) -> impl Iterator<Item = &str> {
    revoked.split([',', '\n']).map(str::trim)
}

fn check_revocation(index: &Index, purpose: Purpose<'_>, id: &str) -> Result<(), TokenError> {
    for key in purpose.revocations() {
        let Some(data) = index.get(&key).and_then(|secret| data_of(secret)) else { continue };
        if listed(&String::from_utf8_lossy(&data)).any(|revoked| revoked == id && !id.is_empty()) {
            return Err(TokenError::Revoked(id.to_owned()));
        }
    }
    Ok(())
}
