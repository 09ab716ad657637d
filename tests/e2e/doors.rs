//! What an attacker, a full disk or one bad item must not do, one file a door.

mod flood;
mod keys;
mod logs;
mod names;
mod oversize;
mod slow;
mod stage;
mod zone_identity;
