//! Which files the connections have open, so that one that is deleted, moved, replaced or written by
//! somebody else is noticed: a commit to a file without a name is lost with the process.
//!
//! The file system is asked away from the threads that serve others: a disk, or a server of files, that hangs
//! would hold them, and with them whoever tells that it hangs.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::spawn_blocking;

use super::journal::{Journal, Wholeness};

/// Does something to files away from the threads that serve others.
pub(super) async fn aside<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<io::Error> + Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(done) => done,
        // At the end of the process.
        Err(stopped) => Err(io::Error::other(stopped).into()),
    }
}

/// Bytes that are left for files at `path`.
pub(super) fn room(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What happened to the files while they were open.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The database has no name any more; only the connections still have it.
    Deleted,
    /// The database has another name now, or more than one disk would know.
    Moved,
    /// Something else has its name.
    Replaced,
    /// The journal or its index was deleted or replaced, or the journal lost what is in the database anyway.
    Journal,
    /// What is missing in the journal is nowhere else in the files.
    JournalCut,
    /// The database is shorter than it was.
    DatabaseCut,
    /// The lock that keeps other processes out was deleted or replaced.
    Lock,
    /// Somebody else wrote to the database past its journal.
    Written,
    /// The names cannot be looked up.
    Unknown(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Unknown(error)
    }
}

impl Wholeness {
    fn must_be_whole(self) -> Result<(), Trouble> {
        match self {
            Self::Whole => Ok(()),
            Self::Folded => Err(Trouble::Journal),
            Self::JournalCut => Err(Trouble::JournalCut),
            Self::DatabaseCut => Err(Trouble::DatabaseCut),
        }
    }
}

/// The names, and what they stood for when the connections were made.
pub(super) struct Files {
    database: PathBuf,
    beside: [PathBuf; 2],
    known: Mutex<Option<Known>>,
}

struct Known {
    // Held, so that it can be asked whether it has a name left. Closing it would take the locks of the
    // connections with it, so they are closed first.
    database: File,
    beside: [Option<Id>; 2],
    journal: Option<Journal>,
    stamp: Stamp,
}

impl Known {
    /// Whether the files are as long as they have to be.
    fn length(&self) -> io::Result<Wholeness> {
        let length = |journal: &Journal| journal.length(&self.database, self.stamp.0);
        self.journal.as_ref().map_or(Ok(Wholeness::Whole), length)
    }
}

/// The device and the number of a file on it.
type Id = (u64, u64);
/// Changes with what is written to a file: its size and the time of the last write.
type Stamp = (u64, i64, i64);

fn id(of: &Metadata) -> Id {
    (of.dev(), of.ino())
}

fn stamp(of: &Metadata) -> Stamp {
    (of.len(), of.mtime(), of.mtime_nsec())
}

impl Files {
    pub(super) fn of(database: &Path) -> Self {
        let beside = ["-wal", "-shm"].map(|ending| beside(database, ending));
        Self { database: database.to_owned(), beside, known: Mutex::new(None) }
    }

    /// Takes what has the name of the database now for it. Call it before the first connection is made and
    /// not while one is open.
    pub(super) fn begin(&self) -> io::Result<()> {
        // For writing too: where files lie in layers, only then is it the one that the connections get.
        let database = File::options().read(true).write(true).open(&self.database)?;
        let stamp = stamp(&database.metadata()?);
        *self.lock() = Some(Known { database, beside: [None, None], journal: None, stamp });
        Ok(())
    }

