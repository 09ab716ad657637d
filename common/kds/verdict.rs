//! What a receiver thinks of each item of a response. One bad item never stops the good ones.

use std::fmt::{self, Write as _};

use crate::clip::clipped;

/// Text a Kuma peer recognises a conflict of names by.
const CONFLICT_MARK: &str = "user error\n";

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// It is not valid; sending the same content again is pointless.
    Invalid,
    /// Its name is taken by a resource of another origin.
    Conflict,
}

/// A refusal of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Delta name of the item.
    pub name: String,
    /// Which kind of refusal.
    pub cause: RefusalCause,
    /// What is wrong, for the person who can fix it.
    pub reason: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The text of a NACK that carries these verdicts, as far as it has room in so many bytes; `None` when there is nothing to
/// refuse. Conflicts come first, behind the mark peers classify them by.
pub fn nack_text(verdicts: &[Verdict], longest: usize) -> Option<String> {
    if verdicts.is_empty() {
        return None;
    }
    let caused = |cause: RefusalCause| verdicts.iter().filter(move |verdict| verdict.cause == cause);
    let mut conflicts = caused(RefusalCause::Conflict).peekable();
    let mut text = if conflicts.peek().is_some() { CONFLICT_MARK.to_owned() } else { String::new() };
    for (number, verdict) in conflicts.chain(caused(RefusalCause::Invalid)).enumerate() {
        if text.len() > longest {
            break;
        }
        let parted = if number > 0 { "\n" } else { "" };
        let _always_written = write!(text, "{parted}{verdict}");
    }
    Some(clipped(text, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_marked_and_come_first() {
        let verdict = |cause, name: &str| Verdict { name: name.into(), cause, reason: "why".into() };
        let nack_text = |verdicts: &[Verdict]| nack_text(verdicts, 1024);
        assert_eq!(nack_text(&[]), None);
        let invalid = verdict(RefusalCause::Invalid, "a.m");
        assert_eq!(nack_text(std::slice::from_ref(&invalid)).as_deref(), Some("a.m: why"));
        let both = [invalid, verdict(RefusalCause::Conflict, "b.m")];
        assert_eq!(nack_text(&both).as_deref(), Some("user error\nb.m: why\na.m: why"));
    }

    #[test]
    fn the_text_ends_where_it_has_no_room_any_more() {
        let verdict = |n: usize| Verdict {
            name: format!("{n}.m"),
            cause: if n == 9_999 { RefusalCause::Conflict } else { RefusalCause::Invalid },
            reason: "why".into(),
        };
        let verdicts: Vec<Verdict> = (0..10_000).map(verdict).collect();
        let text = nack_text(&verdicts, 100).unwrap_or_default();
        assert!(text.starts_with("user error\n9999.m: why\n0.m: why\n") && text.len() == 100, "{text}");
    }
}
