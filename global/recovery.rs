//! Rebuilds what global owns from what its zones hold, after global lost it or went back in time.
//!
//! [`evidence`] reads what zones say into resources under the names they have on global; [`plan`] decides, without
//! touching anything, what is restored, what is in conflict and how the history goes on; [`task`] asks the zones and
//! commits.

mod evidence;
mod plan;
mod report;
mod task;
#[cfg(test)]
mod tests;

pub use self::{
    plan::RecoveryOptions,
    report::{
        AbsentResource, AskedZone, Conflict, ConflictSide, CountedItems, HistoryStanding, NamedResource,
        RecoveryReport, RestoredResource, ShownHistory, Winner,
    },
    task::{Recovery, RecoveryError},
};
