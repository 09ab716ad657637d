//! Names and ports that somebody makes up for services, from the tags of those who serve them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use thiserror::Error;

use super::tags;
use crate::{
    model::{FieldPath, FieldStep, MessageSpec, Violations, labels},
    proto::kuma::mesh::v1alpha1::{
        VirtualOutbound,
        virtual_outbound::{Conf, conf::TemplateParameter},
    },
};

type DataplaneTags = BTreeMap<String, String>;

/// Why a template says nothing usable.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GoTemplateError {
    /// It is none.
    #[error("failed compiling gotemplate error='template: :1: {0}'")]
    Syntax(String),
    /// No name of a host comes out.
    #[error("evaluation of template with parameters didn't return a valid dns name result='{0}'")]
    Host(String),
    /// No number comes out.
    #[error("evaluation of template with parameters didn't evaluate to a parsable number result='{0}'")]
    Number(String),
    /// No port comes out.
    #[error("evaluation of template returned a port outside of the range [1..65535] result='{0}'")]
    Port(i64),
}

/// The name of a host that `conf` makes of these tags.
///
/// # Errors
/// [`GoTemplateError`].
pub fn host(conf: &Conf, tags: &DataplaneTags) -> Result<String, GoTemplateError> {
    let host = evaluate(&conf.host, conf, tags)?;
    if is_host(&host) { Ok(host) } else { Err(GoTemplateError::Host(host)) }
}

/// The port that `conf` makes of these tags.
///
/// # Errors
/// [`GoTemplateError`].
pub fn port(conf: &Conf, tags: &DataplaneTags) -> Result<u32, GoTemplateError> {
    let text = evaluate(&conf.port, conf, tags)?;
    let number: i64 = text.parse().map_err(|_| GoTemplateError::Number(text))?;
    match u32::try_from(number) {
        Ok(port) if (1..=65535).contains(&port) => Ok(port),
        _ => Err(GoTemplateError::Port(number)),
    }
}

