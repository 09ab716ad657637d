//! Resources from a folder of files, beside whatever else is in the store.
//!
//! ```text
//!  inotify ──► scan ──► files: the last good state of each ──► written as the API would, by the leader
//! ```
//!
//! What a file says is in the store like anything else, so proxies, other zones and the API see it the same way. It
//! bears a label, and the API refuses to touch it while there is a folder. **Nothing is taken away because something
//! cannot be read**: a broken file keeps what it said last, and while it is unknown what a file or a folder says,
//! nothing that is missing is deleted. Nor is much of it at once, or all because the folder is empty at a start, before
//! somebody says that it is meant.

mod files;
mod scan;
mod status;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use common::{
    model::{ResourceKey, labels},
    rest::{Api, FileDocument},
    runtime::Env,
    store::{Fence, Revision, index::IndexReader},
};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::{
    files::{FolderFiles, WantedDocuments},
    scan::{Scan, scan},
    status::FolderView,
    watch::FolderWatch,
};
use crate::leader::Work;

pub(crate) use status::FolderStatus;

/// No change for so long is the end of one: a volume that is exchanged changes in steps.
const QUIET: Duration = Duration::from_millis(50);
/// A change that does not end is looked at after this.
const RESTLESS: Duration = Duration::from_secs(1);
/// So often a file is looked at that somebody writes, with as much quiet in between.
const LOOKS: usize = 20;
/// Without any change the folder is looked at this often: not every file system tells.
const AGAIN: Duration = Duration::from_secs(60);
/// Pause before what was refused is tried again, which doubles up to [`AGAIN`]: a mesh may have come meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps what is stored as the files say.
pub(crate) struct FolderResources {
    folder: PathBuf,
    status: Arc<FolderStatus>,
    api: Arc<Api>,
    index: IndexReader,
    env: Env,
}

/// What the folder has brought about so far.
#[derive(Default)]
struct KeptResources {
    /// What bears the label.
    labelled: BTreeSet<ResourceKey>,
    /// What was stored of which document, and the revision it had then.
    stored: BTreeMap<ResourceKey, (Arc<FileDocument>, Revision)>,
}

impl FolderResources {
    pub(crate) fn new(
        folder: &Path,
        status: Arc<FolderStatus>,
        api: Arc<Api>,
        index: IndexReader,
        env: Env,
    ) -> Self {
        Self { folder: folder.to_owned(), status, api, index, env }
    }

    /// Reads the folder again; `None` when it is to stop first. What changes from now on wakes `watch`.
    async fn look(
        &self,
        mut files: FolderFiles,
        watch: Option<Arc<FolderWatch>>,
        stop: &CancellationToken,
    ) -> Option<(FolderFiles, Option<String>)> {
        let mut looks = 0;
        let (found, unwatched) = loop {
            let (found, unwatched) = self.scan(watch.clone()).await;
            looks += 1;
            if found.being_written.is_empty() || looks == LOOKS {
                break (found.without_unfinished(), unwatched);
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep(QUIET) => {}
            }
        };
        let taken = tokio::task::spawn_blocking(move || {
            files.take(found);
            files
        });
        Some((taken.await.expect("reading files does not panic"), unwatched))
    }

    /// What is there, and what of it cannot be watched.
    async fn scan(&self, watch: Option<Arc<FolderWatch>>) -> (Scan, Option<String>) {
        let (folder, now) = (self.folder.clone(), self.env.now().into());
        let looked = tokio::task::spawn_blocking(move || {
            let mut unwatched = None;
            let found = scan(&folder, now, &mut |inner| {
                let added = watch.as_ref().map_or(Ok(()), |watch| watch.add(inner));
                if let Err(error) = added {
                    unwatched.get_or_insert(format!("cannot watch {}: {error}", inner.display()));
                }
            });
            (found, unwatched)
        });
        looked.await.expect("reading files does not panic")
    }

