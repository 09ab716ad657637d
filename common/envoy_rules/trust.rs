//! What an Envoy looks at in whom others are believed by, beyond members one by one.

use std::collections::BTreeSet;

use prost::Message;

use super::noted::Noted;
use crate::{
    model::FieldStep,
    proto::envoy::config::core::v3::{DataSource, data_source::Specifier},
};

/// How certificates end their first line in a PEM file, whatever they are called in front of it.
const PEM: &[u8] = b"CERTIFICATE-----";

#[derive(Clone, PartialEq, Message)]
struct DomainsGist {
    #[prost(message, repeated, tag = "1")]
    trust_domains: Vec<DomainGist>,
}

#[derive(Clone, PartialEq, Message)]
struct DomainGist {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    trust_bundle: Option<DataSource>,
    #[prost(string, tag = "3")]
    workload_trust_domain: String,
}

/// Each trust domain has one bundle, with somebody in it.
pub(super) fn domains(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let domains = DomainsGist::decode(message).ok()?.trust_domains;
    let at = at.field("trust_domains");
    let mut seen = BTreeSet::new();
    for (i, domain) in domains.iter().enumerate() {
        let at = at.index(i);
        if !seen.insert((&domain.name, &domain.workload_trust_domain)) {
            noted.note(&at.field("name"), format!("must be unique: {:?} is there twice", domain.name));
        }
        let bundle = domain.trust_bundle.as_ref().and_then(|bundle| bundle.specifier.as_ref());
        let text: &[u8] = match bundle {
            None => &[],
            Some(Specifier::InlineBytes(bytes)) => bytes,
            Some(Specifier::InlineString(text)) => text.as_bytes(),
            // What is elsewhere is read by the Envoy.
            Some(Specifier::Filename(_) | Specifier::EnvironmentVariable(_)) => continue,
        };
        if !text.windows(PEM.len()).any(|part| part == PEM) {
            noted.note(&at.field("trust_bundle"), "must have a certificate in PEM in it");
        }
    }
    Some(())
}
