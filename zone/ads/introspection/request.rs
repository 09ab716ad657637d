//! Questions: it is their turn before anything is gathered for the answer.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
    response::Response,
};
use common::{
    rest::ApiError,
    runtime::http::{Client, FairTurn},
};

use super::{
    Introspection, Room,
    answer::{AnswerRoom, RedactedDocument},
    query::DebugQuery,
};

/// A question whose turn it is.
pub(super) struct DebugRequest {
    room: Arc<Room>,
    pub(super) query: DebugQuery,
    turn: FairTurn,
}

impl FromRequestParts<Arc<Room>> for DebugRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, room: &Arc<Room>) -> Result<Self, ApiError> {
        let unreadable = |error| ApiError::bad_request(format!("the query string cannot be read: {error}"));
        let Query(parameters) =
            Query::<Vec<(String, String)>>::from_request_parts(parts, room).await.map_err(unreadable)?;
        let query = DebugQuery::read(&parameters)?;
        let Ok(client) = Client::from_request_parts(parts, room).await;
        let turn = client.turn().await?;
        Ok(Self { room: Arc::clone(room), query, turn })
    }
}

impl DebugRequest {
    /// Where it is looked from.
    pub(super) fn seen(&self) -> &Introspection {
        &self.room.seen
    }

    /// Answers with what `make` gives, off the threads that serve.
    pub(super) async fn answer(
        self,
        make: impl FnOnce(&mut AnswerRoom) -> Result<RedactedDocument, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Self { room, query, turn } = self;
        let pretty = query.pretty;
        let text = room.making.long(move || make(&mut AnswerRoom::default())?.written(pretty)).await?;
        Ok(turn.made(super::answer::response(text)))
    }
}
