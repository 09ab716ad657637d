//! Clients of HTTP.

use std::sync::LazyLock;

use reqwest::{Client, ClientBuilder};
use rustls::{ClientConfig, RootCertStore};

/// Made once: to read the authorities of the machine for each of thousands of requests is most of what they cost in a
/// build that is not optimised. Nobody is asked over TLS by these.
static NO_TLS: LazyLock<ClientConfig> = LazyLock::new(|| {
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
});

/// A client for plain HTTP, still to be built.
pub fn builder() -> ClientBuilder {
    let _set_before = rustls::crypto::ring::default_provider().install_default();
    Client::builder().tls_backend_preconfigured(NO_TLS.clone())
}

/// A client for plain HTTP.
pub fn client() -> Client {
    builder().build().expect("a client")
}
