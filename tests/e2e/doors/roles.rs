//! Every route of the table, on both control planes: for who has no right, and for who has exactly the one it needs.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::{Kind, kinds::access_role::RoleVerb},
    registry,
    rest::routes::{Needs, Route, RouteMethod, RoutePlace, TABLE},
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, http, wait::eventually};

/// Nothing without a role, where settings can say so.
fn closed() -> Options {
    ["readResources", "viewStats", "viewClusters", "controlPlaneMetadata"]
        .iter()
        .fold(Options::default(), |options, setting| {
            options.with(&format!("access.static.{setting}.groups"), "mesh-system:admin")
        })
}

/// A role with one verb for everything, for a user who is called like it.
fn role_of(verb: RoleVerb, place: RoutePlace) -> String {
    let verb_name = verb.as_str();
    let kinds = if verb.names_kinds() { ", kinds: ['*']" } else { "" };
    // What a zone owns says so.
    let labels = if place == RoutePlace::Zone { "labels: { kuma.io/origin: zone }" } else { "labels: {}" };
    format!(
        "type: AccessRole\nname: can-{verb_name}\n{labels}\nspec: {{ rules: [{{ verbs: [{verb_name}]{kinds} }}] }}\n---\n\
         type: AccessRoleBinding\nname: can-{verb_name}\n{labels}\n\
         spec: {{ subjects: [{{ type: User, name: can-{verb_name} }}], roles: [can-{verb_name}] }}\n"
    )
}

fn user_token(cp: &ControlPlane, name: &str) -> String {
    cp.straitctl(&["generate", "user-token", "--name", name, "--valid-for", "1h"]).trim().to_owned()
}

/// One request for a route, with what stands for the parts of its path.
struct Probe {
    method: Method,
    path: String,
    body: Value,
    /// The verb it needs.
    verb: Option<RoleVerb>,
    needs: Needs,
}

impl Probe {
    fn of(route: &Route, kind: Option<&'static Kind>, path: &str) -> Self {
        let parts = path.replace("{mesh}", "default").replace("{revision}", "1").replace("{zone}", "zone-1");
        let path = parts.replace("{kri}", "kri_mt_default___nobody_").replace("/{kind}/", "/meshes/");
        let path = path.replace("{name}", "nobody").replace("{route}", "nobody").replace("{id}", "nobody");
        let path = path.replace("{component}", "nobody");
        assert!(!path.contains('{'), "{path}");
        let body = match path.as_str() {
            "/tokens/dataplane" => json!({ "mesh": "default", "name": "nobody" }),
            "/tokens/zone" => json!({ "zone": "nobody", "scope": ["cp"] }),
            "/tokens/user" => json!({ "name": "nobody", "validFor": "1h" }),
            _ => json!({}),
        };
        let method = Method::from_bytes(route.method().as_str().as_bytes()).unwrap();
        let verb = route.needs().verb().map(|verb| kind.map_or(verb, |kind| verb.on(kind)));
        Self { method, path, body, verb, needs: route.needs() }
    }

