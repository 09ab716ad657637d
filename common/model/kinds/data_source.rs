//! Where a control plane finds a certificate or a key.

use serde::{Deserialize, Serialize};

use crate::model::{
    FieldPath, Violations,
    shape::{
        Member,
        Shape::{self, *},
    },
};

const DEFINED: &str = "must be defined";

pub(super) const SHAPE: Shape = Object(&[
    Member::required("type", &OneOf(&["File", "Secret", "EnvVar", "InsecureInline"])),
    Member::optional("file", &Object(&[Member::required("path", &Text)])),
    Member::optional("envVar", &Object(&[Member::required("name", &Text)])),
    Member::optional("insecureInline", &Object(&[Member::required("value", &Text)])),
    Member::optional(
        "secretRef",
        &Object(&[Member::required("kind", &OneOf(&["Secret"])), Member::required("name", &Text)]),
    ),
]);

/// Kinds of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataSourceType {
    /// A file.
    File,
    /// A secret of the mesh.
    Secret,
    /// A variable of the environment.
    EnvVar,
    /// The resource itself, where everybody can read it.
    InsecureInline,
}

/// A place where a control plane finds something. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSource {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: DataSourceType,
    /// A file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileSource>,
    /// A variable of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_var: Option<NamedSource>,
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_inline: Option<InlineSource>,
    /// A secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSource {
    /// Its path.
    pub path: String,
}

/// Something with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSource {
    /// Its name.
    pub name: String,
}

/// Text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineSource {
    /// The text.
    pub value: String,
}

/// What a [`SecretRef`] may point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretKind {
    /// A secret of the mesh.
    Secret,
}

/// A secret by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// What it is.
    pub kind: SecretKind,
    /// Its name.
    pub name: String,
}

impl DataSource {
    /// Everything wrong with it, which stands at `path`.
    pub(super) fn check(&self, path: &FieldPath) -> Violations {
        let (member, text, value) = match self.kind {
            DataSourceType::File => ("file", "path", self.file.as_ref().map(|it| &it.path)),
            DataSourceType::EnvVar => ("envVar", "name", self.env_var.as_ref().map(|it| &it.name)),
            DataSourceType::InsecureInline => {
                ("insecureInline", "value", self.insecure_inline.as_ref().map(|it| &it.value))
            }
            DataSourceType::Secret => ("secretRef", "name", self.secret_ref.as_ref().map(|it| &it.name)),
        };
        match value {
            None => Violations::one(path.field(member), DEFINED),
            Some(value) if value.is_empty() => Violations::one(path.field(member).field(text), DEFINED),
            Some(_) => Violations::none(),
        }
    }
}
