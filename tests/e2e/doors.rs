//! What an attacker, a full disk or one bad item must not do, one file a door.

mod keys;
mod names;
mod oversize;
mod zone_identity;
