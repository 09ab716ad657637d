//! The fence: every generated type enters here and nowhere else.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

/// Messages and services of the `kuma.*` packages, generated from `proto/`.
pub mod kuma {
    /// Mesh resources and the KDS services.
    pub mod mesh {
        /// Package `kuma.mesh.v1alpha1`.
        pub mod v1alpha1 {
            tonic::include_proto!("kuma.mesh.v1alpha1");
        }
    }
    /// Resources of the control plane itself.
    pub mod system {
        /// Package `kuma.system.v1alpha1`.
        pub mod v1alpha1 {
            tonic::include_proto!("kuma.system.v1alpha1");
        }
    }
}

/// Messages and services of the `strait.*` packages, generated from `proto/`.
pub mod strait {
    /// What our control planes say to each other beside the sync.
    pub mod federation {
        /// Package `strait.federation.v1`.
        pub mod v1 {
            tonic::include_proto!("strait.federation.v1");
        }
    }

    /// Between global and a relay.
    pub mod relay {
        /// Package `strait.relay.v1alpha1`.
        pub mod v1alpha1 {
            tonic::include_proto!("strait.relay.v1alpha1");
        }
    }
}

pub use envoy_types::pb::{envoy, google, opentelemetry, xds};

/// Serialized `FileDescriptorSet` of the resource messages, for the JSON form and unknown fields.
pub static RESOURCE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/resources.bin"));

/// Serialized `FileDescriptorSet` of the Envoy messages this workspace sends, for their JSON form and for
/// encoding their maps in a stable order.
pub static ENVOY_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));

/// Serialized `FileDescriptorSet` of everything Envoy knows, for what users write in its own terms.
pub static NATIVE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/native.bin"));

/// The rules that stand beside the members of everything Envoy knows, as the build script writes them.
pub(crate) static ENVOY_RULES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rules.bin"));

/// A call of a service between control planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredCall {
    /// Service and method, as they stand in a request.
    pub path: &'static str,
    /// Whether the caller may say more than one thing.
    pub is_stream: bool,
}

/// Every call that is declared in `proto/`, as the build script writes them.
pub static DECLARED_CALLS: &[DeclaredCall] = &include!(concat!(env!("OUT_DIR"), "/calls.rs"));
