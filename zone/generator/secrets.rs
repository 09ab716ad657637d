//! The secrets the generated TLS contexts refer to.

use super::{Draft, Sidecar, envoy::tls, names};
use crate::mesh::MeshContext;

/// Adds the certificate of the proxy and the CA of its mesh, when the mesh has mutual TLS.
pub(super) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    let Some(certificate) = &proxy.certificate else { return };
    let name = names::identity_secret(&mesh.mesh);
    let secret = tls::certificate_secret(&name, &certificate.certificate, &certificate.key);
    draft.secrets.insert(name, secret);

    if let Some(authority) = mesh.mtls.as_ref().and_then(|m| m.authority.as_ref()) {
        let name = names::ca_secret(&mesh.mesh);
        let secret = tls::ca_secret(&name, &authority.certificate);
        draft.secrets.insert(name, secret);
    }
}
