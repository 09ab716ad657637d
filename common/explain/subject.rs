//! The proxy that is explained, and which resource a part of its configuration is there for, by its name.

use serde_json::Value;

use super::CONTROL_PLANE;

/// A proxy with what its mesh says about it.
pub struct ExplainedProxy<'a> {
    resource: &'a Value,
    networking: &'a Value,
    gateways: &'a [Value],
    rules: &'a Value,
    older: &'a Value,
    issued_by: &'a str,
}

impl<'a> ExplainedProxy<'a> {
    /// One of which nothing else is known: a `Dataplane`, `ZoneIngress` or `ZoneEgress`.
    pub fn of(resource: &'a Value) -> Self {
        let (networking, null) = (&resource["networking"], &Value::Null);
        Self { resource, networking, gateways: &[], rules: null, older: null, issued_by: "" }
    }

    /// With the builtin gateways of its mesh.
    pub fn with_gateways(self, gateways: &'a [Value]) -> Self {
        Self { gateways, ..self }
    }

    /// With what policies of both generations say.
    pub fn with_policies(self, rules: &'a Value, older: &'a Value) -> Self {
        Self { rules, older, ..self }
    }

    /// With the backend that signed its certificate.
    pub fn issued_by(self, backend: &'a str) -> Self {
        Self { issued_by: backend, ..self }
    }

    fn own(&self, part: &str) -> String {
        let text = |member: &str| self.resource[member].as_str().unwrap_or_default();
        format!("{}/{} {part}", text("type"), text("name")).trim_end().to_owned()
    }

    fn mesh(&self, part: &str) -> String {
        format!("Mesh/{} {part}", self.resource["mesh"].as_str().unwrap_or_default())
    }

    /// What a listener is there for.
    pub(super) fn listener(&self, name: &str) -> Option<String> {
        if let Some(from) = self.of_machine(name) {
            return Some(from);
        }
        if let Some(part) = name.strip_prefix("inbound:") {
            return self.inbound(part);
        }
        if let Some(part) = name.strip_prefix("outbound:") {
            return self.outbound(part);
        }
        if name.starts_with("_kuma:metrics:prometheus") {
            return Some(self.policies("MeshMetric").unwrap_or_else(|| self.mesh("metrics")));
        }
        self.of_gateway(name)
    }

    /// What traffic meets that is redirected on the machine, and the doors of the proxy itself.
    fn of_machine(&self, name: &str) -> Option<String> {
        match name {
            "kuma:envoy:admin" if self.networking["admin"].is_object() => Some(self.own("networking.admin")),
            "kuma:dns" => Some(self.own("networking.transparentProxying")),
            "probe:listener" => Some(self.own("probes")),
            name if name.starts_with("outbound:passthrough") => {
                let said = self.policies("MeshPassthrough");
                Some(said.unwrap_or_else(|| self.own("networking.transparentProxying")))
            }
            name if name.starts_with("inbound:passthrough") || name.starts_with("self_transparentproxy") => {
                Some(self.own("networking.transparentProxying"))
            }
            name if name.starts_with("direct_access") => {
                Some(self.own("networking.transparentProxying.directAccessServices"))
            }
            // What every proxy has: its doors, and where its bootstrap leads.
            "access_log_sink" | "ads_cluster" => Some(CONTROL_PLANE.to_owned()),
            name if name.starts_with("kuma:") || name == "_kuma:dynamicconfig" => {
                Some(CONTROL_PLANE.to_owned())
            }
            _ => None,
        }
    }

    fn inbound(&self, address: &str) -> Option<String> {
        let port = port(address)?;
        // A zone proxy has one.
        if self.networking["port"].as_u64() == Some(port) {
            return Some(self.own("networking"));
        }
        let (index, inbound) = at(&self.networking["inbound"], port)?;
        let service = inbound["tags"]["kuma.io/service"].as_str().unwrap_or_default();
        Some(self.own(&format!("networking.inbound[{index}] {service}")))
    }

    fn outbound(&self, address: &str) -> Option<String> {
        let (index, outbound) = at(&self.networking["outbound"], port(address)?)?;
        let tag = outbound["tags"]["kuma.io/service"].as_str();
        let to = tag.or_else(|| outbound["backendRef"]["name"].as_str()).unwrap_or_default();
        Some(self.own(&format!("networking.outbound[{index}] {to}")))
    }

