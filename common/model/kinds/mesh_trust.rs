//! A trust domain and the authorities that vouch for whoever is in it.

use serde::{Deserialize, Serialize};

use crate::model::{
    FieldPath, Kind, Spec, SpecError, Violations, decode,
    shape::{
        Member,
        Shape::{self, *},
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTrust", "meshtrusts")
    .flow(29)
    .named("meshtrust", "mtrust")
    .with_status()
    .deprecated(&["origin"])
    .shaped(&SHAPE)
    .typed::<MeshTrust>();

static SHAPE: Shape = Object(&[
    Member::optional("origin", &Object(&[Member::optional("kri", &Text)])),
    Member::required("caBundles", &OneOrMore(&BUNDLE)),
    Member::required("trustDomain", &UpTo(253)),
]);
const BUNDLE: Shape = Object(&[
    Member::required("type", &OneOf(&["Pem"])),
    Member::optional("pem", &Object(&[Member::required("value", &Text)])),
]);

/// The spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTrust {
    /// What it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<TrustOrigin>,
    /// The domain.
    pub trust_domain: String,
    /// Its authorities.
    pub ca_bundles: Vec<CaBundle>,
}

/// What a `MeshTrust` was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustOrigin {
    /// Identifier of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
}

/// Forms of bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaBundleType {
    /// Text with certificates in it.
    Pem,
}

/// Certificates of authorities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaBundle {
    /// The form.
    #[serde(rename = "type")]
    pub kind: CaBundleType,
    /// Text with certificates in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<PemBundle>,
}

/// Text with certificates in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemBundle {
    /// The text.
    pub value: String,
}

impl Spec for MeshTrust {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("spec");
        for (i, bundle) in self.ca_bundles.iter().enumerate() {
            let at = path.field("caBundles").index(i).field("pem");
            match &bundle.pem {
                None => violations.add(at, "must be defined"),
                Some(pem) => violations.check(
                    !holds_certificate(&pem.value),
                    at.field("value"),
                    "provided certificate has incorrect format",
                ),
            }
        }
        let unnamed = self.trust_domain.is_empty();
        violations.check(unnamed, path.field("trustDomain"), "trustDomain needs to be defined");
        violations
    }
}

/// Whether a text begins with something that is not a key. What else it holds is for who uses it.
fn holds_certificate(text: &str) -> bool {
    let blocks = pem::parse_many(text).unwrap_or_default();
    blocks.first().is_some_and(|block| !block.tag().ends_with("PRIVATE KEY"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::KIND;

    #[test]
    fn trust_needs_a_domain_and_certificates() {
        let pem = |tag: &str| format!("-----BEGIN {tag}-----\nZm9v\n-----END {tag}-----\n");
        let bundle = |tag: &str| json!({ "type": "Pem", "pem": { "value": pem(tag) } });
        let check = |domain: &str, bundles: Value, expected: &[&str]| {
            let spec = json!({ "trustDomain": domain, "caBundles": bundles });
            let (violations, _) = KIND.settle_authored(spec.to_string().as_bytes()).expect("it decodes");
            let told: Vec<String> = violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect();
            assert_eq!(told, expected, "{spec}");
        };
        check("a.example", json!([bundle("CERTIFICATE")]), &[]);
        check("a.example", json!([]), &["spec.caBundles: in body should have at least 1 items"]);
        check("", json!([bundle("CERTIFICATE")]), &["spec.trustDomain: trustDomain needs to be defined"]);
        let long = "d".repeat(254);
        let one = json!([bundle("CERTIFICATE")]);
        check(&long, one, &["spec.trustDomain: in body should be at most 253 chars long"]);
        check(
            "a.example",
            json!([bundle("EC PRIVATE KEY"), { "type": "Pem" }, { "type": "Pem", "pem": { "value": "no" } }]),
            &[
                "spec.caBundles[0].pem.value: provided certificate has incorrect format",
                "spec.caBundles[1].pem: must be defined",
                "spec.caBundles[2].pem.value: provided certificate has incorrect format",
            ],
        );
    }
}
