//! What the folder holds and what is wrong with it, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use common::{model::ResourceKey, redact, rest::ResourceFiles};
use serde::Serialize;

use super::WantedDocuments;

/// Problems that are told at once.
const PROBLEMS: usize = 1000;
/// Bytes of a problem in the log, which quotes what is in a file.
const LOGGED: usize = 1024;

/// The state of the folder as this process knows it.
pub(crate) struct FolderStatus {
    folder: PathBuf,
    state: Mutex<KnownFolder>,
}

#[derive(Default)]
struct KnownFolder {
    view: FolderView,
    owners: BTreeMap<ResourceKey, String>,
}

/// What is shown of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FolderView {
    /// Another replica reads its folder.
    standby: bool,
    /// Each file that is there, by its path below the folder.
    files: Vec<FileView>,
    /// What is wrong with the folder as a whole: why nothing is deleted, or changes are noticed late.
    problems: Vec<String>,
}

/// What is shown of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileView {
    file: String,
    /// What it says, or said when it was good last.
    resources: Vec<String>,
    /// Why it is not taken as it is.
    problems: Vec<String>,
}

impl FolderView {
    pub(super) fn new(
        wanted: &WantedDocuments,
        by_file: BTreeMap<String, Vec<String>>,
        mut problems: Vec<String>,
    ) -> Self {
        let of_file =
            |(file, problems): (String, Vec<String>)| FileView { file, resources: Vec::new(), problems };
        let mut files: Vec<FileView> = by_file.into_iter().map(of_file).collect();
        for (key, (file, _)) in wanted {
            if let Ok(at) = files.binary_search_by(|view| view.file.cmp(file)) {
                files[at].resources.push(key.to_string());
            }
        }
        problems.truncate(PROBLEMS);
        Self { standby: false, files, problems }
    }

    /// All problems, with the file where it is one of a file.
    fn told(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_files =
            self.files.iter().flat_map(|f| f.problems.iter().map(|problem| (&*f.file, &**problem)));
        of_files.chain(self.problems.iter().map(|problem| ("", &**problem)))
    }
}

impl FolderStatus {
    /// Of a folder that was not read yet.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, KnownFolder> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder and what is known of it.
    pub(crate) fn view(&self) -> (&Path, FolderView) {
        (&self.folder, self.lock().view.clone())
    }

    /// Another replica does what is to be done.
    pub(super) fn stand_by(&self) {
        *self.lock() = KnownFolder {
            view: FolderView { standby: true, ..FolderView::default() },
            ..KnownFolder::default()
        };
    }

    /// From now on these are the business of their files.
    pub(super) fn own(&self, wanted: &WantedDocuments) {
        self.lock().owners = wanted.iter().map(|(key, (file, _))| (key.clone(), file.clone())).collect();
    }

    /// Shows `view`, and tells in the log what is new in it.
    pub(super) fn show(&self, view: FolderView) {
        let broken = view.files.iter().filter(|file| !file.problems.is_empty()).count();
        gauge(broken, view.files.len() - broken);
        let before = std::mem::replace(&mut self.lock().view, view.clone());
        let (told, known): (BTreeSet<_>, BTreeSet<_>) = (view.told().collect(), before.told().collect());
        for (file, problem) in told.difference(&known) {
            let problem = redact::words(problem, LOGGED);
            tracing::warn!(file, problem, "a file of the resources folder is not taken as it is");
        }
        for (file, problem) in known.difference(&told) {
            let problem = redact::words(problem, LOGGED);
            tracing::info!(file, problem, "a problem of the resources folder is gone");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so many files")]
fn gauge(broken: usize, good: usize) {
    metrics::gauge!("resource_files", "state" => "broken").set(broken as f64);
    metrics::gauge!("resource_files", "state" => "good").set(good as f64);
}

impl ResourceFiles for FolderStatus {
    fn file_of(&self, key: &ResourceKey) -> Option<String> {
        let file = self.lock().owners.get(key).cloned()?;
        Some(self.folder.join(file).display().to_string())
    }
}