    async fn send(&self, cp: &ControlPlane, token: Option<&str>) -> (StatusCode, String) {
        let request = http::client().request(self.method.clone(), cp.url(&self.path));
        let request = if self.method == Method::GET { request } else { request.json(&self.body) };
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

fn probes(place: RoutePlace) -> Vec<Probe> {
    let served = TABLE.iter().filter(|route| [RoutePlace::Both, place].contains(&route.place()));
    // What changes who may ask comes last.
    let (mild, strong): (Vec<&Route>, Vec<&Route>) = served.partition(|route| {
        route.method() == RouteMethod::Get || route.needs().verb() != Some(RoleVerb::Operate)
    });
    let all = mild.into_iter().chain(strong).flat_map(|route| {
        let of_kinds = registry::ALL.iter().flat_map(move |&kind| {
            route.paths_of(kind).into_iter().map(move |path| Probe::of(route, Some(kind), &path))
        });
        let alone = (!route.is_of_kinds()).then(|| Probe::of(route, None, route.path()));
        of_kinds.chain(alone)
    });
    all.collect()
}

/// Walks all routes; returns the verbs that some route needed.
async fn walk(cp: &ControlPlane, place: RoutePlace) -> BTreeSet<RoleVerb> {
    let verbs = RoleVerb::ALL.into_iter().filter(|verb| verb.parts() == [*verb]);
    let tokens: BTreeMap<RoleVerb, String> =
        verbs.map(|verb| (verb, user_token(cp, &format!("can-{}", verb.as_str())))).collect();
    let nobody = user_token(cp, "nobody");
    cp.apply(&tokens.keys().map(|verb| role_of(*verb, place)).collect::<Vec<_>>().join("---\n"));
    let mut needed = BTreeSet::new();
    for probe in probes(place) {
        let Probe { method, path, verb, .. } = &probe;
        let what = format!("{method} {path} on {place:?}");
        let (status, text) = probe.send(cp, None).await;
        let is_open = matches!(probe.needs, Needs::Nothing);
        assert_eq!(status == 403, !is_open, "{what} for a stranger: {status} {text}");
        let (status, text) = probe.send(cp, Some(&nobody)).await;
        assert_ne!(text, "404: Page Not Found", "{what} is not there");
        assert_eq!(status == 403, verb.is_some(), "{what} without a right: {status} {text}");
        let Some(verb) = *verb else { continue };
        needed.insert(verb);
        let others = [RoleVerb::Read, RoleVerb::Write, RoleVerb::Operate];
        if let Some(other) = others.into_iter().find(|other| *other != verb) {
            let (status, text) = probe.send(cp, Some(&tokens[&other])).await;
            assert_eq!(status, 403, "{what} with another right ({other:?}): {text}");
        }
        let (status, text) = probe.send(cp, Some(&tokens[&verb])).await;
        assert!(status != 403 && status != 401, "{what} with exactly {verb:?}: {status} {text}");
    }
    needed
}

#[tokio::test]
async fn every_route_is_guarded_by_its_verb_on_both_control_planes() {
    let global = Global::start_with(closed()).await;
    // With a folder of resources, so that what tells of it is there too.
    let folder = TempDir::new().unwrap();
    let options = closed().with("resources", &folder.path().display().to_string());
    let zone = Zone::start_with(&global, "zone-1", options).await;
    eventually("the default mesh", || zone.try_get("/meshes/default")).await;
    let of_zone = walk(&zone, RoutePlace::Zone).await;
    let of_global = walk(&global, RoutePlace::Global).await;
    let all: BTreeSet<RoleVerb> = RoleVerb::ALL.into_iter().filter(|verb| verb.parts() == [*verb]).collect();
    assert_eq!(of_zone, all, "each verb is needed somewhere in a zone");
    assert_eq!(of_global, all, "each verb is needed somewhere on global");
}

const FOR_EAST: &str = "
type: AccessRole
name: timeouts-in-east
spec: { rules: [{ verbs: [write, delete], kinds: [MeshTimeout], zones: [east] }] }
---
type: AccessRoleBinding
name: timeouts-in-east
spec: { subjects: [{ type: Group, name: payers }], roles: [timeouts-in-east] }
";

#[tokio::test]
async fn roles_of_global_count_in_its_zones_as_far_as_they_say() {
    let global = Global::start().await;
    let zones = [
        Zone::start_with(&global, "east", Options::default()).await,
        Zone::start_with(&global, "west", Options::default()).await,
    ];
    let group = ["--group", "payers", "--valid-for", "1h"];
    let tokens: Vec<(String, String)> = zones
        .iter()
        .map(|zone| {
            let token = |name: &str, more: &[&str]| {
                let args = [&["generate", "user-token", "--name", name], more].concat();
                zone.straitctl(&args).trim().to_owned()
            };
            (token("ann", &group), token("bob", &group[2..]))
        })
        .collect();
    let write = async |zone: &Zone, token: &str, name: &str| {
        let policy = json!({ "type": "MeshTimeout", "mesh": "default", "name": name,
            "labels": { "kuma.io/origin": "zone" },
            "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] } });
        let url = zone.url(&format!("/meshes/default/meshtimeouts/{name}"));
        let answer = http::client().put(url).bearer_auth(token).json(&policy).send().await.unwrap();
        answer.status().as_u16()
    };
    for (zone, (_, bob)) in zones.iter().zip(&tokens) {
        eventually("the default mesh", || zone.try_get("/meshes/default")).await;
        assert_eq!(write(zone, bob, "before").await, 201, "there is no binding yet");
    }
    global.apply(FOR_EAST);
    for (zone, (ann, bob)) in zones.iter().zip(&tokens) {
        eventually("the binding in the zone", || zone.try_get("/accessrolebindings/timeouts-in-east")).await;
        eventually("the role in the zone", || zone.try_get("/accessroles/timeouts-in-east")).await;
        let is_east = zone.zone == "east";
        assert_eq!(write(zone, ann, "ann").await, if is_east { 201 } else { 403 }, "{}", zone.zone);
        assert_eq!(write(zone, bob, "bob").await, 403, "{}", zone.zone);
    }
    let (ok, _, said) = zones[0].try_straitctl(&["delete", "accessrole", "timeouts-in-east"]);
    assert!(!ok && said.contains("kuma.io/origin"), "what global says is not taken back in a zone: {said}");
    // Where it is taken back is global.
    global.straitctl(&["delete", "accessrolebinding", "timeouts-in-east"]);
    for (zone, (_, bob)) in zones.iter().zip(&tokens) {
        eventually("everybody who is known writes again", || async move {
            match write(zone, bob, "after").await {
                200 | 201 => Ok(()),
                status => Err(status),
            }
        })
        .await;
    }
}

const LIMITED: &str = "
type: AccessRole
name: pay
spec:
  rules:
    - { verbs: [read, write], kinds: [MeshTimeout, Mesh], meshes: [pay], names: ['pay*'] }
    - { verbs: [view-secrets], kinds: [Secret], meshes: [pay] }
    - { verbs: [generate-dataplane-token], meshes: [pay] }
    - { verbs: [generate-zone-token], zones: ['pay-*'] }
---
type: AccessRoleBinding
name: pay
spec: { subjects: [{ type: Group, name: payers }], roles: [pay] }
---
type: Mesh
name: pay
---
type: MeshTimeout
mesh: pay
name: pay-quick
spec: { to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 1s } }] }
";

#[tokio::test]
async fn a_role_reaches_as_far_as_it_says() {
    let global = Global::start_with(closed()).await;
    global.apply(LIMITED);
    let args = ["generate", "user-token", "--name", "ann", "--group", "payers", "--valid-for", "1h"];
    let token = global.straitctl(&args).trim().to_owned();
    let ask = async |method: Method, path: &str, body: Value| {
        let request = http::client().request(method, global.url(path)).bearer_auth(&token).json(&body);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap_or_default())
    };
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let get = async |path: &str| ask(Method::GET, path, Value::Null).await;
    // Lists show what may be read, and no more.
    assert_eq!(names(&get("/meshtimeouts").await.1), ["pay-quick"]);
    assert_eq!(get("/meshtimeouts").await.1["total"], 1);
    assert_eq!(names(&get("/meshes").await.1), ["pay"]);
    assert_eq!(get("/meshes/default/meshtimeouts").await.0, 403);
    assert_eq!(get("/meshes/pay/meshtimeouts/mesh-timeout-all-pay").await.0, 403);
    assert_eq!(get("/meshes/pay/meshretries").await.0, 403);
    let secrets = get("/secrets").await;
    assert_eq!((secrets.0, names(&secrets.1)), (200, vec!["dataplane-token-signing-key-pay-1".to_owned()]));
    assert_eq!(get("/meshes/default/secrets").await.0, 403);
    let history = get("/history").await.1;
    let of_others = |item: &Value| item["name"] != "pay" && item["mesh"] != "pay";
    assert!(!history["items"].as_array().unwrap().iter().any(of_others), "{history}");
    assert!(get("/_kri/kri_mt_pay___pay-quick_").await.0 != 403);
    assert_eq!(get("/_kri/kri_mt_default___pay-quick_").await.0, 403);

