//! Which `MeshIdentity` is for a proxy, and how it calls that proxy.

use std::{collections::BTreeMap, sync::Arc, time::Duration as StdDuration};

use serde_json::Value;
use thiserror::Error;

use super::identity::{IdentityProviderType, MeshIdentity};
use crate::model::{
    Duration, Labels, Resource, Spec, labels, spiffe,
    template::{self, TemplateError, TemplateVariable},
};

/// Of the domain, where the spec has none.
const DOMAIN_TEMPLATE: &str = "{{ .Mesh }}.{{ .Zone }}.mesh.local";
/// What that ends with.
const DOMAIN_END: &str = ".mesh.local";
/// Of the path, where the spec has none.
const PATH_TEMPLATE: &str = "/workload/{{ .Workload }}";
/// How long an agent may take to answer a connection, where the spec does not say.
const AGENT_TIMEOUT: StdDuration = StdDuration::from_secs(1);

/// Why a workload gets no name.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NamingError {
    /// The trust domain cannot be told.
    #[error("spec.spiffeID.trustDomain: {0}")]
    Domain(TemplateError),
    /// The path cannot be told.
    #[error("spec.spiffeID.path: {0}")]
    Path(TemplateError),
    /// What comes out is no SPIFFE identity.
    #[error("{id:?} is no SPIFFE identity: {problem}")]
    NoIdentity {
        /// What came out.
        id: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl MeshIdentity {
    /// The labels of those it is for; `None` when it is for nobody.
    pub fn wanted(&self) -> Option<&BTreeMap<String, String>> {
        static EVERYBODY: BTreeMap<String, String> = BTreeMap::new();
        let dataplane = self.selector.as_ref()?.dataplane.as_ref()?;
        Some(dataplane.match_labels.as_ref().unwrap_or(&EVERYBODY))
    }

    /// Whether it is for who has these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.wanted()
            .is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value.as_str())))
    }

    /// The trust domain of who gets an identity from `identity`, of which this is the spec, in `zone`.
    ///
    /// # Errors
    /// [`NamingError`] when it makes no name.
    pub fn trust_domain(&self, identity: &Resource, zone: &str) -> Result<String, NamingError> {
        let template = self.spiffe_id.as_ref().and_then(|id| id.trust_domain.as_deref());
        let domain = fill(template.unwrap_or(DOMAIN_TEMPLATE), |part| match part {
            TemplateVariable::Field("Mesh") => Some(identity.mesh()),
            // One that came from another zone speaks of that.
            TemplateVariable::Field("Zone") => Some(identity.label(labels::ZONE).unwrap_or(zone)),
            TemplateVariable::Label(key) => identity.label(key),
            TemplateVariable::Field(_) => None,
        });
        let domain = domain.map_err(NamingError::Domain)?;
        checked(spiffe::prefix(&domain) + "x")?;
        Ok(domain)
    }

    /// The zone in `mesh` that has this trust domain unless it is given another one.
    pub fn usual_zone<'a>(mesh: &str, domain: &'a str) -> Option<&'a str> {
        domain.strip_prefix(mesh)?.strip_prefix('.')?.strip_suffix(DOMAIN_END)
    }

    /// What it calls `dataplane` in a trust domain.
    ///
    /// # Errors
    /// [`NamingError`] when it makes no name.
    pub fn name_of(&self, domain: &str, dataplane: &Resource) -> Result<String, NamingError> {
        let template = self.spiffe_id.as_ref().and_then(|id| id.path.as_deref());
        let path = fill(template.unwrap_or(PATH_TEMPLATE), |part| match part {
            TemplateVariable::Field("TrustDomain") => Some(domain),
            TemplateVariable::Field("Namespace") => dataplane.label(labels::NAMESPACE),
            TemplateVariable::Field("ServiceAccount") => dataplane.label(labels::SERVICE_ACCOUNT),
            TemplateVariable::Field("Workload") => dataplane.label(labels::WORKLOAD),
            TemplateVariable::Label(key) => dataplane.label(key),
            TemplateVariable::Field(_) => None,
        });
        let path = path.map_err(NamingError::Path)?;
        checked(format!("spiffe://{domain}{path}"))
    }

    /// Whether certificates are made of it here: not by anybody else, and not when it only tells names.
    pub fn is_bundled(&self) -> bool {
        self.provider.as_ref().is_some_and(|provider| provider.kind == IdentityProviderType::Bundled)
    }

    /// How long the agents of SPIRE may take to answer a connection that hand out its identities; `None` where no
    /// agents do.
    pub fn agent_timeout(&self) -> Option<StdDuration> {
        let provider = self.provider.as_ref().filter(|it| it.kind == IdentityProviderType::Spire)?;
        let said = provider.spire.as_ref().and_then(|spire| spire.agent.as_ref()?.timeout);
        // Envoy refuses a cluster that gives a connection no time.
        Some(said.map(Duration::to_std).filter(|timeout| !timeout.is_zero()).unwrap_or(AGENT_TIMEOUT))
    }
}

