#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use chrono::DateTime;
use serde_json::{Value, json};

use super::*;
use crate::{
    document::Document,
    model::{ResourceKey, names},
    policy::rules::{Destinations, OutboundRules, PolicySet, Selection, to_rules},
    registry,
};

/// A policy of zone `west` as zone `east` has it, once its author called it a producer's.
fn guest(kind: &str, spec: &Value) -> Arc<Resource> {
    let key = ResourceKey::new(registry::by_name(kind).unwrap(), "default", "p-0");
    let resource = Resource::new(key, DateTime::UNIX_EPOCH)
        .with_label(labels::ORIGIN, labels::ORIGIN_GLOBAL)
        .with_label(labels::ZONE, "west")
        .with_label(labels::NAMESPACE, "demo")
        .with_label(labels::DISPLAY_NAME, "p")
        .with_label(labels::POLICY_ROLE, "producer");
    Arc::new(resource.with_spec(spec.to_string()))
}

fn with(resource: &Resource, key: &str, value: &str) -> Arc<Resource> {
    Arc::new(Resource::clone(resource).with_label(key, value))
}

fn parsed(resource: &Arc<Resource>) -> Arc<Policy> {
    Arc::new(Policy::parse(Arc::clone(resource)).unwrap())
}

fn to(target: &Value) -> Value {
    json!({"to": [{"targetRef": target, "default": {"idleTimeout": "1s"}}]})
}

fn redis() -> Value {
    json!({"kind": "MeshService", "name": "redis"})
}

/// A sidecar in zone `east`.
fn proxy() -> SelectableProxy {
    let document = json!({
        "type": "Dataplane", "mesh": "default", "name": "web-1",
        "labels": {labels::ORIGIN: "zone", labels::ZONE: "east", labels::NAMESPACE: "shop"},
        "networking": {"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {labels::TAG_SERVICE: "web"}}]},
    });
    let resource = Document::parse(&document).unwrap().into_resource(DateTime::UNIX_EPOCH);
    SelectableProxy::of(&resource).unwrap().unwrap()
}

/// A service called `name`, in the namespace `demo` of a zone.
fn service(name: &str, zone: &str) -> Arc<Resource> {
    let kind = registry::by_name("MeshService").unwrap();
    let key = ResourceKey::new(kind, "default", &format!("{name}-{zone}"));
    let resource = Resource::new(key, DateTime::UNIX_EPOCH)
        .with_label(labels::DISPLAY_NAME, name)
        .with_label(labels::NAMESPACE, "demo")
        .with_label(labels::ZONE, zone);
    Arc::new(resource.with_spec(json!({"ports": [{"port": 80}]}).to_string()))
}

#[test]
fn a_producer_speaks_of_services_of_its_own_namespace() {
    let speaks = |kind: &str, spec: &Value| parsed(&guest(kind, spec)).speaks_for_services();
    let check = |kind: &str, spec: Value, expected: bool| assert_eq!(speaks(kind, &spec), expected, "{spec}");
    let timeout = |spec: Value, expected: bool| check("MeshTimeout", spec, expected);
    timeout(to(&redis()), true);
    timeout(to(&json!({"kind": "MeshService", "name": "redis", "namespace": "demo"})), true);
    timeout(to(&json!({"kind": "MeshHTTPRoute", "name": "redis"})), true);
    timeout(to(&json!({"kind": "MeshService", "name": "redis", "namespace": "other"})), false);
    timeout(to(&json!({"kind": "MeshService", "labels": {"app": "redis"}})), false);
    timeout(to(&json!({"kind": "MeshMultiZoneService", "name": "redis"})), false);
    timeout(to(&json!({"kind": "Mesh"})), false);
    timeout(json!({}), false);
    let item = |target: Value| json!({"targetRef": target, "default": {"idleTimeout": "1s"}});
    timeout(json!({"to": [item(redis()), item(json!({"kind": "Mesh"}))]}), false);
    timeout(json!({"to": [item(redis())], "from": [item(json!({"kind": "Mesh"}))]}), false);
    timeout(json!({"to": [item(redis())], "rules": [{"default": {"idleTimeout": "1s"}}]}), false);
    let route = json!({"kind": "MeshHTTPRoute", "name": "r"});
    timeout(json!({"targetRef": route, "to": [item(redis())]}), false);

    let for_clients =
        |top: Value, expected: bool| timeout(json!({"targetRef": top, "to": [item(redis())]}), expected);
    for_clients(json!({"kind": "Mesh"}), true);
    for_clients(json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), true);
    for_clients(json!({"kind": "MeshSubset", "tags": {"kuma.io/zone": "east"}}), true);
    for_clients(json!({"kind": "Dataplane"}), true);
    // Each of these makes one more sort of clients.
    for_clients(json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}), false);
    for_clients(json!({"kind": "MeshSubset", "tags": {"kuma.io/zone": "east", "team": "a"}}), false);
    for_clients(json!({"kind": "Mesh", "tags": {"team": "a"}}), false);
    for_clients(json!({"kind": "Dataplane", "labels": {"app": "web"}}), false);
    for_clients(json!({"kind": "Dataplane", "name": "web-1"}), false);
    for_clients(json!({"kind": "Dataplane", "sectionName": "http"}), false);
    for_clients(json!({"kind": "MeshService", "name": "web"}), false);
    for_clients(json!({"kind": "MeshGateway", "name": "edge"}), false);

    let at_home = |key: &str, value: &str| parsed(&with(&guest("MeshTimeout", &to(&redis())), key, value));
    assert!(!at_home(labels::NAMESPACE, "kuma-system").speaks_for_services());
    assert!(!at_home(labels::NAMESPACE, "").speaks_for_services());
    assert!(!at_home(labels::POLICY_ROLE, "consumer").speaks_for_services());
}

