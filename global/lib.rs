//! The global control plane, and the relay between it and many zones.

mod api;
pub mod app;
pub mod config;
mod issuing;
pub mod kds;
pub mod recovery;
pub mod relay;
mod rollouts;

#[cfg(test)]
mod tests {
    #[test]
    fn rooms_lean_on_each_other_in_no_circle() {
        common::testing::rooms::assert_no_circles(env!("CARGO_MANIFEST_DIR"));
    }
}
