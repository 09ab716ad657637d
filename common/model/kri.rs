//! Kuma resource identifiers: `kri_<short>_<mesh>_<zone>_<namespace>_<name>_<section>`.

use std::fmt;

use thiserror::Error;

use super::{Kind, Resource, labels};

/// A parsed identifier. Empty parts stay empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kri {
    /// Short name of the kind.
    pub short: &'static str,
    /// Mesh, empty for global-scoped kinds.
    pub mesh: String,
    /// Owning zone, empty for what global or an unfederated zone owns.
    pub zone: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Display name.
    pub name: String,
    /// Port, listener or rule inside the resource.
    pub section: String,
}

/// Why a text is not an identifier.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KriError {
    /// Not seven parts.
    #[error("invalid identifier string: {0:?}")]
    Shape(String),
    /// Something else than a KRI.
    #[error("identifier must start with 'kri': {0:?}")]
    Start(String),
    /// No kind has this short name.
    #[error("unknown short name of resource type: {0:?}")]
    Kind(String),
}

impl Kri {
    /// The identifier of `resource`, `None` when its kind has none.
    pub fn of(resource: &Resource) -> Option<Self> {
        let short = resource.kind().short;
        (!short.is_empty()).then(|| Self {
            short,
            mesh: resource.mesh().to_owned(),
            zone: resource.label(labels::ZONE).unwrap_or_default().to_owned(),
            namespace: resource.label(labels::NAMESPACE).unwrap_or_default().to_owned(),
            name: resource.display_name().to_owned(),
            section: String::new(),
        })
    }

    /// The same for one section of the resource.
    pub fn with_section(mut self, section: &str) -> Self {
        section.clone_into(&mut self.section);
        self
    }

    /// Parses the text form; underscores beyond the sixth belong to the section. `by_short` knows the kinds.
    ///
    /// # Errors
    /// [`KriError`] when the shape is wrong or the kind unknown.
    pub fn parse(text: &str, by_short: impl FnOnce(&str) -> Option<&'static Kind>) -> Result<Self, KriError> {
        let parts: Vec<&str> = text.splitn(7, '_').collect();
        let [start, short, mesh, zone, namespace, name, section] = parts[..] else {
            return Err(KriError::Shape(text.to_owned()));
        };
        if start != "kri" {
            return Err(KriError::Start(text.to_owned()));
        }
        let kind = by_short(short).ok_or_else(|| KriError::Kind(short.to_owned()))?;
        Ok(Self {
            short: kind.short,
            mesh: mesh.to_owned(),
            zone: zone.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            section: section.to_owned(),
        })
    }
}

impl fmt::Display for Kri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { short, mesh, zone, namespace, name, section } = self;
        write!(f, "kri_{short}_{mesh}_{zone}_{namespace}_{name}_{section}")
    }
}
