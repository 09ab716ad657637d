//! What a proxy has, from a dump of its Envoy or from what a control plane holds for it, in one form.

use anyhow::bail;
use serde_json::{Map, Value};

/// The members of a dump, with names as protobuf's JSON has them.
#[derive(Debug, Default)]
pub(crate) struct ProxyDump {
    pub(crate) bootstrap: Option<Value>,
    pub(crate) clusters: Vec<DumpedItem>,
    pub(crate) endpoints: Vec<DumpedItem>,
    pub(crate) listeners: Vec<DumpedItem>,
    pub(crate) routes: Vec<DumpedItem>,
    pub(crate) secrets: Vec<DumpedItem>,
    /// Endpoints with what Envoy found out about them.
    pub(crate) statuses: Option<Vec<Value>>,
    /// What the Envoy refused: the name of the resource, and why.
    pub(crate) refused: Vec<(String, String)>,
}

/// One resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DumpedItem {
    pub(crate) name: String,
    pub(crate) value: Value,
    /// From the bootstrap, or made by Envoy itself.
    pub(crate) is_static: bool,
    /// Not in use yet.
    pub(crate) is_warming: bool,
}

/// The text at `value`, empty when there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl ProxyDump {
    /// From `/config_dump`, or from `/clusters?format=json`.
    pub(crate) fn of_envoy(dump: &Value) -> anyhow::Result<Self> {
        let dump = camel(dump.clone());
        let mut read = Self::default();
        if let Some(statuses) = dump["clusterStatuses"].as_array() {
            read.statuses = Some(statuses.clone());
            return Ok(read);
        }
        let Some(configs) = dump["configs"].as_array() else {
            bail!("a dump has `configs`, or `cluster_statuses`; this has neither");
        };
        for config in configs {
            read.take(config);
        }
        Ok(read)
    }

    fn take(&mut self, config: &Value) {
        let section = text(&config["@type"]).rsplit('.').next().unwrap_or_default();
        let mut all = |list: &str, member: &str| self.entries(config, list, member);
        match section {
            "BootstrapConfigDump" => self.bootstrap = Some(config["bootstrap"].clone()),
            "ClustersConfigDump" => {
                let lists = ["staticClusters", "dynamicActiveClusters", "dynamicWarmingClusters"];
                let found = lists.map(|list| all(list, "cluster")).concat();
                self.clusters.extend(found);
            }
            "EndpointsConfigDump" => {
                let lists = ["staticEndpointConfigs", "dynamicEndpointConfigs"];
                let found = lists.map(|list| all(list, "endpointConfig")).concat();
                self.endpoints.extend(found);
            }
            "ListenersConfigDump" => {
                let lists = ["staticListeners", "dynamicListeners"];
                let found = lists.map(|list| all(list, "listener")).concat();
                self.listeners.extend(found);
            }
            "RoutesConfigDump" => {
                let lists = ["staticRouteConfigs", "dynamicRouteConfigs"];
                let found = lists.map(|list| all(list, "routeConfig")).concat();
                self.routes.extend(found);
            }
            "SecretsConfigDump" => {
                let lists = ["staticSecrets", "dynamicActiveSecrets", "dynamicWarmingSecrets"];
                let found = lists.map(|list| all(list, "secret")).concat();
                self.secrets.extend(found);
            }
            _ => {}
        }
    }

    /// The entries of a list, of which a listener has one state for each stage.
    fn entries(&mut self, config: &Value, list: &str, member: &str) -> Vec<DumpedItem> {
        let mut found = Vec::new();
        for entry in config[list].as_array().into_iter().flatten() {
            let states = [
                (&entry[member], list.contains("Warming")),
                (&entry["activeState"][member], false),
                (&entry["warmingState"][member], true),
            ];
            let mut name = text(&entry["name"]).to_owned();
            for (value, is_warming) in states {
                if value.is_null() {
                    continue;
                }
                let own = name_of(value);
                name = if own.is_empty() { name } else { own.to_owned() };
                let (is_static, value) = (list.starts_with("static"), value.clone());
                found.push(DumpedItem { name: name.clone(), value, is_static, is_warming });
            }
            let details = text(&entry["errorState"]["details"]);
            if !details.is_empty() {
                self.refused.push((name, details.to_owned()));
            }
        }
        found
    }

    /// From what a control plane answers to `_config`: resources by type and name.
    pub(crate) fn of_plan(plan: &Value) -> Self {
        let mut read = Self::default();
        for (type_url, resources) in plan["xds"].as_object().into_iter().flatten() {
            let items = resources.as_object().into_iter().flatten().map(|(name, value)| DumpedItem {
                name: name.clone(),
                value: camel(value.clone()),
                is_static: false,
                is_warming: false,
            });
            let list = match type_url.rsplit('.').next().unwrap_or_default() {
                "Cluster" => &mut read.clusters,
                "ClusterLoadAssignment" => &mut read.endpoints,
                "Listener" => &mut read.listeners,
                "RouteConfiguration" => &mut read.routes,
                "Secret" => &mut read.secrets,
                _ => continue,
            };
            list.extend(items);
        }
        read
    }
}