    /// Takes what lies beside the database for what belongs to it. Call it when the connections are made.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut known = self.lock();
        let Some(known) = known.as_mut() else { return Ok(()) };
        for (path, is) in self.beside.iter().zip(&mut known.beside) {
            *is = Some(id(&fs::metadata(path)?));
        }
        let [journal, index] = &self.beside;
        known.journal = Some(Journal::open(journal, index)?);
        known.stamp = stamp(&known.database.metadata()?);
        Ok(())
    }

    /// Whether every name still stands for what is open, only we wrote to it, and all that we wrote is in it. Call it
    /// while nobody of us writes.
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), Trouble> {
        let files = Arc::clone(self);
        aside(move || files.check_now()).await
    }

    /// Whether every name still stands for what is open, and none of that is shorter than it has to be.
    pub(super) async fn check_names(self: &Arc<Self>) -> Result<(), Trouble> {
        let files = Arc::clone(self);
        aside(move || files.check_names_now()).await
    }

    /// Whether all that we wrote is in the files, whatever became of their names.
    pub(super) async fn check_journal(self: &Arc<Self>) -> Result<(), Trouble> {
        let files = Arc::clone(self);
        aside(move || files.check_journal_now()).await
    }

    /// What is in the database now was written by us. Call it while nobody else can write.
    pub(super) async fn written(self: &Arc<Self>) {
        let files = Arc::clone(self);
        let stamped: io::Result<()> = aside(move || files.stamp_now()).await;
        if let Err(error) = stamped {
            tracing::debug!(%error, "it is not known when the database was last written");
        }
    }

    /// Writes the journal again, whatever became of its name, and says whether all of it is there then. Call it while nobody
    /// of us writes.
    pub(super) async fn write_journal_again(self: &Arc<Self>) -> io::Result<bool> {
        let files = Arc::clone(self);
        aside(move || files.write_journal_again_now()).await
    }

    /// Takes the name away from our database. Where nothing has it, or something else by now, that stays so.
    pub(super) fn free_name(&self) -> io::Result<()> {
        let known = self.lock();
        let Some(known) = known.as_ref() else { return Ok(()) };
        let ours = id(&known.database.metadata()?);
        if named(&self.database)? == Some(ours) { fs::remove_file(&self.database) } else { Ok(()) }
    }

    fn check_now(&self) -> Result<(), Trouble> {
        self.look_up()?;
        self.check_database_now()?;
        self.check_journal_now()
    }

    fn check_database_now(&self) -> Result<(), Trouble> {
        let known = self.lock();
        let Some(known) = known.as_ref() else { return Ok(()) };
        let now = known.database.metadata().map_err(Trouble::Unknown)?;
        if stamp(&now) == known.stamp {
            return Ok(());
        }
        let is_cut = known.length()? == Wholeness::DatabaseCut;
        Err(if is_cut { Trouble::DatabaseCut } else { Trouble::Written })
    }

    fn check_journal_now(&self) -> Result<(), Trouble> {
        let mut known = self.lock();
        let journal = known.as_mut().and_then(|known| known.journal.as_mut());
        journal.map_or(Ok(Wholeness::Whole), Journal::read_back)?.must_be_whole()
    }

    fn write_journal_again_now(&self) -> io::Result<bool> {
        let mut known = self.lock();
        let Some(journal) = known.as_mut().and_then(|known| known.journal.as_mut()) else { return Ok(false) };
        Ok(journal.write_again()? && journal.read_back()? == Wholeness::Whole)
    }

    fn check_names_now(&self) -> Result<(), Trouble> {
        self.look_up()?;
        self.lock().as_ref().map_or(Ok(Wholeness::Whole), Known::length)?.must_be_whole()
    }

    fn look_up(&self) -> Result<(), Trouble> {
        let known = self.lock();
        let Some(known) = known.as_ref() else { return Ok(()) };
        let open = known.database.metadata().map_err(Trouble::Unknown)?;
        match named(&self.database).map_err(Trouble::Unknown)? {
            Some(named) if named == id(&open) => {}
            Some(_) => return Err(Trouble::Replaced),
            None if open.nlink() == 0 => return Err(Trouble::Deleted),
            None => return Err(Trouble::Moved),
        }
        for (path, is) in self.beside.iter().zip(known.beside) {
            if is.is_some() && named(path).map_err(Trouble::Unknown)? != is {
                return Err(Trouble::Journal);
            }
        }
        Ok(())
    }

    fn stamp_now(&self) -> io::Result<()> {
        if let Some(known) = self.lock().as_mut() {
            known.stamp = stamp(&known.database.metadata()?);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        // Plain values: nothing in between can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has this name, if anything.
fn named(path: &Path) -> io::Result<Option<Id>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(id(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path with something after its last name.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
