//! VHDS: virtual hosts that are asked for by the host somebody calls.
//!
//! The name of a virtual host is `<route configuration>/<name>`. A peer asks for `<route configuration>`, which stands
//! for those that are there from the beginning, and for `<route configuration>/<host>`, which stands for the one whose
//! domains the host fits best. That there is none is told with a resource that has no content.

use std::collections::BTreeMap;

use prost::Message;

use super::{Name, Want, Wanted, envoy};

/// What of a virtual host says which hosts it is for.
#[derive(Clone, PartialEq, Message)]
struct Domains {
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
}

/// Whether resources of this type are asked for by hosts.
pub(super) fn is_asked_by_host(type_url: &str) -> bool {
    type_url == envoy::VIRTUAL_HOST
}

/// Whether `name` names a host, and not all of a route configuration.
pub(super) fn is_host(name: &str) -> bool {
    name.contains('/')
}

/// The route configuration of a virtual host.
pub(super) fn route_of<'a>(type_url: &str, name: &'a str) -> Option<&'a str> {
    Some(name.rsplit_once('/').filter(|_| is_asked_by_host(type_url))?.0)
}

/// How all names of its route configuration begin.
pub(super) fn prefix_of<'a>(type_url: &str, name: &'a str) -> Option<&'a str> {
    Some(&name[..=route_of(type_url, name)?.len()])
}

/// How the names of the virtual hosts of a route configuration begin.
pub(super) fn prefix_below(type_url: &str, route: &str) -> Option<String> {
    is_asked_by_host(type_url).then(|| format!("{route}/"))
}

/// The name under which is told that nothing stands behind `asked`.
pub(super) fn vacancy(asked: &str) -> String {
    // Clients look below the name of a route configuration.
    if is_host(asked) { asked.to_owned() } else { format!("{asked}/") }
}

/// What `asked` stands for.
pub(super) fn resolved(want: &dyn Want, type_url: &str, asked: &str) -> Vec<Name> {
    let Some(prefix) = prefix_of(type_url, asked) else {
        let mut all = Vec::new();
        want.under(type_url, &format!("{asked}/"), &mut |wanted| {
            all.extend((!wanted.on_demand).then_some(wanted.name));
        });
        return all;
    };
    let mut hosts = VirtualHosts::default();
    want.under(type_url, prefix, &mut |wanted| hosts.add(&wanted));
    hosts.best(asked, &asked[prefix.len()..]).into_iter().collect()
}

/// The virtual hosts of a route configuration.
#[derive(Default)]
struct VirtualHosts {
    names: Vec<Name>,
    by_domain: BTreeMap<String, Name>,
}

impl VirtualHosts {
    fn add(&mut self, wanted: &Wanted) {
        self.names.push(Name::clone(&wanted.name));
        // What does not decode is for no host.
        let domains = Domains::decode(&wanted.value[..]).unwrap_or_default().domains;
        for domain in domains {
            self.by_domain.entry(domain.to_ascii_lowercase()).or_insert_with(|| Name::clone(&wanted.name));
        }
    }

    /// The one that Envoy would take for this host, or the one that is asked for by its own name.
    fn best(&self, asked: &str, host: &str) -> Option<Name> {
        let host = host.to_ascii_lowercase();
        let without_port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let by_host = self.of_host(&host).or_else(|| self.of_host(without_port?.0));
        by_host.or_else(|| self.names.iter().find(|name| ***name == *asked).cloned())
    }

    /// The same, then the longest end, then the longest beginning, then all.
    fn of_host(&self, host: &str) -> Option<Name> {
        let ends = host.char_indices().skip(1).map(|(at, _)| format!("*{}", &host[at..]));
        let beginnings = host.char_indices().rev().filter(|(at, _)| *at > 0);
        let beginnings = beginnings.map(|(at, _)| format!("{}*", &host[..at]));
        let mut domains = [host.to_owned()].into_iter().chain(ends).chain(beginnings).chain(["*".to_owned()]);
        domains.find_map(|domain| self.by_domain.get(&domain)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        proto::envoy::config::route::v3::VirtualHost,
        xds::{WantSnapshot, Wanted, envoy::VIRTUAL_HOST},
    };
    use prost::Message;

    use super::{prefix_of, resolved, vacancy};

    fn world(hosts: &[(&str, &[&str], bool)]) -> WantSnapshot {
        let mut world = WantSnapshot::new(1);
        for (name, domains, on_demand) in hosts {
            let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
            let host = VirtualHost { name: (*name).to_owned(), domains, ..VirtualHost::default() };
            let wanted = Wanted::new(*name, VIRTUAL_HOST, host.encode_to_vec());
            world.put(Wanted { on_demand: *on_demand, ..wanted });
        }
        world
    }

    #[test]
    fn a_host_is_found_as_an_envoy_finds_it() {
        let world = world(&[
            ("r/exact", &["a.example", "A.Upper"], true),
            ("r/end", &["*.example", "*.b.example"], true),
            ("r/longer-end", &["*.c.b.example"], true),
            ("r/beginning", &["www.*"], true),
            ("r/rest", &["*"], false),
            ("other/x", &["x.example"], true),
        ]);
        for (asked, expected) in [
            ("r/a.example", "r/exact"),
            ("r/a.upper", "r/exact"),
            ("r/a.example:8080", "r/rest"),
            ("other/x.example:8080", "other/x"),
            ("r/x.example", "r/end"),
            ("r/y.c.b.example", "r/longer-end"),
            ("r/www.example", "r/end"),
            ("r/www.test", "r/beginning"),
            ("r/else", "r/rest"),
            ("r/", "r/rest"),
            ("other/x.example", "other/x"),
            ("other/x", "other/x"),
            ("other/y.example", ""),
            ("none/a", ""),
            ("r", "r/rest"),
            ("other", ""),
        ] {
            let found = resolved(&world, VIRTUAL_HOST, asked);
            let found: Vec<&str> = found.iter().map(|name| &**name).collect();
            assert_eq!(found.join(" "), expected, "{asked}");
        }
    }

    #[test]
    fn names_below_a_route_configuration() {
        assert_eq!(prefix_of(VIRTUAL_HOST, "a/b/c"), Some("a/b/"));
        assert_eq!((prefix_of(VIRTUAL_HOST, "a"), prefix_of("T", "a/b")), (None, None));
        assert_eq!((&*vacancy("a"), &*vacancy("a/b")), ("a/", "a/b"));
    }
}
