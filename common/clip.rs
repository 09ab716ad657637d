//! Text from outside, cut to a length: what a peer says about itself is kept, stored and logged, so each
//! piece has a limit where it enters.

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

#[cfg(test)]
mod tests {
    use super::*;

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
