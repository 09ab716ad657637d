//! Forms that were sent.

use axum::extract::Request;

use super::{Gui, visit::pairs};
use crate::rest::{BodyError, ReceivedBody};

/// The fields of a form.
pub(super) struct FormFields {
    fields: Vec<(String, String)>,
    /// Keeps the room that the body was given: the fields are as long.
    _body: ReceivedBody,
}

impl FormFields {
    /// Out of the body of a request.
    pub(super) async fn read(gui: &Gui, request: Request) -> Result<Self, BodyError> {
        let body = gui.desk.body(request).await?;
        let length = body.len();
        let decode = move || {
            let fields = pairs(&String::from_utf8_lossy(&body));
            Self { fields, _body: body }
        };
        Ok(gui.desk.work(length, decode).await)
    }

    /// One of them, empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}
