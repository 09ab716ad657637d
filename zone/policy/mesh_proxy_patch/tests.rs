#![allow(clippy::unwrap_used)]

use common::{
    model::{Resource, ResourceKey},
    policy::rules::Policy,
};
use serde_json::{Value, json};

use super::*;
use crate::generator::Draft;

fn patches(modifications: Value) -> Patches {
    let key = ResourceKey::new(MeshProxyPatchEffect::KIND, "demo", "p");
    let spec = json!({"default": {"appendModifications": modifications}});
    let violations = mesh_proxy_patch::KIND.validate(spec.to_string().as_bytes()).unwrap();
    assert!(violations.is_empty(), "{violations}");
    let resource = Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(spec.to_string());
    Patches::of([&Arc::new(Policy::parse(Arc::new(resource)).unwrap())], None)
}

/// A listener with requests on it, and a cluster.
fn own() -> ResourceCollection {
    let yaml = "
name: in
metadata: { filterMetadata: { io.kuma.tags: { kuma.io/service: web } } }
filterChains:
  - filters:
      - name: envoy.filters.network.http_connection_manager
        typedConfig:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          statPrefix: in
          normalizePath: true
          routeConfig: { name: r, virtualHosts: [{ name: v, domains: ['*'] }] }
          httpFilters:
            - name: envoy.filters.http.router
              typedConfig: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
";
    let listener = common::policy::mesh_proxy_patch::native::Native::Listener.parse(yaml).unwrap();
    let mut own = Draft::default().finish();
    own.insert(Arc::new(Encoded::dynamic("in", type_url::LISTENER, "inbound", &listener)));
    let cluster = "{name: c, connectTimeout: 5.5s, type: STATIC}";
    let cluster = common::policy::mesh_proxy_patch::native::Native::Cluster.parse(cluster).unwrap();
    own.insert(Arc::new(Encoded::dynamic("c", type_url::CLUSTER, "inbound", &cluster)));
    own
}

#[test]
fn values_for_the_runtime_are_one_layer_and_told_where_there_is_no_place_for_it() {
    use prost::Message;

    let written = patches(json!([
        {"runtime": {"layer": {"a.b": 1, "c": {"numerator": 5, "denominator": "HUNDRED"}, "d": true}}},
        {"cluster": {"operation": "Remove", "match": {"name": "c"}}},
        {"runtime": {"layer": {"a.b": "two", "d": null}}},
    ]));
    let runtime = |patches: &Patches| {
        let encoded = patches.runtime();
        assert_eq!((&*encoded.name, encoded.type_url), ("mesh", type_url::RUNTIME));
        let json = encoded.to_json().unwrap();
        common::proto::envoy::service::runtime::v3::Runtime::decode(&encoded.value[..]).unwrap();
        json["layer"].clone()
    };
    assert_eq!(runtime(&written), json!({"a.b": "two", "c": {"numerator": 5.0, "denominator": "HUNDRED"}}));
    assert_eq!(runtime(&Patches::default()), json!({}), "there always is one");
    let mut problems = BTreeSet::new();
    let own = written.own(own(), &mut problems);
    assert!(own.get(type_url::CLUSTER, "c").is_none() && problems.is_empty(), "{problems:?}");
    written.without_runtime(&mut problems);
    let told: Vec<&str> = problems.iter().map(|problem| problem.reason.as_str()).collect();
    assert!(told.len() == 2 && told[1].starts_with("modification 2 of p has no effect"), "{told:?}");
    Patches::default().without_runtime(&mut problems);
    assert_eq!(problems.len(), 2);
}

/// What becomes of it: the listener, the cluster, and what is left out.
fn changed(modifications: Value) -> (Value, Value, Vec<String>) {
    let mut problems = BTreeSet::new();
    let own = patches(modifications).own(own(), &mut problems);
    let json = |of, name| own.get(of, name).map(|e| e.to_json().unwrap()).unwrap_or_default();
    let problems = problems.iter().map(ToString::to_string).collect();
    (json(type_url::LISTENER, "in"), json(type_url::CLUSTER, "c"), problems)
}

fn manager(listener: &Value) -> &Value {
    let filters = listener["filterChains"][0]["filters"].as_array().unwrap();
    let is = |f: &&Value| f["name"] == "envoy.filters.network.http_connection_manager";
    &filters.iter().find(is).unwrap()["typedConfig"]
}

const LUA: &str = "
name: lua
typedConfig:
  '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
  defaultSourceCode: { inlineString: '-- nothing' }
";

