//! What is stored and never takes effect, whatever proxy it is for: valid for the clients of the API, but nothing an Envoy
//! could do, or nothing this control plane does. The author is told; proxies tell it among their problems.
//!
//! This looks at one resource alone. What depends on others, such as a backend that nobody describes, only proxies tell.

use serde_json::Value;

use super::{
    legacy::{health_check, proxy_template, rate_limit},
    mesh_access_log, mesh_fault_injection, mesh_health_check, mesh_http_route, mesh_load_balancing_strategy,
    mesh_rate_limit, mesh_trace, mesh_traffic_permission,
};
use crate::{
    model::{Kind, Resource, decode, kinds::mesh, transcode},
    proto::envoy::r#type::v3::StatusCode,
};

/// Of a mesh that says where metrics would be offered.
pub const METRICS_OF_MESH: &str =
    "'metrics' of the Mesh has no effect: enabledBackend names none of its backends";
/// Looks for what has no effect in a spec, or in one of the things it says.
type Find = fn(&Value) -> Vec<String>;

/// What says so of the kinds of which something can be ineffective.
static ALL: [(&Kind, Find); 12] = [
    (&mesh::KIND, of_mesh),
    (&mesh_access_log::KIND, |spec| each(spec, logs)),
    (&mesh_fault_injection::KIND, |spec| each(spec, faults)),
    (&mesh_health_check::KIND, |spec| each(spec, checks)),
    (&mesh_http_route::KIND, routes),
    (&mesh_load_balancing_strategy::KIND, |spec| each(spec, balancers)),
    (&mesh_rate_limit::KIND, limits),
    (&mesh_trace::KIND, |spec| each(spec, traces)),
    (&mesh_traffic_permission::KIND, permissions),
    (&health_check::KIND, |spec| each(spec, older_checks)),
    (&rate_limit::KIND, |spec| each(spec, older_limits)),
    (&proxy_template::KIND, older_templates),
];

/// What of `resource` has no effect, in words.
#[must_use]
pub fn of(resource: &Resource) -> Vec<String> {
    let Some((kind, find)) = ALL.iter().find(|(kind, _)| *kind == resource.kind()) else { return Vec::new() };
    let spec = match kind.is_json() {
        true => decode::spec(&resource.spec).ok(),
        false => transcode::to_json(kind, &resource.spec).ok(),
    };
    let mut found = spec.map(|spec: Value| find(&spec)).unwrap_or_default();
    found.sort();
    found.dedup();
    found
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn told(is_so: bool, text: &str) -> Vec<String> {
    if is_so { vec![text.to_owned()] } else { Vec::new() }
}

/// Everything a policy says: for its proxies, or for one of its items.
fn confs(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["to", "from", "rules"].into_iter().flat_map(|list| items(&spec[list]));
    lists.map(|item| &item["default"]).chain([&spec["default"], &spec["conf"]])
}

fn each(spec: &Value, find: Find) -> Vec<String> {
    confs(spec).flat_map(find).collect()
}

fn of_mesh(spec: &Value) -> Vec<String> {
    let metrics = &spec["metrics"];
    let enabled = metrics["enabledBackend"].as_str().is_some_and(|name| !name.is_empty());
    told(!items(&metrics["backends"]).is_empty() && !enabled, METRICS_OF_MESH)
}

/// Formats that Envoy would refuse, with which the log is left out.
fn logs(conf: &Value) -> Vec<String> {
    let of_backend = |backend: &Value| -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for sink in ["tcp", "file"] {
            let format = &backend[sink]["format"];
            texts.extend(format["plain"].as_str().map(str::to_owned));
            texts
                .extend(items(&format["json"]).iter().filter_map(|f| f["value"].as_str().map(str::to_owned)));
        }
        texts
    };
    let texts = items(&conf["backends"]).iter().flat_map(of_backend);
    let wrong = texts.filter_map(|text| mesh_access_log::operators::problem(&without_own(&text)));
    wrong.map(|reason| format!("a backend is left out: {reason}")).collect()
}

/// A format without the placeholders that are replaced before Envoy sees it.
fn without_own(format: &str) -> String {
    const OWN: [&str; 8] = [
        "SOURCE_ADDRESS",
        "SOURCE_ADDRESS_WITHOUT_PORT",
        "SOURCE_SERVICE",
        "DESTINATION_SERVICE",
        "MESH",
        "TRAFFIC_DIRECTION",
        "ZONE",
        "WORKLOAD",
    ];
    OWN.iter().fold(format.to_owned(), |text, own| text.replace(&format!("%KUMA_{own}%"), ""))
}

fn faults(conf: &Value) -> Vec<String> {
    let statuses = items(&conf["http"]).iter().filter_map(|fault| fault["abort"]["httpStatus"].as_i64());
    let wrong = statuses.filter(|status| !(200..600).contains(status));
    wrong.map(|status| format!("a fault is left out: no answer can end with status {status}")).collect()
}

fn is_value(value: &str) -> bool {
    http::HeaderValue::from_str(value).is_ok()
}

/// Names and values that no header may have.
fn headers(modifier: &Value) -> Vec<String> {
    let given = ["set", "add"].into_iter().flat_map(|list| items(&modifier[list]));
    let given = given.map(|header| (&header["name"], &header["value"]));
    given.filter_map(|(name, value)| header(name.as_str()?, value.as_str().unwrap_or_default())).collect()
}