    /// The gateway whose listener is called so: by its name, what it speaks and its port.
    fn of_gateway(&self, name: &str) -> Option<String> {
        let (rest, port) = name.rsplit_once(':')?;
        let (gateway, protocol) = rest.rsplit_once(':')?;
        let port: u64 = port.parse().ok()?;
        let found = self.gateways.iter().find(|one| one["name"] == gateway)?;
        let listeners = found["conf"]["listeners"].as_array()?.iter().enumerate();
        // Several hosts share a port.
        let meant = listeners.filter(|(_, one)| {
            one["port"].as_u64() == Some(port) && one["protocol"].as_str().unwrap_or("TCP") == protocol
        });
        let indices: Vec<String> = meant.map(|(index, _)| index.to_string()).collect();
        Some(format!("MeshGateway/{gateway} conf.listeners[{}]", indices.join(", ")))
    }

    /// What a cluster is there for that no traffic of the workload is sent to, or that is the workload.
    pub(super) fn own_cluster(&self, name: &str) -> Option<String> {
        if let Some(from) = self.of_machine(name) {
            return Some(from);
        }
        let by_policy = |kind: &str| Some(self.policies(kind).unwrap_or_else(|| kind.to_owned()));
        match name.split(':').next()? {
            "localhost" => self.workload(name),
            "meshtrace" => by_policy("MeshTrace"),
            "meshaccesslog" => by_policy("MeshAccessLog"),
            "meshmetric" | "_kuma" => by_policy("MeshMetric"),
            "tracing" => by_policy("TrafficTrace"),
            _ if name.starts_with("meshpassthrough_") => by_policy("MeshPassthrough"),
            _ => None,
        }
    }

    /// The inbound whose workload a cluster is.
    fn workload(&self, cluster: &str) -> Option<String> {
        let port = port(cluster)?;
        let all = self.networking["inbound"].as_array()?;
        let is_meant = |inbound: &Value| {
            let workload =
                if inbound["servicePort"].is_number() { &inbound["servicePort"] } else { &inbound["port"] };
            workload.as_u64() == Some(port)
        };
        let index = all.iter().position(is_meant)?;
        let service = all[index]["tags"]["kuma.io/service"].as_str().unwrap_or_default();
        Some(self.own(&format!("networking.inbound[{index}] {service}")))
    }

    /// What a cluster reaches, by the name of a service: one that is a resource, or one that is a tag.
    pub(super) fn cluster(&self, name: &str) -> Option<String> {
        if let Some(resource) = of_resource(name) {
            return Some(resource);
        }
        // An ingress and an egress say the mesh as well.
        let service = name.split_once(':').map_or(name, |(_, service)| service);
        let hashed = |suffix: &str| suffix.len() == 16 && suffix.chars().all(|c| c.is_ascii_hexdigit());
        let service = match service.rsplit_once('-') {
            Some((service, suffix)) if hashed(suffix) => service,
            _ => service,
        };
        (!service.is_empty() && !service.starts_with('_')).then(|| format!("service {service}"))
    }

    /// Who gave the proxy a secret.
    pub(super) fn secret(&self, name: &str) -> Option<String> {
        if name.starts_with("identity_cert") || name.starts_with("mesh_ca") {
            let mesh = name.rsplit(':').next().unwrap_or_default();
            return Some(match of_resource(self.issued_by) {
                Some(identity) => identity,
                None if self.issued_by.is_empty() => format!("Mesh/{mesh} mtls"),
                None => format!("Mesh/{mesh} mtls.backends {}", self.issued_by),
            });
        }
        if let Some(identity) = of_resource(name) {
            return Some(identity);
        }
        if name.starts_with("cert.") {
            let gateways: Vec<String> = self
                .gateways
                .iter()
                .filter(|gateway| gateway["conf"].to_string().contains("certificates"))
                .filter_map(|gateway| Some(format!("MeshGateway/{}", gateway["name"].as_str()?)))
                .collect();
            let secret = name.split_once(":secret:").map(|(_, secret)| format!("Secret/{secret} for "));
            return Some(format!("{}{}", secret.unwrap_or_default(), gateways.join(", ")));
        }
        None
    }

    /// The policies of a kind that say something about the proxy as a whole, or about any part of it.
    fn policies(&self, kind: &str) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let rules = self.rules["rules"].as_array().into_iter().flatten().filter(|rule| rule["type"] == kind);
        rules.for_each(|rule| collect(rule, kind, &mut names));
        let older = self.older["items"].as_array().into_iter().flatten();
        for item in older.filter(|item| item["policyType"] == kind) {
            collect(&item["policy"], kind, &mut names);
        }
        names.sort();
        names.dedup();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// The names of all resources of `kind` below a value, as their authors call them.
fn collect(value: &Value, kind: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if value["type"] == kind && value["name"].is_string() {
                names.push(super::fields::from(value));
            }
            members.values().for_each(|member| collect(member, kind, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, kind, names)),
        _ => {}
    }
}

