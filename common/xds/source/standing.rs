//! How far the peer is.

use tokio::time::Instant;

use super::{Source, TypeProgress, slot::TypeSlot};
use crate::xds::{Dialect, Interest, Standing, Subscription, Version};

impl<D: Dialect> Source<D> {
    /// Whether the peer took all there is. What it refused and is offered again, it has not taken before
    /// it says so.
    pub fn is_content(&self) -> bool {
        let mut states = self.slots.iter().filter_map(TypeSlot::subscription);
        self.is_settled() && states.all(Subscription::is_accepted)
    }

    /// Whether the peer refuses something.
    pub fn is_refused(&self) -> bool {
        self.slots.iter().filter_map(TypeSlot::subscription).any(|state| !state.is_accepted())
    }

    /// Whether the peer refused what there is under this name.
    pub fn refuses(&self, type_url: &str, name: &str) -> bool {
        let of_type = self.slots.iter().filter(|slot| slot.rule.type_url == type_url);
        of_type
            .filter_map(TypeSlot::subscription)
            .any(|state| state.refused().contains_key(name) || state.is_kept(name))
    }

    /// Whether the peer asked for this type.
    pub fn is_asked_for(&self, type_url: &str) -> bool {
        self.slots.iter().any(|slot| slot.rule.type_url == type_url && slot.dialect.is_some())
    }

    /// Which resources of a type the peer asked for; `None` while it asked for none.
    pub fn interest(&self, type_url: &str) -> Option<&Interest> {
        let of_type = self.slots.iter().find(|slot| slot.rule.type_url == type_url)?;
        of_type.subscription().map(Subscription::interest)
    }

    /// How far the peer is with this version of a resource.
    pub fn standing(&self, type_url: &str, name: &str, version: Version) -> Standing {
        let of_type = self.slots.iter().find(|slot| slot.rule.type_url == type_url);
        let state = of_type.and_then(TypeSlot::subscription);
        state.map_or(Standing::NotSent, |state| state.standing(name, version))
    }

    /// When to send [`Input::Wake`](super::Input::Wake), if nothing else happens: a type has waited long enough for another.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let waiting = self.slots.iter().filter(|slot| {
            slot.in_flight_since.is_none() && slot.subscription().is_some_and(|s| s.has_updates())
        });
        let since =
            waiting.flat_map(|slot| slot.rule.waits_for).filter_map(|other| self.in_flight_since(other));
        let patience = since.map(|since| since + self.settings.patience);
        patience.chain(self.heartbeat_due()).filter(|at| *at > now).min()
    }

    /// Since when a response of this type waits for its answer.
    pub fn in_flight_since(&self, type_url: &str) -> Option<Instant> {
        self.slots.iter().find(|slot| slot.rule.type_url == type_url)?.in_flight_since
    }

    /// Since when the oldest response waits for its answer.
    pub fn stalled_since(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.in_flight_since).min()
    }

    /// How far the peer is, for every type it asked for.
    pub fn progress(&self) -> impl Iterator<Item = TypeProgress> {
        self.slots.iter().filter_map(|slot| slot.progress(self.revision))
    }

    /// Whether the peer has answered for everything it asked for.
    pub fn is_settled(&self) -> bool {
        self.slots.iter().all(|slot| slot.dialect.is_none() || slot.is_idle())
    }

    /// The same, but for removals that wait because something was refused that may need what goes.
    pub fn is_answered(&self) -> bool {
        (0..self.slots.len()).all(|i| {
            let slot = &self.slots[i];
            let has_updates = || slot.subscription().is_some_and(Subscription::has_updates);
            let keeps = || slot.in_flight_since.is_none() && !has_updates() && !self.may_remove(i);
            slot.dialect.is_none() || slot.is_idle() || keeps()
        })
    }
}
