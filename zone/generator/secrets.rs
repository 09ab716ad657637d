//! The secrets the generated TLS contexts refer to.

use std::{collections::BTreeMap, sync::Arc};

use super::{Draft, Sidecar, envoy::tls, names};
use crate::mesh::{Gateway, MeshContext, TrustBundle, WorkloadCertificate};

/// Adds what the proxy shows, and whom it believes, where there is mesh TLS: members of other meshes as well, as far as
/// it calls them or is called by them.
pub(crate) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    let Some(shown) = &proxy.shown else { return };
    // Of the mesh itself an agent has both.
    if let Some(certificate) = shown.certificate() {
        add_certificate(&mesh.mesh, certificate, draft);
        if let Some(mtls) = mesh.mtls.as_ref().filter(|mtls| mtls.authority.is_some()) {
            add_authority(&mesh.mesh, &mtls.roots, draft);
        }
        if certificate.given_by().is_some() || mesh.has_trust_domains() {
            add_trust(names::TRUST_BUNDLE.to_owned(), &mesh.trust_domains, draft);
        }
    }
    for (name, other) in mesh.others().filter(|(_, other)| !other.doors.is_empty()) {
        if other.has_domains() {
            add_trust(names::ca_secret(name), &other.domains, draft);
        } else if let Some(roots) = other.roots() {
            add_authority(name, roots, draft);
        }
    }
    let lets_in = |gateway: &Arc<Gateway>| gateway.ports.values().any(|port| port.cross_mesh);
    if proxy.dataplane.gateway.as_ref().is_some_and(lets_in) {
        add_all(mesh, draft);
    }
}

/// Adds whom a gateway believes that lets in the members of every mesh.
fn add_all(mesh: &MeshContext, draft: &mut Draft) {
    let name = names::ALL_CAS.to_owned();
    if let Some(domains) = mesh.believed_of_all() {
        return add_trust(name, &domains, draft);
    }
    let own = mesh.mtls.as_ref().filter(|mtls| mtls.authority.is_some());
    let own = own.map(|mtls| &*mtls.roots);
    let all: String = own.into_iter().chain(mesh.others().filter_map(|(_, other)| other.roots())).collect();
    let secret = tls::ca_secret(&name, &all);
    draft.secrets.insert(name, secret);
}

/// Adds what a proxy shows in `mesh`, and whom it believes there.
pub(crate) fn of_mesh(mesh: &str, certificate: &WorkloadCertificate, roots: &str, draft: &mut Draft) {
    add_certificate(mesh, certificate, draft);
    add_authority(mesh, roots, draft);
}

/// Adds whom an egress believes about the members of the trust domains of `mesh`.
pub(crate) fn of_domains(mesh: &str, domains: &BTreeMap<String, TrustBundle>, draft: &mut Draft) {
    add_trust(names::egress_trust_bundle(mesh), domains, draft);
}

fn add_trust(name: String, domains: &BTreeMap<String, TrustBundle>, draft: &mut Draft) {
    let domains = domains.iter().map(|(domain, bundle)| (domain.as_str(), bundle.pem.as_str()));
    let secret = tls::trust_secret(&name, domains);
    draft.secrets.insert(name, secret);
}

fn add_certificate(mesh: &str, certificate: &WorkloadCertificate, draft: &mut Draft) {
    let name = match certificate.given_by() {
        Some(given) => given.to_string(),
        None => names::identity_secret(mesh),
    };
    let secret = tls::certificate_secret(&name, &certificate.certificate, &certificate.key);
    draft.secrets.insert(name, secret);
}

fn add_authority(mesh: &str, roots: &str, draft: &mut Draft) {
    let name = names::ca_secret(mesh);
    let secret = tls::ca_secret(&name, roots);
    draft.secrets.insert(name, secret);
}
