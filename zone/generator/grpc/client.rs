//! What an application calls: a listener for each name, routes and a cluster for what that stands for.

use std::sync::Arc;

use common::proto::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster, LoadBalancingPolicy,
                cluster::{LbConfig, LbPolicy, RingHashLbConfig, ring_hash_lb_config::HashFunction},
                load_balancing_policy::Policy,
            },
            core::v3::TypedExtensionConfig,
            listener::v3::{ApiListener, Listener},
            route::v3::{
                RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
                header_matcher::HeaderMatchSpecifier,
                route::Action,
                route_action::{ClusterSpecifier, HashPolicy, MaxStreamDuration, hash_policy},
            },
        },
        extensions::{
            filters::network::http_connection_manager::v3::{
                HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
            },
            load_balancing_policies::{
                least_request::v3::LeastRequest, round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
            },
            transport_sockets::tls::v3::{
                CertificateValidationContext, UpstreamTlsContext, common_tls_context::ValidationContextType,
            },
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
    google::protobuf::Duration,
};

use super::super::{
    Backend, ClusterDraft, Encoded, HttpChain,
    envoy::{cluster, filter, tls},
    type_url,
};

/// Where a retry has a meaning for who knows no connections: as gRPC libraries call the ends of calls.
const RETRIED: [&str; 5] =
    ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];

/// The listener by which a library asks for `name`: it names the routes of what is called.
pub(crate) fn listener(name: &str, called: &Backend) -> Arc<Encoded> {
    let rds = Rds { config_source: Some(cluster::ads()), route_config_name: routes_of(called) };
    let manager = HttpConnectionManager {
        http_filters: vec![filter::router()],
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        ..HttpConnectionManager::default()
    };
    let message = Listener {
        name: name.to_owned(),
        api_listener: Some(ApiListener { api_listener: Some(cluster::pack(&manager)) }),
        ..Listener::default()
    };
    Arc::new(Encoded::new(name, type_url::LISTENER, called.origin(), &message))
}

/// How the routes of `called` are known. Those of services known by their tags are told apart by their clusters: some are
/// a part of others.
fn routes_of(called: &Backend) -> String {
    match &called.resource {
        Some(resource) => resource.kri.to_string(),
        None => format!("outbound:{}", called.cluster),
    }
}

/// The routes of `called`, by whatever name it is called, as they were made for an Envoy.
pub(crate) fn routes(called: &Backend, http: &HttpChain) -> Arc<Encoded> {
    let longest = http.manager.common_http_protocol_options.as_ref();
    let longest = longest.and_then(|options| options.max_stream_duration).filter(is_some_time);
    let host = VirtualHost {
        name: called.name.clone(),
        domains: vec!["*".to_owned()],
        routes: http.routes.iter().filter_map(|draft| route(&draft.message, longest)).collect(),
        ..VirtualHost::default()
    };
    let name = routes_of(called);
    let message =
        RouteConfiguration { name: name.clone(), virtual_hosts: vec![host], ..RouteConfiguration::default() };
    Arc::new(Encoded::new(&name, type_url::ROUTE, called.origin(), &message))
}

/// `None` for one that no call of gRPC takes, or that does something else than forward it.
fn route(route: &Route, longest: Option<Duration>) -> Option<Route> {
    let Some(Action::Route(action)) = &route.action else { return None };
    Some(Route {
        name: route.name.clone(),
        r#match: Some(condition(route.r#match.as_ref()?)?),
        action: Some(Action::Route(forwarded(action, longest)?)),
        ..Route::default()
    })
}

/// All calls are made by POST, and have no query.
fn condition(condition: &RouteMatch) -> Option<RouteMatch> {
    if !condition.query_parameters.is_empty() {
        return None;
    }
    let is_method = |name: &str| name == ":method";
    let of_method = condition.headers.iter().filter(|header| is_method(&header.name));
    for header in of_method {
        let Some(HeaderMatchSpecifier::StringMatch(wanted)) = &header.header_match_specifier else {
            return None;
        };
        if wanted.match_pattern != Some(MatchPattern::Exact("POST".to_owned())) {
            return None;
        }
    }
    let headers = condition.headers.iter().filter(|header| !is_method(&header.name));
    Some(RouteMatch { headers: headers.cloned().collect(), ..condition.clone() })
}

fn forwarded(action: &RouteAction, longest: Option<Duration>) -> Option<RouteAction> {
    let specifier = match action.cluster_specifier.as_ref()? {
        ClusterSpecifier::Cluster(_) | ClusterSpecifier::WeightedClusters(_) => {
            action.cluster_specifier.clone()
        }
        _ => return None,
    };
    let limit = action.timeout.filter(is_some_time).or(longest);
    Some(RouteAction {
        cluster_specifier: specifier,
        max_stream_duration: limit.map(|limit| MaxStreamDuration {
            max_stream_duration: Some(limit),
            ..MaxStreamDuration::default()
        }),
        retry_policy: action.retry_policy.as_ref().and_then(retried),
        hash_policy: action.hash_policy.iter().filter(|policy| is_of_header(policy)).cloned().collect(),
        ..RouteAction::default()
    })
}

