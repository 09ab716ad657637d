//! Random policies of the older kinds.

use std::collections::BTreeMap;

use chrono::DateTime;
use common::{document::Document, policy::legacy::KINDS};
use proptest::{collection::vec, option, prelude::*, sample::select, strategy::ValueTree};
use serde_json::{Value, json};

use super::{PATHS, PROTOCOLS, SERVICES, TEXTS, WEIGHTS};

const SPANS: &[&str] = &["0s", "0.000000001s", "0.049s", "3s", "360000s", "-1s", "9000000000s"];
const SHARES: &[f64] = &[0.0, 0.0001, 33.3, 100.0];

fn service() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("*"), select(SERVICES)]
}

fn selector() -> impl Strategy<Value = Value> {
    (service(), option::of(select(&["*", "v1", "v2"][..])), option::of(select(PROTOCOLS))).prop_map(
        |(service, version, protocol)| {
            let mut tags = json!({"kuma.io/service": service});
            if let Some(version) = version {
                tags["version"] = json!(version);
            }
            if let Some(protocol) = protocol {
                tags["kuma.io/protocol"] = json!(protocol);
            }
            json!({ "match": tags })
        },
    )
}

fn of_calls(kind: &'static str, conf: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    let to = vec(service(), 1..3);
    (vec(selector(), 1..3), to, conf)
        .prop_map(move |(sources, to, conf)| {
            let to: Vec<Value> = to.iter().map(|to| json!({"match": {"kuma.io/service": to}})).collect();
            json!({"type": kind, "sources": sources, "destinations": to, "conf": conf})
        })
        .boxed()
}

fn of_inbounds(kind: &'static str, conf: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    (vec(selector(), 1..3), vec(selector(), 1..3), conf)
        .prop_map(move |(sources, to, conf)| {
            let mut document = json!({"type": kind, "sources": sources, "destinations": to});
            if !conf.is_null() {
                document["conf"] = conf;
            }
            document
        })
        .boxed()
}

fn target() -> impl Strategy<Value = Value> {
    (service(), option::of(select(&["*", "v1", "v2"][..]))).prop_map(|(service, version)| match version {
        Some(version) => json!({"kuma.io/service": service, "version": version}),
        None => json!({"kuma.io/service": service}),
    })
}

fn text_match() -> impl Strategy<Value = Value> {
    (select(&["exact", "prefix", "regex"][..]), prop_oneof![select(TEXTS), select(PATHS)])
        .prop_map(|(kind, text)| json!({kind: text}))
}

fn rule() -> impl Strategy<Value = Value> {
    let condition = (text_match(), option::of(text_match()), option::of((select(TEXTS), text_match())));
    let condition = condition.prop_map(|(path, method, header)| {
        let mut condition = json!({ "path": path });
        if let Some(method) = method {
            condition["method"] = method;
        }
        if let Some((name, value)) = header {
            condition["headers"] = json!({name: value});
        }
        condition
    });
    let modify = (select(TEXTS), select(TEXTS), select(PATHS), any::<bool>()).prop_map(
        |(name, value, path, regex)| {
            let replace = json!({"pattern": value, "substitution": path});
            let (path, host) = if regex {
                (json!({"regex": replace}), json!({"fromPath": replace}))
            } else {
                (json!({"rewritePrefix": path}), json!({"value": value}))
            };
            let headers =
                json!({"add": [{"name": name, "value": value, "append": regex}], "remove": [{"name": name}]});
            json!({"path": path, "host": host, "requestHeaders": headers, "responseHeaders": headers})
        },
    );
    (condition, option::of(modify), target()).prop_map(|(condition, modify, target)| {
        let mut rule = json!({"match": condition, "destination": target});
        if let Some(modify) = modify {
            rule["modify"] = modify;
        }
        rule
    })
}

fn route() -> impl Strategy<Value = Value> {
    let balancer = prop_oneof![
        Just(json!({"roundRobin": {}})),
        Just(json!({"random": {}})),
        Just(json!({"maglev": {}})),
        (0..4_u32).prop_map(|choices| json!({"leastRequest": {"choiceCount": choices}})),
        (0..3000_u32, 0..3000_u32).prop_map(|(min, max)| {
            json!({"ringHash": {"hashFunction": "XX_HASH", "minRingSize": min, "maxRingSize": max}})
        }),
    ];
    let split = (select(WEIGHTS), target());
    let split = split.prop_map(|(weight, target)| json!({"weight": weight, "destination": target}));
    (vec(split, 1..3), vec(rule(), 0..3), option::of(balancer)).prop_map(|(split, http, balancer)| {
        let mut conf = json!({"split": split, "http": http});
        if let Some(balancer) = balancer {
            conf["loadBalancer"] = balancer;
        }
        conf
    })
}

fn timeout() -> impl Strategy<Value = Value> {
    (select(SPANS), select(SPANS), any::<bool>()).prop_map(|(one, other, grpc)| {
        let mut conf = json!({"connectTimeout": one, "tcp": {"idleTimeout": other},
            "http": {"requestTimeout": one, "idleTimeout": other, "streamIdleTimeout": one, "maxStreamDuration": other}});
        if grpc {
            conf["grpc"] = json!({"streamIdleTimeout": other, "maxStreamDuration": one});
        }
        conf
    })
}

