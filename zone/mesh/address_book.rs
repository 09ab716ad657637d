//! Which virtual address each service of a mesh has that is known by its tags: a resource of the zone, in the
//! form that Kuma's zones keep it in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use common::model::{ResourceKey, kinds::config, labels};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How services that are known by their tags are called. What an operator chose holds for whoever has no address yet:
/// an address that somebody has stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Below which names of services are looked up.
    pub domain: Arc<str>,
    /// The port on which a service is called at its address, whatever it listens on.
    pub port: u32,
    /// Addresses that are given away, as numbers.
    pub addresses: RangeInclusive<u32>,
}

impl Default for Naming {
    fn default() -> Self {
        // The very last address is for broadcasts.
        let addresses = u32::from_be_bytes([240, 0, 0, 0])..=u32::MAX - 1;
        Self { domain: "mesh".into(), port: 80, addresses }
    }
}

/// Key of the resource in which the addresses of `mesh` are kept.
pub fn key(mesh: &str) -> ResourceKey {
    ResourceKey::new(&config::KIND, "", &format!("kuma-{mesh}-dns-vips"))
}

/// The mesh whose addresses the resource with this name keeps; `None` when it keeps something else.
pub fn mesh_of(name: &str) -> Option<&str> {
    name.strip_prefix("kuma-")?.strip_suffix("-dns-vips")
}

/// Why addresses cannot be read.
#[derive(Debug, Error)]
pub enum BookError {
    /// It is not what is written here.
    #[error("read the virtual addresses: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It is about nothing known.
    #[error("read the virtual addresses: {0:?} is not <kind>:<name>")]
    Key(String),
}

/// What has an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// A service, whose name is below the domain of the meshes.
    Service(String),
    /// A host outside the mesh, by its own name or address.
    Host(String),
    /// A name somebody made up.
    Domain(String),
}

/// What is called on one port of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct OutboundEntry {
    /// The port; 0 for that of all services.
    pub port: u32,
    /// Tags of those who are called.
    #[serde(default)]
    pub tag_set: BTreeMap<String, String>,
    /// Who asked for it.
    #[serde(default)]
    pub origin: String,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub named: Named,
    /// `None` when there was none left.
    pub address: Option<IpAddr>,
    /// What is called there, by port.
    pub outbounds: Vec<OutboundEntry>,
}

/// All addresses of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressBook(BTreeMap<Named, Kept>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outbounds: Vec<OutboundEntry>,
}

impl Named {
    fn parse(key: &str) -> Option<Self> {
        let (kind, name) = key.split_once(':')?;
        let name = name.to_owned();
        match kind {
            "0" => Some(Self::Service(name)),
            "1" => Some(Self::Host(name)),
            "2" => Some(Self::Domain(name)),
            _ => None,
        }
    }

    /// How it is written; no two are written alike.
    pub fn key(&self) -> String {
        match self {
            Self::Service(name) => format!("0:{name}"),
            Self::Host(name) => format!("1:{name}"),
            Self::Domain(name) => format!("2:{name}"),
        }
    }

    /// The names that stand for it, its own first.
    fn names(&self, naming: &Naming) -> Vec<String> {
        match self {
            Self::Service(service) => {
                let domain = &naming.domain;
                let mut names = vec![format!("{service}.{domain}")];
                // An underscore is in no name of a host.
                let clean = format!("{}.{domain}", service.replace('_', "."));
                names.extend(Some(clean).filter(|clean| *clean != names[0]));
                names
            }
            Self::Host(name) | Self::Domain(name) if name.parse::<IpAddr>().is_err() => vec![name.clone()],
            Self::Host(_) | Self::Domain(_) => Vec::new(),
        }
    }

    /// Whether anybody can find its address: it is one itself, or has a name that a host can have.
    pub fn is_callable(&self, naming: &Naming) -> bool {
        let is_address = matches!(self, Self::Host(name) if name.parse::<IpAddr>().is_ok());
        is_address || self.names(naming).iter().any(|name| is_host(name))
    }

    /// Bytes of the text it is called by.
    pub fn bytes(&self) -> usize {
        let (Self::Service(name) | Self::Host(name) | Self::Domain(name)) = self;
        name.len()
    }
}

/// Whether anybody can ask for it. A service may have a name that no host has, which Envoy refuses.
pub fn is_host(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.len() <= 253
        && name.split('.').all(|label| (1..=63).contains(&label.len()) && label.chars().all(allowed))
}

impl Entry {
    /// The names that stand for it.
    pub fn names(&self, naming: &Naming) -> Vec<String> {
        self.named.names(naming)
    }

