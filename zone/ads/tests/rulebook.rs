//! The scenarios that harnesses for xDS play (`h`), those they lack (`s`), and the rules that show only where bytes
//! flow (`r`): over real gRPC, in both variants, on the aggregated stream and on the services of single types.
//! `common::xds` has the table of all.

mod bad_input;
mod bounds;
mod bugs;
mod doors;
mod names;
mod order;
mod plane;
mod reconnecting;
mod refusals;
mod subscribing;
mod updates;
