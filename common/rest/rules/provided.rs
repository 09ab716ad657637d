//! An authority its owner brings: whether it is there, and can sign.

use base64::{Engine, engine::general_purpose::STANDARD};
use x509_parser::prelude::X509Certificate;

use crate::{
    ca,
    model::{
        FieldPath, Resource, Violations,
        kinds::{mesh, secret},
    },
    proto::{
        google::protobuf::{
            Struct,
            value::Kind::{StringValue, StructValue},
        },
        kuma::{mesh::v1alpha1::Mesh, system::v1alpha1::Secret},
    },
    store::index::Index,
};

/// What is wrong with the authorities that `mesh` names and does not make itself.
pub(super) fn check(mesh: &Resource, index: &Index) -> Violations {
    let mut violations = Violations::none();
    let mtls = mesh.spec::<Mesh>().unwrap_or_default().mtls.unwrap_or_default();
    if mtls.skip_validation {
        return violations;
    }
    let path = FieldPath::new("mtls").field("backends");
    for (i, backend) in mtls.backends.iter().enumerate() {
        let Some(conf) = backend.conf.as_ref().filter(|_| backend.r#type == mesh::CA_PROVIDED) else {
            continue;
        };
        let read = |member: &str| read(conf, member, mesh.name(), index);
        let path = path.index(i).field("conf");
        match (read("cert"), read("key")) {
            (ProvidedContent::Elsewhere, _) | (_, ProvidedContent::Elsewhere) => {}
            (ProvidedContent::Text(cert), ProvidedContent::Text(key)) => {
                violations.extend(check_pair(&cert, &key, &path.field("cert")));
            }
            (ProvidedContent::Missing(reason), _) | (_, ProvidedContent::Missing(reason)) => {
                violations.add(path.field("cert"), reason.clone());
                violations.add(path.field("key"), reason);
            }
        }
    }
    violations
}

/// What was found where a mesh says that something is.
enum ProvidedContent {
    /// This.
    Text(String),
    /// Nothing, for this reason.
    Missing(String),
    /// It is on the machine of whoever signs.
    Elsewhere,
}

fn read(conf: &Struct, member: &str, mesh: &str, index: &Index) -> ProvidedContent {
    let Some(StructValue(source)) = conf.fields.get(member).and_then(|value| value.kind.as_ref()) else {
        return ProvidedContent::Elsewhere;
    };
    let said = |name: &str| match source.fields.get(name).and_then(|value| value.kind.as_ref()) {
        Some(StringValue(text)) => Some(text.as_str()),
        _ => None,
    };
    if let Some(text) = said("inlineString") {
        return ProvidedContent::Text(text.to_owned());
    }
    if let Some(text) = said("inline") {
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return bytes.map_or_else(
            || ProvidedContent::Missing("could not load data: inline is not text in base64".to_owned()),
            ProvidedContent::Text,
        );
    }
    let Some(name) = said("secret") else { return ProvidedContent::Elsewhere };
    let Some(found) = index.find(&secret::SECRET, mesh, name) else {
        return ProvidedContent::Missing(format!(
            "could not load data: there is no secret {name:?} in mesh {mesh:?}: apply it first"
        ));
    };
    let data = found.spec::<Secret>().ok().and_then(|secret| secret.data);
    let text = data.and_then(|data| String::from_utf8(data.value.to_vec()).ok());
    let broken = || ProvidedContent::Missing(format!("could not load data: the secret {name:?} is not text"));
    text.map_or_else(broken, ProvidedContent::Text)
}

fn check_pair(certificate: &str, key: &str, path: &FieldPath) -> Violations {
    const INVALID: &str = "not a valid TLS key pair";
    let broken = |reason: String| Violations::one(path.clone(), format!("{INVALID}: {reason}"));
    let key = match ca::signing_key(key) {
        Ok(key) => key,
        Err(error) => return broken(error.to_string()),
    };
    let blocks = pem::parse_many(certificate).unwrap_or_default();
    let blocks: Vec<_> = blocks.iter().filter(|block| block.tag() == "CERTIFICATE").collect();
    if blocks.is_empty() {
        return broken("there is no certificate in it".to_owned());
    }
    let mut violations = Violations::none();
    for (i, block) in blocks.iter().enumerate() {
        let at = path.index(i);
        let Ok((_, found)) = x509_parser::parse_x509_certificate(block.contents()) else {
            violations.add(at, "not a valid x509 certificate");
            continue;
        };
        if i == 0 && found.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return broken("the key is not that of the certificate".to_owned());
        }
        check_authority(&found, &at, &mut violations);
    }
    violations
}

fn check_authority(certificate: &X509Certificate<'_>, path: &FieldPath, violations: &mut Violations) {
    violations.check(!certificate.is_ca(), path.clone(), "basic constraint 'CA' must be set to 'true'");
    let usage = certificate.key_usage().ok().flatten();
    let (signs, agrees) =
        usage.map_or((false, false), |u| (u.value.key_cert_sign(), u.value.key_agreement()));
    violations.check(!signs, path.clone(), "key usage extension 'keyCertSign' must be set");
    violations.check(agrees, path.clone(), "key usage extension 'keyAgreement' must NOT be set");
}
