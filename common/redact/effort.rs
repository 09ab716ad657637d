//! How much work one text is worth. Each opening of something packed makes several texts of one, so a text made
//! for it would cost a thousand times its length.

use std::cell::Cell;

use super::DEPTH;

/// Bytes looked through for each byte of a text, beyond its first passes; certificates take a third of it.
const PER_BYTE: usize = 32;
/// And for the whole text at most.
const MOST: usize = 8 << 20;
/// A text is that long at least, so that short ones may be packed as often as they like.
const SHORT: usize = 4 << 10;

/// What is left of the work on a text.
pub(super) struct Effort {
    left: Cell<usize>,
}

/// How deep in a text the search is, and what it may still cost.
#[derive(Clone, Copy)]
pub(super) struct Nesting<'a> {
    depth: usize,
    effort: &'a Effort,
}

impl Effort {
    /// For a text of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        let packed = bytes.max(SHORT).saturating_mul(PER_BYTE).min(MOST);
        Self { left: Cell::new(bytes.saturating_mul(3).saturating_add(packed)) }
    }

    /// Where the search begins.
    pub(super) fn start(&self) -> Nesting<'_> {
        Nesting { depth: 0, effort: self }
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }
}

impl Nesting<'_> {
    /// Inside something packed.
    pub(super) fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// Whether what is packed here is opened.
    pub(super) fn opens(self) -> bool {
        self.depth < DEPTH
    }

    /// Whether so many more bytes may be looked through; what may not is withheld.
    pub(super) fn spend(self, bytes: usize) -> bool {
        let left = self.effort.left.get().checked_sub(bytes);
        self.effort.left.set(left.unwrap_or_default());
        left.is_some()
    }
}
