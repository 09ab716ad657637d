//! Metrics as the older generation offers them: what a mesh says, and one of its dataplanes otherwise.

use std::collections::BTreeMap;

use common::{
    model::labels,
    proto::{
        google::protobuf::{Struct, value::Kind},
        kuma::mesh::v1alpha1::{Mesh, MetricsBackend},
    },
};
use serde::Serialize;

/// The only type of backends.
const PROMETHEUS: &str = "prometheus";
/// The path where nobody says another.
const PATH: &str = "/metrics";
/// What a port may be; another one an Envoy would refuse, and with it all its listeners.
const PORTS: std::ops::RangeInclusive<u32> = 1..=65535;
/// The port where nobody says another.
const PORT: u32 = 5670;

/// How a proxy answers who asks for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedMetrics {
    /// On which port.
    pub port: u32,
    /// On which path.
    pub path: String,
    /// What those who may ask are allowed to call.
    pub tags: BTreeMap<String, String>,
    /// Whether by TLS, and whose.
    pub tls: MetricsTls,
    /// Which metrics of the Envoy are told, as a regular expression.
    pub filter: Option<String>,
    /// Whether those are left out that nothing ever happened to.
    pub used_only: bool,
    /// Workloads whose metrics are told as well.
    pub workloads: Vec<WorkloadMetrics>,
}

/// Ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsTls {
    /// As a member of the mesh, where it has mutual TLS.
    Mesh,
    /// With a certificate that lies beside the proxy.
    Provided,
    /// In plaintext.
    Disabled,
}

/// A workload that tells metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkloadMetrics {
    /// What it is called.
    pub name: String,
    /// On which address; that of the proxy when it is empty.
    pub address: String,
    /// On which port.
    pub port: u32,
    /// On which path.
    pub path: String,
}

impl OfferedMetrics {
    /// How the proxies of `mesh` answer, one of which says `own` about itself; `None` where none do.
    pub fn of(mesh: &Mesh, own: Option<&MetricsBackend>) -> Option<Self> {
        let metrics = mesh.metrics.as_ref()?;
        let enabled = |backend: &&MetricsBackend| {
            backend.name == metrics.enabled_backend && backend.r#type == PROMETHEUS
        };
        let enabled =
            metrics.backends.iter().filter(|_| !metrics.enabled_backend.is_empty()).find(enabled)?;
        let own = own.filter(|own| own.r#type == PROMETHEUS);
        let said = OfferedLayers { own: own.and_then(|own| own.conf.as_ref()), mesh: enabled.conf.as_ref() };
        let (envoy, tags) = (said.below("envoy"), said.below("tags"));
        let default_tags = || [(labels::TAG_SERVICE.to_owned(), "dataplane-metrics".to_owned())].into();
        Some(Self {
            port: said.number("port").unwrap_or(PORT),
            path: said.text("path").unwrap_or(PATH).to_owned(),
            tags: Some(tags.texts()).filter(|tags| !tags.is_empty()).unwrap_or_else(default_tags),
            tls: said.tls(),
            filter: envoy.text("filterRegex").map(str::to_owned),
            used_only: envoy.flag("usedOnly").unwrap_or(false),
            workloads: said.workloads(),
        })
    }
}

/// What the dataplane says comes before what its mesh says, member by member.
#[derive(Clone, Copy)]
struct OfferedLayers<'a> {
    own: Option<&'a Struct>,
    mesh: Option<&'a Struct>,
}

