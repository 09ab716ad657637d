//! Whether a token opens any door for a proxy here, judged before it is known who shows it.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{DataplaneClaims, NODE_GROUP, Purpose, TokenError, UserClaims, ZoneClaims, validate::check};
use crate::{model::kinds::mesh, store::index::Index};

/// Keys that are tried for a token that names no mesh.
const TRIED: usize = 8;

/// What a token says about where its key is. It only decides which key the signature is checked with.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct UnverifiedClaims {
    mesh: String,
    scope: Option<Vec<String>>,
    groups: Option<Vec<String>>,
}

/// Whether `token` says that it is one of a node that belongs to no mesh. That is not checked.
pub fn is_of_a_node(token: &str) -> bool {
    let claimed = jsonwebtoken::dangerous::insecure_decode_claims::<UnverifiedClaims>(token);
    claimed.is_ok_and(|claimed| claimed.groups.iter().flatten().any(|group| group == NODE_GROUP))
}

/// Whether `token` is a dataplane or zone token, or one of a node of no mesh, with a good signature, in its time and not revoked. Whom it
/// was made for is not looked at.
///
/// # Errors
/// [`TokenError`] saying why it opens nothing.
pub fn screen(index: &Index, token: &str, now: DateTime<Utc>) -> Result<(), TokenError> {
    let claimed: UnverifiedClaims = jsonwebtoken::dangerous::insecure_decode_claims(token)?;
    let dataplane =
        |mesh: &str| check::<DataplaneClaims>(index, Purpose::Dataplane { mesh }, token, now).map(|_| ());
    if claimed.scope.is_some() {
        return check::<ZoneClaims>(index, Purpose::Zone, token, now).map(|_| ());
    }
    if claimed.groups.iter().flatten().any(|group| group == NODE_GROUP) {
        return check::<UserClaims>(index, Purpose::User, token, now).map(|_| ());
    }
    if !claimed.mesh.is_empty() {
        return dataplane(&claimed.mesh);
    }
    let mut refused = TokenError::Mismatch("it names no mesh, and no mesh here has made it".to_owned());
    let kid = jsonwebtoken::decode_header(token)?.kid.unwrap_or_default();
    let meshes = index.list(&mesh::KIND).map(|mesh| mesh.name());
    let with_key = meshes.filter(|mesh| Purpose::Dataplane { mesh }.key_of(index, &kid).is_some());
    for mesh in with_key.take(TRIED) {
        match dataplane(mesh) {
            Ok(()) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
