//! Filters of a list.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;

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

/// Filters of one request: each is looked at for every resource.
const MOST: usize = 32;

/// What must hold for a resource to be listed.
#[derive(Debug, Default)]
pub(super) struct ListFilter {
    name: Option<String>,
    /// Each with the one value it is to have.
    labels: BTreeMap<String, String>,
    /// Two values of one label are asked for, which no resource has.
    is_contradiction: bool,
    tags: BTreeSet<(String, String)>,
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
                    Some(label) => filter.require_label(label, value),
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
        if filter.labels.len() + filter.tags.len() > MOST {
            let detail = format!("a list takes at most {MOST} filters");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, title, detail));
        }
        if kind == &dataplane::KIND {
            filter.gateway = page::value(query, "gateway").map(gateway).transpose()?;
        }
        Ok(filter)
    }

    fn require_label(&mut self, label: &str, value: &str) {
        let before = self.labels.insert(label.to_owned(), value.to_owned());
        self.is_contradiction |= before.is_some_and(|before| before != value);
    }

    /// Whether `resource` is to be listed.
    pub(super) fn matches(&self, resource: &Resource) -> bool {
        !self.is_contradiction
            && self.name.as_ref().is_none_or(|name| resource.name().contains(name.as_str()))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;
    use crate::model::{ResourceKey, kinds::mesh};

    fn parsed(query: &[(&str, &str)]) -> Result<ListFilter, ApiError> {
        let query: Query =
            query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ListFilter::parse(&dataplane::KIND, &query, "route", "Could not retrieve resources")
    }

    #[test]
    fn what_stands_twice_is_looked_at_once() {
        let twice = [("filter[labels.a]", "1"), ("filter[labels.a]", "1"), ("tag", "a:1"), ("tag", "a:1")];
        let filter = parsed(&twice.repeat(100)).unwrap();
        assert_eq!((filter.labels.len(), filter.tags.len()), (1, 1));

        let key = ResourceKey::global(&mesh::KIND, "m");
        let labelled = Resource::new(key, DateTime::UNIX_EPOCH).with_label("a", "1");
        assert!(parsed(&twice[..2]).unwrap().matches(&labelled));
        for other in ["2", ""] {
            let both = [("filter[labels.a]", other), ("filter[labels.a]", "1")];
            assert!(!parsed(&both).unwrap().matches(&labelled), "no label has two values");
        }
        // Tags are looked for in parts of the values.
        assert_eq!(parsed(&[("tag", "a:1"), ("tag", "a:2")]).unwrap().tags.len(), 2);
    }

    #[test]
    fn a_list_takes_so_many_filters() {
        let keys: Vec<String> = (0..=MOST).map(|n| format!("filter[labels.l{n}]")).collect();
        let query: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        assert!(parsed(&query[..MOST]).is_ok());
        assert_eq!(parsed(&query).unwrap_err().status(), StatusCode::BAD_REQUEST);
        let with_tag: Vec<(&str, &str)> = query[..MOST].iter().copied().chain([("tag", "a:1")]).collect();
        assert!(parsed(&with_tag).is_err());
    }
}
