//! How services outside the mesh are read, with the certificates and keys they refer to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::Engine;
use common::{
    model::{
        Resource,
        kinds::mesh_external_service::{
            self as kind, SubjectName, TlsDataSource, Verification, VerificationMode,
        },
        kri::Kri,
        labels,
    },
    proto::kuma::{
        mesh::v1alpha1 as proto,
        system::v1alpha1::{self as system, data_source},
    },
};
use proto::external_service::networking::Tls;

use super::{ExternalService, Origination, Outpost, UpstreamTrust, Whereabouts};
use crate::mesh::{
    Destination, Protocol,
    problem::{Problem, Subject, decode},
};

/// Gives the text of a secret of the mesh, or says why there is none.
type Secret<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Looks up texts and remembers where they came from.
struct Texts<'a> {
    secret: Secret<'a>,
    used: BTreeSet<String>,
}

impl ExternalService {
    /// Reads `resource`, of either kind. One whose certificates are not here is kept, without endpoints.
    ///
    /// # Errors
    /// The problem, when the spec does not decode or does not say what the service is.
    pub fn read(resource: &Arc<Resource>, secret: Secret<'_>) -> Result<Self, Problem> {
        let mut texts = Texts { secret, used: BTreeSet::new() };
        let read = if resource.kind() == &kind::KIND {
            as_resource(resource, &mut texts)
        } else {
            tagged(resource, &mut texts)
        };
        let problem = |reason| Problem { subject: Subject::of(resource), reason };
        let (mut service, trouble) = read.map_err(problem)?;
        if let Some(reason) = trouble {
            service.endpoints.clear();
            service.problems.push(problem(reason));
        }
        Ok(Self { secrets: texts.used, ..service })
    }

    fn of(resource: &Arc<Resource>, destination: Destination, service: Arc<str>) -> Self {
        Self {
            resource: Arc::clone(resource),
            kri: None,
            destination,
            service,
            port: 0,
            tags: BTreeMap::new(),
            protocol: Protocol::Tcp,
            zone: None,
            endpoints: Vec::new(),
            tls: None,
            problems: Vec::new(),
            secrets: BTreeSet::new(),
        }
    }
}

/// What was read, and why it cannot be used.
type ServiceReading = Result<(ExternalService, Option<String>), String>;

fn tagged(resource: &Arc<Resource>, texts: &mut Texts<'_>) -> ServiceReading {
    let spec = decode::<proto::ExternalService>(resource).map_err(|problem| problem.reason)?;
    let name = spec.tags.get(labels::TAG_SERVICE).ok_or("it has no service tag")?;
    let name: Arc<str> = name.as_str().into();
    let networking = spec.networking.unwrap_or_default();
    let address = networking.address.rsplit_once(':');
    let (host, port) = address
        .and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)))
        .ok_or_else(|| format!("the address {:?} has no port", networking.address))?;
    let at = Whereabouts::Host(host.to_owned(), port);
    let tls = networking.tls.filter(|tls| tls.enabled);
    let tls = tls.map(|tls| older_tls(&tls, &at, texts)).transpose();
    let mut service = ExternalService::of(resource, Destination::Service(Arc::clone(&name)), name);
    service.protocol = Protocol::of_tags(&spec.tags);
    service.zone = super::zone_of(&spec.tags);
    service.tags = spec.tags;
    service.endpoints.push(Outpost { at, priority: 0 });
    Ok(with(service, tls))
}

fn with(
    service: ExternalService,
    tls: Result<Option<Origination>, String>,
) -> (ExternalService, Option<String>) {
    match tls {
        Ok(tls) => (ExternalService { tls, ..service }, None),
        Err(reason) => (service, Some(reason)),
    }
}

/// Without a CA nobody is asked for, as its users know it of the older kind.
fn older_tls(tls: &Tls, at: &Whereabouts, texts: &mut Texts<'_>) -> Result<Origination, String> {
    let named = tls.server_name.as_ref().map(|name| name.value.clone()).filter(|name| !name.is_empty());
    let server_name = named.or_else(|| at.host_name().map(str::to_owned));
    let skips = tls.skip_hostname_verification.is_some_and(|flag| flag.value);
    let wanted = server_name.clone().unwrap_or_else(|| at.text().to_owned());
    let trust = match &tls.ca_cert {
        Some(source) => UpstreamTrust::These(texts.of_source(source, "tls.caCert")?),
        None => UpstreamTrust::Anybody,
    };
    let mut client = |source: &Option<system::DataSource>, name| {
        source.as_ref().map(|s| texts.of_source(s, name)).transpose()
    };
    let client = client(&tls.client_cert, "tls.clientCert")?.zip(client(&tls.client_key, "tls.clientKey")?);
    Ok(Origination {
        server_name,
        names: if skips { Vec::new() } else { vec![SubjectName { value: wanted, ..SubjectName::default() }] },
        trust,
        client,
        renegotiates: tls.allow_renegotiation.is_some_and(|flag| flag.value),
        versions: None,
    })
}

