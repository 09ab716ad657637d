//! Which revision of global is in effect here, by which revision of this zone's store is. Pure.

use std::collections::VecDeque;

use common::store::Revision;

/// Steps that are kept. Without one in between a revision counts as covered a little later.
const STEPS: usize = 64;

/// Up to which revision of global all is stored here, at which revision of the store here.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Both grow from one to the next.
    steps: VecDeque<(Revision, Revision)>,
    reached: Revision,
}

impl Coverage {
    /// All that global wrote up to `global` is stored here, at revision `here` or before.
    pub(super) fn covers(&mut self, here: Revision, global: Revision) {
        let newest = self.steps.back().map_or(self.reached, |(_, global)| *global);
        if global <= newest {
            return;
        }
        let is_full = self.steps.len() == STEPS;
        match self.steps.back_mut().filter(|last| last.0 == here || is_full) {
            Some(last) => *last = (here, global),
            None => self.steps.push_back((here, global)),
        }
    }

    /// The revision of global that is covered by everything up to `here`.
    pub(super) fn reached(&mut self, here: Revision) -> Revision {
        while let Some((_, global)) = self.steps.pop_front_if(|(step, _)| *step <= here) {
            self.reached = global;
        }
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is said to be covered is, and with the newest revision here everything is.
        #[test]
        fn no_more_is_covered_than_is_stored(
            steps in proptest::collection::vec((0..3u64, 0..3u64, 0..4u64), 0..200),
        ) {
            let mut coverage = Coverage::default();
            let (mut here, mut global, mut seen) = (0, 0, 0);
            let mut stored: Vec<(u64, u64)> = Vec::new();
            for (writes, received, shown) in steps {
                (here, global) = (here + writes, global + received);
                coverage.covers(here, global);
                stored.push((here, global));
                seen = here.min(seen + shown);
                let reached = coverage.reached(seen);
                let most = stored.iter().filter(|(at, _)| *at <= seen).map(|(_, of)| *of).max();
                prop_assert!(reached <= most.unwrap_or(0), "{reached} of {stored:?} at {seen}");
            }
            prop_assert_eq!(coverage.reached(here), global);
        }
    }
}
