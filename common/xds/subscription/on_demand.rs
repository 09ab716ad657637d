//! Virtual hosts on demand: what a peer asks for grows with what strangers call it, and what is remembered does not.

use std::collections::HashMap;

use super::{Name, Subscription};
use crate::xds::virtual_host;

/// Hosts a peer may have asked for before some are forgotten.
pub(super) const HOSTS: usize = 10_000;

impl Subscription {
    /// Once there are many, forgets hosts for which there is nothing, and those whose virtual host the peer follows by
    /// another host as well. It asks again when somebody calls one of them, and is answered again.
    pub(super) fn forget_hosts(&mut self) {
        let has_many =
            virtual_host::is_asked_by_host(self.type_url) && self.interest.names.len() > self.most_hosts;
        // What was not answered yet is no longer known by name.
        if !has_many || self.is_new || self.rescan {
            return;
        }
        for name in self.spare_hosts() {
            self.interest.names.remove(&name);
            self.note_dropped(&name);
            self.forget(&name);
        }
        // Where many are needed, looking for others takes a while.
        self.most_hosts = HOSTS.max(self.interest.names.len() * 2);
    }

    fn spare_hosts(&self) -> Vec<Name> {
        let Some(wide) = &self.interest.wide else { return Vec::new() };
        let waits = |host: &Name| {
            let in_flight = self.flight.as_ref().is_some_and(|flight| flight.is_about(host));
            in_flight || [&self.asked, &self.dirty, &self.gone].iter().any(|names| names.contains(host))
        };
        let (mut spare, mut taken) = (Vec::new(), HashMap::<&Name, usize>::new());
        for (host, members) in wide.groups().filter(|(host, _)| virtual_host::is_host(host) && !waits(host)) {
            let is_followed =
                |member: &Name| wide.groups_of(member) > taken.get(member).copied().unwrap_or_default() + 1;
            if members.iter().all(is_followed) {
                members.iter().for_each(|member| *taken.entry(member).or_default() += 1);
                spare.push(Name::clone(host));
            }
        }
        spare
    }
}
