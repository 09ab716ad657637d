//! What an attacker, a full disk or one bad item must not do, one file a door.

mod access;
pub mod ads_peer;
mod ads_slots;
mod answers;
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
mod proxied;
mod registration;
mod secrets;
mod shapes;
pub mod slow;
mod stage;
mod stolen_zone;
mod terminal;
mod tokens;
mod written;
mod zone_identity;