#[test]
fn filters_are_put_where_they_are_asked_for() {
    let lua = |name: &str| LUA.replace("name: lua", &format!("name: {name}"));
    let router = json!({"name": "envoy.filters.http.router"});
    let (listener, _, problems) = changed(json!([
        {"httpFilter": {"operation": "AddLast", "value": lua("last")}},
        {"httpFilter": {"operation": "AddFirst", "match": {"origin": "inbound"}, "value": lua("first")}},
        {"httpFilter": {"operation": "AddBefore", "match": router, "value": lua("before")}},
        {"httpFilter": {"operation": "AddAfter", "match": router, "value": lua("after")}},
        {"httpFilter": {"operation": "AddAfter", "match": {"name": "none"}, "value": lua("nowhere")}},
        {"httpFilter": {"operation": "AddFirst", "match": {"listenerTags": {"kuma.io/service": "api"}}, "value": lua("other")}},
        {"httpFilter": {"operation": "AddFirst", "match": {"origin": "outbound"}, "value": lua("other")}},
        {"httpFilter": {"operation": "Patch", "match": {"name": "first"}, "value": LUA.replace("nothing", "patched")}},
        {"httpFilter": {"operation": "Patch", "match": {"name": "last"}, "jsonPatches": [
            {"op": "replace", "path": "/defaultSourceCode/inlineString", "value": "-- by JSON"}]}},
        {"httpFilter": {"operation": "Remove", "match": {"name": "after"}}},
        {"networkFilter": {"operation": "AddFirst", "match": {"listenerName": "in", "listenerTags": {"kuma.io/service": "*"}},
            "value": "{name: echo, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}"}},
    ]));
    assert_eq!(problems, Vec::<String>::new());
    let filters = manager(&listener)["httpFilters"].as_array().unwrap();
    let names: Vec<&str> = filters.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "before", "envoy.filters.http.router", "last"]);
    let source = |i: usize| &filters[i]["typedConfig"]["defaultSourceCode"]["inlineString"];
    assert_eq!((source(0), source(3)), (&json!("-- patched"), &json!("-- by JSON")));
    assert_eq!(listener["filterChains"][0]["filters"][0]["name"], "echo");
}

#[test]
fn messages_are_merged_member_by_member() {
    let (listener, cluster, problems) = changed(json!([
        {"cluster": {"operation": "Patch", "match": {"name": "c"}, "value": "connectTimeout: 7s\nhealthChecks: [{timeout: 1s, interval: 1s, tcpHealthCheck: {}}]"}},
        {"cluster": {"operation": "Patch", "jsonPatches": [
            {"op": "add", "path": "/commonLbConfig/healthyPanicThreshold/value", "value": 10}]}},
        {"networkFilter": {"operation": "Patch", "match": {"name": "envoy.filters.network.http_connection_manager"}, "value":
            "{typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, normalizePath: false, serverName: me}}"}},
        {"virtualHost": {"operation": "Patch", "match": {"name": "v", "routeConfigurationName": "r"}, "value":
            "responseHeadersToAdd: [{header: {key: x-patched, value: 'yes'}}]"}},
        {"virtualHost": {"operation": "Add", "value": "{name: w, domains: [w.example]}"}},
        {"virtualHost": {"operation": "Remove", "match": {"name": "v", "origin": "outbound"}}},
    ]));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(cluster["connectTimeout"], "7s", "a duration is one value");
    assert_eq!(cluster["healthChecks"].as_array().unwrap().len(), 1);
    assert_eq!(cluster["commonLbConfig"]["healthyPanicThreshold"]["value"], 10.0);
    let manager = manager(&listener);
    assert_eq!((&manager["normalizePath"], &manager["serverName"]), (&json!(false), &json!("me")));
    assert_eq!(manager["statPrefix"], "in", "what the patch does not name stays");
    let hosts = manager["routeConfig"]["virtualHosts"].as_array().unwrap();
    assert_eq!(hosts.iter().map(|h| h["name"].as_str().unwrap()).collect::<Vec<_>>(), ["v", "w"]);
    assert_eq!(hosts[0]["responseHeadersToAdd"][0]["header"]["key"], "x-patched");
}

#[test]
fn what_cannot_be_applied_is_told_and_changes_nothing() {
    let before = changed(json!([{"listener": {"operation": "Remove", "match": {"name": "none"}}}]));
    let after = changed(json!([
        {"cluster": {"operation": "Patch", "jsonPatches": [{"op": "replace", "path": "/none/here", "value": 1}]}},
        {"cluster": {"operation": "Patch", "jsonPatches": [
            {"op": "replace", "path": "/connectTimeout", "value": "1s"}, {"op": "add", "path": "/type", "value": "ODD"}]}},
        {"listener": {"operation": "Patch", "value": "name: another"}},
        {"networkFilter": {"operation": "Patch", "match": {"name": "envoy.filters.network.http_connection_manager"}, "value":
            "{typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}"}},
    ]));
    assert_eq!((&after.0, &after.1), (&before.0, &before.1));
    assert_eq!(after.2.len(), 4, "{:?}", after.2);
    assert!(
        after.2[2].contains("modification 2 of p is left out of in: it would be called \"another\""),
        "{:?}",
        after.2
    );
}

#[test]
fn what_nobody_knows_is_passed_over_and_told() {
    let (_, cluster, problems) = changed(json!([
        {"cluster": {"operation": "Patch", "value": "{connectTimeout: 9s, conectTimeout: 8s}"}},
    ]));
    assert_eq!(cluster["connectTimeout"], "9s");
    assert!(problems[0].contains("modification 0 of p passes over what nobody knows: "), "{problems:?}");
}

#[test]
fn resources_are_added_and_taken_out() {
    let mut problems = BTreeSet::new();
    let patches = patches(json!([
        {"cluster": {"operation": "Add", "value": "{name: more, type: STATIC, connectTimeout: 3s}"}},
        {"cluster": {"operation": "Patch", "match": {"origin": "mesh-proxy-patch"}, "value": "altStatName: other"}},
        {"cluster": {"operation": "Remove", "match": {"name": "c"}}},
        {"listener": {"operation": "Remove", "match": {"tags": {"kuma.io/service": "web"}}}},
    ]));
    let own = patches.own(own(), &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(own.get(type_url::CLUSTER, "c").is_none() && own.get(type_url::LISTENER, "in").is_none());
    let more = own.get(type_url::CLUSTER, "more").unwrap().to_json().unwrap();
    assert_eq!(more["altStatName"], "other");
}
