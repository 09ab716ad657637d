//! Text from outside, cut to a length: what a peer says about itself is kept, stored and logged, so each
//! piece has a limit where it enters.

use std::io;

/// What is kept of `text` within `longest` bytes, cut between characters.
pub fn clip(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Cuts `text` to `longest` bytes in place, and lets the memory of what is cut go.
pub fn clipped(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.shrink_to_fit();
    }
    text
}

/// Text that is written to, and gets no longer than it may.
#[derive(Debug)]
pub struct BoundedText {
    text: Vec<u8>,
    longest: usize,
}

impl BoundedText {
    /// Nothing yet, and no more than so many bytes.
    pub fn new(longest: usize) -> Self {
        Self { text: Vec::new(), longest }
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.longest - self.text.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_written_has_an_end() {
        let mut text = BoundedText::new(3);
        assert!(
            text.write_all(b"ab").is_ok() && text.write_all(b"cd").is_err() && text.write_all(b"c").is_ok()
        );
        assert_eq!(text.into_bytes(), b"abc");
    }

    #[test]
    fn a_cut_falls_between_characters() {
        let check = |text: &str, longest, kept: &str| {
            assert_eq!(clip(text, longest), kept);
            assert_eq!(clipped(text.to_owned(), longest), kept);
        };
        check("zone", 4, "zone");
        check("zone-1", 4, "zone");
        check("żółw", 3, "ż");
        check("żółw", 0, "");
        check("", 4, "");
    }
}
