//! The pages of the project, as far as tests look at them: headings, links, and what stands in code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold nothing somebody wrote.
const NOT_OURS: [&str; 3] = ["target", "node_modules", "corpus"];

/// One page.
pub struct MarkdownPage {
    /// Where it is, from the root of the project.
    pub path: PathBuf,
    text: String,
}

/// Something on a page, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnPage<T> {
    /// The line, from 1.
    pub line: usize,
    /// What stands there.
    pub what: T,
}

/// A block of code between fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedBlock {
    /// The word after the opening fence.
    pub language: String,
    /// What is between the fences.
    pub text: String,
}

/// All pages below the folder `root`, in order.
///
/// # Panics
/// When it cannot be read.
pub fn pages(root: &Path) -> Vec<MarkdownPage> {
    let mut found = Vec::new();
    collect(root, root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<MarkdownPage>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !NOT_OURS.contains(&&*name) {
                collect(root, &path, found);
            }
        } else if name.ends_with(".md") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
            found.push(MarkdownPage { path, text });
        }
    }
}

impl MarkdownPage {
    /// A page that is in no file.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// What its headings are linked by, as GitHub makes it.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::<String, u32>::new();
        let prose = self.prose();
        let headings = prose.lines().filter_map(|line| {
            let title = line.trim_start_matches('#');
            let level = line.len() - title.len();
            ((1..=6).contains(&level) && title.starts_with(' ')).then(|| anchor(title))
        });
        headings
            .map(|anchor| {
                let times = seen.entry(anchor.clone()).or_default();
                *times += 1;
                if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
            })
            .collect()
    }

    /// Where its links lead.
    pub fn links(&self) -> Vec<OnPage<String>> {
        let (prose, _) = self.without_spans();
        let mut found = Vec::new();
        for (number, line) in prose.lines().enumerate() {
            for after in line.split("](").skip(1) {
                let Some((target, _)) = after.split_once(')') else { continue };
                found.push(OnPage { line: number + 1, what: target.to_owned() });
            }
        }
        found
    }

    /// Its blocks of code.
    pub fn blocks(&self) -> Vec<OnPage<FencedBlock>> {
        let mut found: Vec<OnPage<FencedBlock>> = Vec::new();
        let mut is_open = false;
        for (number, line) in self.text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(language) if !is_open => {
                    let language = language.trim().to_owned();
                    found.push(OnPage {
                        line: number + 1,
                        what: FencedBlock { language, text: String::new() },
                    });
                    is_open = true;
                }
                Some(_) => is_open = false,
                None => {
                    if let Some(block) = found.last_mut().filter(|_| is_open) {
                        block.what.text.push_str(line);
                        block.what.text.push('\n');
                    }
                }
            }
        }
        found
    }

    /// What stands between backticks in its sentences and tables.
    pub fn spans(&self) -> Vec<OnPage<String>> {
        self.without_spans().1
    }

    /// The text without blocks of code, line for line.
    fn prose(&self) -> String {
        let mut is_open = false;
        let lines = self.text.lines().map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_open ^= is_fence;
            if is_open || is_fence { "" } else { line }
        });
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The prose with nothing between its backticks, and what stood there.
    fn without_spans(&self) -> (String, Vec<OnPage<String>>) {
        let prose = self.prose();
        let (mut kept, mut spans, mut rest) = (String::new(), Vec::new(), &*prose);
        while let Some(start) = rest.find('`') {
            let (before, from) = rest.split_at(start);
            kept.push_str(before);
            let fence = &from[..from.len() - from.trim_start_matches('`').len()];
            let after = &from[fence.len()..];
            // No span goes beyond its paragraph.
            let paragraph = after.split("\n\n").next().unwrap_or_default();
            let Some(end) = paragraph.find(fence) else {
                rest = after;
                continue;
            };
            let line = kept.matches('\n').count() + 1;
            spans.push(OnPage { line, what: after[..end].replace('\n', " ") });
            kept.extend(after[..end].chars().filter(|c| *c == '\n'));
            rest = &after[end + fence.len()..];
        }
        kept.push_str(rest);
        (kept, spans)
    }
}

fn anchor(title: &str) -> String {
    // Of a link its text is shown.
    let mut shown = String::new();
    let mut rest = title.trim();
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    shown.push_str(rest);
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# One `two`: [three](x.md), four_5\n\nSee [`a](b)`](c.md#d) and `e\nf`.\n\n```sh\n# no heading\n\
                        [no](link)\n```\n\n## Again\n## Again\n`unpaired\n\n[last](#again-1)\n";

    #[test]
    fn headings_are_linked_by_what_is_left_of_them() {
        let anchors = MarkdownPage::new("a.md", PAGE).anchors();
        let expected = ["one-two-three-four_5", "again", "again-1"].map(str::to_owned);
        assert_eq!(anchors, BTreeSet::from(expected));
    }

    #[test]
    fn links_are_what_is_no_code() {
        let links = MarkdownPage::new("a.md", PAGE).links();
        let expected = [(1, "x.md"), (3, "c.md#d"), (15, "#again-1")];
        let expected = expected.map(|(line, what)| OnPage { line, what: what.to_owned() });
        assert_eq!(links, expected);
    }

    #[test]
    fn code_is_found_with_its_line() {
        let page = MarkdownPage::new("a.md", PAGE);
        let spans: Vec<(usize, String)> =
            page.spans().into_iter().map(|span| (span.line, span.what)).collect();
        let expected = [(1, "two"), (3, "a](b)"), (3, "e f")].map(|(line, what)| (line, what.to_owned()));
        assert_eq!(spans, expected);
        let blocks = page.blocks();
        assert_eq!(blocks.len(), 1);
        assert_eq!((blocks[0].line, &*blocks[0].what.language), (6, "sh"));
        assert_eq!(blocks[0].what.text, "# no heading\n[no](link)\n");
    }
}
