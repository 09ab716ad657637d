//! The mesh that is played: which services there are, who calls whom.

use serde_json::{Value, json};

/// A service, by its number.
pub type ServiceNumber = usize;

/// First port of the outbounds; the one of service `n` is so many above it.
const OUTBOUNDS: usize = 10_001;

/// Sizes of a mesh; everything in it has its name and its place by number, so that two runs are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub mesh: String,
    /// Proxies that are played. Each stands before one of the services, in turn.
    pub proxies: usize,
    /// Services.
    pub services: usize,
    /// Services each proxy calls; the window of a proxy begins where its number says.
    pub outbounds: usize,
    /// More endpoints, whose proxies are not played. They stand before the services in turn.
    pub endpoints: usize,
    /// Whether workloads talk TLS to each other.
    pub mtls: bool,
}

impl Scenario {
    /// Name of a played proxy.
    pub fn proxy(number: usize) -> String {
        format!("proxy-{number:06}")
    }

    /// Name of a dataplane that is not played.
    pub fn endpoint(number: usize) -> String {
        format!("endpoint-{number:06}")
    }

    /// Name of a service; no name of a service begins another.
    pub fn service(number: ServiceNumber) -> String {
        format!("service-{number:06}")
    }

    /// The service a dataplane of this number stands before.
    pub fn served_by(&self, number: usize) -> ServiceNumber {
        number % self.services.max(1)
    }

    /// Services a played proxy calls, in the order of their numbers.
    pub fn called_by(&self, proxy: usize) -> Vec<ServiceNumber> {
        let first = self.served_by(proxy);
        let count = self.outbounds.min(self.services);
        let mut called: Vec<_> = (0..count).map(|i| (first + i) % self.services).collect();
        called.sort_unstable();
        called
    }

    /// Played proxies that call a service.
    pub fn callers(&self, service: ServiceNumber) -> usize {
        let calls = |proxy: usize| {
            let behind = (service + self.services - self.served_by(proxy)) % self.services;
            behind < self.outbounds.min(self.services)
        };
        (0..self.proxies).filter(|proxy| calls(*proxy)).count()
    }

    /// The document of the mesh.
    pub fn mesh(&self) -> Value {
        let mut mesh = json!({"type": "Mesh", "name": self.mesh});
        if self.mtls {
            mesh["mtls"] =
                json!({"enabledBackend": "ca-1", "backends": [{"name": "ca-1", "type": "builtin"}]});
        }
        mesh
    }

    /// The document of a played proxy.
    pub fn proxy_document(&self, number: usize) -> Value {
        let outbounds: Vec<Value> = self
            .called_by(number)
            .into_iter()
            .map(|service| {
                json!({"port": OUTBOUNDS + service, "tags": {"kuma.io/service": Self::service(service)}})
            })
            .collect();
        let mut document = self.dataplane(&Self::proxy(number), &address(10, number), self.served_by(number));
        document["networking"]["outbound"] = Value::Array(outbounds);
        document
    }

    /// The document of an endpoint whose proxy is not played; with each `version` it has another address.
    pub fn endpoint_document(&self, number: usize, version: usize) -> Value {
        let network = 20 + u8::try_from(version % 200).unwrap_or_default();
        self.dataplane(&Self::endpoint(number), &address(network, number), self.served_by(number))
    }

    /// A policy about one service, or about all of them; with each `version` it says something else.
    pub fn timeout(&self, name: &str, service: Option<ServiceNumber>, version: usize) -> Value {
        let idle = format!("{}s", 60 + version % 3000);
        let to = json!({
            "targetRef": to(service),
            "default": {"idleTimeout": idle, "http": {"requestTimeout": "15s"}},
        });
        json!({"type": "MeshTimeout", "mesh": self.mesh, "name": name,
               "spec": {"targetRef": {"kind": "Mesh"}, "to": [to]}})
    }

    /// A route of one service; with each `version` it matches something else.
    pub fn route(&self, name: &str, service: ServiceNumber, version: usize) -> Value {
        let rule = json!({
            "matches": [{"path": {"type": "PathPrefix", "value": format!("/v{version}")}}],
            "default": {"filters": [{"type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": [{"name": "x-version", "value": version.to_string()}]}}]},
        });
        json!({"type": "MeshHTTPRoute", "mesh": self.mesh, "name": name,
               "spec": {"targetRef": {"kind": "Mesh"},
                        "to": [{"targetRef": to(Some(service)), "rules": [rule]}]}})
    }

    fn dataplane(&self, name: &str, address: &str, service: ServiceNumber) -> Value {
        json!({
            "type": "Dataplane", "mesh": self.mesh, "name": name,
            "networking": {
                "address": address,
                "inbound": [{"port": 8080, "servicePort": 18080, "tags": {
                    "kuma.io/service": Self::service(service), "kuma.io/protocol": "http"}}],
            },
        })
    }
}

fn to(service: Option<ServiceNumber>) -> Value {
    match service {
        Some(service) => json!({"kind": "MeshService", "name": Scenario::service(service)}),
        None => json!({"kind": "Mesh"}),
    }
}

fn address(network: u8, number: usize) -> String {
    format!("{network}.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_those_who_call() {
        let scenario = Scenario {
            mesh: "default".to_owned(),
            proxies: 23,
            services: 10,
            outbounds: 4,
            endpoints: 0,
            mtls: true,
        };
        for service in 0..10 {
            let calling = (0..23).filter(|proxy| scenario.called_by(*proxy).contains(&service)).count();
            assert_eq!(scenario.callers(service), calling, "{service}");
        }
        let document = scenario.proxy_document(12);
        let outbounds = document["networking"]["outbound"].as_array().map(Vec::len);
        assert_eq!(outbounds, Some(4));
        assert_ne!(scenario.endpoint_document(3, 1), scenario.endpoint_document(3, 2));
    }

    #[test]
    fn everybody_calls_everything_when_there_are_that_many_outbounds() {
        let scenario = Scenario {
            mesh: "default".to_owned(),
            proxies: 5,
            services: 7,
            outbounds: 100,
            endpoints: 1,
            mtls: false,
        };
        assert!((0..7).all(|service| scenario.callers(service) == 5));
        assert!(scenario.mesh().get("mtls").is_none());
    }
}
