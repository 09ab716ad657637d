//! Secrets: what is public of them.

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, Utc};
use common::{
    document,
    runtime::{Clock, SystemClock},
};
use serde_json::Value;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{ConfigTable, documents, or_dash};
use crate::proxy::{DumpedItem, ProxyDump, text};

/// What is read of a certificate.
#[derive(Debug, PartialEq, Eq)]
struct CertificateFacts {
    serial: String,
    not_before: DateTime<Utc>,
    not_after: DateTime<Utc>,
}

/// All secrets.
pub(super) fn shown(dump: &ProxyDump) -> ConfigTable {
    let now = SystemClock.now();
    let rows = dump.secrets.iter().flat_map(|item| rows(item, now)).collect();
    let document = documents(dump.secrets.iter().map(|item| &item.value));
    let headings =
        vec!["RESOURCE NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE"];
    ConfigTable { headings, rows, document }
}

/// A row for the certificate that is shown to others, or for each authority that is believed.
fn rows(item: &DumpedItem, now: DateTime<Utc>) -> Vec<Vec<String>> {
    let (shown, believed) = (&item.value["tlsCertificate"], &item.value["validationContext"]);
    let (kind, source, most) = match (shown.is_object(), believed.is_object()) {
        (true, _) => ("Cert Chain", &shown["certificateChain"], 1),
        (false, true) => ("CA", &believed["trustedCa"], usize::MAX),
        (false, false) => ("-", &Value::Null, 0),
    };
    let status = if item.is_warming { "WARMING" } else { "ACTIVE" };
    let row = |facts: Option<CertificateFacts>| {
        let time =
            |time: fn(&CertificateFacts) -> DateTime<Utc>| facts.as_ref().map(|f| document::time(time(f)));
        let is_good = facts.as_ref().map(|f| (f.not_before <= now && now < f.not_after).to_string());
        vec![
            item.name.clone(),
            kind.to_owned(),
            status.to_owned(),
            or_dash(&is_good.unwrap_or_default()),
            or_dash(facts.as_ref().map_or("", |f| &f.serial)),
            or_dash(&time(|f| f.not_after).unwrap_or_default()),
            or_dash(&time(|f| f.not_before).unwrap_or_default()),
        ]
    };
    let mut rows: Vec<Vec<String>> =
        certificates(source).into_iter().take(most).map(|facts| row(Some(facts))).collect();
    if rows.is_empty() {
        rows.push(row(None));
    }
    rows
}

/// The certificates in a data source of Envoy, as PEM.
fn certificates(source: &Value) -> Vec<CertificateFacts> {
    let inline = text(&source["inlineString"]).as_bytes().to_vec();
    let bytes = match text(&source["inlineBytes"]) {
        "" => inline,
        encoded => BASE64_STANDARD.decode(encoded).unwrap_or_default(),
    };
    let blocks = x509_parser::pem::Pem::iter_from_buffer(&bytes).filter_map(Result::ok);
    let time = |time: x509_parser::time::ASN1Time| DateTime::from_timestamp(time.timestamp(), 0);
    let facts = |pem: x509_parser::pem::Pem| {
        let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
        let validity = certificate.validity();
        let (not_before, not_after) = (time(validity.not_before)?, time(validity.not_after)?);
        let serial = certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(CertificateFacts { serial, not_before, not_after })
    };
    blocks.filter_map(facts).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::tls::KeyPairPem;
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_read_and_what_was_taken_out_is_a_dash() {
        let pem = KeyPairPem::self_signed(&["localhost".to_owned()]).unwrap().certificate;
        let chain = json!({ "inline_bytes": BASE64_STANDARD.encode(&pem) });
        // What is self-signed here comes with its authority.
        let both = json!({ "inline_string": pem });
        let secret = |name: &str, value: Value| json!({ "name": name, "secret": value });
        let dump = json!({ "configs": [{
            "@type": "x/envoy.admin.v3.SecretsConfigDump",
            "dynamic_active_secrets": [
                secret("identity", json!({ "tls_certificate": { "certificate_chain": chain } })),
                secret("ca", json!({ "validation_context": { "trusted_ca": both } })),
                secret("other", json!({ "name": "other" })),
            ],
        }] });
        let rows = shown(&ProxyDump::of_envoy(&dump).unwrap()).rows;
        let seen: Vec<[&str; 4]> = rows.iter().map(|row| [&*row[0], &*row[1], &*row[2], &*row[3]]).collect();
        assert_eq!(
            seen,
            [
                ["identity", "Cert Chain", "ACTIVE", "true"],
                ["ca", "CA", "ACTIVE", "true"],
                ["ca", "CA", "ACTIVE", "true"],
                ["other", "-", "ACTIVE", "-"],
            ]
        );
        assert!(rows[0][4].len() > 2 && rows[0][5].ends_with('Z'), "{rows:?}");
    }
}
