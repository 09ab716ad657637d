//! Where a peer is told that what it holds is still good.

use super::{Flight, Holding, Name, Offer, ResponseBudget, Subscription, Updated, Version, Want};

/// What a peer is told to go on to keep.
#[derive(Debug, Default)]
pub struct StillGood {
    /// At these versions.
    pub names: Vec<(Name, Version)>,
    /// The last of these, where not all fitted into `limit`: the rest comes after it.
    pub until: Option<Name>,
}

impl Subscription {
    /// What the peer holds as it should be, of names that come after `after`; sent in a response numbered `nonce`, of
    /// about `limit` bytes. With `refused` also that of which it refused a newer version, where it can be told of
    /// what it kept. `None` when a response waits for its answer, or there is nothing.
    pub fn still_good(
        &mut self,
        want: &dyn Want,
        refused: bool,
        after: Option<&Name>,
        limit: Option<usize>,
        nonce: u64,
    ) -> Option<StillGood> {
        /// What stands around a name.
        const ENVELOPE: usize = 128;
        if self.flight.is_some() || !want.ready(self.type_url) {
            return None;
        }
        let mut names = Vec::new();
        want.each(self.type_url, &mut |name, version| {
            let is_next = after.is_none_or(|after| name > after);
            let is_kept = || {
                self.holding(name) == Holding::At(version)
                    || refused && self.refused.is_refused(name, version)
            };
            if is_next && self.interest.covers(name) && is_kept() {
                names.push((Name::clone(name), version));
            }
        });
        // Under the names they were asked for by, where those are others.
        names.extend(self.forms(want).filter(|(name, version)| {
            after.is_none_or(|after| name > after) && self.holding(name) == Holding::At(*version)
        }));
        names.sort_unstable();
        names.dedup();
        let mut room = ResponseBudget { limit, used: 0 };
        let fits = names.iter().take_while(|(name, _)| room.admit(name.len() + ENVELOPE)).count();
        let until = (fits < names.len()).then(|| names[..fits].last().map(|(name, _)| Name::clone(name)));
        names.truncate(fits);
        let told = StillGood { names, until: until.flatten() };
        if told.names.is_empty() {
            return None;
        }
        self.flight = Some(Box::new(Flight::new(nonce, &Offer::default(), Updated::default(), None)));
        Some(told)
    }
}