/// The tags that say who is meant: those that are parameters of `conf`.
pub fn named_tags(conf: &Conf, tags: &DataplaneTags) -> DataplaneTags {
    let keys = conf.parameters.iter().map(tag_of);
    keys.filter_map(|key| tags.get_key_value(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether it is for those with these tags.
pub fn selects(outbound: &VirtualOutbound, tags: &DataplaneTags) -> bool {
    let has = |(key, wanted): (&String, &String)| match tags.get(key) {
        Some(own) => wanted == "*" || own == wanted,
        None => false,
    };
    outbound.selectors.iter().any(|selector| !selector.r#match.is_empty() && selector.r#match.iter().all(has))
}

fn tag_of(parameter: &TemplateParameter) -> &str {
    if parameter.tag_key.is_empty() { &parameter.name } else { &parameter.tag_key }
}

/// Puts the values of parameters where they stand between double braces, as in Go.
fn evaluate(template: &str, conf: &Conf, tags: &DataplaneTags) -> Result<String, GoTemplateError> {
    let value = |name: &str| {
        let parameter = conf.parameters.iter().rev().find(|p| p.name == name && tags.contains_key(tag_of(p)));
        // What Go says of a value that is not there.
        parameter.and_then(|p| tags.get(tag_of(p))).map_or("<no value>", String::as_str)
    };
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, action)) = rest.split_once("{{") {
        out.push_str(before);
        let (inside, after) = match action.split_once("}}") {
            Some((inside, after)) => (inside, Some(after)),
            None => (action, None),
        };
        let mut inside = inside;
        if let Some(trimmed) = inside.strip_prefix("- ") {
            out.truncate(out.trim_end().len());
            inside = trimmed;
        }
        let trims_after = inside.ends_with(" -");
        let word = inside.strip_suffix(" -").unwrap_or(inside).trim();
        let field = word.strip_prefix('.').filter(|name| is_word(name));
        match (field, after) {
            (Some(name), Some(after)) => {
                out.push_str(value(name));
                rest = if trims_after { after.trim_start() } else { after };
            }
            (None, _) if is_word(word) => {
                return Err(GoTemplateError::Syntax(format!("function {word:?} not defined")));
            }
            (Some(_), None) => return Err(GoTemplateError::Syntax("unclosed action".to_owned())),
            (None, _) => return Err(GoTemplateError::Syntax(format!("unexpected {word:?} in command"))),
        }
    }
    Ok(out + rest)
}

fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let mut chars = label.chars();
        label.len() <= 63
            && chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    text.len() <= 253 && text.parse::<IpAddr>().is_err() && text.split('.').all(label)
}

impl MessageSpec for VirtualOutbound {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("selectors");
        violations.check(self.selectors.is_empty(), path.clone(), "must have at least one element");
        for (i, selector) in self.selectors.iter().enumerate() {
            let path = path.index(i).field("match");
            violations.check(selector.r#match.is_empty(), path.clone(), "must have at least one tag");
            // A star stands for any value.
            let said = selector.r#match.iter().filter(|(_, value)| *value != "*");
            let said: DataplaneTags = said.map(|(key, value)| (key.clone(), value.clone())).collect();
            tags::check(&said, &FieldStep::At(&path), &mut violations);
        }
        let path = FieldPath::new("conf");
        match &self.conf {
            None => violations.add(path, "has to be defined"),
            Some(conf) => check_conf(conf, &path, &mut violations),
        }
        violations
    }
}

fn check_conf(conf: &Conf, path: &FieldPath, violations: &mut Violations) {
    check_parameters(&conf.parameters, &path.field("parameters"), violations);
    let with = |value: &str| -> DataplaneTags {
        conf.parameters.iter().map(|parameter| (tag_of(parameter).to_owned(), value.to_owned())).collect()
    };
    let failed = |error: GoTemplateError| format!("template pre evaluation failed with error='{error}'");
    let texts = [
        ("host", &conf.host, host(conf, &with("dummy")).err()),
        ("port", &conf.port, port(conf, &with("1")).err()),
    ];
    for (name, text, error) in texts {
        match error {
            _ if text.is_empty() => violations.add(path.field(name), "has to be defined"),
            Some(error) => violations.add(path.field(name), failed(error)),
            None => {}
        }
    }
}

fn check_parameters(parameters: &[TemplateParameter], path: &FieldPath, violations: &mut Violations) {
    let is_tag = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
    };
    let mut names = BTreeSet::new();
    for (i, TemplateParameter { name, tag_key }) in parameters.iter().enumerate() {
        let path = path.index(i);
        violations.check(!names.insert(name), path.field("name"), "name is already used");
        if tag_key.is_empty() {
            let reason = "must be a valid tag name if you are not setting tagKey";
            violations.check(!is_tag(name), path.field("name"), reason);
        } else {
            violations.check(!is_tag(tag_key), path.field("tagKey"), "must be a valid tag name");
        }
        let word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let reason = "must consist of alphanumeric characters to be used as a gotemplate key";
        violations.check(!word, path.field("name"), reason);
    }
    let of_service = parameters.iter().any(|parameter| parameter.tag_key == labels::TAG_SERVICE);
    let reason = format!("must contain a parameter with {} as a tagKey", labels::TAG_SERVICE);
    violations.check(!of_service, path.clone(), reason);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn conf(host: &str, port: &str) -> Value {
        let parameters = json!([{"name": "service", "tagKey": "kuma.io/service"}, {"name": "port"}]);
        json!({"host": host, "port": port, "parameters": parameters})
    }

    fn of(json: &Value) -> VirtualOutbound {
        let kind = crate::registry::by_name("VirtualOutbound").unwrap();
        crate::model::Spec::decode(&crate::model::transcode::from_json(kind, json).unwrap()).unwrap()
    }

    fn wrong(json: &Value) -> Vec<String> {
        of(json).violations().iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
    }

    #[test]
    fn violations_have_known_words() {
        let selectors = json!([{"match": {"kuma.io/service": "*"}}]);
        let with = |conf: Value| wrong(&json!({"selectors": selectors, "conf": conf}));
        assert_eq!(with(conf("{{.service}}.mesh", "{{ .port }}")), [""; 0]);
        assert_eq!(
            wrong(&json!({})),
            ["selectors: must have at least one element", "conf: has to be defined",]
        );
        assert_eq!(
            with(conf("foo.{{mesh", "80")),
            [
                "conf.host: template pre evaluation failed with error='failed compiling gotemplate error='template: :1: function \"mesh\" not defined''",
            ]
        );
        assert_eq!(
            with(conf("foo.mesh", "{{.port}}a")),
            [
                "conf.port: template pre evaluation failed with error='evaluation of template with parameters didn't evaluate to a parsable number result='1a''",
            ]
        );
        assert_eq!(
            with(conf("", "70000")),
            [
                "conf.host: has to be defined",
                "conf.port: template pre evaluation failed with error='evaluation of template returned a port outside of the range [1..65535] result='70000''",
            ]
        );
        let parameters = |list: Value| with(json!({"host": "foo.mesh", "port": "80", "parameters": list}));
        let service = json!({"name": "service", "tagKey": "kuma.io/service"});
        assert_eq!(
            parameters(json!([{"name": "port", "tagKey": "***"}, service])),
            ["conf.parameters[0].tagKey: must be a valid tag name",]
        );
        assert_eq!(
            parameters(json!([service, {"name": "service"}])),
            ["conf.parameters[1].name: name is already used",]
        );
        assert_eq!(
            parameters(json!([{"name": "foo", "tagKey": "kuma.io/port"}])),
            ["conf.parameters: must contain a parameter with kuma.io/service as a tagKey",]
        );
        let empty = json!([{"match": {"region": ""}}, {"match": {}}]);
        assert_eq!(
            wrong(&json!({"selectors": empty, "conf": conf("foo.mesh", "80")})),
            [
                "selectors[0].match[\"region\"]: tag value must be non-empty",
                "selectors[1].match: must have at least one tag",
            ]
        );
    }

    #[test]
    fn a_name_is_made_of_tags() {
        let outbound = of(&json!({
            "selectors": [{"match": {"kuma.io/service": "*", "version": "v1"}}],
            "conf": conf("{{.service}}.{{- .port -}} .test", "{{.port}}"),
        }));
        let conf = outbound.conf.clone().unwrap();
        let tags = |pairs: &[(&str, &str)]| -> DataplaneTags {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let web = tags(&[("kuma.io/service", "web"), ("port", "8080"), ("version", "v1")]);
        assert!(selects(&outbound, &web));
        assert!(!selects(&outbound, &tags(&[("kuma.io/service", "web")])));
        assert_eq!(host(&conf, &web).unwrap(), "web.8080.test");
        assert_eq!(port(&conf, &web), Ok(8080));
        assert_eq!(named_tags(&conf, &web), tags(&[("kuma.io/service", "web"), ("port", "8080")]));
        let without = tags(&[("kuma.io/service", "web")]);
        assert_eq!(port(&conf, &without), Err(GoTemplateError::Number("<no value>".to_owned())));
    }
}
