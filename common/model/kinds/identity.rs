//! Who issues the identity of which workloads, and what these identities are called.

mod check;
pub(super) mod template;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data_source::{self, DataSource};
use crate::model::{
    Duration, Kind, Spec, SpecError, Violations, decode,
    shape::{
        Member,
        Shape::{self, *},
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshIdentity", "meshidentities")
    .flow(29)
    .named("meshidentity", "mid")
    .with_status()
    .shaped(&SHAPE)
    .caveat(|spec| {
        let provider = MeshIdentity::decode(spec).ok()?.provider?;
        (provider.kind == IdentityProviderType::Extension).then_some(
            "spec.provider has no effect on proxies of the zones of this control plane: no extension is built into \
             them, they know the providers Bundled and Spire",
        )
    })
    .typed::<MeshIdentity>();

const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member::optional(name, shape)
}

static SHAPE: Shape = Object(&[
    may("selector", &Object(&[may("dataplane", &Object(&[may("matchLabels", &Map(&Text))]))])),
    may("spiffeID", &Object(&[may("trustDomain", &Text), may("path", &Text)])),
    may("provider", &PROVIDER),
]);
const PROVIDER: Shape = Object(&[
    Member::required("type", &OneOf(&["Bundled", "Spire", "Extension"])),
    may("bundled", &BUNDLED),
    may("spire", &Object(&[may("agent", &Object(&[may("timeout", &Text)]))])),
    may("extension", &Object(&[Member::required("name", &Text)])),
]);
const BUNDLED: Shape = Object(&[
    may("meshTrustCreation", &OneOf(&["Enabled", "Disabled"])),
    may("insecureAllowSelfSigned", &Flag),
    may("autogenerate", &Object(&[may("enabled", &Flag)])),
    may("ca", &Object(&[may("certificate", &data_source::SHAPE), may("privateKey", &data_source::SHAPE)])),
    may("certificateParameters", &Object(&[may("expiry", &Text)])),
]);

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeshIdentity {
    /// For which proxies; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<IdentitySelector>,
    /// What the identities are called.
    #[serde(default, rename = "spiffeID", skip_serializing_if = "Option::is_none")]
    pub spiffe_id: Option<SpiffeTemplate>,
    /// Who issues them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<IdentityProvider>,
}

/// For which proxies an identity is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentitySelector {
    /// Those with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<LabelSelector>,
}

/// What has these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// The labels; an empty set fits everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// Templates of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpiffeTemplate {
    /// Of the trust domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// Of the path in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Kinds of issuers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityProviderType {
    /// The control plane.
    Bundled,
    /// An agent of SPIRE beside each proxy.
    Spire,
    /// Something that is built into a control plane.
    Extension,
}

/// Who issues identities. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdentityProvider {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: IdentityProviderType,
    /// The control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundled: Option<BundledProvider>,
    /// An agent of SPIRE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spire: Option<SpireProvider>,
    /// Something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<ExtensionProvider>,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// It is.
    Enabled,
    /// It is not.
    Disabled,
}

/// The control plane as an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundledProvider {
    /// Whether a `MeshTrust` is made of it; it is when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_trust_creation: Option<Switch>,
    /// Whether an authority may vouch for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_allow_self_signed: Option<bool>,
    /// An authority the control plane makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autogenerate: Option<Autogenerate>,
    /// An authority the operator brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<OwnAuthority>,
    /// What certificates look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_parameters: Option<CertificateParameters>,
}

/// An authority the control plane makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autogenerate {
    /// Whether it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// An authority the operator brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnAuthority {
    /// Its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<DataSource>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<DataSource>,
}

/// What certificates look like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateParameters {
    /// How long they live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Duration>,
}

/// An agent of SPIRE as an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpireProvider {
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<SpireAgent>,
}

/// How an agent is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpireAgent {
    /// How long it may take to answer a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// Something that is built into a control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtensionProvider {
    /// Its name.
    pub name: String,
    /// What it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

impl Spec for MeshIdentity {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        check::check(self)
    }
}
