//! Every form of `kumactl inspect`, by what it asks and what it reads from the answer, on global and in a zone.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use common::{model::Kind, registry};
use serde_json::Value;

use crate::{
    harness::{ControlPlane, Envoy, Global, Zone, eventually},
    mesh::{Member, Shape, egress, federation, ingress},
};

/// A caller of the backend, which nobody runs, and a builtin gateway with a route of each generation.
const AROUND: &str = "
type: Dataplane
mesh: default
name: web-1
networking:
  address: 10.9.0.1
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web, kuma.io/protocol: http, version: v1 } }]
  outbound: [{ port: 10001, tags: { kuma.io/service: backend } }]
---
type: Dataplane
mesh: default
name: edge-1
networking:
  address: 10.9.0.2
  gateway: { type: BUILTIN, tags: { kuma.io/service: edge } }
";
const GATEWAY: &str = "
type: MeshGateway
mesh: default
name: edge
selectors: [{ match: { kuma.io/service: edge } }]
conf: { listeners: [{ port: 8080, protocol: HTTP, hostname: a.example, tags: { port: http } }] }
---
type: MeshGatewayRoute
mesh: default
name: all
selectors: [{ match: { kuma.io/service: edge } }]
conf:
  http:
    rules:
      - matches: [{ path: { match: PREFIX, value: / } }]
        backends: [{ destination: { kuma.io/service: backend }, weight: 1 }]
";

/// How a policy for all proxies is told.
const EVERYBODY: &str = "backend-1; edge-1=edge HTTP:8080 a.example all>backend edge>backend; web-1";

/// What is told of the example of each policy that has a form of its own: the argument of kumactl, and what it prints.
const POLICIES: [(&str, &str); 27] = [
    ("meshaccesslog", EVERYBODY),
    ("meshcircuitbreaker", EVERYBODY),
    ("meshfaultinjection", "backend-1"),
    ("meshhealthcheck", EVERYBODY),
    ("meshhttproute", EVERYBODY),
    ("meshloadbalancingstrategy", EVERYBODY),
    ("meshmetric", EVERYBODY),
    ("meshpassthrough", EVERYBODY),
    ("meshproxypatch", EVERYBODY),
    ("meshratelimit", "backend-1"),
    ("meshretry", EVERYBODY),
    ("meshtcproute", EVERYBODY),
    ("meshtimeout", EVERYBODY),
    ("meshtls", EVERYBODY),
    ("meshtrace", EVERYBODY),
    ("meshtrafficpermission", "backend-1"),
    ("circuit-breaker", "web-1: service backend"),
    ("fault-injection", "backend-1: inbound ADDRESS(backend)"),
    ("healthcheck", "web-1: service backend"),
    ("proxytemplate", "backend-1"),
    ("rate-limit", "backend-1: inbound ADDRESS(backend)"),
    ("retry", "web-1: service backend"),
    ("timeout", "web-1: outbound 127.0.0.1:10001(backend)"),
    ("traffic-log", "web-1: service backend"),
    ("traffic-permission", "backend-1: inbound ADDRESS(backend)"),
    ("traffic-route", "web-1: outbound 127.0.0.1:10001(backend)"),
    ("traffic-trace", EVERYBODY),
];

