//! The database file: who has it, and whether it is ours.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::{copy::Copy, files::beside};
use crate::{runtime::warn_if_open, store::StoreError};

/// `STRT`: how the `file` command and we tell our databases from others.
const APPLICATION: u32 = 0x5354_5254;
/// What every SQLite database starts with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of the header, and where in it the application is named.
const HEADER: usize = 100;
const APPLICATION_AT: std::ops::Range<usize> = 68..72;

/// A restart meets the process it replaces still finishing: this often and long it is waited for.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// Held while the database is in use; the system releases it when the process ends, however it ends.
pub(super) struct FileLock {
    database: PathBuf,
    file: Mutex<File>,
}

impl FileLock {
    /// Takes the lock of the database at `path`.
    pub(super) async fn take(path: &Path) -> Result<Self, StoreError> {
        let mut file = create(path)?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(not_taken(path, &mut file, error)),
            }
        }
        sign(&mut file);
        Ok(Self { database: path.to_owned(), file: Mutex::new(file) })
    }

    /// Whether its name still stands for what is locked: who looks for the lock finds it.
    pub(super) fn is_found(&self) -> bool {
        let held = self.held().metadata();
        let named = fs::metadata(lock_path(&self.database));
        matches!((held, named), (Ok(held), Ok(named)) if (held.dev(), held.ino()) == (named.dev(), named.ino()))
    }

    /// Takes the lock again after its file was deleted or replaced.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when another process was faster.
    pub(super) fn renew(&self) -> Result<(), StoreError> {
        let mut file = create(&self.database)?;
        file.try_lock().map_err(|error| not_taken(&self.database, &mut file, error))?;
        sign(&mut file);
        *self.held() = file;
        Ok(())
    }

    /// Gives the lock back before this value is gone.
    pub(super) fn release(&self) {
        if let Err(error) = self.held().unlock() {
            tracing::debug!(%error, "the lock of the database is given back when the process ends");
        }
    }

    fn held(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only to tell a person who has it, so a failure does not matter.
fn sign(file: &mut File) {
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
}

fn lock_path(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

fn create(path: &Path) -> Result<File, StoreError> {
    let lock = lock_path(path);
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let options = || File::options().create(true).read(true).write(true).truncate(false).open(&lock);
    folder
        .and_then(|()| options())
        .map_err(|error| StoreError::backend(format!("create the lock file {}", lock.display()), error))
}

fn not_taken(path: &Path, lock: &mut File, error: TryLockError) -> StoreError {
    match error {
        TryLockError::WouldBlock => in_use(path, lock),
        TryLockError::Error(error) => {
            StoreError::backend(format!("lock {}", lock_path(path).display()), error)
        }
    }
}

fn in_use(path: &Path, lock: &mut File) -> StoreError {
    let mut holder = String::new();
    let process = match lock.read_to_string(&mut holder) {
        Ok(1..) => format!("process {}", holder.trim()),
        _ => "another process".to_owned(),
    };
    foreign(path, &format!("is in use by {process}: stop that one, or give this one its own file"))
}

/// Makes sure that the file is absent, new or ours. A fresh file is stamped before anything else, so
/// that a crash right after cannot leave one that looks foreign. Says whether there was one before.
pub(super) async fn check(path: &Path) -> Result<bool, StoreError> {
    let copy = Copy::beside(path);
    if copy.is_whole() && !path.exists() {
        let doing = format!("take back the rescued database file {}", path.display());
        copy.take_name().map_err(|error| StoreError::backend(doing, error))?;
    }
    let existed = path.exists();
    if existed && copy.is_whole() {
        let doing = format!("put the rescued copy of {} aside", path.display());
        let aside = copy.put_aside().map_err(|error| StoreError::backend(doing, error))?;
        tracing::warn!(
            path = %path.display(),
            copy = %aside.display(),
            "a copy of a deleted database was never used, because another file has its name; it was put aside"
        );
    }
    if existed {
        warn_if_open(path, "the database, which holds private keys");
    }
    let unreadable = format!("read {}: name another file, or make this one readable", path.display());
    let header = header(path).map_err(|error| StoreError::backend(unreadable, error))?;
    match header.as_slice() {
        [] => stamp(path).await.map(|()| existed).map_err(|error| {
            StoreError::backend(format!("create the database file {}", path.display()), error)
        }),
        ours if ours.len() == HEADER
            && ours.starts_with(MAGIC)
            && ours[APPLICATION_AT] == APPLICATION.to_be_bytes() =>
        {
            Ok(existed)
        }
        other if other.starts_with(MAGIC) => {
            Err(foreign(path, "is a database of another program: name another file"))
        }
        _ => Err(foreign(path, "is not a database: name another file, or move this one away")),
    }
}

fn header(path: &Path) -> io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(HEADER);
    match File::open(path) {
        Ok(file) => file.take(HEADER as u64).read_to_end(&mut header).map(|_| header),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(header),
        Err(error) => Err(error),
    }
}

async fn stamp(path: &Path) -> sqlx::Result<()> {
    // For its owner only, since it holds the keys of authorities and tokens. What SQLite puts beside it gets
    // the same permissions.
    File::options().create(true).append(true).mode(0o600).open(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .pragma("application_id", APPLICATION.to_string());
    options.connect().await?.close().await
}

/// The same for a file that is ours and damaged.
pub(super) fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::Damaged(format!("{} {what}", path.display()))
}

pub(super) fn foreign(path: &Path, what: &str) -> StoreError {
    StoreError::Foreign(format!("{} {what}", path.display()))
}