fn port(address: &str) -> Option<u64> {
    address.rsplit_once(':').map_or(address, |(_, port)| port).parse().ok()
}

fn at(list: &Value, port: u64) -> Option<(usize, &Value)> {
    list.as_array()?.iter().enumerate().find(|(_, part)| part["port"].as_u64() == Some(port))
}

/// The resource that an identifier names, or a name made of the same parts.
fn of_resource(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("kri_") {
        let mut parts = rest.split('_');
        let kind = crate::registry::by_short(parts.next()?)?;
        return Some(format!("{}/{}", kind.name, parts.nth(3)?));
    }
    let mut parts = name.rsplit('_');
    let (_port, short, _zone, _namespace) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let kind = crate::registry::by_short(short).filter(|kind| kind.service.is_some())?;
    let name: Vec<&str> = parts.collect();
    // The mesh comes first.
    let name: Vec<&str> = name.into_iter().rev().skip(1).collect();
    (!name.is_empty()).then(|| format!("{}/{}", kind.name, name.join("_")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_say_what_a_part_is_there_for() {
        let dataplane = json!({"type": "Dataplane", "name": "web-1", "mesh": "demo", "networking": {
            "inbound": [{"port": 80, "servicePort": 8080, "tags": {"kuma.io/service": "web"}}],
            "outbound": [{"port": 10001, "backendRef": {"kind": "MeshService", "name": "api"}}],
        }});
        let listeners = json!([
            {"port": 80, "protocol": "HTTP"}, {"port": 443, "protocol": "HTTPS", "hostname": "a", "tls": {"certificates": []}},
            {"port": 443, "protocol": "HTTPS", "hostname": "b"},
        ]);
        let gateways = [json!({"name": "edge", "conf": {"listeners": listeners}})];
        let rules = json!({"rules": [{"type": "MeshMetric", "proxyRule": {"origin": [{"type": "MeshMetric", "name": "all"}]}}]});
        let older = json!({"items": [{"policyType": "TrafficTrace", "policy": {"resourceMeta": {"type": "TrafficTrace", "name": "old"}}}]});
        let subject = ExplainedProxy::of(&dataplane).with_gateways(&gateways).with_policies(&rules, &older);
        let listener = |name: &str| subject.listener(name).unwrap_or_default();
        assert_eq!(listener("inbound:10.0.0.1:80"), "Dataplane/web-1 networking.inbound[0] web");
        assert_eq!(listener("outbound:[::1]:10001"), "Dataplane/web-1 networking.outbound[0] api");
        assert_eq!(listener("outbound:passthrough:ipv4"), "Dataplane/web-1 networking.transparentProxying");
        assert_eq!(listener("edge:HTTPS:443"), "MeshGateway/edge conf.listeners[1, 2]");
        assert_eq!(listener("_kuma:metrics:prometheus:default-backend"), "MeshMetric/all");
        assert_eq!(listener("outbound:240.0.0.1:80"), "", "what is called there says more");
        let own = |name: &str| subject.own_cluster(name).unwrap_or_default();
        assert_eq!(own("localhost:8080"), "Dataplane/web-1 networking.inbound[0] web");
        assert_eq!([own("tracing:spans"), own("web")], ["TrafficTrace/old", ""]);
        let cluster = |name: &str| subject.cluster(name).unwrap_or_default();
        assert_eq!(cluster("demo_web__zone-1_msvc_8000"), "MeshService/web");
        assert_eq!(cluster("demo_newer___extsvc_443"), "MeshExternalService/newer");
        assert_eq!(cluster("kri_mzsvc_demo___web_http"), "MeshMultiZoneService/web");
        assert_eq!(
            [cluster("store-46b66a476f894189"), cluster("demo:far")],
            ["service store", "service far"]
        );
        let secret = |name: &str| subject.secret(name).unwrap_or_default();
        assert_eq!(secret("mesh_ca:secret:demo"), "Mesh/demo mtls");
        assert_eq!(secret("cert.ecdsa:secret:shop"), "Secret/shop for MeshGateway/edge");
        let issued = ExplainedProxy::of(&dataplane).issued_by("kri_mid_demo_zone-1__everybody_");
        assert_eq!(issued.secret("identity_cert:secret:demo").as_deref(), Some("MeshIdentity/everybody"));
    }
}