fn header(name: &str, value: &str) -> Option<String> {
    let known = http::HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| name != http::header::HOST);
    (!known || !is_value(value)).then(|| format!("the header {name:?} is left out: it is none"))
}

fn checks(conf: &Value) -> Vec<String> {
    let mut found = headers(&conf["http"]["requestHeadersToAdd"]);
    if let Some(path) = conf["http"]["path"].as_str().filter(|path| !is_value(path)) {
        found.push(format!("hosts are asked for / since {path:?} is no path"));
    }
    if let Some(authority) = conf["grpc"]["authority"].as_str().filter(|authority| !is_value(authority)) {
        found.push(format!("the authority {authority:?} is left out: it is none"));
    }
    found
}

fn routes(spec: &Value) -> Vec<String> {
    let rules = items(&spec["to"]).iter().flat_map(|item| items(&item["rules"]));
    let is_off = |rule: &&Value| {
        let backends = items(&rule["default"]["backendRefs"]);
        !backends.is_empty() && backends.iter().all(|backend| backend["weight"] == 0)
    };
    rules
        .filter(is_off)
        .map(|_| "a rule is left out: all of its backends have the weight 0".to_owned())
        .collect()
}

fn balancers(conf: &Value) -> Vec<String> {
    let (ring, maglev) = (&conf["loadBalancer"]["ringHash"], &conf["loadBalancer"]["maglev"]);
    let mut found = Vec::new();
    if let (Some(min), Some(max)) = (ring["minRingSize"].as_u64(), ring["maxRingSize"].as_u64())
        && min > max
    {
        found.push(format!("minRingSize {min} and maxRingSize {max} are left out: no ring has such a size"));
    }
    let size = maglev["tableSize"].as_u64().and_then(|size| u32::try_from(size).ok());
    if let Some(size) = size.filter(|size| !mesh_load_balancing_strategy::is_prime(*size)) {
        found.push(format!("tableSize {size} is left out: it is not a prime number"));
    }
    found
}

fn limits(spec: &Value) -> Vec<String> {
    let mut found = each(spec, |conf| {
        let answer = &conf["local"]["http"]["onRateLimit"];
        let mut found = headers(&answer["headers"]);
        let status = answer["status"].as_i64();
        let known = |status: i64| {
            i32::try_from(status).ok().and_then(|code| StatusCode::try_from(code).ok()).is_some()
        };
        if let Some(status) = status.filter(|status| !known(*status)) {
            found.push(format!("requests above the limit get 429, since Envoy knows no status {status}"));
        }
        found
    });
    let of_clients = |rule: &&Value| !items(&rule["matches"]).is_empty();
    let mut rules = items(&spec["rules"]).iter().filter(of_clients);
    let counts = |rule: &Value| !rule["default"]["local"]["tcp"].is_null();
    found.extend(told(
        rules.any(counts),
        "a limit on connections is left out: rules with matches cannot have any, since connections are counted before a \
         client is known",
    ));
    found
}

fn traces(conf: &Value) -> Vec<String> {
    let urls = items(&conf["backends"]).iter().filter_map(|backend| backend["zipkin"]["url"].as_str());
    let has_path = |url: &&str| url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let wrong = urls.filter(|url| !has_path(url));
    wrong.map(|url| format!("nothing is traced: the URL {url:?} has no path, and Zipkin needs one")).collect()
}

fn permissions(spec: &Value) -> Vec<String> {
    let rules = items(&spec["rules"]).iter().map(|rule| &rule["default"]);
    let conditions = rules
        .flat_map(|conf| ["allow", "deny", "allowWithShadowDeny"].map(|list| items(&conf[list])))
        .flatten();
    let mut nobody = conditions.filter(|one| one["spiffeID"].is_null() && one["sni"].is_null());
    told(nobody.next().is_some(), "a condition is left out that names neither an identity nor a server name")
}

fn older_checks(conf: &Value) -> Vec<String> {
    let http = &conf["http"];
    let given = items(&http["requestHeadersToAdd"]).iter().map(|added| &added["header"]);
    let given = given.map(|header| (&header["key"], &header["value"]));
    let mut found: Vec<String> = given
        .filter_map(|(name, value)| header(name.as_str()?, value.as_str().unwrap_or_default()))
        .collect();
    if let Some(path) = http["path"].as_str().filter(|path| !path.is_empty() && !is_value(path)) {
        found.push(format!("hosts are asked for / since {path:?} is no path"));
    }
    found
}

fn older_limits(conf: &Value) -> Vec<String> {
    let http = &conf["http"];
    let seconds = http["interval"].as_str().and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
    let is_short = seconds.is_some_and(|seconds| seconds < 0.05);
    told(is_short, "a limit is left out: it takes no requests, or has an interval below 50ms")
}

fn older_templates(spec: &Value) -> Vec<String> {
    let imports = items(&spec["conf"]["imports"]);
    let profile = proxy_template::DEFAULT_PROFILE;
    let imported = imports.iter().any(|import| import == profile);
    told(!imported, &format!("it does not import {profile}, which its proxies get all the same"))
}
