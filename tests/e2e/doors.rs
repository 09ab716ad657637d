//! What an attacker, a full disk or one bad item must not do, one file a door.

mod access;
mod ads_peer;
mod ads_slots;
mod bodies;
mod bootstrap_token;
mod conditions;
mod documents;
pub mod flood;
mod issuing;
mod keys;
mod logs;
mod metrics_labels;
mod names;
mod oversize;
mod registration;
mod secrets;
mod shapes;
mod slow;
mod stage;
mod zone_identity;
