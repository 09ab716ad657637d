//! Configuration for gRPC libraries, which are members of a mesh without an Envoy beside them. They read a part of
//! what an Envoy reads, and refuse a resource that says something else, so each message is put together anew from the
//! members they know.

mod client;
mod permission;
mod server;

use common::proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
    common_tls_context::ValidationContextType,
};

pub(crate) use client::{cluster, listener, routes};
pub(crate) use server::{listeners, secrets};

/// By which name the bootstrap of a library knows where its certificates are.
pub const CERTIFICATE_PROVIDER: &str = "default";
/// How a library asks for what it is to do on an address, by which it replaces the last two characters.
pub const SERVER_TEMPLATE: &str = "grpc/server?xds.resource.listening_address=%s";
/// The secret with what a library shows, for who keeps its files up to date.
pub const IDENTITY_SECRET: &str = "grpc:identity";
/// The secret with whom it believes.
pub const TRUST_SECRET: &str = "grpc:trust";

/// Uses the files that the bootstrap names, with more conditions on the certificate of the peer.
fn tls(validation: CertificateValidationContext) -> CommonTlsContext {
    let files = || {
        let instance_name = CERTIFICATE_PROVIDER.to_owned();
        Some(CertificateProviderPluginInstance { instance_name, ..Default::default() })
    };
    let validation = CertificateValidationContext { ca_certificate_provider_instance: files(), ..validation };
    CommonTlsContext {
        tls_certificate_provider_instance: files(),
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}
