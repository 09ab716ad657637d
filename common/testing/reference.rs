//! Pages and files that are made from what the code says.

use std::{fs, path::Path};

/// The name of the variable that has them written.
const UPDATE: &str = "UPDATE_REFERENCES";

/// Fails when `file`, a path in the repository, does not say `text`. `UPDATE_REFERENCES=1` writes it; read the diff
/// before you commit it.
///
/// # Panics
/// When it differs, or cannot be written.
pub fn assert_current(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os(UPDATE).is_some() {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("the folder can be made");
        }
        fs::write(&path, text).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = std::iter::zip(text.lines(), written.lines()).find(|(now, then)| now != then);
    assert!(text == written, "{file} is old (see with {UPDATE}=1 and git diff): {differs:?}");
}

/// A text as it stands in a cell of a table of Markdown.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ")
}
