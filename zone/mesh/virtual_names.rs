//! What names stand for where traffic is redirected, and whose a name is that several have. Names of hosts are compared
//! without regard to case.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use imbl::OrdMap;

use super::Provenance;

/// By whose word somebody has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameOrigin {
    /// By this.
    Known(Provenance),
    /// By that by which a service exists which is known by its tag.
    Service(Arc<str>),
}

/// A name somebody is called by, and where that leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AnnouncedName {
    /// As it is written.
    pub(super) name: Arc<str>,
    /// The address.
    pub(super) address: IpAddr,
    /// Whether it is made of another name, by which the owner is called first of all.
    pub(super) is_alias: bool,
    /// Whose it is: no two have one of these.
    pub(super) owner: Arc<str>,
    /// By whose word.
    pub(super) origin: NameOrigin,
}

/// The same in the order in which it comes before others of its name. Where somebody is comes last in it, since it follows
/// from when he came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameClaim {
    rank: NameRank,
    owner: Arc<str>,
    name: Arc<str>,
    address: IpAddr,
}

/// By what a name is taken from who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameRank {
    provenance: Provenance,
    is_alias: bool,
    /// What is written in lower case comes first, as it does among services of other zones.
    has_upper: bool,
}

/// All who have one name, each with how often that was announced.
#[derive(Clone, Debug)]
struct NameClaims {
    all: BTreeMap<NameClaim, usize>,
    holder: NameClaim,
}

impl NameClaims {
    /// Finds out whose the name is: who comes first. Only among those of other zones, who choose what they are called, who
    /// has it keeps it, at the first of his addresses, while nobody comes before him. Says whether it stands for something
    /// else now.
    fn settle(&mut self) -> bool {
        let Some((first, _)) = self.all.first_key_value() else { return true };
        let (rank, owner) = (first.rank, Arc::clone(&self.holder.owner));
        let start = NameClaim { rank, owner, name: "".into(), address: Ipv4Addr::UNSPECIFIED.into() };
        let own = self.all.range(start..).next().map(|(own, _)| own);
        let is_kept = rank.provenance == Provenance::Elsewhere;
        let own = own.filter(|own| is_kept && own.rank == rank && own.owner == self.holder.owner);
        self.hold(own.unwrap_or(first).clone())
    }

    fn hold(&mut self, holder: NameClaim) -> bool {
        let before = std::mem::replace(&mut self.holder, holder);
        (&before.name, before.address) != (&self.holder.name, self.holder.address)
    }
}

/// All of a mesh. Cloning shares.
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualNames {
    /// By name, in lower case.
    claims: OrdMap<Arc<str>, Arc<NameClaims>>,
    /// What services have that are known by their tags, each with how often that was announced.
    of_services: OrdMap<Arc<str>, Arc<BTreeMap<AnnouncedName, usize>>>,
    /// By whose word they exist; those that are not here are elsewhere.
    provenances: OrdMap<Arc<str>, Provenance>,
}

impl VirtualNames {
    /// Names and what they stand for, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, IpAddr)> {
        self.claims.values().map(|claims| (&claims.holder.name, claims.holder.address))
    }

    /// By whose word a service exists that is known by its tag.
    pub(super) fn provenance(&self, service: &str) -> Provenance {
        self.provenances.get(service).copied().unwrap_or_default()
    }

    /// Somebody has this name, once more.
    pub(super) fn join(&mut self, announced: &AnnouncedName) {
        let claim = self.claim(announced);
        let claims = self
            .claims
            .entry(key(&announced.name))
            .or_insert_with(|| Arc::new(NameClaims { all: BTreeMap::new(), holder: claim.clone() }));
        let claims = Arc::make_mut(claims);
        *claims.all.entry(claim).or_default() += 1;
        claims.settle();
        if let NameOrigin::Service(service) = &announced.origin {
            let known = Arc::make_mut(self.of_services.entry(Arc::clone(service)).or_default());
            *known.entry(announced.clone()).or_default() += 1;
        }
    }

    /// Somebody has this name once less.
    pub(super) fn leave(&mut self, announced: &AnnouncedName) {
        let (key, claim) = (key(&announced.name), self.claim(announced));
        if let Some(claims) = self.claims.get_mut(&key) {
            let claims = Arc::make_mut(claims);
            less(&mut claims.all, &claim);
            claims.settle();
            if claims.all.is_empty() {
                self.claims.remove(&key);
            }
        }
        if let NameOrigin::Service(service) = &announced.origin
            && let Some(known) = self.of_services.get_mut(service)
        {
            let known = Arc::make_mut(known);
            less(known, announced);
            if known.is_empty() {
                self.of_services.remove(service);
            }
        }
    }

    /// A service that is known by its tag exists by this word now; says whether a name stands for something else by that.
    pub(super) fn exists_by(&mut self, service: &Arc<str>, provenance: Provenance) -> bool {
        if self.provenance(service) == provenance {
            return false;
        }
        let known = self.of_services.get(service).cloned().unwrap_or_default();
        let before: Vec<NameClaim> = known.keys().map(|announced| self.claim(announced)).collect();
        match provenance {
            Provenance::Elsewhere => self.provenances.remove(service),
            Provenance::Here | Provenance::Global => self.provenances.insert(Arc::clone(service), provenance),
        };
        let mut differs = false;
        for (announced, before) in known.keys().zip(before) {
            let after = self.claim(announced);
            let Some(claims) = self.claims.get_mut(&key(&announced.name)) else { continue };
            let claims = Arc::make_mut(claims);
            if let Some(count) = claims.all.remove(&before) {
                *claims.all.entry(after).or_default() += count;
            }
            differs |= claims.settle();
        }
        differs
    }

    /// Gives each name to who comes first, whoever had it: what came in one go came in no order.
    pub(super) fn settle(&mut self) {
        let first = |(name, claims): (&Arc<str>, &Arc<NameClaims>)| {
            let (first, _) = claims.all.first_key_value()?;
            (*first != claims.holder).then(|| (Arc::clone(name), first.clone()))
        };
        let others: Vec<(Arc<str>, NameClaim)> = self.claims.iter().filter_map(first).collect();
        for (name, first) in others {
            if let Some(claims) = self.claims.get_mut(&name) {
                Arc::make_mut(claims).hold(first);
            }
        }
    }

    fn claim(&self, announced: &AnnouncedName) -> NameClaim {
        let provenance = match &announced.origin {
            NameOrigin::Known(provenance) => *provenance,
            NameOrigin::Service(service) => self.provenance(service),
        };
        let has_upper = announced.name.bytes().any(|byte| byte.is_ascii_uppercase());
        NameClaim {
            rank: NameRank { provenance, is_alias: announced.is_alias, has_upper },
            owner: Arc::clone(&announced.owner),
            name: Arc::clone(&announced.name),
            address: announced.address,
        }
    }
}

