//! The zone control plane.

pub mod account;
pub mod ads;
mod api;
pub mod app;
mod compile;
pub mod config;
mod deadlines;
mod folder;
pub mod generator;
mod json_patch;
pub mod kds;
mod leader;
pub mod mesh;
mod monitoring;
mod nodes;
mod page;
mod policy;
mod renamed;
mod services;
mod share;
pub mod traces;

#[cfg(test)]
mod tests {
    #[test]
    fn rooms_lean_on_each_other_in_no_circle() {
        common::testing::rooms::assert_no_circles(env!("CARGO_MANIFEST_DIR"));
    }
}