    let dataplane = |mesh: &str, kind: &str| json!({ "mesh": mesh, "name": "a", "type": kind });
    for (path, body, status) in [
        ("/tokens/dataplane", dataplane("pay", ""), 200),
        ("/tokens/dataplane", dataplane("default", ""), 403),
        ("/tokens/dataplane", dataplane("pay", "ingress"), 403),
        ("/tokens/zone", json!({ "zone": "pay-1", "scope": ["cp"] }), 200),
        ("/tokens/zone", json!({ "zone": "other", "scope": ["cp"] }), 403),
        ("/tokens/zone", json!({ "scope": ["cp"] }), 403),
        ("/tokens/user", json!({ "name": "ann", "validFor": "1h" }), 403),
    ] {
        let (is, answer) = ask(Method::POST, path, body.clone()).await;
        assert_eq!(is, status, "{path} {body}: {answer}");
    }

    // straitctl says the same, and why.
    let can = |words: &[&str]| {
        let (ok, said, why) = global.try_straitctl(&[&["--token", &token, "auth", "can-i"], words].concat());
        assert_eq!(said.trim(), if ok { "yes" } else { "no" }, "{words:?}: {why}");
        (ok, why)
    };
    for (words, allowed) in [
        (&["write", "meshtimeout", "pay-quick", "--mesh", "pay"][..], true),
        (&["put", "meshtimeout", "other", "--mesh", "pay"], false),
        (&["delete", "meshtimeout", "pay-quick", "--mesh", "pay"], false),
        (&["read", "secret", "a", "--mesh", "pay"], true),
        (&["view-secrets", "secret", "a", "--mesh", "default"], false),
        (&["generate-dataplane-token", "--mesh", "pay"], true),
        (&["generate-dataplane-token"], false),
        (&["generate-zone-token", "--zone", "pay-2"], true),
        (&["tokens", "--mesh", "pay"], false),
        (&["audit"], false),
    ] {
        let (is, why) = can(words);
        assert_eq!(is, allowed, "{words:?}: {why}");
        assert!(is || why.contains("an AccessRole must allow it"), "{words:?}: {why}");
    }
}

