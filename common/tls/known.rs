//! Trust in a file of certificates: in whoever one of them signed for, and in who shows one of them.
//!
//! A control plane of Kuma that was given no certificate makes one that signs itself and may not sign others; zones are
//! given that very certificate as their file of roots. What is shown then is compared with it byte by byte.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{TlsError, certificates, content, provider, roots};

/// Believes in chains to one of the certificates, and in these themselves.
#[derive(Debug)]
pub(super) struct KnownOrSigned {
    known: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl KnownOrSigned {
    /// Trust in the certificates of `pem`.
    pub(super) fn new(pem: &str) -> Result<Self, TlsError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(pem)?), provider()).build();
        let signed = verifier.map_err(|error| content("CA file", "certificate", &error))?;
        Ok(Self { known: certificates(pem, "CA file")?, signed })
    }
}

impl ServerCertVerifier for KnownOrSigned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.known.iter().any(|known| known == end_entity) {
            return self.signed.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        }
        is_current(end_entity, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Whether a certificate is valid at this time.
fn is_current(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

    use super::*;

    /// A certificate as Kuma's control planes make it for themselves: it signs itself and says of itself that it may
    /// sign; without that, one that may not.
    fn own(may_sign: bool) -> (String, CertificateDer<'static>) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if may_sign {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        }
        let (from, until) = (time(1_700_000_000), time(1_800_000_000));
        (params.not_before, params.not_after) = (from, until);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (certificate.pem(), certificate.der().clone())
    }

    fn time(seconds: i64) -> time::OffsetDateTime {
        time::OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    fn verdict(trust: &str, shown: &CertificateDer<'_>, name: &str, now: u64) -> Result<(), String> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verdict = KnownOrSigned::new(trust).unwrap().verify_server_cert(shown, &[], &name, &[], now);
        verdict.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn who_shows_a_certificate_of_the_file_is_believed_for_its_names_and_its_time() {
        const NOW: u64 = 1_750_000_000;
        for may_sign in [true, false] {
            let (pem, der) = own(may_sign);
            let (other_pem, other) = own(may_sign);
            assert_eq!(verdict(&pem, &der, "localhost", NOW), Ok(()), "{may_sign}");
            assert_eq!(
                verdict(&format!("{other_pem}{pem}"), &der, "localhost", NOW),
                Ok(()),
                "one of several"
            );
            for (shown, name, now) in [
                (&other, "localhost", NOW),
                (&der, "global.example", NOW),
                (&der, "localhost", 1_699_999_999),
                (&der, "localhost", 1_800_000_001),
            ] {
                assert!(verdict(&pem, shown, name, now).is_err(), "{may_sign} {name} {now}");
            }
        }
    }
}
