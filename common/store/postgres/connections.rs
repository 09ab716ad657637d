//! The connections to the server. One on which nothing is heard is dropped, and those beside it that nobody uses: what
//! silenced the one has probably silenced all, and another costs little.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use sqlx::{
    Connection, Executor, PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime::Handle, time::timeout};

use super::{listener::ChannelListener, silence::SilenceWatch};
use crate::store::StoreConnections;

/// How long a caller waits for a connection, also while the server is away.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// What a connection that nobody uses takes to answer, at most.
const PING: Duration = Duration::from_secs(3);
/// How long those who use connections have to give them back at the end.
const LEAVE: Duration = Duration::from_secs(5);
/// No connection may block others for long, whatever becomes of this process. Compiling our statements
/// takes the server far longer than running them.
pub(super) const SESSION: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '15s'; SET jit = off";

/// Connections for one purpose.
#[derive(Clone)]
pub(super) struct PostgresConnections(PgPool);

impl PostgresConnections {
    /// At most so many, each made when it is needed.
    pub(super) fn several(most: u32, options: &PgConnectOptions) -> Self {
        Self(pool(most).connect_lazy_with(options.clone()))
    }

    /// One, which stays.
    pub(super) fn one(options: &PgConnectOptions) -> Self {
        Self(pool(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options.clone()))
    }

    /// One on which the server answers. Whoever uses it is under a limit.
    pub(super) async fn take(&self, watch: &SilenceWatch) -> sqlx::Result<HeldConnection> {
        let held = |connection| HeldConnection { connection: Some(connection), watch: watch.clone() };
        while let Some(mut idle) = self.0.try_acquire() {
            match timeout(PING, idle.ping()).await {
                Ok(Ok(())) => return Ok(held(idle)),
                Ok(Err(error)) => tracing::info!(%error, "a connection to the database is lost"),
                Err(_) => tracing::warn!("a connection to the database is silent, and is dropped"),
            }
            drop(idle.detach());
            while let Some(suspect) = self.0.try_acquire() {
                drop(suspect.detach());
            }
        }
        self.0.acquire().await.map(held)
    }

    /// Hears what is told on a channel. The connection is one of these, for as long as it lives.
    pub(super) async fn listen(&self, channel: &str) -> sqlx::Result<ChannelListener> {
        ChannelListener::on(&self.0, channel).await
    }

    /// How many there are, under this name.
    pub(super) fn count(&self, pool: &'static str) -> StoreConnections {
        let (all, idle) = (self.0.size(), u32::try_from(self.0.num_idle()).unwrap_or(u32::MAX));
        let most = self.0.options().get_max_connections();
        StoreConnections { pool, in_use: all.saturating_sub(idle), idle, most }
    }

    /// Closes them; who has one has a moment to give it back.
    pub(super) async fn close(&self) {
        if timeout(LEAVE, self.0.close()).await.is_err() {
            tracing::debug!("a connection to the database was still in use at the end");
        }
    }

    /// For statements of tests.
    #[cfg(test)]
    pub(super) fn pool(&self) -> &PgPool {
        &self.0
    }
}

fn pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT)
        .after_connect(|connection, _| Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) }))
}

/// A connection somebody uses. Afterwards others have it, if the server still answers on it.
pub(super) struct HeldConnection {
    /// There until this is dropped.
    connection: Option<PoolConnection<Postgres>>,
    watch: SilenceWatch,
}

/// What [`HeldConnection`] is made with, and keeps until it is dropped.
const HELD: &str = "a held connection is there";

impl Deref for HeldConnection {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect(HELD)
    }
}

impl DerefMut for HeldConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect(HELD)
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !self.watch.is_over() => {
                // What the driver does by itself when a connection is dropped, which has no end on a silent one; its
                // place in the pool would be taken for good.
                let back = connection.return_to_pool();
                runtime.spawn(async move {
                    if timeout(CONNECT, back).await.is_err() {
                        tracing::warn!("a connection to the database is silent, and is dropped");
                    }
                });
            }
            _ => drop(connection.detach()),
        }
    }
}