/// What no decoder of the kind reads is no reason to believe anything.
#[test]
fn a_member_that_the_kind_does_not_have_makes_no_producer() {
    let lists = json!([{"targetRef": redis(), "default": {}}]);
    let patch = json!({
        "targetRef": {"kind": "Mesh"}, "to": lists,
        "default": {"appendModifications": [{"cluster": {"operation": "Remove"}}]},
    });
    let permission = json!({"targetRef": {"kind": "Mesh"}, "to": lists, "rules": [{"default": {"allow": [{"spiffeID": {
            "type": "Prefix", "value": "spiffe://"}}]}}]});
    for (kind, spec) in [("MeshProxyPatch", patch), ("MeshTrafficPermission", permission)] {
        let resource = guest(kind, &spec);
        let policy = parsed(&resource);
        assert!(!policy.speaks_for_services(), "{kind}");
        assert!(!policy.selects_alike() && !policy.may_select(&proxy()), "{kind}");
        let asked = Selection::among([&policy], &proxy(), &Destinations::default(), true);
        assert!(asked.policies.is_empty(), "{kind}");
        let set = PolicySet::parse(resource.kind(), [&resource]);
        assert!(set.policies.is_empty() && set.broken.contains_key(&resource.key), "{kind}");
        // In its own zone, and seen by global, it is for the proxies of that zone.
        let seen = Resource { origin: Origin::Zone("west".into()), ..Resource::clone(&resource) };
        let seen = parsed(&with(&seen, labels::ORIGIN, labels::ORIGIN_ZONE));
        assert!(!seen.may_select(&proxy()), "{kind}");
        let mut own = proxy();
        own.kri.zone = "west".to_owned();
        assert!(seen.may_select(&own), "{kind}");
    }
}

#[test]
fn a_producer_writes_to_no_file_of_its_clients_and_reads_nothing_there() {
    let log = |backend: Value| {
        let item = json!({"targetRef": redis(), "default": {"backends": [backend]}});
        parsed(&guest("MeshAccessLog", &json!({"to": [item]}))).speaks_for_services()
    };
    let file = |path: &str, line: &str| {
        log(json!({"type": "File", "file": {"path": path, "format": {"type": "Plain", "plain": line}}}))
    };
    assert!(file("/dev/stdout", "%KUMA_MESH% %RESPONSE_CODE%"));
    assert!(!file("/etc/cron.d/mine", "* * * * * me it"));
    assert!(!file("/dev/stdout", "%ENVIRONMENT(SECRET)%"));
    assert!(!file("/dev/stdout", "%ENVIRON%KUMA_SOURCE_SERVICE%MENT(SECRET)%"));
    let header = json!({"name": "x", "value": "%ENVIRONMENT(SECRET)%"});
    let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [header]}});
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {"filters": [filter]}});
    let route = json!({"to": [{"targetRef": redis(), "rules": [rule]}]});
    assert!(!parsed(&guest("MeshHTTPRoute", &route)).speaks_for_services());
}

