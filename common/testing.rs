//! Fixtures that tests of the whole workspace share. Always built, so that `common` compiles once.

pub mod api;
pub mod goldens;
pub mod markdown;
pub mod mutation;
pub mod needs;
pub mod postgres;
pub mod reference;
pub mod rooms;
pub mod shell;
pub mod swallower;
#[cfg(test)]
mod type_names;
