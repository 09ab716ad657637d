//! What a receiver thinks of each item of a response. One bad item never stops the good ones.

use std::fmt;

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

/// The text of a NACK that carries these verdicts; `None` when there is nothing to refuse. Conflicts come
/// first, behind the mark peers classify them by.
pub fn nack_text(verdicts: &[Verdict]) -> Option<String> {
    if verdicts.is_empty() {
        return None;
    }
    let lines =
        |cause: RefusalCause| verdicts.iter().filter(move |v| v.cause == cause).map(ToString::to_string);
    let conflicts: Vec<String> = lines(RefusalCause::Conflict).collect();
    let mark = if conflicts.is_empty() { "" } else { CONFLICT_MARK };
    let all: Vec<String> = conflicts.into_iter().chain(lines(RefusalCause::Invalid)).collect();
    Some(format!("{mark}{}", all.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_marked_and_come_first() {
        let verdict = |cause, name: &str| Verdict { name: name.into(), cause, reason: "why".into() };
        assert_eq!(nack_text(&[]), None);
        let invalid = verdict(RefusalCause::Invalid, "a.m");
        assert_eq!(nack_text(std::slice::from_ref(&invalid)).as_deref(), Some("a.m: why"));
        let both = [invalid, verdict(RefusalCause::Conflict, "b.m")];
        assert_eq!(nack_text(&both).as_deref(), Some("user error\nb.m: why\na.m: why"));
    }
}
