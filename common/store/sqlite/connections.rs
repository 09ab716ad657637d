//! The connections to the file. One that failed is not used again, and none is made to another file than
//! the one that was opened.

use std::{
    io,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use sqlx::{
    ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    file::FileLock,
    files::{Files, Trouble, aside},
};
use crate::store::StoreError;

/// Connections that read.
const READERS: u32 = 4;
/// Connections for what people ask about the past, which may take long: the others never wait for these.
const HISTORIANS: u32 = 2;
/// How long a connection waits for the write lock; only an operator's own tool can hold it that long.
const BUSY: Duration = Duration::from_secs(10);
/// The journal is cut back to this size after a checkpoint.
const JOURNAL_BYTES: &str = "67108864";

/// The connection that writes keeps what it wrote in memory, in KiB, about as long as it is only in the journal: when
/// that is cut off, it is still here.
const MEMORY: &str = "-8192";

/// The connections that are open now, and the files they have open.
pub(super) struct SqliteConnections {
    path: PathBuf,
    files: Arc<Files>,
    lock: Arc<FileLock>,
    pools: RwLock<Pools>,
}

#[derive(Clone)]
struct Pools {
    /// One connection, shared by the writer task with leases and sessions.
    write: SqlitePool,
    read: SqlitePool,
    past: SqlitePool,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoPen {
    /// Something happened to the files.
    Trouble(Trouble),
    /// There are no connections, or none could be made.
    Unconnected(sqlx::Error),
}

impl SqliteConnections {
    pub(super) fn new(path: &Path, lock: FileLock) -> Self {
        let files = Arc::new(Files::of(path));
        let pools = RwLock::new(Pools::to(path, &files));
        Self { path: path.to_owned(), files, lock: Arc::new(lock), pools }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(super) fn lock(&self) -> &Arc<FileLock> {
        &self.lock
    }

    /// A connection beside the pools. Held open and left alone, it keeps the files alive whatever becomes
    /// of their names and of the other connections.
    pub(super) async fn anchor(&self) -> sqlx::Result<SqliteConnection> {
        let mut anchor = options(&self.path).connect().await?;
        // A connection has opened nothing before its first read.
        let read = sqlx::query("SELECT COUNT(*) FROM sqlite_schema").fetch_one(&mut anchor).await;
        if let Err(error) = read {
            close(anchor).await;
            return Err(error);
        }
        Ok(anchor)
    }

    /// The connection that writes, when what it writes will be found again.
    pub(super) async fn pen(&self) -> Result<Pen, NoPen> {
        let pen = self.bare_pen().await?;
        // Looked at with the pen in hand: nobody of us writes meanwhile.
        match self.check().await {
            Ok(()) => Ok(pen),
            Err(trouble) => {
                pen.put_down();
                Err(NoPen::Trouble(trouble))
            }
        }
    }

    async fn check(&self) -> Result<(), Trouble> {
        self.files.check().await?;
        let lock = Arc::clone(&self.lock);
        aside(move || if lock.is_found() { Ok(()) } else { Err(Trouble::Lock) }).await
    }

    /// The connection that writes, whatever happened to the files.
    pub(super) async fn bare_pen(&self) -> Result<Pen, NoPen> {
        let connection = self.connection(&self.pools().write).await?;
        Ok(Pen { connection, files: Arc::clone(&self.files), sound: false })
    }

    /// The connection that wrote so far, when there is one, whatever happened to the files.
    ///
    /// # Errors
    /// When somebody still has it, who takes long.
    pub(super) async fn same_pen(&self) -> Result<Option<Pen>, NoPen> {
        let pool = self.pools().write;
        if pool.size() == 0 {
            return Ok(None);
        }
        // Whoever has it gives it back; where it broke, none is made to files that are not whole.
        match pool.acquire().await {
            Ok(connection) => Ok(Some(Pen { connection, files: Arc::clone(&self.files), sound: false })),
            Err(error @ sqlx::Error::PoolTimedOut) => Err(NoPen::Unconnected(error)),
            Err(_) => Ok(None),
        }
    }

    /// A connection that reads.
    pub(super) async fn reader(&self) -> Result<Reader, NoPen> {
        Ok(Reader { connection: self.connection(&self.pools().read).await?, sound: false })
    }

    /// A connection that reads what people ask about the past.
    pub(super) async fn historian(&self) -> Result<Reader, NoPen> {
        Ok(Reader { connection: self.connection(&self.pools().past).await?, sound: false })
    }

    /// One that is there already; a new one only to our own file, since opening another one writes to it.
    async fn connection(&self, pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, NoPen> {
        if let Some(idle) = pool.try_acquire() {
            return Ok(idle);
        }
        self.files.check_names().await.map_err(NoPen::Trouble)?;
        pool.acquire().await.map_err(NoPen::Unconnected)
    }

    /// Closes the pools. `pen` is the last to write.
    pub(super) async fn close(&self, pen: Option<Pen>) {
        let Pools { write, read, past } = self.pools();
        let (write, read, past) = (write.close(), read.close(), past.close());
        drop(pen);
        read.await;
        past.await;
        // The last connection to close folds the journal back into the file.
        write.await;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pools().write.is_closed()
    }

    /// Fresh pools to what has the name now, which must be open by [`SqliteConnections::anchor`] already.
    pub(super) async fn open(&self) -> sqlx::Result<()> {
        let pools = Pools::to(&self.path, &self.files);
        pools.write.acquire().await?;
        *self.pools.write().unwrap_or_else(PoisonError::into_inner) = pools;
        Ok(())
    }

    fn pools(&self) -> Pools {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Pools {
    fn to(path: &Path, files: &Arc<Files>) -> Self {
        let one = SqlitePoolOptions::new().max_connections(1);
        let several = |most| lasting(SqlitePoolOptions::new().max_connections(most), files);
        let reading = options(path).pragma("query_only", "ON");
        Self {
            write: lasting(one, files).connect_lazy_with(options(path).pragma("cache_size", MEMORY)),
            read: several(READERS).connect_lazy_with(reading.clone()),
            past: several(HISTORIANS).connect_lazy_with(reading),
        }
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY)
        .pragma("journal_size_limit", JOURNAL_BYTES)
        // Done apart, so that writing leaves the database as it is and who else changes it is noticed.
        .pragma("wal_autocheckpoint", "0")
        .thread_name(|id| format!("sqlite-{id}"))
}

/// Connections to a file do not go stale: they live as long as the pool, unless they fail. A new one is used
/// only when the name it opened is still that of our file.
fn lasting(options: SqlitePoolOptions, files: &Arc<Files>) -> SqlitePoolOptions {
    let files = Arc::clone(files);
    let options = options.idle_timeout(None).max_lifetime(None).test_before_acquire(false);
    options.acquire_timeout(BUSY).after_connect(move |_, _| {
        let files = Arc::clone(&files);
        Box::pin(async move {
            files.check_names().await.map_err(|trouble| {
                sqlx::Error::Io(io::Error::other(format!("the file is another: {trouble:?}")))
            })
        })
    })
}

/// The one connection that writes. Unless it is put down, it is taken for broken and closed.
pub(super) struct Pen {
    connection: PoolConnection<Sqlite>,
    files: Arc<Files>,
    sound: bool,
}

impl Pen {
    /// What was to be written is written, can be found under the names of the files, and nobody else wrote.
    pub(super) async fn done(self) -> Result<(), Trouble> {
        let found = self.files.check().await;
        self.put_down();
        found
    }

    /// Nothing went wrong with the connection.
    pub(super) fn put_down(mut self) {
        self.sound = true;
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        if !self.sound {
            // SQLite ends a transaction by itself after some errors, and the driver does not notice.
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Pen {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Pen {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

/// A connection that reads. Unless it is put down, it is taken for broken and closed.
pub(super) struct Reader {
    connection: PoolConnection<Sqlite>,
    sound: bool,
}

impl Reader {
    /// Nothing went wrong with the connection.
    pub(super) fn put_down(mut self) {
        self.sound = true;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.sound {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Reader {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl NoPen {
    /// As an error of the store.
    pub(super) fn into_error(self, path: &Path) -> StoreError {
        match self {
            Self::Trouble(trouble) => trouble.into_error(path),
            Self::Unconnected(error) => {
                StoreError::backend(format!("open the database file {}", path.display()), error)
            }
        }
    }
}

impl Trouble {
    /// As an error of the store that says what to do.
    pub(super) fn into_error(self, path: &Path) -> StoreError {
        let doing = format!("use the database file {}", path.display());
        let what = match self {
            Self::Deleted => "it was deleted, and could not be written again yet",
            Self::Moved => "it was moved away: put it back, or restart to begin with an empty one",
            Self::Replaced => {
                "it was replaced by another file under the running process: put the right one back, or remove \
                 the other, then what was there is written again; or restart to go on with the other"
            }
            Self::Journal => "it lost its journal, which could not be made again yet",
            Self::JournalCut => "the end of its journal was cut off, and could not be written again yet",
            Self::DatabaseCut => "its end was cut off: restore it from a backup",
            Self::Lock => "it lost its lock file, which could not be made again yet",
            Self::Written => "it was written by somebody else, and could not be checked yet",
            Self::Unknown(error) => return StoreError::backend(doing, error),
        };
        StoreError::backend(doing, what)
    }
}

/// Closes a connection, at the end of which the file is whole without its journal.
pub(super) async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "a connection to the database did not close cleanly");
    }
}
