//! The connection that hears what is told on a channel.

use sqlx::{
    PgPool,
    postgres::{PgListener, PgNotification},
};
use tokio::runtime::Builder;

/// Hears what is told on one channel, until the connection is lost.
pub(super) struct ChannelListener {
    /// There until this is dropped.
    listener: Option<PgListener>,
}

/// What [`ChannelListener`] is made with, and keeps until it is dropped.
const LISTENING: &str = "a listener is there";

impl ChannelListener {
    pub(super) async fn on(pool: &PgPool, channel: &str) -> sqlx::Result<Self> {
        let mut listening = Self { listener: Some(PgListener::connect_with(pool).await?) };
        let listener = listening.listener();
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        Ok(listening)
    }

    /// The next that is told; `None` when the connection is lost.
    pub(super) async fn heard(&mut self) -> sqlx::Result<Option<PgNotification>> {
        self.listener().try_recv().await
    }

    /// Asks something on the same connection, which shows whether it hears at all. What is told meanwhile is kept.
    pub(super) async fn ask(&mut self, statement: &'static str) -> sqlx::Result<i64> {
        sqlx::query_scalar(statement).fetch_one(self.listener()).await
    }

    fn listener(&mut self) -> &mut PgListener {
        self.listener.as_mut().expect(LISTENING)
    }
}

impl Drop for ChannelListener {
    fn drop(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        // The driver tells the server first that nobody listens any more, in a task of its own that waits for the answer
        // without an end. Nobody needs that of a connection that is closed, so the task is gone before it begins.
        let Ok(nowhere) = Builder::new_current_thread().build() else { return drop(listener) };
        let inside = nowhere.enter();
        drop(listener);
        drop(inside);
        nowhere.shutdown_background();
    }
}
