//! Forms that were sent.

use axum::extract::Request;

use super::{Gui, visit::pairs};
use crate::rest::BodyError;

/// The fields of a form.
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Out of the body of a request.
    pub(super) async fn read(gui: &Gui, request: Request) -> Result<Self, BodyError> {
        let body = gui.desk.body(request).await?;
        Ok(Self(pairs(&String::from_utf8_lossy(&body))))
    }

    /// One of them, empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}