fn as_resource(resource: &Arc<Resource>, texts: &mut Texts<'_>) -> ServiceReading {
    let spec = resource.spec::<kind::MeshExternalService>().map_err(|error| error.to_string())?;
    let kri = Kri::of(resource).ok_or("the kind has no identifier")?;
    let Kri { mesh, zone, namespace, name, short, .. } = &kri;
    let port = spec.r#match.port;
    let cluster: Arc<str> = format!("{mesh}_{name}_{namespace}_{zone}_{short}_{port}").into();
    let destination = Destination::External(Arc::clone(&resource.key.name));
    let mut service = ExternalService::of(resource, destination, cluster);
    service.kri = Some(kri.with_section(&port.to_string()));
    service.tags = resource.labels.to_map();
    service.port = port;
    service.protocol = Protocol::parse(spec.r#match.protocol.name());
    service.zone = resource.label(labels::ZONE).filter(|zone| !zone.is_empty()).map(str::to_owned);
    if spec.extension.is_some() {
        let reason = "nothing here knows extensions, so it is not known where the service is".to_owned();
        return Ok((service, Some(reason)));
    }
    let outposts = spec.endpoints.iter().flatten().map(|endpoint| {
        let at = match endpoint.address.strip_prefix("unix://") {
            Some(path) => Whereabouts::Socket(path.to_owned()),
            None => Whereabouts::Host(endpoint.address.clone(), endpoint.port.unwrap_or(port)),
        };
        Outpost { at, priority: endpoint.priority.unwrap_or(0) }
    });
    service.endpoints = outposts.collect();
    if service.endpoints.is_empty() {
        return Ok((service, Some("it has no endpoints".to_owned())));
    }
    let first = service.endpoints[0].at.clone();
    let tls = spec.tls.filter(|tls| tls.enabled).map(|tls| newer_tls(tls, &first, texts)).transpose();
    Ok(with(service, tls))
}

fn newer_tls(
    tls: kind::ExternalTls,
    first: &Whereabouts,
    texts: &mut Texts<'_>,
) -> Result<Origination, String> {
    let Verification { mode, server_name, subject_alt_names, ca_cert, client_cert, client_key } =
        tls.verification.unwrap_or_default();
    let server_name = server_name.or_else(|| first.host_name().map(str::to_owned));
    let wanted = server_name.clone().unwrap_or_else(|| first.text().to_owned());
    let names = match mode {
        VerificationMode::Secured => {
            let listed = subject_alt_names.filter(|names| !names.is_empty());
            listed.unwrap_or_else(|| vec![SubjectName { value: wanted, ..SubjectName::default() }])
        }
        VerificationMode::SkipSan | VerificationMode::SkipCa | VerificationMode::SkipAll => Vec::new(),
    };
    let trust = match (mode, &ca_cert) {
        (VerificationMode::SkipCa | VerificationMode::SkipAll, _) => UpstreamTrust::Anybody,
        (_, Some(source)) => UpstreamTrust::These(texts.of_newer(source, "tls.verification.caCert")?),
        (_, None) => UpstreamTrust::Machine,
    };
    let mut client =
        |source: &Option<TlsDataSource>, name| source.as_ref().map(|s| texts.of_newer(s, name)).transpose();
    let certificate = client(&client_cert, "tls.verification.clientCert")?;
    let key = client(&client_key, "tls.verification.clientKey")?;
    Ok(Origination {
        server_name,
        names,
        trust,
        client: certificate.zip(key),
        renegotiates: tls.allow_renegotiation,
        versions: tls.version,
    })
}

impl Texts<'_> {
    fn secret(&mut self, name: &str, member: &str) -> Result<String, String> {
        self.used.insert(name.to_owned());
        (self.secret)(name).map_err(|reason| format!("{member}: {reason}"))
    }

    /// What somebody wrote, unless that is nothing: with an empty certificate Envoy refuses the whole cluster.
    fn said(text: String, member: &str) -> Result<String, String> {
        if text.trim().is_empty() { Err(format!("{member} is empty")) } else { Ok(text) }
    }

    fn of_source(&mut self, source: &system::DataSource, member: &str) -> Result<String, String> {
        let text = match &source.r#type {
            Some(data_source::Type::Secret(name)) => self.secret(name, member),
            Some(data_source::Type::InlineString(text)) => Ok(text.clone()),
            Some(data_source::Type::Inline(bytes)) => {
                String::from_utf8(bytes.value.to_vec()).map_err(|_| format!("{member}.inline is not text"))
            }
            Some(data_source::Type::File(_)) => {
                Err(format!("{member}: files are not read; use secret, inline or inlineString"))
            }
            None => Err(format!("{member} needs one of secret, inline, inlineString")),
        };
        Self::said(text?, member)
    }

    fn of_newer(&mut self, source: &TlsDataSource, member: &str) -> Result<String, String> {
        if let Some(name) = source.secret_ref.as_ref().map(|it| &it.name).or(source.secret.as_ref()) {
            return Self::said(self.secret(name, member)?, member);
        }
        let given = source.insecure_inline.as_ref().map(|inline| &inline.value);
        if let Some(text) = given.or(source.inline_string.as_ref()) {
            return Self::said(text.clone(), member);
        }
        let inline = source.inline.as_ref();
        let inline = inline.ok_or_else(|| format!("{member} needs one of secret, inline, inlineString"))?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(inline);
        let bytes = bytes.map_err(|error| format!("{member}.inline is not base64: {error}"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{member}.inline is not text"))?;
        Self::said(text, member)
    }
}