#[test]
fn another_zone_speaks_of_its_own_services_however_they_are_called() {
    let mesh = registry::by_name("Mesh").unwrap();
    let mesh = Arc::new(Resource::new(ResourceKey::global(mesh, "default"), DateTime::UNIX_EPOCH));
    let all = [mesh, service("redis", "west"), service("redis", "east"), service("redis", "")];
    let destinations = Destinations::new(&all);
    let zones = |resource: &Arc<Resource>| {
        let (policy, proxy) = (parsed(resource), proxy());
        let selection = Selection::among([&policy], &proxy, &destinations, false);
        assert_eq!(selection.policies.len(), 1, "it is for clients everywhere");
        let rules = to_rules(&selection.policies, &destinations).unwrap();
        let lazy = OutboundRules::new(&selection.policies, &destinations);
        let known = ["redis", "redis_demo_svc_80"].map(|name| {
            let known = rules.tags.service(name).is_some();
            assert_eq!(lazy.service(name).unwrap().is_some(), known);
            known
        });
        let zones: Vec<String> = rules.resources.0.into_keys().map(|kri| kri.zone).collect();
        (known.contains(&true), zones)
    };
    let named = |name: &str| guest("MeshTimeout", &to(&json!({"kind": "MeshService", "name": name})));
    for name in ["redis", "redis_demo_svc_80"] {
        assert_eq!(zones(&named(name)), (false, vec!["west".to_owned()]), "{name}");
    }
    // At home it is as it always was.
    let home = |name: &str| {
        let home = with(&named(name), labels::ORIGIN, labels::ORIGIN_ZONE);
        zones(&with(&home, labels::ZONE, "east"))
    };
    assert_eq!(home("redis"), (true, vec!["east".to_owned()]));
    assert_eq!(home("redis_demo_svc_80").1.len(), 3);
}

#[test]
fn a_route_of_another_zone_is_not_what_a_name_means() {
    let route = json!({"to": [{"targetRef": redis(), "rules": [
        {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {}}]}]});
    let foreign = guest("MeshHTTPRoute", &route);
    let own = Resource { key: ResourceKey::new(foreign.kind(), "default", "z"), ..Resource::clone(&foreign) };
    let own = with(&own, labels::ORIGIN, labels::ORIGIN_ZONE);
    let own = with(&own, labels::ZONE, "east");
    let key = |all: &[Arc<Resource>], policy: &Resource, name: &str| {
        Destinations::new(all).route(policy, name).map(|found| found.resource.key.clone())
    };
    let global =
        Resource::new(ResourceKey::new(foreign.kind(), "default", "of-global"), DateTime::UNIX_EPOCH);
    let local = with(&global, labels::ZONE, "east");
    for policy in [&global, &*local] {
        for name in ["p", "p-0", &names::hashed("default", "p", None, None)] {
            assert_eq!(key(&[Arc::clone(&foreign)], policy, name), None, "{name}");
        }
        let both = [Arc::clone(&foreign), Arc::clone(&own)];
        assert_eq!(key(&both, policy, "p"), Some(own.key.clone()));
    }
}

/// What is sent to a backend bears the name of the client, which may go where the zone may not.
#[test]
fn a_route_of_another_zone_sends_to_services_of_that_zone() {
    let reference = |kind: &str| json!({"kind": kind, "name": "admin", "port": 80});
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": reference("MeshService")}});
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {
        "filters": [mirror],
        "backendRefs": [reference("MeshService"), reference("MeshMultiZoneService"),
            {"kind": "MeshService", "labels": {"app": "a", labels::ZONE: "east"}, "port": 80}],
    }});
    let spec = json!({"to": [{"targetRef": redis(), "rules": [rule]}]});
    let conf = |resource: &Arc<Resource>| parsed(resource).to[0].conf["rules"][0]["default"].clone();
    let abroad = conf(&guest("MeshHTTPRoute", &spec));
    let wanted = json!({labels::DISPLAY_NAME: "admin", labels::NAMESPACE: "demo", labels::ZONE: "west"});
    let meant = |reference: &Value| (reference["name"].clone(), reference["labels"].clone());
    assert_eq!(meant(&abroad["backendRefs"][0]), (Value::Null, wanted.clone()));
    assert_eq!(meant(&abroad["backendRefs"][1]), (Value::Null, wanted.clone()));
    let by_labels = json!({"app": "a", labels::ZONE: "west"});
    assert_eq!(meant(&abroad["backendRefs"][2]), (Value::Null, by_labels));
    assert_eq!(meant(&abroad["filters"][0]["requestMirror"]["backendRef"]), (Value::Null, wanted));
    let home = conf(&with(&guest("MeshHTTPRoute", &spec), labels::ORIGIN, labels::ORIGIN_ZONE));
    assert_eq!(home["backendRefs"][0]["name"], "admin");

    let tcp = json!({"to": [{"targetRef": redis(), "rules": [{"default": {"backendRefs": [reference("MeshService")]}}]}]});
    let tcp = parsed(&guest("MeshTCPRoute", &tcp));
    assert_eq!(tcp.to[0].conf["default"]["backendRefs"][0]["labels"][labels::ZONE], "west");
    // Nothing else that is called a backend is meant.
    let log = json!({"to": [{"targetRef": redis(), "default": {"backends": [{"type": "OpenTelemetry", "openTelemetry": {
        "backendRef": {"kind": "MeshOpenTelemetryBackend", "name": "c"}}}]}}]});
    let log = parsed(&guest("MeshAccessLog", &log));
    assert_eq!(log.to[0].conf["backends"][0]["openTelemetry"]["backendRef"]["name"], "c");
}
