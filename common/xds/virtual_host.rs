//! VHDS: virtual hosts that are asked for by the host somebody calls.
//!
//! The name of a virtual host is `<route configuration>/<name>`. A peer asks for `<route configuration>`, which stands
//! for those that are there from the beginning, and for `<route configuration>/<host>`, which stands for the one whose
//! domains the host fits best. That there is none is told with a resource that has no content.
//!
//! Names of route configurations may have `/` in them: what virtual hosts lie below is a route configuration, and no host of
//! another one.

use std::collections::{BTreeMap, BTreeSet};

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

/// Whether `name` may name a host, and not all of a route configuration.
pub(super) fn is_host(name: &str) -> bool {
    name.contains('/')
}

/// Whether `asked` is another name of a virtual host, because it names a host of the same route configuration.
pub(super) fn is_alias(type_url: &str, asked: &str, name: &str) -> bool {
    let route = prefix_of(type_url, asked);
    route.is_some() && route == prefix_of(type_url, name)
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

/// What there is at one moment: each route configuration is read once, however many of its hosts are asked for.
#[derive(Debug, Default)]
pub(super) struct HostDirectory(BTreeMap<String, VirtualHosts>);

impl HostDirectory {
    /// What `asked` stands for. `want` has to be the same each time.
    pub(super) fn resolved(&mut self, want: &dyn Want, type_url: &str, asked: &str) -> Vec<Name> {
        let below = format!("{asked}/");
        let Some(prefix) = prefix_of(type_url, asked) else {
            return self.hosts_below(want, type_url, &below).from_the_beginning.clone();
        };
        // Nothing is kept of the many hosts that have nothing below them.
        let mut is_route = false;
        want.under(type_url, &below, &mut |_| is_route = true);
        if is_route {
            return self.hosts_below(want, type_url, &below).from_the_beginning.clone();
        }
        let hosts = self.hosts_below(want, type_url, prefix);
        hosts.best(asked, &asked[prefix.len()..]).into_iter().collect()
    }

    fn hosts_below(&mut self, want: &dyn Want, type_url: &str, prefix: &str) -> &VirtualHosts {
        self.0.entry(prefix.to_owned()).or_insert_with(|| {
            let mut hosts = VirtualHosts::default();
            want.under(type_url, prefix, &mut |wanted| {
                // What lies deeper belongs to another one.
                if prefix_of(type_url, &wanted.name) == Some(prefix) {
                    hosts.add(&wanted);
                }
            });
            hosts
        })
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The virtual hosts of a route configuration.
#[derive(Debug, Default)]
struct VirtualHosts {
    names: BTreeSet<Name>,
    from_the_beginning: Vec<Name>,
    by_domain: BTreeMap<String, Name>,
}

impl VirtualHosts {
    fn add(&mut self, wanted: &Wanted) {
        self.names.insert(Name::clone(&wanted.name));
        self.from_the_beginning.extend((!wanted.on_demand).then(|| Name::clone(&wanted.name)));
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
        by_host.or_else(|| self.names.get(asked).cloned())
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

    use super::{HostDirectory, is_alias, prefix_of, vacancy};

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
            ("r/deep/x", &["x.deep", "*"], false),
            ("r/deep/y", &["y.deep"], true),
        ]);
        let mut directory = HostDirectory::default();
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
            // A route configuration with a slash in its name, and its hosts.
            ("r/deep", "r/deep/x"),
            ("r/deep/y.deep", "r/deep/y"),
            ("r/deep/else", "r/deep/x"),
            ("r/y.deep", "r/rest"),
        ] {
            let found = directory.resolved(&world, VIRTUAL_HOST, asked);
            let found: Vec<&str> = found.iter().map(|name| &**name).collect();
            assert_eq!(found.join(" "), expected, "{asked}");
        }
    }

    #[test]
    fn names_below_a_route_configuration() {
        assert_eq!(prefix_of(VIRTUAL_HOST, "a/b/c"), Some("a/b/"));
        assert_eq!((prefix_of(VIRTUAL_HOST, "a"), prefix_of("T", "a/b")), (None, None));
        assert_eq!((&*vacancy("a"), &*vacancy("a/b")), ("a/", "a/b"));
        let alias = |asked, name| is_alias(VIRTUAL_HOST, asked, name);
        assert!(alias("a/host", "a/x") && alias("a/b/host", "a/b/x"));
        assert!(!alias("a/b", "a/b/x") && !alias("a", "a/x") && !is_alias("T", "a/host", "a/x"));
    }
}
