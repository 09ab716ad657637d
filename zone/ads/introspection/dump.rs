//! What one client is to have, as an Envoy would dump it.

use axum::response::Response;
use chrono::{DateTime, Utc};
use common::{
    document,
    proto::envoy::extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, Secret, TlsCertificate, secret,
    },
    rest::ApiError,
    structure,
    xds::{Standing, Wanted, envoy},
};
use prost::Message;
use serde_json::{Map, Value, json};

use super::{
    answer::{AnswerRoom, RedactedDocument},
    connection::ReportedClient,
    request::DebugRequest,
};
use crate::{
    ads::{config, inquiry::ResourceReport},
    generator::{to_json, type_url},
};

/// A section of a dump.
struct DumpSection {
    /// What it is asked for by.
    name: &'static str,
    /// Its message.
    message: &'static str,
    type_url: &'static str,
    /// The member with the list.
    list: &'static str,
    /// The member of an entry with the resource.
    resource: &'static str,
    /// Whether an entry keeps what is in force apart, and has a name.
    is_staged: bool,
}

/// In the order Envoy dumps them in; endpoints are there when they are asked for.
const SECTIONS: [DumpSection; 6] = [
    DumpSection {
        name: "cds",
        message: "ClustersConfigDump",
        type_url: type_url::CLUSTER,
        list: "dynamicActiveClusters",
        resource: "cluster",
        is_staged: false,
    },
    DumpSection {
        name: "eds",
        message: "EndpointsConfigDump",
        type_url: type_url::ENDPOINT,
        list: "dynamicEndpointConfigs",
        resource: "endpointConfig",
        is_staged: false,
    },
    DumpSection {
        name: "lds",
        message: "ListenersConfigDump",
        type_url: type_url::LISTENER,
        list: "dynamicListeners",
        resource: "listener",
        is_staged: true,
    },
    DumpSection {
        name: "rds",
        message: "RoutesConfigDump",
        type_url: type_url::ROUTE,
        list: "dynamicRouteConfigs",
        resource: "routeConfig",
        is_staged: false,
    },
    DumpSection {
        name: "sds",
        message: "SecretsConfigDump",
        type_url: type_url::SECRET,
        list: "dynamicActiveSecrets",
        resource: "secret",
        is_staged: false,
    },
    DumpSection {
        name: "ecds",
        message: "EcdsConfigDump",
        type_url: envoy::EXTENSION_CONFIG,
        list: "ecdsFilters",
        resource: "ecdsFilter",
        is_staged: false,
    },
];

/// One resource, and how far the client is with it.
struct DumpedResource {
    wanted: Wanted,
    /// Version of the response it came in, or its own.
    version: String,
    sent_at: Option<DateTime<Utc>>,
    /// Why the client refuses it, in its words.
    refusal: Option<String>,
}

pub(super) async fn config_dump(request: DebugRequest) -> Result<Response, ApiError> {
    let known = |name: &String| name == "bootstrap" || SECTIONS.iter().any(|section| section.name == name);
    if request.query.types.iter().any(|name| !known(name)) {
        return Err(ApiError::bad_request("types is a list of bootstrap, cds, eds, lds, rds, sds and ecds"));
    }
    let report = request.report().await?;
    let asked = request.query.clone();
    let make = move |space: &mut AnswerRoom| {
        let is_wanted = |name: &str| asked.types.is_empty() || asked.types.iter().any(|one| one == name);
        let mut configs = Vec::new();
        if is_wanted("bootstrap") {
            configs.push(bootstrap(&report));
        }
        for section in &SECTIONS {
            let is_asked = section.name != "eds" || asked.include_eds || !asked.types.is_empty();
            if is_asked && is_wanted(section.name) {
                configs.push(section.dump(&report, space)?);
            }
        }
        Ok(RedactedDocument::of(json!({ "configs": configs })))
    };
    request.answer(make).await
}

pub(super) async fn cdsz(request: DebugRequest) -> Result<Response, ApiError> {
    of_type(request, type_url::CLUSTER).await
}

pub(super) async fn edsz(request: DebugRequest) -> Result<Response, ApiError> {
    of_type(request, type_url::ENDPOINT).await
}

pub(super) async fn ecdsz(request: DebugRequest) -> Result<Response, ApiError> {
    of_type(request, envoy::EXTENSION_CONFIG).await
}

/// The resources of one type that a client is to have, and nothing around them.
async fn of_type(request: DebugRequest, type_url: &'static str) -> Result<Response, ApiError> {
    let report = request.report().await?;
    let make = move |space: &mut AnswerRoom| {
        let mut configs = Vec::new();
        for resource in resources(&report, type_url) {
            let shown = contents(&resource.wanted);
            space.admit(&shown)?;
            configs.push(shown);
        }
        Ok(RedactedDocument::of(json!({ "configs": configs })))
    };
    request.answer(make).await
}

/// Nobody keeps the bootstrap of a client; what it says about itself comes from there.
fn bootstrap(client: &ReportedClient) -> Value {
    let proxy = &client.proxy;
    let mut node = json!({
        "id": proxy.id.to_string(),
        "cluster": &*proxy.cluster,
        "metadata": Value::Object(structure::to_json((*proxy.metadata).clone())),
    });
    if !proxy.user_agent.is_empty() {
        node["userAgentVersion"] = proxy.user_agent.as_str().into();
    }
    let since = client.streams.iter().map(|(stream, _)| stream.connected).min();
    json!({
        "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump",
        "bootstrap": { "node": node },
        "lastUpdated": since.map(document::time),
    })
}

