//! What an attacker, a full disk or one bad item must not do, one file a door.

mod issuing;
mod keys;
