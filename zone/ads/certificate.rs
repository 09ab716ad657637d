//! What the certificate of the server means for those who connect to it.

use std::{net::IpAddr, sync::Arc};

use common::tls::{KeyPairPem, TlsError};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// The certificate of the server, ready to serve.
#[derive(Debug)]
pub struct ServerCertificate {
    tls: Arc<rustls::ServerConfig>,
    authority_pem: Option<String>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl ServerCertificate {
    /// Of this chain and key.
    ///
    /// # Errors
    /// [`TlsError`] when they are broken or do not fit.
    pub fn of(pair: &KeyPairPem) -> Result<Self, TlsError> {
        let tls = pair.server_config(&["h2", "http/1.1"])?;
        let (mut names, mut addresses, mut authority_pem) = (Vec::new(), Vec::new(), None);
        for (at, der) in pair.chain()?.iter().enumerate() {
            let (_, certificate) = parse_x509_certificate(der).map_err(|e| TlsError::Content {
                path: "server certificate".to_owned(),
                what: "certificate",
                reason: e.to_string(),
            })?;
            if at == 0 {
                (names, addresses) = subjects(&certificate);
            }
            if certificate.is_ca() && certificate.subject() == certificate.issuer() {
                authority_pem = Some(as_pem(der));
            }
        }
        Ok(Self { tls: Arc::new(tls), authority_pem, names, addresses })
    }

    /// How to accept connections with it.
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls)
    }

    /// The root at the end of the chain. Without one, proxies have to trust it by other means.
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority_pem.as_deref()
    }

    /// Whether a client that dials `host` accepts the certificate.
    pub fn covers(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let is = |name: &String, wanted: &str| name.eq_ignore_ascii_case(wanted);
        self.names.iter().any(|n| is(n, host) || wildcard.as_ref().is_some_and(|w| is(n, w)))
    }
}

/// Whether `pem` holds the certificate of an authority.
///
/// # Errors
/// What is wrong with it.
pub fn check_authority(pem: &str) -> Result<(), String> {
    let bundle = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let bundle = bundle.map_err(|e| e.to_string())?;
    if bundle.is_empty() {
        return Err("there is no CERTIFICATE block".to_owned());
    }
    for der in &bundle {
        if parse_x509_certificate(der).map_err(|e| e.to_string())?.1.is_ca() {
            return Ok(());
        }
    }
    Err("it may not sign certificates".to_owned())
}

fn subjects(leaf: &x509_parser::certificate::X509Certificate<'_>) -> (Vec<String>, Vec<IpAddr>) {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let extension = leaf.subject_alternative_name().ok().flatten();
    for name in extension.iter().flat_map(|e| &e.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                addresses.extend(v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)));
            }
            _ => {}
        }
    }
    (names, addresses)
}

fn as_pem(der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_generated_pair_covers_its_hosts_and_names_its_authority() {
        let hosts = ["zone-1.example", "*.mesh.example", "10.0.0.7", "::1"].map(str::to_owned);
        let certificate = ServerCertificate::of(&KeyPairPem::self_signed(&hosts).unwrap()).unwrap();
        check_authority(certificate.authority_pem().unwrap()).unwrap();
        for host in ["zone-1.example", "ZONE-1.example", "a.mesh.example", "10.0.0.7", "::1"] {
            assert!(certificate.covers(host), "{host}");
        }
        for host in ["localhost", "mesh.example", "a.b.mesh.example", "10.0.0.8", ""] {
            assert!(!certificate.covers(host), "{host}");
        }
    }

    #[test]
    fn what_cannot_sign_is_no_authority() {
        let pair = KeyPairPem::self_signed(&["a".to_owned()]).unwrap();
        check_authority(&pair.certificate).unwrap();
        let leaf = pair.certificate.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
        assert!(check_authority(leaf).unwrap_err().contains("may not sign"));
        assert!(check_authority("nonsense").is_err());
    }
}