impl DumpSection {
    fn dump(&self, client: &ReportedClient, space: &mut AnswerRoom) -> Result<Value, ApiError> {
        let mut entries = Vec::new();
        for resource in resources(client, self.type_url) {
            let entry = self.entry(&resource);
            space.admit(&entry)?;
            entries.push(entry);
        }
        let mut dump = Map::new();
        dump.insert(
            "@type".to_owned(),
            format!("type.googleapis.com/envoy.admin.v3.{}", self.message).into(),
        );
        if self.is_staged || self.name == "cds" {
            let newest = client.streams.iter().rev().find_map(|(stream, _)| stream.types.get(self.type_url));
            dump.insert("versionInfo".to_owned(), newest.map_or("", |seen| &seen.version).into());
        }
        dump.insert(self.list.to_owned(), entries.into());
        Ok(dump.into())
    }

    fn entry(&self, resource: &DumpedResource) -> Value {
        let mut state = json!({ "versionInfo": resource.version, self.resource: contents(&resource.wanted) });
        if let Some(at) = resource.sent_at {
            state["lastUpdated"] = document::time(at).into();
        }
        let mut entry = if self.is_staged { json!({ "activeState": state }) } else { state };
        if self.is_staged || self.name == "sds" {
            entry["name"] = (*resource.wanted.name).into();
        }
        if let Some(refusal) = &resource.refusal {
            entry["errorState"] = json!({ "details": refusal, "versionInfo": resource.version });
        }
        entry
    }
}

/// What a client is to have of a type, with what its newest stream says that is about the type.
fn resources(client: &ReportedClient, type_url: &str) -> Vec<DumpedResource> {
    let mut streams = client.streams.iter().rev();
    let told = streams.find_map(|(stream, told)| {
        let told = told.as_ref()?.types.iter().find(|told| told.type_url == type_url)?;
        Some((stream.types.get(type_url), told))
    });
    if let Some((seen, told)) = told {
        let sent_at = seen.and_then(|seen| seen.sent_at);
        let resource = |resource: &ResourceReport| DumpedResource {
            version: told.version.clone().unwrap_or_else(|| resource.wanted.told_version().into_owned()),
            sent_at: sent_at.filter(|_| resource.standing != Standing::NotSent),
            refusal: resource.refusal.as_ref().map(ToString::to_string),
            wanted: resource.wanted.clone(),
        };
        return told.resources.iter().map(resource).collect();
    }
    let mut all = Vec::new();
    if let Some(config) = &client.config {
        for (_, resource) in config.resources().of_type(type_url) {
            let wanted = config::wanted(&resource);
            let version = wanted.told_version().into_owned();
            all.push(DumpedResource { wanted, version, sent_at: None, refusal: None });
        }
    }
    all
}

/// A resource as it stands in a dump. Of a secret that is its name, and what everybody may know.
fn contents(wanted: &Wanted) -> Value {
    let encoded = match wanted.type_url {
        type_url::SECRET => public(&wanted.value).map(|shown| shown.encode_to_vec()),
        _ => Some(wanted.value.to_vec()),
    };
    let shown = encoded.and_then(|value| to_json(wanted.type_url, &value).ok());
    let mut contents = shown.unwrap_or_else(|| json!({ "name": &*wanted.name }));
    contents["@type"] = wanted.type_url.into();
    contents
}

/// A secret without what is secret in it.
fn public(encoded: &[u8]) -> Option<Secret> {
    let Secret { name, r#type } = Secret::decode(encoded).ok()?;
    let shown = match r#type? {
        secret::Type::TlsCertificate(TlsCertificate { certificate_chain, .. }) => {
            Some(secret::Type::TlsCertificate(TlsCertificate {
                certificate_chain,
                ..TlsCertificate::default()
            }))
        }
        secret::Type::ValidationContext(CertificateValidationContext { trusted_ca, .. }) => {
            let shown =
                CertificateValidationContext { trusted_ca, ..CertificateValidationContext::default() };
            Some(secret::Type::ValidationContext(shown))
        }
        secret::Type::SessionTicketKeys(_) | secret::Type::GenericSecret(_) => None,
    };
    Some(Secret { name, r#type: shown })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::proto::envoy::{
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3::GenericSecret,
    };

    use super::*;

    fn text(text: &str) -> Option<DataSource> {
        Some(DataSource {
            specifier: Some(Specifier::InlineString(text.to_owned())),
            ..DataSource::default()
        })
    }

    #[test]
    fn of_a_secret_what_is_public_is_shown() {
        let shown = |r#type| {
            let secret = Secret { name: "s".to_owned(), r#type: Some(r#type) };
            contents(&Wanted::new("s", type_url::SECRET, secret.encode_to_vec()))
        };
        let certificate = TlsCertificate {
            certificate_chain: text("chain"),
            private_key: text("key"),
            password: text("word"),
            ..TlsCertificate::default()
        };
        let certificate = shown(secret::Type::TlsCertificate(certificate));
        let expected = json!({
            "@type": type_url::SECRET,
            "name": "s",
            "tlsCertificate": { "certificateChain": { "inlineString": "chain" } },
        });
        assert_eq!(certificate, expected);
        let generic = GenericSecret { secret: text("hidden"), ..GenericSecret::default() };
        let generic = shown(secret::Type::GenericSecret(generic));
        assert_eq!(generic, json!({ "@type": type_url::SECRET, "name": "s" }));
    }
}
