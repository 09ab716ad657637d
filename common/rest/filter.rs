//! Filters of a list.

use std::collections::BTreeMap;

use super::{
    ApiError,
    page::{self, Query},
};
use crate::{
    model::Spec,
    model::{Kind, Resource, Violations},
    proto::kuma::mesh::v1alpha1::{Dataplane, ExternalService, dataplane::networking::gateway::GatewayType},
};

/// What must hold for a resource to be listed.
#[derive(Debug, Default)]
pub(super) struct Filter {
    name: Option<String>,
    labels: Vec<(String, String)>,
    tags: Vec<(String, String)>,
    gateway: Option<Gateway>,
}

#[derive(Clone, Copy, Debug)]
enum Gateway {
    Any,
    None,
    Of(GatewayType),
}

impl Filter {
    /// From the query of a list of `kind` at the route `route`.
    pub(super) fn parse(
        kind: &Kind,
        query: &Query,
        route: &str,
        title: &'static str,
    ) -> Result<Self, ApiError> {
        let mut filter = Self { name: page::value(query, "name").map(str::to_owned), ..Self::default() };
        let mut violations = Violations::none();
        for (key, value) in query {
            let Some(path) = key.strip_prefix("filter[") else { continue };
            let field = format!("{route}.{key}");
            match path.split_once(']') {
                Some((path, "")) => match path.strip_prefix("labels.") {
                    Some(label) => filter.labels.push((label.to_owned(), value.clone())),
                    None => violations.add(field.as_str().into(), "filters are only supported on labels"),
                },
                _ => violations.add(field.as_str().into(), "advanced filters are not supported"),
            }
        }
        if !violations.is_empty() {
            return Err(ApiError::invalid(title, &violations));
        }
        if matches!(kind.name, "Dataplane" | "ExternalService") {
            let tags = query.iter().filter(|(key, _)| key == "tag").map(|(_, value)| value);
            filter.tags =
                tags.filter_map(|t| t.split_once(':')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        }
        if kind.name == "Dataplane" {
            filter.gateway = page::value(query, "gateway").map(gateway).transpose()?;
        }
        Ok(filter)
    }

    /// Whether `resource` is to be listed.
    pub(super) fn matches(&self, resource: &Resource) -> bool {
        self.name.as_ref().is_none_or(|name| resource.name().contains(name.as_str()))
            && self.labels.iter().all(|(key, value)| resource.labels.get(key) == Some(value))
            && self.matches_spec(resource)
    }

    fn matches_spec(&self, resource: &Resource) -> bool {
        if self.tags.is_empty() && self.gateway.is_none() {
            return true;
        }
        if resource.kind().name == "ExternalService" {
            return ExternalService::decode(&resource.spec).is_ok_and(|s| self.matches_tags(&s.tags));
        }
        let Ok(dataplane) = Dataplane::decode(&resource.spec) else { return false };
        let networking = dataplane.networking.unwrap_or_default();
        let kind = networking.gateway.as_ref().map(|g| g.r#type());
        let gateway = match self.gateway {
            None => true,
            Some(Gateway::Any) => kind.is_some(),
            Some(Gateway::None) => kind.is_none(),
            Some(Gateway::Of(wanted)) => kind == Some(wanted),
        };
        let mut tag_sets =
            networking.inbound.iter().map(|i| &i.tags).chain(networking.gateway.iter().map(|g| &g.tags));
        gateway && (self.tags.is_empty() || tag_sets.any(|tags| self.matches_tags(tags)))
    }

    fn matches_tags(&self, tags: &BTreeMap<String, String>) -> bool {
        self.tags.iter().all(|(key, wanted)| tags.get(key).is_some_and(|v| v.contains(wanted.as_str())))
    }
}

fn gateway(text: &str) -> Result<Gateway, ApiError> {
    Ok(match text {
        "true" => Gateway::Any,
        "false" => Gateway::None,
        "builtin" => Gateway::Of(GatewayType::Builtin),
        "delegated" => Gateway::Of(GatewayType::Delegated),
        _ => {
            let violation = Violations::one("gateway", "must be true, false, builtin or delegated");
            return Err(ApiError::invalid("Could not retrieve resources", &violation));
        }
    })
}
