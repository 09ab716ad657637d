#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{
    choice::{self, PolicyCandidate},
    *,
};
use crate::model::{Resource, ResourceKey, transcode};

/// What is wrong with a spec: `field: reason` per violation.
fn wrong(kind: &Kind, spec: &Value) -> Vec<String> {
    let violations = kind.validate(&transcode::from_json(kind, spec).unwrap()).unwrap();
    violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
}

fn good() -> Vec<(&'static Kind, Value)> {
    let anybody = json!([{"match": {"kuma.io/service": "*"}}]);
    let served = json!([{"match": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]);
    let of_calls = |conf: Value| json!({"sources": anybody, "destinations": anybody, "conf": conf});
    let of_inbounds = |conf: Value| json!({"sources": anybody, "destinations": served, "conf": conf});
    let filter = json!({"httpFilter": {"operation": "remove", "match": {"name": "a"}}});
    vec![
        (&timeout::KIND, of_calls(json!({"connectTimeout": "1s", "tcp": {"idleTimeout": "2s"}}))),
        (&retry::KIND, of_calls(json!({"http": {"numRetries": 2, "retryOn": ["all_5xx"]}}))),
        (&circuit_breaker::KIND, of_calls(json!({"thresholds": {"maxConnections": 1}}))),
        (
            &health_check::KIND,
            of_calls(
                json!({"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}),
            ),
        ),
        (&traffic_route::KIND, of_calls(json!({"destination": {"kuma.io/service": "*"}}))),
        (&traffic_log::KIND, of_calls(json!({}))),
        (&rate_limit::KIND, of_inbounds(json!({"http": {"requests": 1, "interval": "1s"}}))),
        (&fault_injection::KIND, of_inbounds(json!({"abort": {"httpStatus": 500, "percentage": 50}}))),
        (&traffic_permission::KIND, json!({"sources": anybody, "destinations": anybody})),
        (&traffic_trace::KIND, json!({"selectors": anybody, "conf": {"backend": "a"}})),
        (
            &proxy_template::KIND,
            json!({"selectors": anybody, "conf": {"imports": ["default-proxy"], "modifications": [filter]}}),
        ),
    ]
}

#[test]
fn what_is_right_is_taken_and_read_again() {
    let good = good();
    assert_eq!(good.len(), KINDS.len());
    for (kind, spec) in good {
        assert_eq!(wrong(kind, &spec), Vec::<String>::new(), "{}", kind.name);
        let read = LegacyPolicy::parse(policy(kind, "a", &spec, 0).resource.clone()).unwrap();
        assert_eq!(read.sources.len(), 1, "{}", kind.name);
    }
}

#[test]
fn selectors_are_checked() {
    let check = |sources: Value, destinations: Value| {
        let spec =
            json!({"sources": sources, "destinations": destinations, "conf": {"connectTimeout": "1s"}});
        wrong(&timeout::KIND, &spec)
    };
    let web = || json!([{"match": {"kuma.io/service": "web"}}]);
    assert_eq!(
        check(json!([]), json!([])),
        ["sources: must have at least one element", "destinations: must have at least one element",]
    );
    assert_eq!(
        check(json!([{"match": {}}, {"match": {"a b": "", "version": "ä"}}]), web()),
        [
            "sources[0].match: must have at least one tag",
            "sources[0].match: mandatory tag \"kuma.io/service\" is missing",
            "sources[1].match[\"a b\"]: tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
            "sources[1].match[\"a b\"]: tag value must be non-empty",
            "sources[1].match[\"version\"]: tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"",
            "sources[1].match: mandatory tag \"kuma.io/service\" is missing",
        ]
    );
    assert_eq!(
        check(web(), json!([{"match": {"kuma.io/service": "web", "version": "1"}}])),
        [
            "destinations[0].match: must consist of exactly one tag \"kuma.io/service\"",
            "destinations[0].match[\"version\"]: tag \"version\" is not allowed",
        ]
    );
    let faulty = json!({"sources": web(), "destinations": web(), "conf": {"delay": {"percentage": 101}}});
    assert_eq!(
        wrong(&fault_injection::KIND, &faulty),
        [
            "destinations[0].match: protocol must be specified",
            "conf.delay.percentage: has to be in [0.0 - 100.0] range",
            "conf.delay.value: cannot be empty",
        ]
    );
    assert_eq!(wrong(&proxy_template::KIND, &json!({"conf": {}})), Vec::<String>::new());
}

#[test]
fn what_is_said_of_calls_is_checked() {
    let check = |kind: &Kind, conf: Value| {
        let web = json!([{"match": {"kuma.io/service": "web"}}]);
        let mut spec = json!({"sources": web, "destinations": web});
        if !conf.is_null() {
            spec["conf"] = conf;
        }
        wrong(kind, &spec)
    };
    assert_eq!(check(&timeout::KIND, Value::Null), ["conf: has to be defined"]);
    assert_eq!(
        check(&timeout::KIND, json!({"tcp": {}, "http": {"requestTimeout": "0s"}, "grpc": {}})),
        [
            "conf.tcp: at least one timeout in section has to be defined",
            "conf.http.requestTimeout: has to be greater than 0 when defined",
            "conf.grpc: at least one timeout in section has to be defined",
        ]
    );
    assert_eq!(check(&retry::KIND, json!({})), ["conf: missing protocol [grpc|http|tcp] configuration"]);
    let retries = json!({
        "http": {"numRetries": 0, "retriableMethods": ["NONE"], "retryOn": ["retriable_status_codes"], "backOff": {}},
        "grpc": {"retryOn": ["internal", "cancelled", "internal"], "backOff": {"baseInterval": "0s"}},
        "tcp": {}});
    assert_eq!(
        check(&retry::KIND, retries),
        [
            "conf.http.numRetries: has to be greater than 0 when defined",
            "conf.http.backOff.baseInterval: has to be defined",
            "conf.http.retriableMethods[0]: field cannot be empty",
            "conf.http.retryOn[0]: retriableStatusCodes cannot be empty when this option is specified",
            "conf.grpc.retryOn: repeated value \"internal\" at indexes [0, 2]",
            "conf.grpc.backOff.baseInterval: has to be greater than 0",
            "conf.tcp.maxConnectAttempts: has to be greater than 0",
        ]
    );
    assert_eq!(
        check(&circuit_breaker::KIND, json!({"detectors": {}})),
        ["conf: must have at least one of the detector or threshold configured"]
    );
    let breaker =
        json!({"detectors": {"failure": {"threshold": 101}}, "maxEjectionPercent": 200, "thresholds": {}});
    assert_eq!(
        check(&circuit_breaker::KIND, breaker),
        [
            "conf.maxEjectionPercent: has to be in [0.0 - 100.0] range",
            "conf.detectors.failure.threshold: has to be in [0.0 - 100.0] range",
            "conf.thresholds: can't be empty",
        ]
    );
    let health =
        json!({"interval": "-1s", "healthyThreshold": 1, "tcp": {}, "http": {"expectedStatuses": [99]}});
    assert_eq!(
        check(&health_check::KIND, health),
        [
            "conf.interval: must have a positive value",
            "conf.timeout: must have a positive value",
            "conf.unhealthyThreshold: must have a positive value",
            "conf.http.path: has to be defined and cannot be empty",
            "conf.http.expectedStatuses[0]: must be in range [100, 600)",
            "conf: http and tcp cannot be defined at the same time",
        ]
    );
    assert_eq!(
        check(&rate_limit::KIND, json!({"http": {"onRateLimit": {"headers": [{}]}}})),
        [
            "conf.http.requests: requests must be set",
            "conf.http.interval: interval must be set",
            "conf.http.onRateLimit.header[\"0\"]: key must be set",
            "conf.http.onRateLimit.header[\"0\"]: value must be set",
        ]
    );
}

#[test]
fn routes_are_checked() {
    let check = |conf: Value| {
        let web = json!([{"match": {"kuma.io/service": "web"}}]);
        wrong(&traffic_route::KIND, &json!({"sources": web, "destinations": web, "conf": conf}))
    };
    assert_eq!(check(json!({})), ["conf: requires either \"destination\" or \"split\""]);
    let split =
        json!([{"weight": 0, "destination": {"kuma.io/service": "a"}}, {"destination": {"version": "1"}}]);
    assert_eq!(
        check(json!({"split": split, "loadBalancer": {"ringHash": {"hashFunction": "MD5"}}})),
        [
            "conf.split[1].weight: needs to be defined",
            "conf.split[1].destination: mandatory tag \"kuma.io/service\" is missing",
            "conf.split: there must be at least one split entry with weight above 0",
            "conf.loadBalancer.ringHash.hashFunction: must have a valid hash function",
        ]
    );
    let to = || json!({"kuma.io/service": "a"});
    let rule = |condition: Value, modify: Value| {
        check(
            json!({"destination": to(), "http": [{"match": condition, "modify": modify, "destination": to()}]}),
        )
    };
    assert_eq!(
        rule(json!({}), json!({})),
        [
            "conf.http[0].match: must be present and contain at least one of the elements: \"method\", \"path\" or \"headers\""
        ]
    );
    assert_eq!(
        rule(
            json!({"path": {"exact": "/"}, "method": {}}),
            json!({"path": {"rewritePrefix": "/a"}, "host": {}, "requestHeaders": {"add": [{"name": "Host"}]},
                "responseHeaders": {"remove": [{"name": ""}]}})
        ),
        [
            "conf.http[0].match.method: cannot be empty. Available options: \"exact\", \"split\" or \"regex\"",
            "conf.http[0].modify.path.rewritePrefix: can only be set when .http.match.path.prefix is not empty",
            "conf.http[0].modify.host: either \"value\" or \"fromPath\" has to be set",
            "conf.http[0].modify.requestHeaders.add[0].name: host header and HTTP/2 pseudo-headers are not allowed to be modified",
            "conf.http[0].modify.requestHeaders.add[0].value: cannot be empty",
            "conf.http[0].modify.responseHeaders.remove[0].name: cannot be empty",
        ]
    );
}

#[test]
fn templates_are_checked() {
    let check = |conf: Value| wrong(&proxy_template::KIND, &json!({"conf": conf}));
    assert_eq!(
        check(
            json!({"imports": ["", "odd"], "resources": [{"resource": "{\"@type\": \"type.googleapis.com/odd\"}"}]})
        ),
        [
            "conf.imports[0]: cannot be empty",
            "conf.imports[1]: profile not found. Available profiles: default-proxy,egress-proxy,gateway-proxy,ingress-proxy",
            "conf.resources[0].name: cannot be empty",
            "conf.resources[0].version: cannot be empty",
            "conf.resources[0].resource: native Envoy resource is not valid: no message type \"type.googleapis.com/odd\"",
        ]
    );
    let changes = json!([
        {"cluster": {"operation": "add", "match": {"name": "a"}, "value": "name: a"}},
        {"listener": {"operation": "odd"}},
        {"networkFilter": {"operation": "addAfter", "value": "name: a"}},
        {"httpFilter": {"operation": "patch", "match": {"name": "a"}, "value": "name: 1"}},
    ]);
    let told = check(json!({"modifications": changes}));
    assert_eq!(
        told[..3],
        [
            "conf.modifications[0].cluster.match: cannot be defined",
            "conf.modifications[1].listener.operation: invalid operation. Available operations: \"add\", \"patch\", \"remove\"",
            "conf.modifications[2].networkFilter.match.name: cannot be empty. You need to pick a filter after which this one will be added",
        ]
    );
    assert_eq!(told.len(), 4);
    assert!(
        told[3].starts_with("conf.modifications[3].httpFilter.value: native Envoy resource is not valid: ")
    );
    let cluster = "{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"raw\"}";
    let raw = json!([{"name": "raw", "version": "1", "resource": cluster}]);
    assert_eq!(check(json!({ "resources": raw })), Vec::<String>::new());
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

fn policy(kind: &'static Kind, name: &str, spec: &Value, created: i64) -> Arc<LegacyPolicy> {
    let bytes = transcode::from_json(kind, spec).unwrap();
    let resource = Resource::new(ResourceKey::new(kind, "demo", name), at(created)).with_spec(bytes);
    Arc::new(LegacyPolicy::parse(Arc::new(resource)).unwrap())
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A policy about calls: by whom and of what.
fn about(name: &str, created: i64, source: &[(&str, &str)], service: &str) -> Arc<LegacyPolicy> {
    let spec = json!({"sources": [{"match": tags(source)}], "destinations": [{"match": {"kuma.io/service": service}}]});
    policy(&timeout::KIND, name, &spec, created)
}

#[test]
fn the_most_specific_policy_is_for_a_call_then_the_newest_then_the_first_by_name() {
    let caller = tags(&[("kuma.io/service", "web"), ("version", "1")]);
    let winner = |policies: Vec<Arc<LegacyPolicy>>| {
        let candidates: Vec<PolicyCandidate> =
            policies.iter().filter_map(|policy| PolicyCandidate::of(policy, &[&caller])).collect();
        choice::for_service(&candidates, "store").map(|policy| policy.name().to_string())
    };
    let any = || about("any", 9, &[("kuma.io/service", "*")], "*");
    let by_name = || about("by-name", 0, &[("kuma.io/service", "*")], "store");
    let two_any = || about("two-any", 0, &[("kuma.io/service", "*"), ("version", "*")], "*");
    let other = || about("other", 9, &[("kuma.io/service", "db")], "store");
    assert_eq!(winner(vec![other()]), None);
    assert_eq!(winner(vec![any(), other()]).as_deref(), Some("any"));
    assert_eq!(winner(vec![any(), by_name()]).as_deref(), Some("by-name"));
    // More tags say more than exact ones.
    assert_eq!(winner(vec![by_name(), two_any()]).as_deref(), Some("two-any"));
    let twin = |name, created| about(name, created, &[("kuma.io/service", "web")], "store");
    assert_eq!(winner(vec![twin("a", 1), twin("b", 2), twin("c", 1)]).as_deref(), Some("b"));
    assert_eq!(winner(vec![twin("a", 1), twin("b", 1)]).as_deref(), Some("a"));
}

#[test]
fn an_inbound_has_one_permission_and_all_limits() {
    let served = tags(&[("kuma.io/service", "store"), ("kuma.io/protocol", "http")]);
    let permission = |name, to: &[(&str, &str)]| {
        let spec =
            json!({"sources": [{"match": {"kuma.io/service": "*"}}], "destinations": [{"match": tags(to)}]});
        policy(&traffic_permission::KIND, name, &spec, 0)
    };
    let all = permission("all", &[("kuma.io/service", "*")]);
    let one = permission("one", &[("kuma.io/service", "store")]);
    let none = permission("none", &[("kuma.io/service", "web")]);
    assert_eq!(&**choice::for_inbound([&all, &none, &one], &served).unwrap().name(), "one");
    assert!(choice::for_inbound([&none], &served).is_none());

    let limit = |name, created, sources: &[&[(&str, &str)]], to: &[(&str, &str)]| {
        let sources: Vec<Value> = sources.iter().map(|source| json!({"match": tags(source)})).collect();
        let spec = json!({"sources": sources, "destinations": [{"match": tags(to)}]});
        policy(&rate_limit::KIND, name, &spec, created)
    };
    let (any, web) = ([("kuma.io/service", "*")], [("kuma.io/service", "web")]);
    let of_web = limit("of-web", 0, &[&any, &web], &any);
    let newer = limit("newer", 1, &[&any], &any);
    let elsewhere = limit("elsewhere", 1, &[&any], &web);
    let all = choice::all_for_inbound([&elsewhere, &newer, &of_web], &served);
    let found: Vec<(&str, &str)> =
        all.iter().map(|(source, policy)| (&**policy.name(), &*source.r#match["kuma.io/service"])).collect();
    assert_eq!(found, [("of-web", "web"), ("newer", "*"), ("of-web", "*")]);
}

#[test]
fn a_set_finds_who_may_be_meant() {
    let mut set = LegacySet::new(&timeout::KIND);
    let mut put = |policy: &Arc<LegacyPolicy>| set.set(policy.name(), Some(&policy.resource));
    let one = about("one", 0, &[("kuma.io/service", "web")], "*");
    let (change, error) = put(&one);
    assert!(change.before.is_none() && change.after.is_some() && error.is_none());
    let (change, _) = put(&about("one", 0, &[("kuma.io/service", "*")], "*"));
    assert!(!change.keeps_choice());
    assert!(change.after.unwrap().selects_alike() && !change.before.unwrap().selects_alike());
    put(&about("two", 0, &[("kuma.io/service", "db")], "*"));
    let dataplane = json!({"networking": {"address": "127.0.0.1", "inbound": [{"port": 1, "tags": {"kuma.io/service": "web"}}]}});
    let kind = &crate::model::kinds::dataplane::KIND;
    let spec = transcode::from_json(kind, &dataplane).unwrap();
    let resource = Resource::new(ResourceKey::new(kind, "demo", "web-1"), at(0)).with_spec(spec);
    let proxy = crate::policy::rules::SelectableProxy::of(&resource).unwrap().unwrap();
    let names: Vec<&str> = set.candidates(&proxy).iter().map(|policy| &**policy.name()).collect();
    assert_eq!(names, ["one"]);
    set.set(&Arc::from("one"), None);
    assert!(set.candidates(&proxy).is_empty());
    assert_eq!(set.iter().count(), 1);
}
