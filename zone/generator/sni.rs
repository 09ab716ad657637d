//! The server name a client sends, by which a zone ingress finds the service.

use std::collections::BTreeMap;

use common::model::{labels, names::fnv1a_64};

/// Longest name or mesh inside the hashed form.
const LONGEST_PART: usize = 62;

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
}
