//! What is in the folder at a moment.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    time::SystemTime,
};

use common::model::text::TextLimits;

use super::QUIET;

/// How deep folders may nest; links can lead in circles.
const DEPTH: usize = 16;
/// Files that are read.
const FILES: usize = 10_000;
/// The file in which an operator says how many resources may go at once.
pub(super) const CONFIRM: &str = "confirm-deletes";
/// Bytes of a number.
const NUMBER: u64 = 32;

/// Content of each file by its path below the folder, or why it cannot be read.
pub(super) type FileTexts = BTreeMap<String, Result<String, String>>;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: FileTexts,
    /// Folders that could not be read to the end: of what is in them, nothing is known to be gone.
    pub(super) unread: Vec<String>,
    /// Files that somebody may not have written to the end.
    pub(super) being_written: Vec<String>,
    /// How many resources may go at once, as an operator says.
    pub(super) confirmed: Option<usize>,
}

impl Scan {
    /// Leaves files that are still being written for later: what they said last counts.
    pub(super) fn without_unfinished(mut self) -> Self {
        for name in std::mem::take(&mut self.being_written) {
            self.files.insert(name, Err("somebody is still writing it".to_owned()));
        }
        self
    }
}

/// Reads everything in `folder`, where it is `now`. Each folder is shown to `look_at` before it is read, so that what changes from then on
/// is heard of.
pub(super) fn scan(folder: &Path, now: SystemTime, look_at: &mut dyn FnMut(&Path)) -> Scan {
    let mut found = Scan::default();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((inner, depth)) = open.pop() {
        look_at(&inner);
        if let Err(error) = read_folder(folder, now, &inner, depth, &mut open, &mut found) {
            found.unread.push(format!("cannot read {}: {error}", inner.display()));
        }
    }
    found
}

fn read_folder(
    folder: &Path,
    now: SystemTime,
    inner: &Path,
    depth: usize,
    open: &mut Vec<(PathBuf, usize)>,
    found: &mut Scan,
) -> Result<(), String> {
    for entry in fs::read_dir(inner).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        // Editors and mounted volumes keep what is not meant for others under such names.
        if path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // It went meanwhile; a link that leads nowhere did not.
            Err(error) if is_not_there(&error) && fs::symlink_metadata(&path).is_err() => continue,
            Err(error) => {
                found.unread.push(format!("cannot look at {}: {error}", path.display()));
                continue;
            }
        };
        if metadata.is_dir() {
            if depth == DEPTH {
                return Err(format!("folders nest deeper than {DEPTH}"));
            }
            open.push((path, depth + 1));
        } else if metadata.is_file() && path == folder.join(CONFIRM) {
            found.confirmed = read_number(&path);
        } else if metadata.is_file() && is_of_documents(&path) {
            if found.files.len() == FILES {
                return Err(format!("there are more than {FILES} files"));
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            let modified = metadata.modified();
            if modified.is_ok_and(|modified| is_being_written(modified, now)) {
                found.being_written.push(name.clone());
            }
            match read_file(&path) {
                // It went meanwhile.
                Err(error) if is_not_there(&error) => {}
                read => {
                    found.files.insert(name, read.map_err(|error| error.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn is_not_there(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Whether somebody wrote it a moment ago and may not be done: half of a file may read like a whole one. A time in the
/// future says nothing.
fn is_being_written(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).is_ok_and(|since| since < QUIET)
}

fn is_of_documents(path: &Path) -> bool {
    matches!(path.extension().and_then(|extension| extension.to_str()), Some("yaml" | "yml" | "json"))
}

/// What is no number, or cannot be read, confirms nothing.
fn read_number(path: &Path) -> Option<usize> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(NUMBER).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let other = |reason: String| std::io::Error::other(reason);
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(TextLimits::FILE.bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > TextLimits::FILE.bytes {
        return Err(other(format!("it is longer than {} bytes: split it", TextLimits::FILE.bytes)));
    }
    String::from_utf8(bytes).map_err(|_| other("it is no text: save it as UTF-8".to_owned()))
}
