//! Signing keys: where they are kept, and how one is made.

use std::sync::Arc;

use prost::Message;

use super::{TokenError, parsed};
use crate::{
    clip::clip,
    keys::{self, KeyError, KeyForm, PrivateKey},
    model::{Kind, Resource, ResourceKey, kinds::secret},
    proto::{google::protobuf::BytesValue, kuma::system::v1alpha1::Secret},
    store::index::Index,
};

/// Global secret that holds the token of the first administrator, and file that holds the one of its machine.
pub const ADMIN_USER_TOKEN: &str = "admin-user-token";
/// Global secret with the serial numbers of certificates that no zone may show any more, between commas.
pub const ZONE_CERTIFICATE_REVOCATIONS: &str = "zone-certificate-revocations";
/// Begin the names of what says whose tokens are good.
const USER_TOKENS: &str = "user-token-";
const ZONE_TOKENS: &str = "zone-token-";
const USER_KEY: &str = "user-token-signing-key";
const DATAPLANE_KEY: &str = "dataplane-token-signing-key";
const DATAPLANE_PUBLIC_KEY: &str = "dataplane-token-signing-public-key";
const DATAPLANE_REVOCATIONS: &str = "dataplane-token-revocations-";
const ZONE_KEY: &str = "zone-token-signing-key";
const ZONE_PUBLIC_KEY: &str = "zone-token-signing-public-key";
/// Bytes of the `kid` of a token in an error.
const KID: usize = 64;

/// What a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Tokens of the dataplanes of one mesh.
    Dataplane {
        /// The mesh.
        mesh: &'a str,
    },
    /// Tokens of zone proxies and zone control planes.
    Zone,
    /// Tokens of users of this control plane.
    User,
}

/// A private key with its id.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// Name of its secret.
    pub name: String,
    /// Serial, as the `kid` of tokens.
    pub kid: String,
    /// PEM text.
    pub pem: Vec<u8>,
}

