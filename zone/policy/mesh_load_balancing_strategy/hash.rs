//! What of a request is hashed.

use common::{
    model::Duration,
    policy::mesh_load_balancing_strategy::{HashPolicy, HashPolicyType},
    proto::envoy::config::route::v3::route_action::{
        self,
        hash_policy::{ConnectionProperties, Cookie, FilterState, Header, PolicySpecifier, QueryParameter},
    },
};

use crate::{generator::envoy::duration, policy::header};

/// As Envoy has it.
///
/// # Errors
/// Why Envoy would refuse it.
pub(super) fn policy(policy: &HashPolicy) -> Result<route_action::HashPolicy, String> {
    let specifier = match policy.kind {
        HashPolicyType::Header => policy.header.as_ref().map(|by| header(&by.name)).transpose()?,
        HashPolicyType::Cookie => {
            let by = policy.cookie.as_ref();
            by.map(|by| cookie(&by.name, by.ttl, by.path.as_deref())).transpose()?
        }
        HashPolicyType::Connection => {
            let by_address = policy.connection.as_ref().and_then(|by| by.source_ip) == Some(true);
            Some(connection(by_address))
        }
        HashPolicyType::SourceIP => Some(connection(true)),
        HashPolicyType::QueryParameter => policy
            .query_parameter
            .as_ref()
            .map(|by| PolicySpecifier::QueryParameter(QueryParameter { name: by.name.clone() })),
        HashPolicyType::FilterState => policy
            .filter_state
            .as_ref()
            .map(|by| PolicySpecifier::FilterState(FilterState { key: by.key.clone() })),
    };
    if specifier.is_none() {
        return Err(format!("{:?} says nothing", policy.kind));
    }
    Ok(route_action::HashPolicy { terminal: policy.terminal == Some(true), policy_specifier: specifier })
}

fn header(name: &str) -> Result<PolicySpecifier, String> {
    if !header::is_name(name) {
        return Err(format!("{name:?} is not the name of a header"));
    }
    Ok(PolicySpecifier::Header(Header { header_name: name.to_owned(), ..Header::default() }))
}

fn cookie(name: &str, ttl: Option<Duration>, path: Option<&str>) -> Result<PolicySpecifier, String> {
    let path = path.unwrap_or_default();
    if let Some(broken) = [name, path].into_iter().find(|text| !header::is_value(text)) {
        return Err(format!("{broken:?} cannot stand in a cookie"));
    }
    Ok(PolicySpecifier::Cookie(Cookie {
        name: name.to_owned(),
        ttl: ttl.map(|ttl| duration(ttl.to_std())),
        path: path.to_owned(),
        ..Cookie::default()
    }))
}

fn connection(source_ip: bool) -> PolicySpecifier {
    PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip })
}
