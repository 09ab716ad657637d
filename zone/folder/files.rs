//! The files of the folder, each with the last good state of it.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use common::{
    kds::fuse::Fuse,
    model::{
        ResourceKey,
        text::{self, TextLimits},
    },
    rest::FileDocument,
};
use serde_json::Value;

use super::scan::{CONFIRM, FileTexts, Scan};

/// All files that are there.
#[derive(Default)]
pub(super) struct FolderFiles {
    files: BTreeMap<String, FolderFile>,
    /// What keeps from knowing all that is there.
    unread: Vec<String>,
    /// Whether there ever was a file, since this process looks.
    seen: bool,
    /// How many resources may go at once, as an operator says.
    confirmed: Option<usize>,
    hasher: RandomState,
}

/// One file.
#[derive(Debug, Default)]
struct FolderFile {
    /// What tells its content from another.
    digest: Option<u64>,
    /// What it held when it was good last; `None` when it never was.
    documents: Option<Vec<Arc<FileDocument>>>,
    /// Why what it holds now is not taken.
    problem: Option<String>,
}

/// What there should be: each document with the file it is in.
pub(super) type WantedDocuments = BTreeMap<ResourceKey, (String, Arc<FileDocument>)>;

impl FolderFiles {
    /// Takes in what was found now.
    pub(super) fn take(&mut self, scan: Scan) {
        let Scan { files, unread, being_written: _, confirmed } = scan;
        self.confirmed = confirmed;
        self.seen |= !files.is_empty();
        // What could not be looked at is as it was.
        let is_whole = unread.is_empty();
        self.unread = unread;
        self.files.retain(|name, _| !is_whole || files.contains_key(name));
        self.read(files);
    }

    fn read(&mut self, files: FileTexts) {
        for (name, text) in files {
            let file = self.files.entry(name).or_default();
            let digest = text.as_ref().ok().map(|text| self.hasher.hash_one(text));
            if digest.is_some() && digest == file.digest {
                continue;
            }
            file.digest = digest;
            match text.and_then(|text| documents(&text)) {
                Ok(documents) => {
                    file.documents = Some(documents);
                    file.problem = None;
                }
                Err(problem) => file.problem = Some(problem),
            }
        }
    }

    /// What there should be, and what is in the way, by file. What two files say, the first of them says.
    pub(super) fn wanted(&self) -> (WantedDocuments, BTreeMap<String, Vec<String>>) {
        let mut wanted = WantedDocuments::new();
        let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, file) in &self.files {
            problems.entry(name.clone()).or_default().extend(file.problem.clone());
            for document in file.documents.iter().flatten() {
                if let Some((other, _)) = wanted.get(document.key()) {
                    let problem = format!("{} is in {other} already", document.key());
                    problems.entry(name.clone()).or_default().push(problem);
                    continue;
                }
                wanted.insert(document.key().clone(), (name.clone(), Arc::clone(document)));
            }
        }
        (wanted, problems)
    }

    /// Why it is not known all that should be there; nothing may be taken away then.
    pub(super) fn doubts(&self) -> Vec<String> {
        let never_good = self.files.iter().filter(|(_, file)| file.documents.is_none());
        let never_good = never_good.map(|(name, _)| format!("{name} was never read"));
        self.unread.iter().cloned().chain(never_good).collect()
    }

    /// Why `gone` of `held` resources that came from files are not taken away: a volume that was not mounted, or is filled in
    /// steps, is read without an error.
    pub(super) fn doubt_of_deleting(&self, gone: usize, held: usize) -> Option<String> {
        let is_usual = self.seen && Fuse::default().allows(gone, held);
        if gone == 0 || is_usual || self.confirmed == Some(gone) {
            return None;
        }
        let place = if self.seen { "in no file any more" } else { "not there: the folder is empty" };
        Some(format!(
            "{gone} of {held} resources that came from files are {place}, and none of them is deleted; if that is meant, write \
             {gone} into the file {CONFIRM} of the folder"
        ))
    }
}