impl Purpose<'_> {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Dataplane { .. } => "dataplane",
            Self::Zone => "zone",
            Self::User => "user",
        }
    }

    fn prefix(&self) -> String {
        match self {
            Self::Dataplane { mesh } => format!("{DATAPLANE_KEY}-{mesh}"),
            Self::Zone => ZONE_KEY.to_owned(),
            Self::User => USER_KEY.to_owned(),
        }
    }

    /// The same for public halves; user tokens are good only where they are made.
    fn public_prefix(&self) -> Option<String> {
        match self {
            Self::Dataplane { mesh } => Some(format!("{DATAPLANE_PUBLIC_KEY}-{mesh}")),
            Self::Zone => Some(ZONE_PUBLIC_KEY.to_owned()),
            Self::User => None,
        }
    }

    fn kind(&self) -> &'static Kind {
        match self {
            Self::Dataplane { .. } => &secret::SECRET,
            Self::Zone | Self::User => &secret::GLOBAL_SECRET,
        }
    }

    fn mesh(&self) -> &str {
        match self {
            Self::Dataplane { mesh } => mesh,
            Self::Zone | Self::User => "",
        }
    }

    /// Where the key with this serial is kept.
    pub fn key(&self, serial: u32) -> ResourceKey {
        ResourceKey::new(self.kind(), self.mesh(), &format!("{}-{serial}", self.prefix()))
    }

    /// Where the ids of revoked tokens may be kept. For dataplanes there are two places: the documented
    /// one in the mesh, and the global one a Kuma control plane reads.
    pub(super) fn revocations(&self) -> Vec<ResourceKey> {
        match self {
            Self::Dataplane { mesh } => {
                let name = format!("{DATAPLANE_REVOCATIONS}{mesh}");
                vec![
                    ResourceKey::new(&secret::SECRET, mesh, &name),
                    ResourceKey::global(&secret::GLOBAL_SECRET, &name),
                ]
            }
            Self::Zone | Self::User => {
                let name = format!("{}-token-revocations", self.word());
                vec![ResourceKey::global(&secret::GLOBAL_SECRET, &name)]
            }
        }
    }

    /// Whether a change of this resource may change which tokens are good.
    pub fn depends_on(&self, key: &ResourceKey) -> bool {
        let is_key = || self.prefixes().any(|prefix| key.name.starts_with(&prefix));
        let is_place_of_keys = key.kind == self.kind() && *key.mesh == *self.mesh();
        (is_place_of_keys && is_key()) || self.revocations().contains(key)
    }

    /// Every resource that decides whether `token` is good, there or not: what its key may be, and where it
    /// may be revoked.
    pub fn rests_on(&self, token: &str) -> Vec<ResourceKey> {
        let kid = jsonwebtoken::decode_header(token).ok().and_then(|header| header.kid).unwrap_or_default();
        let mut keys = self.revocations();
        keys.extend(self.places(&kid));
        keys
    }

    /// Whether any key of this purpose exists.
    pub fn has_key(&self, index: &Index) -> bool {
        self.secrets(index, &self.prefix()).next().is_some()
    }

    /// The key that signs new tokens: the one with the highest serial.
    ///
    /// # Errors
    /// [`TokenError::OnlyPublic`] when only tokens can be checked here, [`TokenError::NoKey`] when there is none.
    pub fn newest_key(&self, index: &Index) -> Result<SigningKey, TokenError> {
        let newest = self.secrets(index, &self.prefix()).max_by_key(|(serial, _)| *serial);
        let checks = |prefix: String| self.secrets(index, &prefix).next().is_some();
        let missing = || match self.public_prefix().is_some_and(checks) {
            true => TokenError::OnlyPublic(self.word()),
            false => TokenError::NoKey(self.word(), self.key(1).name.to_string()),
        };
        let (serial, secret) = newest.ok_or_else(missing)?;
        let pem = data_of(secret).unwrap_or_default();
        Ok(SigningKey { name: secret.name().to_owned(), kid: serial.to_string(), pem })
    }

    /// The public key a token with this `kid` is checked against, as PKCS#1 DER.
    pub(super) fn public_key(&self, index: &Index, kid: &str) -> Result<Vec<u8>, TokenError> {
        let unknown = || TokenError::UnknownKey { kid: clip(kid, KID).to_owned() };
        let secret = self.key_of(index, kid).ok_or_else(unknown)?;
        let pem = data_of(secret).unwrap_or_default();
        parsed::rsa_public_der(&pem).map_err(|e| broken(secret.name(), e))
    }

    /// The secret with the key of this `kid`, which is no more than a number.
    pub(super) fn key_of<'a>(&self, index: &'a Index, kid: &str) -> Option<&'a Resource> {
        self.places(kid).find_map(|place| index.get(&place)).map(Arc::as_ref)
    }

    /// Where the key of this `kid` can be.
    fn places(&self, kid: &str) -> impl Iterator<Item = ResourceKey> {
        let serial = kid.parse().ok().filter(|serial: &u32| serial.to_string() == kid);
        let place =
            |prefix, serial| ResourceKey::new(self.kind(), self.mesh(), &format!("{prefix}-{serial}"));
        serial.into_iter().flat_map(move |serial| self.prefixes().map(move |prefix| place(prefix, serial)))
    }

    /// What the names of secrets with keys to check tokens begin with.
    fn prefixes(&self) -> impl Iterator<Item = String> + use<> {
        [self.prefix()].into_iter().chain(self.public_prefix())
    }

    /// All secrets `<prefix>-<serial>` with their serials.
    fn secrets<'a>(
        &self,
        index: &'a Index,
        prefix: &str,
    ) -> impl Iterator<Item = (u32, &'a Resource)> + use<'a> {
        let prefix = format!("{prefix}-");
        let mesh = self.mesh().to_owned();
        let secrets = index.list(self.kind()).filter(move |secret| secret.mesh() == mesh);
        secrets.filter_map(move |secret| {
            let serial = secret.name().strip_prefix(&prefix)?.parse().ok()?;
            Some((serial, secret.as_ref()))
        })
    }
}

/// The bytes a secret holds.
pub fn data_of(secret: &Resource) -> Option<Vec<u8>> {
    Some(Secret::decode(&secret.spec[..]).ok()?.data?.value)
}