impl<'a> OfferedLayers<'a> {
    fn each(self) -> impl Iterator<Item = &'a Struct> {
        [self.own, self.mesh].into_iter().flatten()
    }

    fn members(self, name: &str) -> impl Iterator<Item = &'a Kind> {
        self.each().filter_map(move |conf| conf.fields.get(name)?.kind.as_ref())
    }

    fn below(self, name: &str) -> Self {
        let of = |conf: Option<&'a Struct>| match conf?.fields.get(name)?.kind.as_ref()? {
            Kind::StructValue(below) => Some(below),
            _ => None,
        };
        Self { own: of(self.own), mesh: of(self.mesh) }
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.members(name).find_map(|kind| match kind {
            Kind::StringValue(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        })
    }

    fn flag(self, name: &str) -> Option<bool> {
        self.members(name).find_map(|kind| match kind {
            Kind::BoolValue(flag) => Some(*flag),
            _ => None,
        })
    }

    fn number(self, name: &str) -> Option<u32> {
        self.members(name).find_map(|kind| match kind {
            // Ports are far from what a float cannot hold, and anything else becomes none.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Kind::NumberValue(number) => Some(*number as u32).filter(|port| PORTS.contains(port)),
            Kind::StringValue(text) => text.parse().ok().filter(|port| PORTS.contains(port)),
            _ => None,
        })
    }

    fn texts(self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for name in self.each().flat_map(|conf| conf.fields.keys()) {
            all.extend(self.text(name).map(|text| (name.clone(), text.to_owned())));
        }
        all
    }

    fn tls(self) -> MetricsTls {
        // Who says no more than that mutual TLS is skipped says it for both.
        let skips =
            OfferedLayers { mesh: None, ..self }.flag("skipMTLS").filter(|_| self.below("tls").own.is_none());
        match (skips, self.below("tls").text("mode")) {
            (Some(true), _) | (None, Some("disabled")) => MetricsTls::Disabled,
            (None, Some("providedTLS")) => MetricsTls::Provided,
            (Some(false), _) | (None, _) => MetricsTls::Mesh,
        }
    }

    /// Of both, by name, as far as they are enabled.
    fn workloads(self) -> Vec<WorkloadMetrics> {
        let list = |conf: Option<&'a Struct>| match conf?.fields.get("aggregate")?.kind.as_ref()? {
            Kind::ListValue(list) => Some(&list.values),
            _ => None,
        };
        let named = |conf: Option<&'a Struct>| {
            let items = list(conf).into_iter().flatten();
            let items = items.filter_map(|item| match item.kind.as_ref()? {
                Kind::StructValue(item) => Some(item),
                _ => None,
            });
            items.map(|item| {
                (OfferedLayers { own: Some(item), mesh: None }.text("name").unwrap_or_default(), item)
            })
        };
        let mut all: BTreeMap<&str, OfferedLayers<'a>> = BTreeMap::new();
        for (name, item) in named(self.mesh) {
            all.insert(name, OfferedLayers { own: None, mesh: Some(item) });
        }
        for (name, item) in named(self.own) {
            all.entry(name).or_insert(OfferedLayers { own: None, mesh: None }).own = Some(item);
        }
        let enabled = all.into_iter().filter(|(_, said)| said.flag("enabled").unwrap_or(true));
        let told = enabled.map(|(name, said)| WorkloadMetrics {
            name: name.to_owned(),
            address: said.text("address").unwrap_or_default().to_owned(),
            port: said.number("port").unwrap_or_default(),
            path: said.text("path").unwrap_or(PATH).to_owned(),
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::{
        model::{decode, kinds, transcode},
        structure,
    };
    use prost::Message;
    use serde_json::{Value, json};

    use super::*;

    fn mesh(metrics: &Value) -> Mesh {
        let spec = transcode::from_json(&kinds::mesh::KIND, &json!({ "metrics": metrics })).unwrap();
        Mesh::decode(&*kinds::mesh::KIND.normalize(&spec).unwrap()).unwrap()
    }

    fn backend(conf: &Value) -> MetricsBackend {
        let conf: serde_json::Map<String, Value> = decode::spec(conf.to_string().as_bytes()).unwrap();
        MetricsBackend {
            name: String::new(),
            r#type: PROMETHEUS.to_owned(),
            conf: Some(structure::from_json(conf)),
        }
    }

    fn offered(conf: &Value, own: Option<&Value>) -> OfferedMetrics {
        let backends = json!([{ "name": "m", "type": "prometheus", "conf": conf }]);
        let mesh = mesh(&json!({ "enabledBackend": "m", "backends": backends }));
        OfferedMetrics::of(&mesh, own.map(backend).as_ref()).unwrap()
    }

    #[test]
    fn nothing_is_offered_unless_a_backend_is_enabled() {
        let backends = json!([{ "name": "m", "type": "prometheus" }]);
        let own = backend(&json!({ "port": 1234 }));
        for metrics in [json!({}), json!({ "backends": backends })] {
            assert_eq!(OfferedMetrics::of(&mesh(&metrics), Some(&own)), None, "{metrics}");
        }
    }

    #[test]
    fn a_dataplane_says_it_member_by_member() {
        let plain = offered(&json!({}), None);
        let tags = |service: &str| BTreeMap::from([("kuma.io/service".to_owned(), service.to_owned())]);
        assert_eq!((plain.port, &*plain.path), (5670, "/metrics"));
        assert_eq!((plain.tls, plain.tags), (MetricsTls::Mesh, tags("dataplane-metrics")));
        assert_eq!((plain.filter, plain.used_only), (None, false));
        let of_mesh = json!({ "port": 1000, "path": "/m", "tls": { "mode": "providedTLS" },
            "envoy": { "filterRegex": "http", "usedOnly": true } });
        let own =
            json!({ "port": 2000, "tags": { "kuma.io/service": "told" }, "envoy": { "usedOnly": false } });
        let both = offered(&of_mesh, Some(&own));
        assert_eq!((both.port, &*both.path), (2000, "/m"));
        assert_eq!((both.tls, both.tags), (MetricsTls::Provided, tags("told")));
        assert_eq!((both.filter.as_deref(), both.used_only), (Some("http"), false));
    }

    #[test]
    fn who_skips_mutual_tls_asks_in_plaintext() {
        let check = |conf: Value, own: Option<Value>, expected| {
            assert_eq!(offered(&conf, own.as_ref()).tls, expected, "{conf} {own:?}");
        };
        check(json!({ "skipMTLS": true }), None, MetricsTls::Disabled);
        check(json!({ "skipMTLS": false }), None, MetricsTls::Mesh);
        check(json!({}), Some(json!({ "skipMTLS": true })), MetricsTls::Disabled);
        check(json!({ "skipMTLS": true }), Some(json!({ "skipMTLS": false })), MetricsTls::Mesh);
        let provided = json!({ "tls": { "mode": "providedTLS" } });
        check(json!({ "skipMTLS": true }), Some(provided.clone()), MetricsTls::Provided);
        check(provided, Some(json!({ "tls": { "mode": "disabled" } })), MetricsTls::Disabled);
    }

    #[test]
    fn workloads_are_known_by_their_names() {
        let of_mesh = json!({ "aggregate": [
            { "name": "app", "port": 8080, "path": "/app" }, { "name": "db", "port": 9187 },
            { "name": "off", "port": 1, "enabled": false } ] });
        let own = json!({ "aggregate": [
            { "name": "app", "port": 8081 }, { "name": "db", "enabled": false },
            { "name": "own", "address": "10.0.0.9", "port": 3 } ] });
        let told = |name: &str, address: &str, port, path: &str| WorkloadMetrics {
            name: name.to_owned(),
            address: address.to_owned(),
            port,
            path: path.to_owned(),
        };
        let expected = [told("app", "", 8081, "/app"), told("own", "10.0.0.9", 3, "/metrics")];
        assert_eq!(offered(&of_mesh, Some(&own)).workloads, expected);
    }
}
