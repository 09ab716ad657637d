//! Text from anywhere, made fit for a line of a log: no character in it ends the line, moves the cursor, turns
//! the direction of what follows or hides, and it has a limit.

use std::fmt::{self, Write};

/// What stands for the rest of a text that is too long.
const CUT: char = '…';

/// The text of `value` within `longest` bytes, fit for a log. A value stops being written out when it is too
/// long, however long it would be.
pub(super) fn escaped(value: impl fmt::Display, longest: usize) -> String {
    let mut escaped = Escaped { text: String::new(), longest, cut: false };
    let written = write!(escaped, "{value}");
    if written.is_err() && !escaped.cut {
        escaped.text.push_str("(cannot be shown)");
    }
    escaped.text
}

struct Escaped {
    text: String,
    longest: usize,
    cut: bool,
}

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| self.write_char(c))
    }

    fn write_char(&mut self, c: char) -> fmt::Result {
        if self.cut {
            return Err(fmt::Error);
        }
        let before = self.text.len();
        match c {
            ' '..='~' => self.text.push(c),
            // Whatever is not seen as one character of its own: controls, line separators, marks that change
            // direction, joiners, marks on the character before.
            _ => self.text.extend(c.escape_debug()),
        }
        if self.text.len() > self.longest {
            self.text.truncate(before);
            self.text.push(CUT);
            self.cut = true;
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    #[test]
    fn what_could_forge_a_line_is_escaped() {
        let check = |text: &str, shown: &str| assert_eq!(escaped(text, 1024), shown, "{text:?}");
        check("zone-1: żółw 東京", "zone-1: żółw 東京");
        check("it's \"fine\" \\", "it's \"fine\" \\");
        check("a\nb\r\tc\0", r"a\nb\r\tc\0");
        check("\x1b[31mred", r"\u{1b}[31mred");
        check("\u{9b}31m\u{85}", r"\u{9b}31m\u{85}");
        check("\u{202e}gpj\u{2066}", r"\u{202e}gpj\u{2066}");
        check("a\u{2028}b\u{2029}c", r"a\u{2028}b\u{2029}c");
        check("ad\u{200b}min\u{feff}\u{e0041}", r"ad\u{200b}min\u{feff}\u{e0041}");
    }

    #[test]
    fn long_text_is_cut_between_characters_and_not_written_out() {
        assert_eq!(escaped("abcdef", 6), "abcdef");
        assert_eq!(escaped("abcdefg", 6), "abcdef…");
        assert_eq!(escaped("abcd\u{1b}", 6), "abcd…");
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("more and more ")?;
                }
            }
        }
        assert_eq!(escaped(Endless, 4), "more…");
    }

    proptest! {
        #[test]
        fn nothing_unseen_is_left(text: String, longest in 0_usize..64) {
            let shown = escaped(&text, longest);
            prop_assert!(shown.len() <= longest + CUT.len_utf8());
            prop_assert!(!shown.chars().any(char::is_control));
            let turning = ['\u{202e}', '\u{2066}', '\u{2028}', '\u{2029}', '\u{200f}', '\u{61c}'];
            prop_assert!(!shown.contains(turning));
        }
    }
}
