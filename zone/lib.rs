//! The zone control plane.
