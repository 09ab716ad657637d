//! The global control plane.

mod api;
pub mod app;
pub mod config;
mod issuing;
pub mod kds;
pub mod recovery;

#[cfg(test)]
mod tests {
    #[test]
    fn rooms_lean_on_each_other_in_no_circle() {
        common::testing::rooms::assert_no_circles(env!("CARGO_MANIFEST_DIR"));
    }
}
