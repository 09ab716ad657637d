//! Documents from files of this control plane: written as a `PUT` of them would be, and by nobody else then.

use std::{fmt, sync::Arc};

use serde_json::{Value, json};

use super::{
    Api, ApiError, KindApi,
    precondition::Conditions,
    read::ResourcePath,
    write::{ValidBody, WrittenBy, deletion},
};
use crate::{
    document::{Document, DocumentError},
    keys::KeySupply,
    model::{Resource, ResourceKey, labels},
    store::{Fence, Revision, history::Author, index::Index},
};

/// Knows which file a resource is from.
pub trait ResourceFiles: Send + Sync {
    /// The file, for people; `None` when this process has not read it.
    fn file_of(&self, key: &ResourceKey) -> Option<String>;
}

/// A document of a file, checked as far as that can be done without a look at what is stored.
pub struct FileDocument {
    key: ResourceKey,
    target: ResourcePath,
    body: ValidBody,
}

impl FileDocument {
    /// Checks a document; a missing mesh is `default`.
    ///
    /// # Errors
    /// [`ApiError`], as the answer to a `PUT` of it would be.
    pub fn read(mut json: Value) -> Result<Self, ApiError> {
        let no_document = |error: DocumentError| ApiError::bad_request(error.to_string());
        let document = Document::parse(&json).map_err(no_document)?;
        let (kind, name) = (document.kind, document.name);
        let mesh = document.mesh.filter(|mesh| kind.is_mesh_scoped() && !mesh.is_empty());
        let mesh = mesh.unwrap_or_else(|| if kind.is_mesh_scoped() { "default" } else { "" }.to_owned());
        if kind.path.is_empty() {
            return Err(ApiError::bad_request(format!("{} is written by the control plane only", kind.name)));
        }
        if let Some(problem) = labels::subdomain_problem(&name) {
            return Err(ApiError::bad_request(format!("{} {name:?}: name: {problem}", kind.name)));
        }
        if kind.is_mesh_scoped() {
            json["mesh"] = json!(mesh);
        }
        let key = ResourceKey::new(kind, &mesh, &name);
        let body = ValidBody::of_json(kind, &json).map_err(|error| error.about(&key))?;
        Ok(Self { key, target: ResourcePath { mesh, name }, body })
    }

    /// What it describes.
    pub fn key(&self) -> &ResourceKey {
        &self.key
    }
}

impl fmt::Debug for FileDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.key, f)
    }
}

impl Api {
    /// Stores what a file says, whoever wrote it before, and returns once the index shows it.
    ///
    /// # Errors
    /// [`ApiError`], as the answer to a `PUT` of it would be.
    pub async fn provide(
        self: &Arc<Self>,
        document: &FileDocument,
        fence: &Fence,
    ) -> Result<Revision, ApiError> {
        let at = KindApi { api: Arc::clone(self), kind: document.key.kind };
        at.require_written_here()?;
        let conditions = Conditions::default();
        let prepare = |index: &Index, keys: &mut KeySupply| {
            document.body.prepare(&at, index, keys, &document.target, &conditions, WrittenBy::File)
        };
        let (_, committed) = self.commit(prepare, Some(fence), &Author::File).await?;
        Ok(committed.revision)
    }

    /// Whether `resource` belongs to this control plane.
    pub fn owns(&self, resource: &Resource) -> bool {
        resource.origin == self.config.mode.origin_of(resource.kind())
    }

    /// Deletes what no file says any more; what is not there is no error.
    ///
    /// # Errors
    /// [`ApiError`], as the answer to a `DELETE` of it would be.
    pub async fn withdraw(self: &Arc<Self>, key: &ResourceKey, fence: &Fence) -> Result<(), ApiError> {
        let at = KindApi { api: Arc::clone(self), kind: key.kind };
        // Somebody else may have written it since, when there was no folder.
        let is_of_a_file =
            |stored: &Arc<Resource>| stored.label(labels::PROVIDED_BY) == Some(labels::PROVIDED_BY_FILES);
        if !self.index.current().get(key).is_some_and(is_of_a_file) {
            return Ok(());
        }
        let target = ResourcePath { mesh: key.mesh.to_string(), name: key.name.to_string() };
        let prepare = |index: &Index, _: &mut KeySupply| {
            deletion(&at, index, &target, &Conditions::default(), WrittenBy::File, || Ok(()))
        };
        self.commit(prepare, Some(fence), &Author::File).await.map(|_| ())
    }
}
