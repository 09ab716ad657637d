//! Where a certificate or a key comes from.

use serde::{Deserialize, Serialize};

/// Where a certificate or a key comes from: exactly one of these says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsDataSource {
    /// Which of the newer forms it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<SourceType>,
    /// A secret, in the newer form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<MeshSecretRef>,
    /// The text itself, in the newer form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_inline: Option<Inline>,
    /// A secret, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The text itself, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_string: Option<String>,
}

impl TlsDataSource {
    /// Whether nothing can come from it, wherever one looks.
    pub fn is_empty(&self) -> bool {
        let name = self.secret_ref.as_ref().map(|it| &it.name).or(self.secret.as_ref());
        let text = self.insecure_inline.as_ref().map(|it| &it.value).or(self.inline_string.as_ref());
        name.or(text).or(self.inline.as_ref()).is_none_or(String::is_empty)
    }
}

/// Which of the newer forms a [`TlsDataSource`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceType {
    /// A file, which is nowhere to be found.
    File,
    /// A secret.
    SecretRef,
    /// A variable of the environment, which is nowhere to be found.
    EnvVar,
    /// The text itself.
    InsecureInline,
}

/// A secret of the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshSecretRef {
    /// Its kind, of which there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
}

/// A text in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inline {
    /// The text.
    pub value: String,
}
