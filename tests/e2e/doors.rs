//! What an attacker, a full disk or one bad item must not do, one file a door.

mod ads_peer;
mod bodies;
mod bootstrap_token;
mod documents;
mod flood;
mod keys;
mod logs;
mod names;
mod oversize;
mod registration;
mod shapes;
mod slow;
mod stage;
mod zone_identity;