fn key(name: &str) -> Arc<str> {
    name.to_ascii_lowercase().into()
}

fn less<K: Ord>(counted: &mut BTreeMap<K, usize>, key: &K) {
    match counted.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counted.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(service: &str, name: &str, address: u8) -> AnnouncedName {
        AnnouncedName {
            name: name.into(),
            address: [240, 0, 0, address].into(),
            is_alias: !name.starts_with(service),
            owner: format!("0:{service}").into(),
            origin: NameOrigin::Service(service.into()),
        }
    }

    fn of(names: &VirtualNames, wanted: &str) -> Option<(String, u8)> {
        let (name, address) = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        let IpAddr::V4(address) = address else { return None };
        Some((name.to_string(), address.octets()[3]))
    }

    const NAME: &str = "bank.api.mesh";

    #[test]
    fn a_name_is_whose_service_is_here_whatever_address_others_have() {
        let mut names = VirtualNames::default();
        names.exists_by(&"bank_api".into(), Provenance::Here);
        names.join(&name("bank_api", NAME, 4));
        names.join(&name("bank.api", NAME, 3));
        assert_eq!(of(&names, NAME), Some((NAME.to_owned(), 4)));
        // In whatever way it is written.
        names.join(&name("BANK.api", "BANK.api.mesh", 2));
        assert_eq!(of(&names, NAME), Some((NAME.to_owned(), 4)));
        assert_eq!(names.iter().count(), 1);
        // Among those who are elsewhere a name of one's own comes before one that is made of that.
        assert!(names.exists_by(&"bank_api".into(), Provenance::Elsewhere));
        assert_eq!(of(&names, NAME), Some((NAME.to_owned(), 3)));
        assert!(names.exists_by(&"BANK.api".into(), Provenance::Global));
        assert_eq!(of(&names, NAME), Some(("BANK.api.mesh".to_owned(), 2)));
        for gone in [name("BANK.api", "BANK.api.mesh", 2), name("bank.api", NAME, 3)] {
            names.leave(&gone);
        }
        assert_eq!(of(&names, NAME), Some((NAME.to_owned(), 4)));
        names.leave(&name("bank_api", NAME, 4));
        assert_eq!(of(&names, NAME), None);
        assert!(names.of_services.is_empty());
    }

    #[test]
    fn who_has_a_name_keeps_it_from_equals() {
        let mut names = VirtualNames::default();
        names.join(&name("b_a", "a.b", 9));
        names.join(&name("a_b", "a.b", 1));
        assert_eq!(of(&names, "a.b"), Some(("a.b".to_owned(), 9)));
        // Also when his address is another one.
        names.join(&name("b_a", "a.b", 10));
        names.leave(&name("b_a", "a.b", 9));
        assert_eq!(of(&names, "a.b"), Some(("a.b".to_owned(), 10)));
        // He has two of them, of which the first is told.
        names.join(&name("b_a", "a.b", 5));
        assert_eq!(of(&names, "a.b"), Some(("a.b".to_owned(), 5)));
        names.settle();
        assert_eq!(of(&names, "a.b"), Some(("a.b".to_owned(), 1)), "the first by name where nobody had it");
    }

    #[test]
    fn what_is_announced_twice_is_there_until_it_went_twice() {
        let mut names = VirtualNames::default();
        let web = name("web", "web.mesh", 1);
        names.join(&web);
        names.join(&web);
        names.leave(&web);
        names.exists_by(&"web".into(), Provenance::Here);
        assert_eq!(of(&names, "web.mesh"), Some(("web.mesh".to_owned(), 1)));
        names.leave(&web);
        assert_eq!(of(&names, "web.mesh"), None);
    }
}
