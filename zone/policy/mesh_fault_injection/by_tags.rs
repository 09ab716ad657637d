//! Faults for clients by the tags they tell.

use std::sync::Arc;

use common::{
    policy::{
        mesh_fault_injection::FaultInjectionConf,
        rules::{Policy, RulesError, Subset, Tag, TagRules},
    },
    proto::envoy::{
        config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
        extensions::filters::network::http_connection_manager::v3::HttpFilter,
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
};

use super::{FAULT, fault};
use crate::{
    generator::envoy::{filter, http::TAGS_HEADER},
    policy::{Reporter, header, identity},
};

/// For each group of clients its faults.
pub(super) fn filters(policies: &[Arc<Policy>], reporter: &mut Reporter<'_>) -> Vec<HttpFilter> {
    let rules = match groups(policies) {
        Ok(rules) => rules,
        Err(error) => {
            reporter.report(error);
            return Vec::new();
        }
    };
    let mut filters = Vec::new();
    for rule in &rules.0 {
        match rule.conf::<FaultInjectionConf>() {
            Ok(conf) => filters.extend(fault::all(&conf, reporter).into_iter().map(|mut config| {
                config.headers = conditions(&rule.subset);
                filter::http(FAULT, &config)
            })),
            Err(error) => reporter.report(error),
        }
    }
    filters
}

/// Groups of which none overlaps another: a client in two would be hurt twice.
fn groups(policies: &[Arc<Policy>]) -> Result<TagRules, RulesError> {
    let rules = TagRules::of_clients(policies)?;
    if rules.may_overlap() { TagRules::of_disjoint_clients(policies) } else { Ok(rules) }
}

/// What the tags a client tells must be. Who tells none is in no group but that of everybody.
fn conditions(subset: &Subset) -> Vec<HeaderMatcher> {
    subset.0.iter().map(condition).collect()
}

fn condition(tag: &Tag) -> HeaderMatcher {
    let key = identity::literal(&tag.key);
    let value = match tag.value.as_str() {
        "*" => String::new(),
        value => format!("(?:[^&]*,)?{}[,&]", identity::literal(value)),
    };
    let pattern = StringMatcher {
        match_pattern: Some(MatchPattern::SafeRegex(header::regex(&format!(".*&{key}={value}.*")))),
        ..StringMatcher::default()
    };
    HeaderMatcher {
        name: TAGS_HEADER.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(pattern)),
        invert_match: tag.not,
        ..HeaderMatcher::default()
    }
}
