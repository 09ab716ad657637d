//! Services as resources: made of the tags of the proxies of this zone, given virtual addresses and host names,
//! and told who serves them.
//!
//! ```text
//!   index ──► reconciler (facts, then what differs) ──► store
//!               ├─ generation   which services the tags of proxies ask for
//!               ├─ shares       how many of them are made on whose account
//!               ├─ status       who serves a service, and how they identify themselves
//!               ├─ vips         virtual addresses
//!               ├─ identities   authorities of those that identify proxies, and how they are
//!               ├─ workloads    which programs proxies stand beside
//!               └─ hostnames    what generators make, and who has a name first
//! ```
//!
//! Only the leader of a zone does this. It decides without a clock, a store or a channel; [`Services`] is the
//! task around that.

mod foreign;
mod generation;
mod hostnames;
mod identities;
mod population;
mod reconciler;
mod shares;
mod status;
mod task;
mod vips;
mod workloads;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub(crate) use task::Services;
pub(crate) use vips::{Cidr, Ranges};

/// What an operator may choose about it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSettings {
    /// Name of the zone.
    pub(crate) zone: Arc<str>,
    /// How long a service stays after its last proxy has gone.
    pub(crate) grace: Duration,
    /// Where the virtual addresses of each kind of service come from.
    pub(crate) ranges: Ranges,
}