    /// Ports with the tags of those who are called there.
    pub fn outbounds(&self, naming: &Naming) -> Vec<(u32, &BTreeMap<String, String>)> {
        let own = self.outbounds.iter().filter(|o| o.port != 0).map(|o| (o.port, &o.tag_set));
        let mut all: Vec<_> = own.collect();
        let for_all = !matches!(self.named, Named::Domain(_)) && !self.names(naming).is_empty();
        if for_all && all.iter().all(|(port, _)| *port != naming.port) {
            all.extend(self.outbounds.first().map(|first| (naming.port, &first.tag_set)));
        }
        all
    }
}

impl AddressBook {
    /// Reads what was [written](Self::text).
    ///
    /// # Errors
    /// [`BookError`].
    pub fn parse(text: &str) -> Result<Self, BookError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let kept: BTreeMap<String, Kept> = serde_json::from_str(text)?;
        let named = |(key, kept): (String, Kept)| match Named::parse(&key) {
            Some(named) => Ok((named, kept)),
            None => Err(BookError::Key(key)),
        };
        Ok(Self(kept.into_iter().map(named).collect::<Result<_, _>>()?))
    }

    /// As it is stored.
    pub fn text(&self) -> String {
        let kept: BTreeMap<String, &Kept> = self.0.iter().map(|(named, kept)| (named.key(), kept)).collect();
        serde_json::to_string(&kept).expect("texts and numbers are JSON")
    }

    /// Everything in it.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.0.iter().map(|(named, kept)| Entry {
            named: named.clone(),
            address: kept.address,
            outbounds: kept.outbounds.clone(),
        })
    }

    /// The book in which all of `wanted` and nothing else has an address. Whoever has one keeps it, others get the
    /// first that are free.
    pub fn with(&self, wanted: &BTreeMap<Named, BTreeSet<OutboundEntry>>, naming: &Naming) -> Self {
        let known = |named: &Named| match named {
            Named::Host(name) if name.parse::<IpAddr>().is_ok() => name.parse().ok(),
            _ => self.0.get(named).and_then(|kept| kept.address),
        };
        let taken: BTreeSet<IpAddr> = wanted.keys().filter_map(known).collect();
        let mut free = naming.addresses.clone().map(|bits| IpAddr::V4(Ipv4Addr::from(bits)));
        let kept = wanted.iter().map(|(named, outbounds)| {
            let address = known(named).or_else(|| free.find(|address| !taken.contains(address)));
            (named.clone(), Kept { address, outbounds: self.shared_out(named, outbounds) })
        });
        Self(kept.collect())
    }

    /// Of several who want one port of what is `named`, who has it keeps it, and else the first in order gets it: another
    /// zone may choose tags that come before all others.
    fn shared_out(&self, named: &Named, wanted: &BTreeSet<OutboundEntry>) -> Vec<OutboundEntry> {
        let known = self.0.get(named).map_or(&[][..], |kept| &kept.outbounds[..]);
        let kept = wanted.iter().filter(|outbound| known.contains(outbound));
        let mut ports = BTreeSet::new();
        let chosen = kept.chain(wanted).filter(|outbound| ports.insert(outbound.port));
        chosen.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }
}

