//! Beside the database: up to which revision it was acknowledged.
//!
//! What the journal holds is trusted only as far as its own checksums go, so damage to it, or its loss,
//! takes the end of the history away without a word. This remembers how long the history was. It is
//! written after the commit is durable and not forced to the disk itself: it survives the process, and
//! after a power cut it says less than there is, never more.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    file,
    files::{aside, beside},
};
use crate::store::{Revision, StoreError, StoreIdentity, checksum::Checksum};

/// The record of one database.
pub(super) struct Acknowledged {
    identity: StoreIdentity,
    file: Option<Arc<File>>,
}

fn path_of(database: &Path) -> PathBuf {
    beside(database, ".acknowledged")
}

/// One line of fixed length, so that rewriting it needs no room on the disk.
fn line(identity: StoreIdentity, revision: Revision) -> String {
    let StoreIdentity { store_id, epoch } = identity;
    let text = format!("{store_id} {epoch:020} {revision:020}");
    let sum = Checksum::default().text(&text).finish();
    format!("{text} {sum:08x}\n")
}

/// The history and revision such a line holds, when it is whole.
fn parse(text: &str) -> Option<(StoreIdentity, Revision)> {
    let mut parts = text.split(' ');
    let identity =
        StoreIdentity { store_id: parts.next()?.parse().ok()?, epoch: parts.next()?.parse().ok()? };
    let revision = parts.next()?.parse().ok()?;
    (line(identity, revision) == text).then_some((identity, revision))
}

impl Acknowledged {
    /// Makes sure that the database reaches as far as what was acknowledged, and goes on from there.
    /// `existed`: whether there was a file before it was opened; one that lost everything looks new.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the end of the history is missing.
    pub(super) fn open(
        database: &Path,
        identity: StoreIdentity,
        head: Revision,
        existed: bool,
    ) -> Result<Self, StoreError> {
        let path = path_of(database);
        let known = fs::read_to_string(&path).ok().and_then(|text| parse(&text));
        let measured = |of: StoreIdentity| of == identity || (existed && head == 0);
        if let Some((_, known)) = known.filter(|(of, known)| *known > head && measured(*of)) {
            return Err(file::damaged(
                database,
                &format!(
                    "is damaged: it ends at revision {head}, and {known} was acknowledged. Its journal ({0}-wal) is \
                     damaged or missing, or an older copy was put in its place. Put the newer one back, or \
                     restore it from a backup; to go on without what is missing, delete {1}",
                    database.display(),
                    path.display()
                ),
            ));
        }
        let opened = File::options().create(true).write(true).truncate(false).mode(0o600).open(&path);
        let file = opened.inspect_err(|error| not_kept(&path, error)).ok();
        let noted = file.as_ref().map(|file| file.write_all_at(line(identity, head).as_bytes(), 0));
        missed(noted.unwrap_or(Ok(())));
        Ok(Self { identity, file: file.map(Arc::new) })
    }

    /// Everything up to `revision` is durable and about to be acknowledged.
    pub(super) async fn reached(&self, revision: Revision) {
        let Some(file) = self.file.clone() else { return };
        let line = line(self.identity, revision);
        missed(aside(move || file.write_all_at(line.as_bytes(), 0)).await);
    }
}

/// It only helps to notice damage, so nobody is refused a write because of it.
fn missed(noted: io::Result<()>) {
    if let Err(error) = noted {
        tracing::debug!(%error, "cannot note how far the store was acknowledged");
    }
}

fn not_kept(path: &Path, error: &io::Error) {
    tracing::warn!(
        path = %path.display(),
        %error,
        "cannot note how far the store was acknowledged: the loss of its end would go unnoticed"
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_history_that_became_shorter_is_noticed_and_one_that_was_restored_on_purpose_is_not() {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("x.db");
        let identity = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        Acknowledged::open(&database, identity, 3, true).unwrap().reached(7).await;
        let error = Acknowledged::open(&database, identity, 6, true).err().unwrap().to_string();
        assert!(error.contains("it ends at revision 6, and 7 was acknowledged"), "{error}");
        assert!(error.contains("x.db.acknowledged"), "{error}");
        let renewed = StoreIdentity { epoch: 2, ..identity };
        Acknowledged::open(&database, renewed, 0, true).err().unwrap();
        // Another history, or a new epoch of it, is not measured by this one, unless it has only just begun.
        Acknowledged::open(&database, renewed, 1, true).unwrap();
        Acknowledged::open(&database, identity, 0, false).unwrap();
        // A torn or damaged record says nothing.
        fs::write(path_of(&database), "00000000").unwrap();
        Acknowledged::open(&database, identity, 0, true).unwrap();
    }
}
