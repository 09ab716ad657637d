//! Templates for the host names of services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
    identity::template as go_template,
    mesh_service,
};
use crate::model::{
    FieldPath, Kind, Resource, Spec, SpecError, Violations, decode, labels,
    template::{self, TemplateError, TemplateVariable},
};

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostnameGenerator {
    /// For which services.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub selector: ServiceSelector,
    /// What their host names are made of.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub template: String,
    /// What an extension of a control plane makes of it; none is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<Value>,
}

/// Services of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSelector {
    /// Of one zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_service: Option<ServiceLabels>,
    /// Outside the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_external_service: Option<ServiceLabels>,
    /// Of several zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_multi_zone_service: Option<ServiceLabels>,
}

/// Services with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceLabels {
    /// All of these; every service when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// Fields a template may name.
const FIELDS: [&str; 5] = ["Name", "DisplayName", "Namespace", "Mesh", "Zone"];

impl ServiceSelector {
    /// What is said about services of `kind`.
    pub fn of_kind(&self, kind: &Kind) -> Option<&ServiceLabels> {
        if kind == &mesh_service::KIND {
            self.mesh_service.as_ref()
        } else if kind == &MESH_EXTERNAL_SERVICE {
            self.mesh_external_service.as_ref()
        } else if kind == &MESH_MULTI_ZONE_SERVICE {
            self.mesh_multi_zone_service.as_ref()
        } else {
            None
        }
    }
}

impl HostnameGenerator {
    /// Whether it is for `service`.
    pub fn selects(&self, service: &Resource) -> bool {
        let wanted = self.selector.of_kind(service.kind());
        let has = |(key, value): (&String, &String)| service.labels.get(key) == Some(value);
        wanted.is_some_and(|labels| labels.match_labels.iter().flatten().all(has))
    }

    /// The host name it makes for `service`, which is one of `zone` unless it says otherwise.
    ///
    /// # Errors
    /// [`TemplateError`] when the template makes no name of it.
    pub fn hostname(&self, service: &Resource, zone: &str) -> Result<String, TemplateError> {
        template::fill(&self.template, |part| {
            let text = match part {
                TemplateVariable::Field("Name") => service.name(),
                TemplateVariable::Field("DisplayName") => service.display_name(),
                TemplateVariable::Field("Namespace") => service.label(labels::NAMESPACE).unwrap_or_default(),
                TemplateVariable::Field("Mesh") => service.mesh(),
                TemplateVariable::Field("Zone") => service.label(labels::ZONE).unwrap_or(zone),
                TemplateVariable::Field(_) => return None,
                TemplateVariable::Label(key) => service.labels.get(key)?,
            };
            Some(text.to_owned())
        })
    }

    /// What of it has no effect here.
    pub fn caveat(&self) -> Option<&'static str> {
        if self.extension.is_some() {
            return Some("spec.extension has no effect: nothing here knows extensions");
        }
        self.template_error().map(|_| {
            "spec.template makes no names: only fields such as {{ .DisplayName }} and {{ label \"key\" }} are filled in"
        })
    }

    /// What is wrong with the template, whatever service it is for.
    fn template_error(&self) -> Option<TemplateError> {
        let known = |part: TemplateVariable<'_>| match part {
            TemplateVariable::Field(name) => FIELDS.contains(&name).then(String::new),
            TemplateVariable::Label(_) => Some(String::new()),
        };
        template::fill(&self.template, known).err()
    }
}

impl Spec for HostnameGenerator {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("spec");
        let ServiceSelector { mesh_service, mesh_external_service, mesh_multi_zone_service } = &self.selector;
        let chosen = [mesh_service, mesh_external_service, mesh_multi_zone_service];
        let one = chosen.into_iter().flatten().count() == 1;
        violations.check(
            !one,
            path.field("selector"),
            "exact one selector (meshService, meshExternalService, meshMultiZoneService) must be defined",
        );
        violations.check(self.template.is_empty(), path.field("template"), "must not be empty");
        if let Some(problem) = go_template::problem(&self.template) {
            violations.add(path.field("template"), format!("couldn't parse template: {problem}"));
        }
        let unnamed = self.extension.as_ref().is_some_and(|extension| extension["type"] == "");
        violations.check(unnamed, path.field("extension").field("type"), "must not be empty");
        violations
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::model::ResourceKey;

    fn read(spec: &Value) -> HostnameGenerator {
        HostnameGenerator::decode(spec.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn one_selector_and_a_template_that_can_be_filled_in() {
        let check = |spec: &Value, wrong: &[&str]| {
            let violations = read(spec).validate();
            assert_eq!(violations.iter().map(|v| v.field.as_str()).collect::<Vec<_>>(), wrong, "{spec}");
        };
        let (one, all) = (json!({"meshService": {}}), json!({"meshService": {}, "meshExternalService": {}}));
        check(&json!({"selector": one, "template": "{{ .DisplayName }}.{{ label \"x\" }}.mesh"}), &[]);
        check(&json!({"selector": {"meshMultiZoneService": {"matchLabels": {}}}, "template": "x"}), &[]);
        check(&json!({"selector": all, "template": "x"}), &["spec.selector"]);
        check(&json!({}), &["spec.selector", "spec.template"]);
        for template in ["{{ .Name", "{{ .Name[4 }}.mesh", "{{ nobody .Name }}"] {
            check(&json!({"selector": one, "template": template}), &["spec.template"]);
        }
        let unnamed = json!({"selector": one, "template": "x", "extension": {"type": ""}});
        check(&unnamed, &["spec.extension.type"]);
    }

    #[test]
    fn what_makes_no_names_here_is_told() {
        let told = |spec: &Value| read(spec).caveat().map(|text| text.split(' ').next().unwrap_or_default());
        for template in ["{{ .Wrong }}", "{{ if .Name }}x{{ end }}"] {
            let spec = json!({"selector": {"meshService": {}}, "template": template});
            assert_eq!(read(&spec).validate(), Violations::none());
            assert_eq!(told(&spec), Some("spec.template"), "{template}");
        }
        assert_eq!(told(&json!({"template": "{{ .Name }}.mesh"})), None);
        let extended = json!({"template": "x", "extension": {"type": "other"}});
        assert_eq!(told(&extended), Some("spec.extension"));
    }

    #[test]
    fn names_are_made_for_those_it_selects() {
        let generator =
            read(&json!({"template": "{{ .DisplayName }}.{{ .Namespace }}x.{{ .Zone }}.{{ .Mesh }}",
            "selector": {"meshService": {"matchLabels": {"team": "a"}}}}));
        let key = ResourceKey::new(&mesh_service::KIND, "default", "web-hashed");
        let service = Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::DISPLAY_NAME, "web");
        assert!(!generator.selects(&service));
        let service = service.with_label("team", "a");
        assert!(generator.selects(&service));
        assert_eq!(generator.hostname(&service, "east").unwrap(), "web.x.east.default");
        let remote = service.with_label(labels::ZONE, "west");
        assert_eq!(generator.hostname(&remote, "east").unwrap(), "web.x.west.default");
        let other = ResourceKey::new(&MESH_EXTERNAL_SERVICE, "default", "web");
        assert!(!generator.selects(&Resource::new(other, DateTime::UNIX_EPOCH).with_label("team", "a")));
    }
}