    /// Writes what differs; whether nothing was refused.
    async fn bring_about(
        &self,
        files: &FolderFiles,
        kept: &mut KeptResources,
        fence: &Fence,
        unwatched: Option<String>,
        stop: &CancellationToken,
    ) -> bool {
        let (wanted, mut problems) = files.wanted();
        let mut doubts = files.doubts();
        self.status.own(&wanted);
        let mut refused = false;
        let mut refuse = |file: &str, reason: String| {
            refused = true;
            problems.entry(file.to_owned()).or_default().push(reason);
        };
        // A mesh has to be there before what is in it.
        let mut ordered: Vec<_> = wanted.iter().collect();
        ordered.sort_by_key(|(key, _)| key.kind.sync_stage);
        for (key, (file, document)) in ordered {
            // Somebody else may lead from now on; what is under way is fenced, and the rest is not begun.
            if stop.is_cancelled() {
                return false;
            }
            if let Err(reason) = self.store(key, document, kept, fence).await {
                refuse(file, format!("{key}: {reason}"));
            }
        }
        let mut orphans = Vec::new();
        let gone: Vec<_> = kept.labelled.iter().filter(|key| !wanted.contains_key(key)).cloned().collect();
        doubts.extend(files.doubt_of_deleting(gone.len(), kept.labelled.len()));
        if doubts.is_empty() {
            for key in gone.iter().rev() {
                if stop.is_cancelled() {
                    return false;
                }
                match self.api.withdraw(key, fence).await {
                    Ok(()) => {
                        tracing::info!(resource = %key, "deleted what is in no file any more");
                        kept.labelled.remove(key);
                        kept.stored.remove(key);
                    }
                    Err(error) => orphans.push(format!("cannot delete {key}: {error}")),
                }
            }
        }
        let is_done = !refused && orphans.is_empty();
        let doubts = doubts.into_iter().chain(orphans).chain(unwatched).collect();
        self.status.show(FolderView::new(&wanted, problems, doubts));
        is_done
    }

    /// Stores one document, unless that was done and nobody touched it since.
    async fn store(
        &self,
        key: &ResourceKey,
        document: &Arc<FileDocument>,
        kept: &mut KeptResources,
        fence: &Fence,
    ) -> Result<(), String> {
        let revision = |index: &IndexReader| index.current().get(key).map(|resource| resource.revision);
        let known = kept.stored.get(key).filter(|(known, _)| Arc::ptr_eq(known, document));
        if known.is_some_and(|(_, known)| revision(&self.index) == Some(*known)) {
            return Ok(());
        }
        let stored = self.api.provide(document, fence).await.map_err(|error| error.to_string())?;
        kept.labelled.insert(key.clone());
        match known_at(revision(&self.index), stored) {
            Some(shown) => kept.stored.insert(key.clone(), (Arc::clone(document), shown)),
            None => kept.stored.remove(key),
        };
        Ok(())
    }

    /// What former lives of this process, or other replicas, have stored of the folder.
    fn inherited(&self) -> KeptResources {
        let index = self.index.current();
        // Another control plane has a folder of its own.
        let labelled = index
            .iter()
            .filter(|r| r.label(labels::PROVIDED_BY) == Some(labels::PROVIDED_BY_FILES) && self.api.owns(r));
        KeptResources { labelled: labelled.map(|r| r.key.clone()).collect(), ..KeptResources::default() }
    }
}

impl Work for FolderResources {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        let (watch, deaf) = match FolderWatch::new() {
            Ok(watch) => (Some(Arc::new(watch)), None),
            Err(error) => (None, Some(format!("cannot watch any folder: {error}"))),
        };
        let (mut files, mut kept, mut pause) = (FolderFiles::default(), self.inherited(), RETRY);
        loop {
            let unwatched;
            (files, unwatched) = match self.look(files, watch.clone(), &stop).await {
                Some(looked) => looked,
                None => return,
            };
            let unwatched = deaf.clone().or(unwatched);
            pause = match self.bring_about(&files, &mut kept, &fence, unwatched, &stop).await {
                true => AGAIN,
                false if pause == AGAIN => RETRY,
                false => (pause * 2).min(AGAIN / 2),
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = quiet(watch.as_deref()) => {}
                () = sleep(pause) => {}
            }
        }
    }

    fn stand_by(&self) {
        self.status.stand_by();
    }
}

/// The revision of what was stored when the store was at `stored`, by what the index shows now. That may already be what
/// somebody else wrote after it, and then the file says it again.
fn known_at(shown: Option<Revision>, stored: Revision) -> Option<Revision> {
    shown.filter(|shown| *shown <= stored)
}

/// Waits for a change and for its end.
async fn quiet(watch: Option<&FolderWatch>) {
    let Some(watch) = watch else { return std::future::pending().await };
    if let Err(error) = watch.changed().await {
        tracing::warn!(%error, "cannot watch the folder of resources; it is looked at now and then");
        return std::future::pending().await;
    }
    let end = Instant::now() + RESTLESS;
    while Instant::now() < end {
        let until = end.min(Instant::now() + QUIET);
        match timeout_at(until, watch.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
