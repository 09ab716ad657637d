//! Filters of a list.

use std::collections::BTreeMap;

use super::{
    ApiError,
    page::{self, Query},
};
use crate::{
    model::{
        Kind, Resource, Violations,
        kinds::{dataplane, dataplane_networking},
    },
    proto::kuma::mesh::v1alpha1::dataplane::networking::gateway::GatewayType,
};

/// What must hold for a resource to be listed.
#[derive(Debug, Default)]
pub(super) struct ListFilter {
    name: Option<String>,
    labels: Vec<(String, String)>,
    tags: Vec<(String, String)>,
    gateway: Option<GatewayFilter>,
}

#[derive(Clone, Copy, Debug)]
enum GatewayFilter {
    Any,
    None,
    Of(GatewayType),
}

impl ListFilter {
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
        if kind.tag_sets.is_some() {
            let tags = query.iter().filter(|(key, _)| key == "tag").map(|(_, value)| value);
            filter.tags =
                tags.filter_map(|t| t.split_once(':')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        }
        if kind == &dataplane::KIND {
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
        self.gateway.is_none_or(|wanted| is_gateway(&resource.spec, wanted))
            && (self.tags.is_empty() || self.matches_tag_sets(resource))
    }

    fn matches_tag_sets(&self, resource: &Resource) -> bool {
        let Some(Ok(sets)) = resource.kind().tag_sets.map(|sets| sets(&resource.spec)) else { return false };
        sets.iter().any(|tags| self.matches_tags(tags))
    }

    fn matches_tags(&self, tags: &BTreeMap<String, String>) -> bool {
        self.tags.iter().all(|(key, wanted)| tags.get(key).is_some_and(|v| v.contains(wanted.as_str())))
    }
}

fn is_gateway(dataplane: &[u8], wanted: GatewayFilter) -> bool {
    let Ok(networking) = dataplane_networking::networking(dataplane) else { return false };
    let kind = networking.gateway.map(|gateway| gateway.r#type());
    match wanted {
        GatewayFilter::Any => kind.is_some(),
        GatewayFilter::None => kind.is_none(),
        GatewayFilter::Of(wanted) => kind == Some(wanted),
    }
}

fn gateway(text: &str) -> Result<GatewayFilter, ApiError> {
    Ok(match text {
        "true" => GatewayFilter::Any,
        "false" => GatewayFilter::None,
        "builtin" => GatewayFilter::Of(GatewayType::Builtin),
        "delegated" => GatewayFilter::Of(GatewayType::Delegated),
        _ => {
            let violation = Violations::one("gateway", "must be true, false, builtin or delegated");
            return Err(ApiError::invalid("Could not retrieve resources", &violation));
        }
    })
}
