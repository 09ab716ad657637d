//! What is sent next, and what has to wait for what.

use tokio::time::Instant;

use super::Source;
use crate::{
    proto::google::rpc::Status,
    xds::{DeltaPart, Dialect, ResponseParts, Subscription, Want, dialect::Header, variant},
};

impl<D: Dialect> Source<D> {
    /// The next response to send, or `None` when there is none before the next input.
    pub fn next(&mut self, now: Instant, want: &dyn Want) -> Option<D::Response> {
        self.next_parts(now, want).as_ref().map(D::message)
    }

    /// The same in parts that are shared with others who are sent the same.
    pub fn next_parts(&mut self, now: Instant, want: &dyn Want) -> Option<ResponseParts> {
        if let Some(type_url) = self.unserved.pop_front() {
            self.nonce += 1;
            let header = Header { nonce: self.nonce, identifier: &self.settings.identifier };
            return Some(D::nothing(type_url, &header));
        }
        let ordered = self.settings.make_before_break;
        for i in 0..self.slots.len() {
            if !self.must_wait(i, now) {
                let part = if self.may_remove(i) { DeltaPart::All } else { DeltaPart::Updates };
                if let Some(response) = self.send(i, part, now, want) {
                    return Some(response);
                }
            }
        }
        let from_last_to_first = (0..self.slots.len()).rev().filter(|_| ordered);
        for i in from_last_to_first {
            if self.may_remove(i)
                && let Some(response) = self.send(i, DeltaPart::Removals, now, want)
            {
                return Some(response);
            }
        }
        self.next_heartbeat(now, want)
    }

    /// About how many names there is something to say, over all types; [`usize::MAX`] when that is not known
    /// before all is looked at.
    pub fn burden(&self) -> usize {
        let burdens = self.slots.iter().filter_map(|slot| slot.dialect.as_ref()).map(D::burden);
        burdens.fold(0, usize::saturating_add)
    }

    /// Of what there is to send, a response about at most `names` names that may [overtake] the rest.
    ///
    /// [overtake]: crate::xds::TypeRule::overtakes
    pub fn next_ahead(&mut self, now: Instant, want: &dyn Want, names: usize) -> Option<ResponseParts> {
        for i in 0..self.slots.len() {
            let is_light = self.slots[i].dialect.as_ref().is_some_and(|dialect| dialect.burden() <= names);
            if self.slots[i].rule.overtakes
                && is_light
                && let Some(response) = self.send(i, DeltaPart::Updates, now, want)
            {
                return Some(response);
            }
        }
        None
    }

    /// Takes back a response that turned out not to fit into a message: the peer has not taken what is in it, and is
    /// offered it again when it has changed.
    pub fn unsent(&mut self, response: &ResponseParts) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == response.type_url) else {
            return;
        };
        let (nonce, refusal) = (response.nonce.to_string(), Status::default());
        let _told_by_nobody =
            slot.hear(self.revision, Some(&refusal), |dialect| dialect.hear_again(&nonce, Some(&refusal)));
    }

    fn send(&mut self, i: usize, part: DeltaPart, now: Instant, want: &dyn Want) -> Option<ResponseParts> {
        let header = Header { nonce: self.nonce + 1, identifier: &self.settings.identifier };
        let slot = self.slots.get_mut(i)?;
        let dialect = slot.dialect.as_mut()?;
        let mut response = dialect.next(want, part, self.settings.limit, &header)?;
        if slot.rule.stays {
            response.removed.clear();
        }
        if slot.rule.perishable {
            response.ttl = self.ttl;
        }
        self.nonce += 1;
        slot.in_flight_since = Some(now);
        slot.only_heartbeat = false;
        if dialect.subscription().is_drained() {
            slot.sent = self.revision;
        }
        if let Some(renewed) = slot.rule.renews {
            self.renew(i, renewed);
        }
        self.note_perishable(i, &response, now);
        Some(response)
    }

    /// What was sent of type `i` is followed by what there is under the same names of another type.
    fn renew(&mut self, i: usize, renewed: &str) {
        let Some(other) = self.slots.iter().position(|other| other.rule.type_url == renewed) else { return };
        let Some(mut dialect) = self.slots[other].dialect.take() else { return };
        let (sent, renewed) = (self.slots[i].subscription(), dialect.subscription_mut());
        if !sent.is_some_and(|sent| renewed.renew_everything(sent)) {
            let names = sent.map(Subscription::in_flight).unwrap_or_default();
            // Another variant of a cluster gets warm by the same endpoints.
            names.iter().for_each(|name| renewed.renew(&variant::plain_name(name).into()));
        }
        self.slots[other].dialect = Some(dialect);
    }

    /// Whether additions to type `i` must wait for the peer to be ready for them. For the rest of a response that the
    /// byte limit cut short there is no end of patience: a part of it was never sent, and who is told to use that
    /// would be told to use what it does not have.
    fn must_wait(&self, i: usize, now: Instant) -> bool {
        let patience = self.settings.patience;
        let waits_for = self.slots[i].rule.waits_for;
        let others = self.slots.iter().filter(|slot| waits_for.contains(&slot.rule.type_url));
        let mut flights = others.filter_map(|slot| Some((slot.in_flight_since?, slot.subscription()?)));
        flights.any(|(since, state)| now < since + patience || state.is_cut_short())
    }

    /// Whether nothing the peer uses can refer to what type `i` no longer has. A refused listener leaves
    /// the older one in place, so what that one needs stays too; where there was none, nothing has to stay, and a
    /// cluster that a policy takes away goes.
    pub(super) fn may_remove(&self, i: usize) -> bool {
        let type_url = self.slots[i].rule.type_url;
        let users = self.slots.iter().filter(|slot| slot.rule.uses.contains(&type_url));
        !self.settings.make_before_break
            || users.filter_map(|user| Some((user, user.subscription()?))).all(|(user, state)| {
                user.in_flight_since.is_none() && state.is_drained() && !state.keeps_older()
            })
    }
}