/// What it takes to call a service that has these tags among its own.
pub fn of_service(service: &str, port: u32) -> (Named, OutboundEntry) {
    let tag_set = [(labels::TAG_SERVICE.to_owned(), service.to_owned())].into();
    (Named::Service(service.to_owned()), OutboundEntry { port, tag_set, origin: "service".to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wanted(services: &[&str]) -> BTreeMap<Named, BTreeSet<OutboundEntry>> {
        services.iter().map(|name| of_service(name, 0)).map(|(named, o)| (named, [o].into())).collect()
    }

    fn addresses(book: &AddressBook) -> Vec<(Vec<String>, String)> {
        book.entries().map(|e| (e.names(&Naming::default()), e.address.unwrap().to_string())).collect()
    }

    #[test]
    fn who_has_an_address_keeps_it() {
        let naming = Naming::default();
        let book = AddressBook::default().with(&wanted(&["b", "c_d"]), &naming);
        let names = |list: &[&str]| list.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            addresses(&book),
            [
                (names(&["b.mesh"]), "240.0.0.0".to_owned()),
                (names(&["c_d.mesh", "c.d.mesh"]), "240.0.0.1".to_owned()),
            ]
        );
        // Neither a new one that comes first in order nor one that goes moves any other.
        let book = book.with(&wanted(&["a", "b", "c_d"]), &naming).with(&wanted(&["a", "c_d"]), &naming);
        let left: Vec<String> = addresses(&book).into_iter().map(|(_, address)| address).collect();
        assert_eq!(left, ["240.0.0.2", "240.0.0.1"]);
        let again = book.with(&wanted(&["a", "c_d", "e"]), &naming);
        assert_eq!(addresses(&again).pop().unwrap().1, "240.0.0.0");
    }

    #[test]
    fn what_nobody_can_ask_for_cannot_be_called() {
        let naming = Naming::default();
        let label = "x".repeat(63);
        // With its dot and the domain it is as long as a name may be.
        let longest = format!("{label}.{label}.{label}.{}", "y".repeat(253 - 3 * 64 - ".mesh".len()));
        for (name, callable) in [
            ("web", true),
            ("web_default_svc_80", true),
            (&*longest, true),
            (&*format!("{longest}y"), false),
            (&*format!("{label}x"), false),
            (&*format!("{label}_x"), true),
            ("team/web", false),
            ("web:80", false),
            ("web@home", false),
            (".web", false),
            ("", false),
        ] {
            assert_eq!(Named::Service(name.to_owned()).is_callable(&naming), callable, "{name:?}");
        }
        let host = |name: &str| Named::Host(name.to_owned()).is_callable(&naming);
        assert!(host("maps.example.com") && host("10.0.0.1") && host("2001:db8::1") && !host("a/b"));
        assert!(
            !Named::Domain("10.0.0.1".to_owned()).is_callable(&naming),
            "no name, and no address of its own"
        );
    }

    #[test]
    fn what_an_operator_chose_holds_for_whoever_is_new() {
        let before = AddressBook::default().with(&wanted(&["b"]), &Naming::default());
        let addresses = u32::from_be_bytes([10, 9, 0, 0])..=u32::from_be_bytes([10, 9, 0, 1]);
        let naming = Naming { domain: "internal".into(), port: 8080, addresses };
        let book = before.with(&wanted(&["a", "b", "c", "d"]), &naming);
        let all: Vec<_> = book.entries().map(|e| e.address.map(|address| address.to_string())).collect();
        let some = |address: &str| Some(address.to_owned());
        assert_eq!(all, [some("10.9.0.0"), some("240.0.0.0"), some("10.9.0.1"), None], "two are there");
        let entry = book.entries().next().unwrap();
        assert_eq!(entry.names(&naming), ["a.internal"]);
        assert_eq!(entry.outbounds(&naming)[0].0, 8080);
    }

    #[test]
    fn who_has_a_port_of_a_name_keeps_it() {
        let name = Named::Domain("shop.test".to_owned());
        let of = |version: &str, port| OutboundEntry {
            port,
            tag_set: [("version".to_owned(), version.to_owned())].into(),
            origin: "virtual-outbound:x".to_owned(),
        };
        let naming = Naming::default();
        let with = |book: &AddressBook, all: &[OutboundEntry]| {
            book.with(&[(name.clone(), all.iter().cloned().collect())].into(), &naming)
        };
        let book = with(&AddressBook::default(), &[of("v2", 80), of("v3", 80)]);
        let shown = |book: &AddressBook| book.entries().next().unwrap().outbounds;
        assert_eq!(shown(&book), [of("v2", 80)]);
        let book = with(&book, &[of("v1", 80), of("v1", 81), of("v2", 80)]);
        assert_eq!(shown(&book), [of("v2", 80), of("v1", 81)]);
        assert_eq!(
            with(&book, &[of("v1", 80), of("v1", 81), of("v2", 80)]),
            book,
            "and nothing is written again"
        );
        assert_eq!(shown(&with(&book, &[of("v1", 80)])), [of("v1", 80)]);
    }

    #[test]
    fn the_form_is_that_of_others() {
        let text = r#"{"0:b":{"address":"240.0.0.0","outbounds":[{"Port":0,"TagSet":{"kuma.io/service":"b"},"Origin":"service"}]},"2:x.test":{"address":"240.0.0.9","outbounds":[{"Port":8080,"TagSet":{"kuma.io/service":"b","v":"1"},"Origin":"virtual-outbound:x"}]}}"#;
        let book = AddressBook::parse(text).unwrap();
        assert_eq!(book.text(), text);
        let ports: Vec<Vec<u32>> = book
            .entries()
            .map(|e| e.outbounds(&Naming::default()).iter().map(|(port, _)| *port).collect())
            .collect();
        assert_eq!(ports, [vec![80], vec![8080]]);
        assert!(AddressBook::parse("").unwrap().entries().next().is_none());
        assert!(AddressBook::parse("{\"9:b\":{}}").is_err());
        assert!(AddressBook::parse("[]").is_err());
        assert_eq!(mesh_of(&key("default").name), Some("default"));
        assert_eq!(mesh_of("kuma-cluster-id"), None);
    }

    #[test]
    fn a_host_outside_keeps_its_own_address() {
        let host = Named::Host("10.1.2.3".to_owned());
        let outbound =
            OutboundEntry { port: 443, tag_set: BTreeMap::new(), origin: "external-service:x".to_owned() };
        let book = AddressBook::default().with(&[(host, [outbound].into())].into(), &Naming::default());
        let entry = book.entries().next().unwrap();
        assert_eq!((entry.address, entry.names(&Naming::default())), (Some([10, 1, 2, 3].into()), vec![]));
        assert_eq!(entry.outbounds(&Naming::default()).len(), 1);
    }
}
