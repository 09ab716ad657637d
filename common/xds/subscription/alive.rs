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
    /// about `limit` bytes. `None` when a response waits for its answer, or there is nothing.
    pub fn still_good(
        &mut self,
        want: &dyn Want,
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
            if is_next && self.interest.covers(name) && self.holding(name) == Holding::At(version) {
                names.push((Name::clone(name), version));
            }
        });
        names.sort_unstable();
        let mut room = ResponseBudget { limit, used: 0 };
        let fits = names.iter().take_while(|(name, _)| room.admit(name.len() + ENVELOPE)).count();
        let until = (fits < names.len()).then(|| names[..fits].last().map(|(name, _)| Name::clone(name)));
        names.truncate(fits);
        let told = StillGood { names, until: until.flatten() };
        if told.names.is_empty() {
            return None;
        }
        self.flight = Some(Flight::new(nonce, &Offer::default(), Updated::default(), None));
        Some(told)
    }
}
