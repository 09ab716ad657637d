//! Changes that go out in waves: what is kept from whom while they do, and what may not be written meanwhile.
//!
//! ```text
//!  begin ──► one batch: the change, the run (RolloutInsight), what was there before (RolloutKept)
//!                                   │
//!  Index ──► Holds ──► for each zone: Index as if the runs that keep it waiting had changed nothing
//! ```
//!
//! All of it follows from the index. So every replica keeps back the same, from its first look on, and a change and
//! what keeps it back are seen together. Runs are read when they are written ([`Runs`]), not when somebody asks.

mod carried;
mod guard;
mod holds;
mod plan;
mod read_once;
mod run;
mod runs;

pub use self::{
    carried::why_not_carried,
    guard::{Objection, RolloutGuard},
    holds::{Hold, HoldSet, Holds, SharedHolds},
    plan::{PlanError, planned_waves},
    run::{Former, KeptError, active_run, kept_write, restored, run_of, with_run},
    runs::{ActiveRun, Runs, SharedRuns},
};
