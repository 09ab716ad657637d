//! The commands in a shell script, as words: enough of the language for what people write into pages.

use std::{iter::Peekable, str::Chars};

/// Stands for what only a shell would know.
const SOMETHING: &str = "x";

/// One command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Whether it says with `…` or `...` that something is left out.
    pub is_abridged: bool,
}

/// The commands of `script`, those within others included.
pub fn commands(script: &str) -> Vec<ShellCommand> {
    let script = script.replace("\\\n", " ");
    let mut reader = ShellReader::new(&script);
    reader.read(None);
    reader.found
}

struct ShellReader<'a> {
    chars: Peekable<Chars<'a>>,
    word: Option<String>,
    words: Vec<String>,
    /// The next word is a file, no argument.
    is_redirected: bool,
    /// The word that ends the text which follows the line.
    here: Option<String>,
    found: Vec<ShellCommand>,
}

impl<'a> ShellReader<'a> {
    fn new(script: &'a str) -> Self {
        Self {
            chars: script.chars().peekable(),
            word: None,
            words: Vec::new(),
            is_redirected: false,
            here: None,
            found: Vec::new(),
        }
    }

    /// Reads up to `end`, or to the end of everything.
    fn read(&mut self, end: Option<char>) {
        while let Some(c) = self.chars.next() {
            match c {
                _ if Some(c) == end => break,
                '\n' => {
                    self.end_command();
                    self.skip_here();
                }
                ' ' | '\t' => self.end_word(),
                ';' | '|' | '&' => self.end_command(),
                '#' if self.word.is_none() => while self.chars.next_if(|c| *c != '\n').is_some() {},
                '(' => self.nested(),
                '<' | '>' => self.redirect(c),
                '\\' => {
                    let escaped = self.chars.next().unwrap_or_default();
                    self.push(escaped);
                }
                '\'' => {
                    self.word.get_or_insert_default();
                    while let Some(c) = self.chars.next().filter(|c| *c != '\'') {
                        self.push(c);
                    }
                }
                '"' => self.quoted(),
                '$' if self.chars.next_if_eq(&'(').is_some() => self.nested(),
                _ => self.push(c),
            }
        }
        self.end_command();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn quoted(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.chars.next().filter(|c| *c != '"') {
            match c {
                '$' if self.chars.next_if_eq(&'(').is_some() => self.nested(),
                '\\' => {
                    let escaped = self.chars.next().unwrap_or_default();
                    self.push(escaped);
                }
                _ => self.push(c),
            }
        }
    }

    /// Commands within this one, after their opening bracket.
    fn nested(&mut self) {
        let outer = (self.word.take(), std::mem::take(&mut self.words), self.is_redirected);
        self.is_redirected = false;
        self.read(Some(')'));
        (self.word, self.words, self.is_redirected) = outer;
        self.word.get_or_insert_default().push_str(SOMETHING);
    }

    fn redirect(&mut self, to: char) {
        // The number of a file is no argument either.
        if self.word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        if self.chars.next_if_eq(&'(').is_some() {
            return self.nested();
        }
        if to == '<' && self.chars.next_if_eq(&'<').is_some() {
            let mark = |c: &char| !c.is_whitespace();
            let mut end = String::new();
            while let Some(c) = self.chars.next_if(mark) {
                end.push(c);
            }
            self.here = Some(end.trim_matches(['\'', '"', '-']).to_owned());
            return;
        }
        while self.chars.next_if(|c| matches!(c, '>' | '&')).is_some() {}
        self.is_redirected = true;
    }

    /// Passes over the text that a line before has asked for.
    fn skip_here(&mut self) {
        let Some(end) = self.here.take() else { return };
        loop {
            let mut line = String::new();
            while let Some(c) = self.chars.next_if(|c| *c != '\n') {
                line.push(c);
            }
            if self.chars.next().is_none() || line == end {
                return;
            }
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if !std::mem::take(&mut self.is_redirected) {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_redirected = false;
        let words = std::mem::take(&mut self.words);
        let (left_out, words): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| word == "..." || word == "…");
        if !words.is_empty() {
            self.found.push(ShellCommand { words, is_abridged: !left_out.is_empty() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, expected: &[&[&str]]) {
        let found: Vec<Vec<String>> = commands(script).into_iter().map(|command| command.words).collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn commands_are_told_apart() {
        check("a b  c\nd; e && f | g &\n\nh", &[&["a", "b", "c"], &["d"], &["e"], &["f"], &["g"], &["h"]]);
        check("a \\\n  b   # c d\n# e\nf#g", &[&["a", "b"], &["f#g"]]);
    }

    #[test]
    fn quotes_keep_words_together() {
        check(r#"a 'b  c' "d 'e" f"g"h i\ j "" "#, &[&["a", "b  c", "d 'e", "fgh", "i j", ""]]);
    }

    #[test]
    fn files_are_no_arguments() {
        check("a b > c 2>&1 < d", &[&["a", "b"]]);
        check("a >c &\nb", &[&["a"], &["b"]]);
    }

    #[test]
    fn commands_within_others_are_found_and_stand_for_something() {
        check(
            r#"a "b=$(c d)" $(e | f) <(g h) i"#,
            &[&["c", "d"], &["e"], &["f"], &["g", "h"], &["a", "b=x", "x", "x", "i"]],
        );
    }

    #[test]
    fn a_text_that_follows_is_no_command() {
        check("a -f - <<'END' && b\ntype: c\nd\nEND\ne", &[&["a", "-f", "-"], &["b"], &["e"]]);
    }

    #[test]
    fn what_is_left_out_is_noticed() {
        let found = commands("a b ... # c\nd");
        assert_eq!(found.iter().map(|command| command.is_abridged).collect::<Vec<_>>(), [true, false]);
        assert_eq!(found[0].words, ["a", "b"]);
    }
}
