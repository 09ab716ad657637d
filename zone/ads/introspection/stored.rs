//! What an operator wrote.

use super::{
    answer::{AnswerRoom, RedactedDocument},
    query::DebugQuery,
    request::DebugRequest,
};
use axum::response::Response;
use common::{
    document,
    model::{KubernetesForm, Resource, kinds},
    rest::{ApiError, kubernetes_object},
};

/// The mesh that is meant where none is named.
const DEFAULT_MESH: &str = "default";

/// Objects, but for secrets and for what control planes tell about others.
pub(super) async fn configz(request: DebugRequest) -> Result<Response, ApiError> {
    let (index, asked) = (request.seen().index.current(), request.query.clone());
    let make = move |space: &mut AnswerRoom| {
        let mut objects = Vec::new();
        for resource in index.iter().filter(|resource| is_shown(resource, &asked)) {
            let failed = |error| ApiError::internal("Could not show an object", error);
            let mut object = kubernetes_object(resource, None).map_err(failed)?;
            object["metadata"]["resourceVersion"] = resource.revision.to_string().into();
            space.admit(&object)?;
            objects.push(RedactedDocument::of(object));
        }
        Ok(RedactedDocument::assembled(RedactedDocument::list(objects)))
    };
    request.answer(make).await
}

fn is_shown(resource: &Resource, query: &DebugQuery) -> bool {
    let kind = resource.kind();
    let of_operators = !kind.path.is_empty() && !kind.admin_only && !kind.is_insight;
    let in_form = !matches!(kind.kubernetes, KubernetesForm::Secret(_));
    let of_kind = query.kind.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(kind.name));
    let of_mesh = query.mesh.as_ref().is_none_or(|mesh| mesh == resource.mesh());
    of_operators && in_form && of_kind && of_mesh
}

/// One mesh.
pub(super) async fn mesh(request: DebugRequest) -> Result<Response, ApiError> {
    let name = request.query.mesh.as_deref().unwrap_or(DEFAULT_MESH);
    let index = request.seen().index.current();
    let found = index.find(&kinds::mesh::KIND, "", name).cloned();
    let found = found.ok_or_else(|| ApiError::not_found("There is no such mesh here"))?;
    let make = move |space: &mut AnswerRoom| {
        let failed = |error| ApiError::internal("Could not show a mesh", error);
        let shown = document::render(&found).map_err(failed)?;
        space.admit(&shown)?;
        Ok(RedactedDocument::of(shown))
    };
    request.answer(make).await
}