fn fill<'a>(
    template: &str,
    value: impl Fn(TemplateVariable<'_>) -> Option<&'a str>,
) -> Result<String, TemplateError> {
    template::fill(template, |part| value(part).map(str::to_owned))
}

fn checked(id: String) -> Result<String, NamingError> {
    match spiffe::problem(&id) {
        Some(problem) => Err(NamingError::NoIdentity { id, problem }),
        None => Ok(id),
    }
}

/// The one among `identities` with the narrowest selector that is for who has these labels; of equal ones the
/// first by name. `resource` and `spec` look into them.
pub fn narrowest<T>(
    identities: impl Iterator<Item = T>,
    labels: &Labels,
    parts: impl Fn(&T) -> (&Resource, &MeshIdentity),
) -> Option<T> {
    let meant = identities.filter(|one| parts(one).1.selects(labels));
    meant.min_by(|a, b| {
        let width = |one: &T| parts(one).1.wanted().map_or(0, BTreeMap::len);
        width(b).cmp(&width(a)).then_with(|| parts(a).0.name().cmp(parts(b).0.name()))
    })
}

/// The identity that, among the `identities` of its mesh, the one for it gives to `dataplane` of `zone`, once that
/// one is ready to name workloads; with the one that gives it.
pub fn spiffe_id<'a>(
    identities: impl Iterator<Item = &'a Arc<Resource>>,
    dataplane: &Resource,
    zone: &str,
) -> Option<(&'a Arc<Resource>, String)> {
    let decoded = identities.filter_map(|one| Some((one, MeshIdentity::decode(&one.spec).ok()?)));
    let (identity, spec) = narrowest(decoded, &dataplane.labels, |(one, spec)| (&***one, spec))?;
    if !is_ready(identity) && !only_names(identity) {
        return None;
    }
    let domain = spec.trust_domain(identity, zone).ok()?;
    Some((identity, spec.name_of(&domain, dataplane).ok()?))
}

/// [`Condition`](super::service_status::Condition): everything is there.
pub const READY: &str = "Ready";
/// Condition: workloads have names by it, whether or not they have certificates.
pub const NAMES_PROVIDED: &str = "SpiffeIDProvided";

/// Whether workloads get certificates by it.
pub fn is_ready(identity: &Resource) -> bool {
    holds(identity, READY)
}

/// Whether it does nothing but tell what workloads are called.
fn only_names(identity: &Resource) -> bool {
    holds(identity, NAMES_PROVIDED)
}

