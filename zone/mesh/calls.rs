//! What the proxies of a mesh call, kept once for all that call the same: thousands of proxies list the same
//! thousands of services.

use std::sync::Arc;

use common::interner::Interner;

use super::{Destination, Outbound, dataplane::Target};

/// The outbounds of a mesh.
#[derive(Debug, Default)]
pub(super) struct OutboundInterner {
    lists: Interner<[Outbound]>,
    services: Interner<str>,
}

impl OutboundInterner {
    /// Puts in place of `outbounds` the equal list that others have, or lets others have this one.
    pub(super) fn share(&mut self, outbounds: &mut Arc<[Outbound]>) {
        if let Some(known) = self.lists.get(outbounds) {
            *outbounds = known;
            return;
        }
        // Lists that differ still name the same services.
        for outbound in Arc::get_mut(outbounds).into_iter().flatten() {
            if let Target::Tagged(Destination::Service(service)) = &mut outbound.target {
                *service = self.services.shared(Arc::clone(service));
            }
        }
        self.lists.insert(outbounds);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use super::{Destination, Outbound, OutboundInterner, Target};

    fn calling(services: &[&str]) -> Arc<[Outbound]> {
        let outbound = |(port, service): (u32, &&str)| Outbound {
            address: Ipv4Addr::LOCALHOST.into(),
            port,
            target: Target::Tagged(Destination::Service((*service).into())),
        };
        (1..).zip(services).map(outbound).collect()
    }

    #[test]
    fn who_calls_the_same_shares_the_list_and_who_does_not_shares_the_names() {
        let mut calls = OutboundInterner::default();
        let [mut one, mut two, mut other] =
            [calling(&["a", "b"]), calling(&["a", "b"]), calling(&["a", "c"])];
        for outbounds in [&mut one, &mut two, &mut other] {
            calls.share(outbounds);
        }
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!((&one, &other), (&calling(&["a", "b"]), &calling(&["a", "c"])));
        let [Target::Tagged(Destination::Service(a)), Target::Tagged(Destination::Service(b))] =
            [&one[0].target, &other[0].target]
        else {
            panic!("they call services by their tag");
        };
        assert!(Arc::ptr_eq(a, b));
    }
}