const FOR_PAYMENTS: &str = "
type: AccessRole
name: payments
spec: { rules: [{ verbs: [write, delete], kinds: [MeshTrafficPermission], names: ['payments-*'] }] }
---
type: AccessRoleBinding
name: payments
spec: { subjects: [{ type: User, name: ann }], roles: [payments] }
";

/// In zones a resource is called by a label.
#[tokio::test]
async fn who_may_write_some_names_takes_no_others_by_a_label() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "west", Options::default()).await;
    global.apply(FOR_PAYMENTS);
    let ann = user_token(&global, "ann");
    let admin = global.admin_token();
    let path = |name: &str| format!("/meshes/default/meshtrafficpermissions/{name}");
    let put = async |token: &str, name: &str, called: &str, action: &str| {
        let labels = if called.is_empty() { json!({}) } else { json!({ "kuma.io/display-name": called }) };
        let policy = json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": name, "labels": labels,
            "spec": { "targetRef": { "kind": "Mesh" },
                      "from": [{ "targetRef": { "kind": "Mesh" }, "default": { "action": action } }] } });
        let request = http::client().put(global.url(&path(name))).bearer_auth(token.trim()).json(&policy);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    // What the zone says of all that is called so.
    let says = async |called: &str, action: &str| {
        eventually(&format!("{called} in the zone says {action}"), || async {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
            let items = list["items"].as_array().into_iter().flatten();
            let items: Vec<&Value> =
                items.filter(|item| item["labels"]["kuma.io/display-name"] == called).collect();
            let is = |item: &Value| item["spec"]["from"][0]["default"]["action"] == action;
            if items.len() == 1 && is(items[0]) { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
    };
    assert_eq!(put(&admin, "deny-all", "", "Deny").await.0, 201);
    says("deny-all", "Deny").await;
    assert_eq!(put(&ann, "deny-all", "", "Allow").await.0, 403);
    for first in ["deny-all", ""] {
        let (status, said) = put(&ann, "payments-x", first, "Allow").await;
        assert_eq!(status, if first.is_empty() { 201 } else { 409 }, "{said}");
    }
    // Nor later, to what she has.
    let (status, said) = put(&ann, "payments-x", "deny-all", "Allow").await;
    assert_eq!(status, 409, "{said}");
    assert!(
        said.contains("MeshTrafficPermission default/deny-all") && said.contains("kuma.io/display-name"),
        "{said}"
    );
    says("payments-x", "Allow").await;
    says("deny-all", "Deny").await;

    // Nor one that is free, which may be somebody's soon. Who may write all has it until then.
    let (status, said) = put(&ann, "payments-y", "later", "Allow").await;
    assert!(status == 403 && said.contains("default/later"), "{said}");
    assert_eq!(put(&admin, "payments-y", "later", "Allow").await.0, 201);
    says("later", "Allow").await;
    let (status, said) = put(&admin, "later", "", "Deny").await;
    assert!(status == 201 && said.contains("payments-y"), "{said}");
    says("later", "Deny").await;
    eventually("a note about it", || async {
        let overview = global.try_get("/zones/west/_overview").await?;
        let notes = overview["strait"]["notes"].to_string();
        if notes.contains("MeshTrafficPermission default/payments-y") { Ok(()) } else { Err(notes) }
    })
    .await;
    let request = http::client().delete(global.url(&path("payments-y"))).bearer_auth(&ann);
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    eventually("the note is gone", || async {
        let overview = global.try_get("/zones/west/_overview").await?;
        let notes = overview["strait"]["notes"].to_string();
        if notes.contains("payments-y") { Err(notes) } else { Ok(()) }
    })
    .await;
    says("later", "Deny").await;
}