fn holds(identity: &Resource, condition: &str) -> bool {
    let status: Value =
        identity.status.as_ref().and_then(|s| serde_json::from_slice(s).ok()).unwrap_or_default();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == condition && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::model::{ResourceKey, kinds};

    fn resource(kind: &'static crate::model::Kind, name: &str, pairs: &[(&str, &str)]) -> Resource {
        let mut resource = Resource::new(ResourceKey::new(kind, "demo", name), DateTime::UNIX_EPOCH);
        resource.labels = pairs.iter().copied().collect();
        resource
    }

    fn identity(name: &str, spec: &Value) -> Arc<Resource> {
        let mut identity =
            resource(&kinds::identity::KIND, name, &[]).with_spec(spec.to_string().into_bytes());
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        identity.status = Some(ready.to_string().into_bytes().into());
        Arc::new(identity)
    }

    #[test]
    fn the_usual_domain_tells_the_zone() {
        let domain = MeshIdentity::default().trust_domain(&resource(&kinds::identity::KIND, "i", &[]), "a.b");
        assert_eq!(MeshIdentity::usual_zone("demo", &domain.unwrap()), Some("a.b"));
        for other in ["demos.a.mesh.local", "demo.mesh.local", "demo.a.mesh.local.x", "a.mesh.local"] {
            assert_eq!(MeshIdentity::usual_zone("demo", other), None, "{other}");
        }
    }

    #[test]
    fn the_narrowest_selector_wins_then_the_first_name() {
        let of = |labels: Value, path: &str| json!({ "selector": { "dataplane": { "matchLabels": labels } }, "spiffeID": { "path": path } });
        let all = [
            identity("a", &of(json!({}), "/all")),
            identity("c", &of(json!({ "team": "x" }), "/c")),
            identity("b", &of(json!({ "team": "x" }), "/b")),
            identity("d", &of(json!({ "team": "y" }), "/d")),
            identity("nobody", &json!({})),
        ];
        let check = |labels: &[(&str, &str)], expected: &str| {
            let dataplane = resource(&kinds::dataplane::KIND, "p", labels);
            let id = spiffe_id(all.iter(), &dataplane, "east").map(|(_, id)| id);
            assert_eq!(id.as_deref(), Some(expected), "{labels:?}");
        };
        check(&[], "spiffe://demo.east.mesh.local/all");
        check(&[("team", "x")], "spiffe://demo.east.mesh.local/b");
        check(&[("team", "y")], "spiffe://demo.east.mesh.local/d");
    }

    #[test]
    fn names_are_made_of_labels_and_have_to_be_names() {
        let check = |id: Value, labels: &[(&str, &str)], expected: Result<&str, &str>| {
            let spec: MeshIdentity = serde_json::from_value(json!({ "spiffeID": id })).unwrap();
            let identity = resource(&kinds::identity::KIND, "i", &[("team", "core")]);
            let dataplane = resource(&kinds::dataplane::KIND, "p", labels);
            let made = spec.trust_domain(&identity, "east").and_then(|d| spec.name_of(&d, &dataplane));
            let made = made.map_err(|error| error.to_string());
            assert_eq!(made.as_deref().map_err(String::as_str), expected, "{id}");
        };
        let shop = [("kuma.io/workload", "shop"), ("app", "Web")];
        check(json!({}), &shop, Ok("spiffe://demo.east.mesh.local/workload/shop"));
        check(
            json!({ "trustDomain": "{{ label \"team\" }}.example", "path": "/{{ .TrustDomain }}/{{ label \"app\" }}" }),
            &shop,
            Ok("spiffe://core.example/core.example/Web"),
        );
        check(json!({}), &[], Err("spec.spiffeID.path: \".Workload\" has no value here"));
        check(
            json!({ "trustDomain": "{{ .Name }}" }),
            &shop,
            Err("spec.spiffeID.trustDomain: \".Name\" has no value here"),
        );
        check(
            json!({ "path": "/a b" }),
            &shop,
            Err(
                "\"spiffe://demo.east.mesh.local/a b\" is no SPIFFE identity: path segment characters are limited \
                 to letters, numbers, dots, dashes, and underscores",
            ),
        );
    }
}