fn name_of(value: &Value) -> &str {
    ["name", "clusterName"]
        .map(|member| text(&value[member]))
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("")
}

/// Names of members as protobuf's JSON has them, in place of those of the fields. What somebody made up keeps its names.
fn camel(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(camel).collect(),
        Value::Object(members) => {
            let renamed = members.into_iter().map(|(name, value)| {
                let value = match name.as_str() {
                    "metadata" => metadata(value),
                    "filter_metadata" | "filterMetadata" => value,
                    _ => camel(value),
                };
                (camel_name(&name), value)
            });
            Value::Object(renamed.collect())
        }
        other => other,
    }
}

/// Metadata of a node is what it says; that of anything else holds the metadata of filters.
fn metadata(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let of_filters = ["filter_metadata", "typed_filter_metadata"];
            let is_of_filters = |name: &String| of_filters.contains(&name.as_str());
            let rename = |(name, value)| (if is_of_filters(&name) { camel_name(&name) } else { name }, value);
            Value::Object(members.into_iter().map(rename).collect::<Map<_, _>>())
        }
        other => other,
    }
}

fn camel_name(name: &str) -> String {
    let is_field = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !is_field || name.starts_with('_') {
        return name.to_owned();
    }
    let mut parts = name.split('_').filter(|part| !part.is_empty());
    let mut renamed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        renamed.extend(part.chars().take(1).map(|first| first.to_ascii_uppercase()));
        renamed.push_str(&part[1..]);
    }
    renamed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn dump(section: &str, members: Value) -> Value {
        let mut config = members;
        config["@type"] = format!("type.googleapis.com/envoy.admin.v3.{section}").into();
        json!({ "configs": [config] })
    }

    #[test]
    fn envoys_and_control_planes_say_the_same_in_one_form() {
        let cluster = json!({
            "name": "web", "connect_timeout": "5s",
            "metadata": { "filter_metadata": { "io.kuma": { "a_b": 1 } } },
        });
        let expected = json!({
            "name": "web", "connectTimeout": "5s",
            "metadata": { "filterMetadata": { "io.kuma": { "a_b": 1 } } },
        });
        let entry = json!({ "version_info": "1", "cluster": cluster });
        let envoy =
            ProxyDump::of_envoy(&dump("ClustersConfigDump", json!({ "dynamic_active_clusters": [entry] })));
        let clusters = envoy.unwrap().clusters;
        assert_eq!(clusters[0].value, expected);
        let plan =
            json!({ "xds": { "type.googleapis.com/envoy.config.cluster.v3.Cluster": { "web": expected } } });
        assert_eq!(ProxyDump::of_plan(&plan).clusters, clusters);
    }

    #[test]
    fn what_warms_and_what_was_refused_is_told_apart() {
        let listener = |name: &str| json!({ "listener": { "name": name } });
        let listeners = json!({
            "static_listeners": [listener("admin")],
            "dynamic_listeners": [
                { "name": "in", "active_state": listener("in"), "warming_state": listener("in") },
                { "name": "bad", "error_state": { "details": "cannot bind" } },
            ],
        });
        let read = ProxyDump::of_envoy(&dump("ListenersConfigDump", listeners)).unwrap();
        let seen: Vec<_> = read.listeners.iter().map(|l| (&*l.name, l.is_static, l.is_warming)).collect();
        assert_eq!(seen, [("admin", true, false), ("in", false, false), ("in", false, true)]);
        assert_eq!(read.refused, [("bad".to_owned(), "cannot bind".to_owned())]);
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        let error = ProxyDump::of_envoy(&json!({ "x": 1 })).unwrap_err().to_string();
        assert!(error.contains("`configs`"), "{error}");
    }
}