fn retry() -> impl Strategy<Value = Value> {
    let condition = select(&["all_5xx", "retriable_4xx", "retriable_status_codes", "envoy_ratelimited"][..]);
    (select(SPANS), select(SPANS), 0..3_u32, vec(condition, 0..3)).prop_map(|(base, max, count, on)| {
        let back_off = json!({"baseInterval": base, "maxInterval": max});
        json!({
            "http": {"numRetries": count, "perTryTimeout": max, "backOff": back_off, "retriableStatusCodes": [404],
                "retriableMethods": ["GET", "TRACE"], "retryOn": on},
            "grpc": {"numRetries": count, "backOff": back_off, "retryOn": ["unavailable"]},
            "tcp": {"maxConnectAttempts": count}})
    })
}

fn breaker() -> impl Strategy<Value = Value> {
    (select(SPANS), 0..101_u32, any::<bool>()).prop_map(|(span, share, split)| {
        json!({"interval": span, "baseEjectionTime": span, "maxEjectionPercent": share,
            "splitExternalAndLocalErrors": split, "thresholds": {"maxConnections": share},
            "detectors": {"totalErrors": {"consecutive": share}, "failure": {"threshold": share},
                "standardDeviation": {"factor": 1e300}}})
    })
}

fn health_check() -> impl Strategy<Value = Value> {
    (select(SPANS), select(TEXTS), 0..3_u32, 0..3_u32).prop_map(|(span, text, count, form)| {
        let mut conf = json!({"interval": span, "timeout": span, "initialJitter": span, "unhealthyThreshold": count,
            "healthyThreshold": 1, "healthyPanicThreshold": 12.5, "failTrafficOnPanic": true, "eventLogPath": "/dev/null"});
        match form {
            0 => conf["tcp"] = json!({"send": "Zm9v", "receive": ["YmFy", ""]}),
            1 => {
                conf["http"] = json!({"path": text, "expectedStatuses": [200, 599],
                    "requestHeadersToAdd": [{"header": {"key": text, "value": text}}]});
            }
            _ => {}
        }
        conf
    })
}

fn fault() -> impl Strategy<Value = Value> {
    let limit = select(&["0 kbps", "7gbps", "kbps", "1 mbps"][..]);
    (select(SHARES), select(SPANS), 100..600_u32, limit).prop_map(|(percentage, span, status, limit)| {
        json!({"delay": {"percentage": percentage, "value": span},
            "abort": {"percentage": percentage, "httpStatus": status},
            "responseBandwidth": {"percentage": percentage, "limit": limit}})
    })
}

fn rate_limit() -> impl Strategy<Value = Value> {
    (select(WEIGHTS), select(SPANS), 0..600_u32, select(TEXTS)).prop_map(|(requests, span, status, text)| {
        let headers = json!([{"key": text, "value": text}, {"key": "x-a", "value": "b", "append": true}]);
        json!({"http": {"requests": requests, "interval": span, "onRateLimit": {"status": status, "headers": headers}}})
    })
}

fn template() -> impl Strategy<Value = Value> {
    let change = prop_oneof![
        Just(json!({"cluster": {"operation": "add", "value": "{name: added, type: STATIC}"}})),
        service().prop_map(|name| {
            json!({"cluster": {"operation": "patch", "match": {"name": name}, "value": "connectTimeout: 9s"}})
        }),
        Just(
            json!({"listener": {"operation": "remove", "match": {"origin": "outbound", "tags": {"version": "v1"}}}})
        ),
        Just(json!({"virtualHost": {"operation": "patch", "value": "requireTls: NONE"}})),
    ];
    let raw = "{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: raw, type: STATIC}";
    let raw = json!([{"name": "raw", "version": "1", "resource": raw}]);
    (vec(change, 0..3), any::<bool>(), selector()).prop_map(move |(changes, raws, selector)| {
        let mut conf = json!({"imports": ["default-proxy"], "modifications": changes});
        if raws {
            conf["resources"] = raw.clone();
        }
        json!({"type": "ProxyTemplate", "selectors": [selector], "conf": conf})
    })
}

/// A document without name.
pub(super) fn policy() -> impl Strategy<Value = Value> {
    let backend = || select(&["", "a", "b", "c", "none"][..]).prop_map(|name| json!({"backend": name}));
    let trace = (selector(), backend())
        .prop_map(|(selector, conf)| json!({"type": "TrafficTrace", "selectors": [selector], "conf": conf}));
    prop_oneof![
        // Without one those about calls have no effect.
        3 => of_calls("TrafficRoute", route()),
        1 => of_calls("Timeout", timeout()),
        1 => of_calls("Retry", retry()),
        1 => of_calls("CircuitBreaker", breaker()),
        1 => of_calls("HealthCheck", health_check()),
        1 => of_calls("TrafficLog", backend()),
        1 => of_inbounds("TrafficPermission", Just(Value::Null)),
        1 => of_inbounds("FaultInjection", fault()),
        1 => of_inbounds("RateLimit", rate_limit()),
        1 => trace,
        1 => template(),
    ]
}

/// What is refused is left out of a zone, so that a generator gone wrong would look like one that is right.
#[test]
fn every_kind_is_made_and_most_of_it_is_taken() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut taken: BTreeMap<&'static str, usize> = BTreeMap::new();
    for _ in 0..1000 {
        let mut document = policy().new_tree(&mut runner).unwrap().current();
        (document["mesh"], document["name"]) = (json!("demo"), json!("a"));
        let resource = Document::parse(&document).unwrap().into_resource(DateTime::UNIX_EPOCH);
        let good = resource.kind().validate(&resource.spec).unwrap().is_empty();
        *taken.entry(resource.kind().name).or_default() += usize::from(good);
    }
    let kinds = KINDS.map(|kind| (kind.name, taken.get(kind.name).copied().unwrap_or_default()));
    assert!(kinds.iter().all(|(_, count)| *count > 0), "{kinds:?}");
}
