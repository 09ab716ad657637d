//! The global control plane.