/// The documents in a file: all of them are good, or none is taken.
fn documents(text: &str) -> Result<Vec<Arc<FileDocument>>, String> {
    let mut documents = Vec::new();
    let values = text::yaml_documents(text, TextLimits::FILE).map_err(|error| error.to_string())?;
    for (i, value) in values.into_iter().enumerate() {
        let place = |reason: String| format!("document {}: {reason}", i + 1);
        for item in items(value).map_err(place)? {
            documents.push(Arc::new(FileDocument::read(item).map_err(|error| place(error.to_string()))?));
        }
    }
    Ok(documents)
}

/// A document, or those in a list of them.
fn items(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(mut list) if !list.contains_key("type") && list.contains_key("items") => {
            match list.remove("items") {
                Some(Value::Array(items)) => Ok(items),
                _ => Err("items is not a list".to_owned()),
            }
        }
        one => Ok(vec![one]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(files: &[(&str, &str)]) -> Scan {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), Ok((*text).to_owned())));
        Scan { files: files.collect(), ..Scan::default() }
    }

    fn seen(files: &FolderFiles) -> (Vec<String>, Vec<String>) {
        let (wanted, problems) = files.wanted();
        let wanted = wanted.iter().map(|(key, (file, _))| format!("{file}: {key}"));
        let problems =
            problems.iter().flat_map(|(file, all)| all.iter().map(move |one| format!("{file}: {one}")));
        (wanted.collect(), problems.collect())
    }

    const MESH: &str = "type: Mesh\nname: m\n";
    const BOTH: &str = "type: Mesh\nname: m\n---\nitems:\n- {type: Mesh, name: n}\n";

    #[test]
    fn a_broken_file_keeps_what_it_said_and_a_file_that_went_does_not() {
        let mut files = FolderFiles::default();
        files.take(scan(&[("a.yaml", BOTH), ("b.yaml", "type: Mesh\nname: o\n")]));
        let all = ["a.yaml: Mesh m", "a.yaml: Mesh n", "b.yaml: Mesh o"];
        assert_eq!(seen(&files), (all.map(str::to_owned).to_vec(), vec![]));
        for broken in
            ["type: [Mesh", "type: Mesh\nname: m\n---\ntype: Mesh\nname: UPPER\n", "type: Nothing\nname: x"]
        {
            files.take(scan(&[("a.yaml", broken), ("b.yaml", "type: Mesh\nname: o\n")]));
            let (wanted, problems) = seen(&files);
            assert_eq!(wanted, all, "{broken}");
            assert!(matches!(&problems[..], [one] if one.starts_with("a.yaml: ")), "{problems:?}");
            assert!(files.doubts().is_empty());
        }
        files.take(scan(&[("a.yaml", MESH)]));
        assert_eq!(seen(&files), (vec!["a.yaml: Mesh m".to_owned()], vec![]));
    }

    #[test]
    fn of_what_two_files_say_the_first_counts() {
        let mut files = FolderFiles::default();
        files.take(scan(&[("a.yaml", MESH), ("b/c.yaml", BOTH)]));
        let wanted = ["a.yaml: Mesh m", "b/c.yaml: Mesh n"].map(str::to_owned).to_vec();
        assert_eq!(seen(&files), (wanted, vec!["b/c.yaml: Mesh m is in a.yaml already".to_owned()]));
        files.take(scan(&[("b/c.yaml", BOTH)]));
        assert_eq!(seen(&files).1, Vec::<String>::new());
    }

    #[test]
    fn what_was_never_read_casts_doubt_on_what_is_missing() {
        let mut files = FolderFiles::default();
        files.take(scan(&[("a.yaml", "type: [")]));
        assert_eq!(files.doubts(), ["a.yaml was never read"]);
        files.take(scan(&[("a.yaml", MESH)]));
        assert!(files.doubts().is_empty());
        let unread = Scan { unread: vec!["cannot read sub".to_owned()], ..Scan::default() };
        files.take(unread);
        assert_eq!(files.doubts(), ["cannot read sub"]);
        assert_eq!(seen(&files).0, ["a.yaml: Mesh m"]);
    }
}
