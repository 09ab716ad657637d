//! The server name a client sends, by which a zone ingress finds the service.

use std::collections::BTreeMap;

use common::model::{kri::Kri, labels, names::fnv1a_64};

/// Longest name or mesh inside the hashed form.
const LONGEST_PART: usize = 62;
/// Longest name of a host.
const LONGEST_NAME: usize = 253;

/// The form for tagged services: `<service>{mesh=<mesh>,k=v}`, tags sorted, without the service tag.
pub fn of_tags(service: &str, mesh: &str, tags: &BTreeMap<String, String>) -> String {
    let mut all: BTreeMap<&str, &str> = tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    all.remove(labels::TAG_SERVICE);
    all.insert("mesh", mesh);
    let pairs: Vec<String> = all.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{service}{{{}}}", pairs.join(","))
}

/// The form for services that are resources: a hash, the name, the port, the mesh and the kind (`ms`,
/// `mes`, `mzms`).
pub fn of_resource(name: &str, port: u32, mesh: &str, kind: &str) -> String {
    let hash = fnv1a_64(&[name.as_bytes(), b";", mesh.as_bytes(), b";"]);
    format!("a{hash:016x}.{}.{port}.{}.{kind}", shortened(name), shortened(mesh))
}

/// The form for the port of a service that is known by its identifier: its parts, without those that are empty. `None`
/// when one of them cannot stand in a host name.
pub fn of_kri(kri: &Kri) -> Option<String> {
    let of_zone = [kri.zone.as_str(), &kri.namespace];
    let named = [kri.mesh.as_str(), &kri.name];
    let labels = of_zone.iter().filter(|part| !part.is_empty()).chain(&named);
    let is_port = |section: &str| section.len() <= 5 && section.bytes().all(|byte| byte.is_ascii_digit());
    let stands = labels::dns_1035_problem(&kri.section).is_none()
        || (!kri.section.is_empty() && is_port(&kri.section));
    let all_stand = labels.into_iter().all(|part| labels::dns_1035_problem(part).is_none());
    if !stands || !all_stand || (kri.zone.is_empty() && !kri.namespace.is_empty()) {
        return None;
    }
    let of_zone = of_zone.into_iter().filter(|part| !part.is_empty());
    let parts =
        ["sni", kri.short, &kri.mesh].into_iter().chain(of_zone).chain([kri.name.as_str(), &kri.section]);
    let name = parts.collect::<Vec<_>>().join(".");
    (name.len() <= LONGEST_NAME).then_some(name)
}

fn shortened(part: &str) -> String {
    match part.char_indices().nth(LONGEST_PART) {
        Some((cut, _)) => format!("{}x", &part[..cut]),
        None => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_those_of_known_control_planes() {
        let none = BTreeMap::new();
        assert_eq!(of_tags("backend", "default", &none), "backend{mesh=default}");
        let tags = [("version", "v1"), ("kuma.io/service", "backend")];
        let tags = tags.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(of_tags("backend", "default", &tags), "backend{mesh=default,version=v1}");
        assert_eq!(
            of_resource("test-server", 80, "envoyconfig", "ms"),
            "a029781856823048e.test-server.80.envoyconfig.ms"
        );
        assert_eq!(
            of_resource("demo-client", 3000, "envoyconfig", "ms"),
            "a65abe81bca1750d1.demo-client.3000.envoyconfig.ms"
        );
    }

    #[test]
    fn identifiers_become_host_names_where_they_can() {
        let kri = |zone: &str, namespace: &str, name: &str, section: &str| Kri {
            short: "msvc",
            mesh: "default".into(),
            zone: zone.into(),
            namespace: namespace.into(),
            name: name.into(),
            section: section.into(),
        };
        let check = |kri: Kri, name: Option<&str>| assert_eq!(of_kri(&kri).as_deref(), name, "{kri}");
        check(kri("", "", "web", "80"), Some("sni.msvc.default.web.80"));
        check(kri("east", "", "web", "http"), Some("sni.msvc.default.east.web.http"));
        check(kri("east", "ns", "web", "80"), Some("sni.msvc.default.east.ns.web.80"));
        for (zone, namespace, name, section) in [
            ("", "ns", "web", "80"),
            ("east", "", "web.ns", "80"),
            ("east", "", "web", ""),
            ("east", "", "web", "123456"),
            ("east", "", &*"w".repeat(64), "80"),
        ] {
            check(kri(zone, namespace, name, section), None);
        }
        let long = "n".repeat(63);
        let all = Kri { mesh: long.clone(), ..kri(&long, &long, &long, "80") };
        assert_eq!(of_kri(&all), None, "it is longer than a host name may be");
    }
}
