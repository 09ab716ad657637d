//! What of the configurations that are sent stands in the way of something else, or would be refused.

use std::{collections::BTreeMap, sync::Arc};

use axum::response::Response;
use common::rest::ApiError;
use serde_json::{Map, Value};

use super::{
    answer::{AnswerRoom, RedactedDocument},
    request::DebugRequest,
};

pub(super) async fn push_status(request: DebugRequest) -> Result<Response, ApiError> {
    let status = Arc::clone(&request.seen().status);
    let make = move |space: &mut AnswerRoom| {
        let mut sorts: BTreeMap<String, Value> = BTreeMap::new();
        for (sort, told) in status.view() {
            let mut members = Map::new();
            for (name, said) in told {
                space.take(name.len() + 4)?;
                space.admit(&said)?;
                // Problems quote what somebody wrote; that a resource is called like a secret makes it none.
                members.insert(name, RedactedDocument::of(said).part());
            }
            sorts.insert(sort, members.into());
        }
        Ok(RedactedDocument::assembled(Value::from_iter(sorts)))
    };
    request.answer(make).await
}
