//! A copy of a database that was deleted while it was open, until it has the name of the database.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::files::beside;

/// One copy. Its file has one name while it is written and another when it is whole.
pub(super) struct Copy {
    database: PathBuf,
    partial: PathBuf,
    whole: PathBuf,
}

impl Copy {
    pub(super) fn beside(database: &Path) -> Self {
        let named = |ending| beside(database, ending);
        Self { database: database.to_owned(), partial: named(".partial"), whole: named(".rescued") }
    }

    /// Makes an empty file to write to and gives its name.
    pub(super) fn begin(&self) -> io::Result<String> {
        remove(&self.partial)?;
        // For its owner only, as the database is.
        File::options().write(true).create_new(true).mode(0o600).open(&self.partial)?;
        Ok(self.partial.display().to_string())
    }

    /// Everything is written.
    pub(super) fn finish(&self) -> io::Result<()> {
        File::open(&self.partial)?.sync_all()?;
        fs::rename(&self.partial, &self.whole)?;
        self.sync_folder()
    }

    /// It will not be whole.
    pub(super) fn give_up(&self) -> io::Result<()> {
        for ending in ["", "-journal", "-wal", "-shm"] {
            remove(&beside(&self.partial, ending))?;
        }
        Ok(())
    }

    /// Whether there is a whole one.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.exists()
    }

    /// Gives it a name by which no start takes it, because there is a database: one that was put in its place.
    pub(super) fn put_aside(&self) -> io::Result<PathBuf> {
        let aside = beside(&self.database, ".rescued.unused");
        fs::rename(&self.whole, &aside)?;
        Ok(aside)
    }

    /// Gives it the name of the database, which must be free. A journal that is still there belonged to
    /// another file and would ruin this one.
    pub(super) fn take_name(&self) -> io::Result<()> {
        for ending in ["-wal", "-shm"] {
            remove(&beside(&self.database, ending))?;
        }
        fs::rename(&self.whole, &self.database)?;
        self.sync_folder()
    }

    /// Makes the names last.
    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.database.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