#[tokio::test]
async fn all_forms_are_answered_on_global_and_in_a_zone() {
    let stage = Stage::set().await;
    for plane in [&stage.global.cp, &stage.zone.cp] {
        let names = Names::of(plane).await;
        let mut wrong = Vec::new();
        for (argument, expected) in POLICIES {
            let kind = registry::ALL.iter().find(|kind| kind.arg == argument).unwrap();
            let policy = names.policy(plane, kind).await;
            let told = plane.get(&format!("/meshes/default/{}/{policy}/dataplanes", kind.path)).await;
            let printed = names.printed(&told);
            if printed != expected {
                wrong.push(format!("inspect {argument}: {printed:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        gateways(plane, &names).await;
        dataplane(plane, &names).await;
        lists(plane).await;
        every_policy_lists_its_dataplanes(plane, &names).await;
    }
    envoys(&stage).await;
}

/// Global and a zone with proxies of each sort.
struct Stage {
    global: Global,
    zone: Zone,
    _backend: Member,
    _edges: [Envoy; 2],
}

impl Stage {
    async fn set() -> Self {
        let (global, mut zones) = federation(1).await;
        let zone = zones.remove(0);
        zone.apply(AROUND);
        global.apply(GATEWAY);
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies");
        global.straitctl(&["apply", "-f", &examples.display().to_string()]);
        let edges = [ingress(&global, &zone).await, egress(&global, &zone).await];
        let backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
        let (here, there) = (&global, &zone);
        eventually("everything is everywhere", || async move {
            for kind in registry::ALL.iter().filter(|kind| kind.policy.is_some()) {
                let all = there.try_get(&format!("/meshes/default/{}", kind.path)).await?;
                all["total"].as_u64().filter(|n| *n > 0).ok_or_else(|| format!("no {} yet", kind.name))?;
            }
            let all = here.try_get("/meshes/default/dataplanes/_overview").await?;
            let online = all.to_string().matches("connectTime").count();
            if all["total"] == 3 && online > 0 { Ok(()) } else { Err(format!("{all}")) }
        })
        .await;
        Self { global, zone, _backend: backend, _edges: edges }
    }
}

/// What resources are called by a control plane, and by their authors.
struct Names(BTreeMap<String, String>);

impl Names {
    async fn of(plane: &ControlPlane) -> Self {
        let all = plane.get("/meshes/default/dataplanes").await;
        let both = all["items"].as_array().unwrap().iter().map(|one| (text(&one["name"]), display(one)));
        Self(both.collect())
    }

    /// The name its author gave to the dataplane of this name.
    fn author(&self, name: &Value) -> &str {
        self.0.get(&text(name)).unwrap_or_else(|| panic!("no dataplane {name}"))
    }

    /// The name of the dataplane whose author calls it so.
    fn here(&self, author: &str) -> &str {
        self.0.iter().find(|(_, known)| *known == author).unwrap().0
    }

    /// A policy of that kind which is no first one of the mesh.
    async fn policy(&self, plane: &ControlPlane, kind: &Kind) -> String {
        let all = plane.get(&format!("/meshes/default/{}", kind.path)).await;
        let mut items = all["items"].as_array().unwrap().iter();
        let found = items.find(|one| !display(one).contains("-all-default"));
        text(&found.unwrap_or_else(|| panic!("no {}", kind.name))["name"])
    }

    /// What kumactl makes of the answer. It reads nothing but what it knows, and fails on other kinds of entries.
    fn printed(&self, told: &Value) -> String {
        let items = told["items"].as_array().expect("a list of entries");
        assert_eq!(told["total"].as_u64(), Some(items.len() as u64));
        let mut out = Vec::new();
        for item in items {
            assert_eq!(item["dataplane"]["mesh"], "default");
            let mut line = self.author(&item["dataplane"]["name"]).to_owned();
            match item["kind"].as_str() {
                Some("SidecarDataplane") => {
                    let all = item["attachments"].as_array().unwrap();
                    let said = all.iter().map(attachment).collect::<Vec<_>>().join(", ");
                    // kumactl leaves it out where it is the whole proxy.
                    if said != "dataplane" {
                        let _fits = write!(line, ": {said}");
                    }
                }
                Some("MeshGatewayDataplane") => {
                    assert_eq!(item["gateway"]["mesh"], "default");
                    let _fits = write!(line, "={}", display_of(&item["gateway"]["name"]));
                    for listener in item["listeners"].as_array().unwrap() {
                        let _fits = write!(line, " {}:{}", text(&listener["protocol"]), listener["port"]);
                        for host in listener["hosts"].as_array().unwrap() {
                            let _fits = write!(line, " {}", text(&host["hostName"]));
                            for route in host["routes"].as_array().unwrap() {
                                let to = route["destinations"].as_array().unwrap();
                                let to = to.iter().map(|tags| text(&tags["kuma.io/service"]));
                                let _fits = write!(
                                    line,
                                    " {}>{}",
                                    display_of(&route["route"]),
                                    to.collect::<String>()
                                );
                            }
                        }
                    }
                }
                other => panic!("kumactl knows no {other:?}"),
            }
            out.push(line);
        }
        out.sort();
        out.join("; ")
    }
}

/// As kumactl prints the part to which a policy is attached.
fn attachment(at: &Value) -> String {
    match at["type"].as_str() {
        Some("dataplane") => "dataplane".to_owned(),
        Some("service") => format!("service {}", text(&at["name"])),
        Some(other @ ("inbound" | "outbound")) => {
            let (address, service) = (text(&at["name"]), text(&at["service"]));
            // Addresses are given out by the test.
            let ours = address.starts_with("10.9.") || address.starts_with("127.0.0.1:");
            format!("{other} {}({service})", if ours { &address } else { "ADDRESS" })
        }
        other => panic!("kumactl knows no attachment to {other:?}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn display(item: &Value) -> String {
    item["labels"]["kuma.io/display-name"].as_str().or_else(|| item["name"].as_str()).unwrap().to_owned()
}

/// A name without the hash that a zone adds to what global owns.
fn display_of(name: &Value) -> String {
    let name = text(name);
    match name.rsplit_once('-') {
        Some((author, hash)) if hash.len() == 16 => author.to_owned(),
        _ => name,
    }
}

/// `kumactl inspect meshgateway`.
async fn gateways(plane: &ControlPlane, names: &Names) {
    let all = plane.get("/meshes/default/meshgateways").await;
    let gateway = text(&all["items"][0]["name"]);
    let told = plane.get(&format!("/meshes/default/meshgateways/{gateway}/dataplanes")).await;
    assert_eq!(told["total"], 1, "{told:#}");
    assert_eq!(names.author(&told["items"][0]["dataplane"]["name"]), "edge-1");
    let routes = plane.get("/meshes/default/meshgatewayroutes").await;
    let route = text(&routes["items"][0]["name"]);
    let told = plane.get(&format!("/meshes/default/meshgatewayroutes/{route}/dataplanes")).await;
    assert_eq!(names.author(&told["items"][0]["dataplane"]["name"]), "edge-1", "{told:#}");
}

/// `kumactl inspect dataplane NAME`.
async fn dataplane(plane: &ControlPlane, names: &Names) {
    let told = async |name: &str| {
        plane.get(&format!("/meshes/default/dataplanes/{}/policies", names.here(name))).await
    };
    let sidecar = told("web-1").await;
    assert_eq!(sidecar["kind"], "SidecarDataplane");
    let items = sidecar["items"].as_array().unwrap();
    assert_eq!(sidecar["total"].as_u64(), Some(items.len() as u64));
    let mut seen = Vec::new();
    for item in items {
        let at = attachment(item);
        for (kind, policies) in item["matchedPolicies"].as_object().unwrap() {
            for policy in policies.as_array().unwrap() {
                // kumactl decodes each by its type.
                assert_eq!(policy["type"], kind.as_str());
                assert!(policy["name"].is_string() && policy["mesh"] == "default", "{policy}");
                seen.push(format!("{at}: {kind} {}", display_of(&policy["name"])));
            }
        }
    }
    for expected in [
        "dataplane: MeshTimeout backend",
        "dataplane: MeshHTTPRoute try-v2",
        "dataplane: TrafficTrace all",
        "outbound 127.0.0.1:10001(backend): Timeout backend",
        "outbound 127.0.0.1:10001(backend): TrafficRoute backend",
        "service backend: HealthCheck backend",
        "service backend: TrafficLog all",
    ] {
        assert!(seen.iter().any(|line| line == expected), "no {expected} in {seen:#?}");
    }
    let gateway = told("edge-1").await;
    assert_eq!(gateway["kind"], "MeshGatewayDataplane");
    assert_eq!(display_of(&gateway["gateway"]["name"]), "edge");
    assert_eq!(gateway["listeners"][0]["protocol"], "HTTP");
    assert_eq!(gateway["policies"]["MeshTrace"]["type"], "MeshTrace", "{gateway:#}");
    for form in ["_rules", "rules"] {
        let told = plane.get(&format!("/meshes/default/dataplanes/{}/{form}", names.here("web-1"))).await;
        assert!(told.to_string().contains("MeshTimeout"), "{told}");
    }
}

/// `kumactl inspect` of lists, with what it would fall over.
async fn lists(plane: &ControlPlane) {
    for (path, members) in [
        ("/meshes/default/dataplanes/_overview", &["dataplane"][..]),
        ("/meshes/default/dataplanes/_overview?gateway=true", &["dataplane"]),
        ("/meshes/default/dataplanes/_overview?tag=kuma.io/service:web", &["dataplane"]),
        ("/mesh-insights", &["dataplanes"]),
        ("/meshes/default/service-insights", &["dataplanes"]),
        ("/zoneingresses/_overview", &["zoneIngress", "zoneIngressInsight"]),
        ("/zoneegresses/_overview", &["zoneEgress", "zoneEgressInsight"]),
        ("/zones/_overview", &["zone"]),
    ] {
        // Insights are written a moment later, and come to global after that.
        eventually(path, || async move {
            let told = plane.try_get(path).await?;
            let items = told["items"].as_array().filter(|items| !items.is_empty());
            let items = items.ok_or_else(|| format!("nothing in {told}"))?;
            let lacks = |item: &&Value| !members.iter().all(|member| item[member].is_object());
            items.iter().find(lacks).map_or(Ok(()), |item| Err(format!("{item:#}")))
        })
        .await;
    }
}

/// `_resources/dataplanes` of every kind of policy, as the page of a policy in the GUI asks for it.
async fn every_policy_lists_its_dataplanes(plane: &ControlPlane, names: &Names) {
    for kind in registry::ALL.iter().filter(|kind| kind.policy.is_some()) {
        let policy = names.policy(plane, kind).await;
        for spelling in ["_resources", "-resources"] {
            let path = format!("/meshes/default/{}/{policy}/{spelling}/dataplanes", kind.path);
            let told = plane.get(&path).await;
            let items = told["items"].as_array().unwrap();
            assert!(!items.is_empty(), "{path} names nobody: {told}");
            for item in items {
                assert_eq!(
                    (item["type"].as_str(), item["mesh"].as_str()),
                    (Some("Dataplane"), Some("default"))
                );
                assert!(names.0.contains_key(&text(&item["name"])) && item["labels"].is_object(), "{item}");
            }
        }
    }
}

/// `--type` of every proxy, and what straitctl explains of each.
async fn envoys(stage: &Stage) {
    for plane in [&stage.global.cp, &stage.zone.cp] {
        let names = Names::of(plane).await;
        let backend = format!("/meshes/default/dataplanes/{}", names.here("backend-1"));
        let mut proxies = vec![backend];
        for list in ["/zoneingresses", "/zoneegresses"] {
            let all = plane.get(list).await;
            proxies.push(format!("{list}/{}", text(&all["items"][0]["name"])));
        }
        for proxy in &proxies {
            for what in ["xds", "stats", "clusters", "_config"] {
                let told = plane.get(&format!("{proxy}/{what}")).await;
                let is_right = match what {
                    "xds" => told["configs"].is_array(),
                    "_config" => told["xds"].is_object(),
                    _ => told.as_str().is_some_and(|text| !text.is_empty()),
                };
                assert!(is_right, "{proxy}/{what}: {told}");
            }
        }
        // A certificate stands in the insight of its proxy when that is written the next time.
        eventually("the backend that issued its certificate", || async {
            let overview = plane.try_get(&format!("{}/_overview", proxies[0])).await?;
            let issued = &overview["dataplaneInsight"]["mTLS"]["issuedBackend"];
            if issued == "ca-1" { Ok(()) } else { Err(overview.to_string()) }
        })
        .await;
        explained(plane, &names, &proxies);
    }
}

fn explained(plane: &ControlPlane, names: &Names, proxies: &[String]) {
    let explain = |kind: &str, name: &str| -> Value {
        serde_json::from_str(&plane.straitctl(&["explain", kind, name, "-o", "json"])).unwrap()
    };
    let last = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let backend = explain("dataplane", names.here("backend-1"));
    let told = |from: &str, document: &Value, row: &str| {
        let rows = document[from].as_array().unwrap();
        assert!(rows.iter().any(|one| one.to_string().contains(row)), "no {row} in {document:#}");
    };
    told("envoy", &backend, "networking.inbound[0] backend");
    told("envoy", &backend, "Mesh/default mtls.backends ca-1");
    told("fields", &backend, "TrafficPermission");
    let web = explain("dataplane", names.here("web-1"));
    // The first policies of a mesh stand before older ones.
    let rows = web["fields"].as_array().unwrap();
    let timeout = rows.iter().find(|row| row["policy"] == "Timeout").unwrap_or_else(|| panic!("{web:#}"));
    assert!(timeout["from"].is_string() && timeout["lost"].is_array(), "{timeout}");
    for (kind, path, listener) in
        [("zoneingress", &proxies[1], "ZoneIngress/"), ("zoneegress", &proxies[2], "ZoneEgress/")]
    {
        told("envoy", &explain(kind, &last(path)), listener);
    }
    let all = plane.straitctl(&["get", "meshgateways", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let gateway = text(&all["items"][0]["name"]);
    told("envoy", &explain("meshgateway", &gateway), "edge-1");
}