/// The encoded spec of a secret that holds `data`.
pub fn secret_spec(data: impl Into<Vec<u8>>) -> Vec<u8> {
    Secret { data: Some(BytesValue { value: data.into() }) }.encode_to_vec()
}

/// Whether a secret of a mesh with this name holds a key that signs dataplane tokens.
pub fn is_dataplane_key(name: &str) -> bool {
    name.starts_with(DATAPLANE_KEY)
}

/// Whether a secret of a mesh with this name lists dataplane tokens that are revoked.
pub fn is_dataplane_revocation(name: &str) -> bool {
    name.starts_with(DATAPLANE_REVOCATIONS)
}

/// Whether a global secret with this name is about the tokens of users, which are good only where they are made.
pub fn is_of_users(name: &str) -> bool {
    name == ADMIN_USER_TOKEN
        || name.starts_with(USER_KEY)
        || Purpose::User.revocations().iter().any(|key| *key.name == *name)
}

/// Whether a global secret with this name holds a key that signs zone tokens.
pub fn is_zone_key(name: &str) -> bool {
    name.starts_with(ZONE_KEY)
}

/// The public half of a key that signs dataplane or zone tokens, for whoever checks them and may not make them:
/// the name of its secret, and its PEM text. The name for zone tokens is Kuma's; for dataplane tokens Kuma has none.
///
/// # Errors
/// [`TokenError::BrokenKey`] when the secret has another name or holds no RSA key.
pub fn public_half(secret: &Resource) -> Result<(String, String), TokenError> {
    let halves = [(DATAPLANE_KEY, DATAPLANE_PUBLIC_KEY), (ZONE_KEY, ZONE_PUBLIC_KEY)];
    let public = |(key, public)| Some(format!("{public}{}", secret.name().strip_prefix(key)?));
    let name = halves.into_iter().find_map(public).ok_or_else(|| TokenError::BrokenKey {
        name: secret.name().to_owned(),
        reason: "a key of this name has no public half".to_owned(),
    })?;
    let pem = data_of(secret).unwrap_or_default();
    Ok((name, keys::rsa_public_pem(&pem).map_err(|e| broken(secret.name(), e))?))
}

/// The name of the secret with the key whose public half has this name; `None` when it is no such name.
pub fn private_half(name: &str) -> Option<String> {
    let halves = [(DATAPLANE_KEY, DATAPLANE_PUBLIC_KEY), (ZONE_KEY, ZONE_PUBLIC_KEY)];
    halves.into_iter().find_map(|(key, public)| Some(format!("{key}{}", name.strip_prefix(public)?)))
}

/// Whether a secret of this name, in this mesh, says whose tokens or certificates are good, and of which mesh; those of no
/// mesh are of users and zones.
pub fn mesh_judged_by<'a>(name: &'a str, mesh: &'a str) -> Option<Option<&'a str>> {
    let is_of_dataplanes =
        [DATAPLANE_KEY, DATAPLANE_PUBLIC_KEY].iter().any(|prefix| name.starts_with(prefix));
    if let Some(of_mesh) = name.strip_prefix(DATAPLANE_REVOCATIONS) {
        return Some(Some(of_mesh));
    }
    if is_of_dataplanes {
        return Some(Some(mesh));
    }
    let prefixes = [USER_TOKENS, ZONE_TOKENS, ZONE_CERTIFICATE_REVOCATIONS];
    prefixes.iter().any(|prefix| name.starts_with(prefix)).then_some(None)
}

/// A new private key. Slow; a server draws one from its [`KeySupply`](crate::keys::KeySupply).
///
/// # Errors
/// [`TokenError::BrokenKey`] when the generator fails.
pub fn new_signing_key() -> Result<PrivateKey, TokenError> {
    PrivateKey::generate(KeyForm::TOKEN).map_err(|e| broken("new key", e))
}

fn broken(name: &str, error: KeyError) -> TokenError {
    TokenError::BrokenKey { name: name.to_owned(), reason: error.to_string() }
}