/// Zero is how an Envoy is told to wait for ever.
fn is_some_time(time: &Duration) -> bool {
    time.seconds > 0 || time.nanos > 0
}

/// `None` where nothing is left by which a library would try again.
fn retried(policy: &RetryPolicy) -> Option<RetryPolicy> {
    let asked: Vec<&str> = policy.retry_on.split(',').map(str::trim).collect();
    let known: Vec<&str> = RETRIED.into_iter().filter(|condition| asked.contains(condition)).collect();
    let never = policy.num_retries.as_ref().is_some_and(|times| times.value == 0);
    if known.is_empty() || never {
        return None;
    }
    Some(RetryPolicy {
        retry_on: known.join(","),
        num_retries: policy.num_retries,
        retry_back_off: policy.retry_back_off,
        ..RetryPolicy::default()
    })
}

fn is_of_header(policy: &HashPolicy) -> bool {
    matches!(policy.policy_specifier, Some(hash_policy::PolicySpecifier::Header(_)))
}

/// The cluster as it was made for an Envoy.
///
/// # Errors
/// Why there is none.
pub(crate) fn cluster(draft: &ClusterDraft, permissive: bool) -> Result<Arc<Encoded>, String> {
    let made = &draft.message;
    if made.eds_cluster_config.is_none() {
        return Err("gRPC libraries call nothing outside the mesh".to_owned());
    }
    let name = &made.name;
    let mut message = Cluster {
        circuit_breakers: made.circuit_breakers.clone(),
        outlier_detection: made.outlier_detection.clone(),
        ..cluster::discovered(name)
    };
    balance(made, &mut message);
    if let Some(context) = draft.tls.as_ref().filter(|_| !permissive) {
        message.transport_socket = Some(tls::socket(&upstream(context)?));
    }
    Ok(Arc::new(Encoded::new(name, type_url::CLUSTER, draft.role.origin(), &message)))
}

/// By rings and least requests where a library can, else each in turn.
fn balance(made: &Cluster, message: &mut Cluster) {
    message.set_lb_policy(LbPolicy::RoundRobin);
    match made.lb_policy() {
        // Libraries know one way to hash.
        LbPolicy::RingHash => {
            message.set_lb_policy(LbPolicy::RingHash);
            if let Some(LbConfig::RingHashLbConfig(ring)) = &made.lb_config {
                let ring = RingHashLbConfig { hash_function: HashFunction::XxHash.into(), ..*ring };
                message.lb_config = Some(LbConfig::RingHashLbConfig(ring));
            }
        }
        // Some refuse this when it is asked for as above; of a list they take the first they know.
        LbPolicy::LeastRequest => {
            let choices = match &made.lb_config {
                Some(LbConfig::LeastRequestLbConfig(least)) => least.choice_count,
                _ => None,
            };
            let least = LeastRequest { choice_count: choices, ..LeastRequest::default() };
            let least = balancer("least_request", cluster::pack(&least));
            let in_turn = balancer("round_robin", cluster::pack(&RoundRobin::default()));
            let endpoints = LoadBalancingPolicy { policies: vec![least, in_turn] };
            let localities = WrrLocality { endpoint_picking_policy: Some(endpoints) };
            let localities = balancer("wrr_locality", cluster::pack(&localities));
            message.load_balancing_policy = Some(LoadBalancingPolicy { policies: vec![localities] });
        }
        _ => {}
    }
}

fn balancer(name: &str, config: common::proto::google::protobuf::Any) -> Policy {
    let name = format!("envoy.load_balancing_policies.{name}");
    Policy { typed_extension_config: Some(TypedExtensionConfig { name, typed_config: Some(config) }) }
}

/// The same names of the peer, in the one member where libraries look for them.
fn upstream(context: &UpstreamTlsContext) -> Result<UpstreamTlsContext, String> {
    let common = context.common_tls_context.as_ref();
    let names: Vec<StringMatcher> = match common.and_then(|common| common.validation_context_type.as_ref()) {
        Some(ValidationContextType::CombinedValidationContext(validation)) => {
            let names = validation.default_validation_context.iter();
            let names = names.flat_map(|context| &context.match_typed_subject_alt_names);
            names.filter_map(|name| name.matcher.clone()).collect()
        }
        _ => Vec::new(),
    };
    if names.is_empty() {
        // No names would mean any name.
        return Err("nothing is known by which its endpoints could prove who they are".to_owned());
    }
    #[allow(deprecated, reason = "the member in its place is not read by gRPC libraries")]
    let validation = CertificateValidationContext {
        match_subject_alt_names: names,
        ..CertificateValidationContext::default()
    };
    Ok(UpstreamTlsContext {
        common_tls_context: Some(super::tls(validation)),
        ..UpstreamTlsContext::default()
    })
}
