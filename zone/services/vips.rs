//! Virtual addresses of services.
//!
//! An address follows from the name of a service wherever that is free, and the name is the same on every control
//! plane. So a zone that lost its store gives most services the addresses they had, and other zones have the same
//! ones. An address that stands in a status is never changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
};

use chrono::{DateTime, Duration, Utc};
use common::model::{
    Kind, Resource, ResourceKey,
    kinds::{
        destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
        mesh_service,
    },
    names,
};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// How long an address is nobody else's after its service has gone: clients may still have it for that one.
const REST: Duration = Duration::hours(1);

/// Whose address is another's looks at so many behind it, and then so many times anywhere, before it goes through all: in
/// a range that is not nearly used up one of them is free.
const NEAR: u128 = 8;
const LEAPS: u8 = 64;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    network: IpAddr,
    length: u8,
}

/// Why a text is no range.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a range of addresses such as 241.0.0.0/8")]
pub(crate) struct CidrError(String);

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(address, length)| {
            let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
            (length <= bits(address)).then_some(Self { network: address, length })
        });
        parsed.ok_or_else(|| CidrError(text.to_owned()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Cidr {
    /// The addresses in it as numbers, `None` where they are of the newer family. The very last address there is
    /// stands for nobody.
    pub(crate) fn v4(self) -> Option<RangeInclusive<u32>> {
        let IpAddr::V4(network) = self.network else { return None };
        let hosts = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let first = u32::from(network) & !hosts;
        Some(first..=(first | hosts).min(u32::MAX - 1))
    }

    /// How many addresses can be given away: the first and the last are not.
    fn usable(self) -> u128 {
        let free = u32::from(bits(self.network) - self.length);
        1_u128.checked_shl(free).unwrap_or(u128::MAX).saturating_sub(2)
    }

    /// One of the usable ones.
    fn nth(self, number: u128) -> IpAddr {
        let free = u32::from(bits(self.network) - self.length);
        let mask = 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
        match self.network {
            IpAddr::V4(first) => {
                let first = u128::from(u32::from(first)) & !mask;
                let address = first + 1 + number % self.usable().max(1);
                Ipv4Addr::from(u32::try_from(address).unwrap_or(u32::MAX)).into()
            }
            IpAddr::V6(first) => {
                let first = u128::from(first) & !mask;
                Ipv6Addr::from(first + 1 + number % self.usable().max(1)).into()
            }
        }
    }
}

/// A range for each kind of service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges {
    /// For those of one zone.
    pub(crate) mesh_service: Cidr,
    /// For those outside the mesh.
    pub(crate) mesh_external_service: Cidr,
    /// For those of several zones.
    pub(crate) mesh_multi_zone_service: Cidr,
}

/// The kinds of services that have addresses.
pub(super) const KINDS: [&Kind; 3] = [&mesh_service::KIND, &MESH_EXTERNAL_SERVICE, &MESH_MULTI_ZONE_SERVICE];

/// Who has which address.
#[derive(Debug)]
pub(super) struct Vips {
    ranges: Ranges,
    /// Every service that has one that is known.
    by_service: BTreeMap<ResourceKey, IpAddr>,
    /// Those, and those that somebody had a moment ago, with the time at which another may have it.
    taken: BTreeMap<IpAddr, (ResourceKey, Option<DateTime<Utc>>)>,
    /// The latter, in the order in which they become free.
    resting: BTreeSet<(DateTime<Utc>, IpAddr)>,
}

impl Vips {
    /// Nobody has any.
    pub(super) fn new(ranges: Ranges) -> Self {
        Self { ranges, by_service: BTreeMap::new(), taken: BTreeMap::new(), resting: BTreeSet::new() }
    }

    /// `service` has `address`, whatever the range says.
    pub(super) fn reserve(&mut self, service: &ResourceKey, address: IpAddr) {
        self.by_service.insert(service.clone(), address);
        self.taken.insert(address, (service.clone(), None));
    }

    /// The address of `service`: the one it has, or else a free one, which is its own from now on. `None` when
    /// its range is used up.
    pub(super) fn of(&mut self, service: &Resource, now: DateTime<Utc>) -> Option<IpAddr> {
        if let Some(known) = self.by_service.get(&service.key) {
            return Some(*known);
        }
        let address = self.free(service, now)?;
        self.reserve(&service.key, address);
        Some(address)
    }

    fn free(&self, service: &Resource, now: DateTime<Utc>) -> Option<IpAddr> {
        let range = self.range(service.kind())?;
        let first = u128::from(names::fnv1a_64(&[
            service.mesh().as_bytes(),
            b"/",
            names::hashed_name(service).as_bytes(),
        ]));
        let is_free = |address: &IpAddr| match self.taken.get(address) {
            None => true,
            Some((owner, until)) => until.is_some_and(|until| until <= now || *owner == service.key),
        };
        // Names can be chosen so that all of them lead to one address. Where those go on to look follows from a digest.
        let leap = |number: u8| {
            let name = names::hashed_name(service);
            let digest = Sha256::new().chain_update([number]).chain_update(service.mesh()).chain_update(name);
            let digest: [u8; 32] = digest.finalize().into();
            u128::from_be_bytes(digest[..16].try_into().expect("a digest is long enough"))
        };
        let near = (0..NEAR).map(|step| range.nth(first.wrapping_add(step)));
        let found = near.chain((0..LEAPS).map(|number| range.nth(leap(number)))).find(is_free);
        found.or_else(|| {
            // As many as are taken cannot be in the way of one more than that.
            let looked_at = range.usable().min(self.taken.len() as u128 + 1);
            (NEAR..looked_at).map(|step| range.nth(first.wrapping_add(step))).find(is_free)
        })
    }

    /// `service` is gone. Its address rests before another service gets it.
    pub(super) fn release(&mut self, service: &ResourceKey, now: DateTime<Utc>) {
        self.rested(now);
        let Some(address) = self.by_service.remove(service) else { return };
        if let Some((owner, until)) = self.taken.get_mut(&address)
            && owner == service
        {
            *until = Some(now + REST);
            self.resting.insert((now + REST, address));
        }
    }

    /// Forgets who had what has rested.
    fn rested(&mut self, now: DateTime<Utc>) {
        while let Some((until, address)) = self.resting.first().copied().filter(|(until, _)| *until <= now) {
            self.resting.remove(&(until, address));
            if self.taken.get(&address).is_some_and(|(_, since)| *since == Some(until)) {
                self.taken.remove(&address);
            }
        }
    }

    fn range(&self, kind: &Kind) -> Option<Cidr> {
        let Ranges { mesh_service, mesh_external_service, mesh_multi_zone_service } = self.ranges;
        let ranges = [mesh_service, mesh_external_service, mesh_multi_zone_service];
        KINDS.into_iter().zip(ranges).find(|(known, _)| *known == kind).map(|(_, range)| range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Resource {
        Resource::new(ResourceKey::new(&mesh_service::KIND, "default", name), DateTime::UNIX_EPOCH)
    }

    fn vips(range: &str) -> Vips {
        let range: Cidr = range.parse().unwrap();
        Vips::new(Ranges {
            mesh_service: range,
            mesh_external_service: range,
            mesh_multi_zone_service: range,
        })
    }

    #[test]
    fn ranges_are_read_and_shown() {
        for good in ["241.0.0.0/8", "10.1.2.3/32", "fd00:1::/64", "::/0"] {
            assert_eq!(good.parse::<Cidr>().unwrap().to_string(), good);
        }
        for bad in ["", "241.0.0.0", "241.0.0.0/33", "x/8", "fd00::/129", "241.0.0.0/-1"] {
            assert_eq!(bad.parse::<Cidr>(), Err(CidrError(bad.to_owned())));
        }
    }

    #[test]
    fn an_address_is_in_its_range_and_stays() {
        let (mut vips, now) = (vips("241.0.0.0/8"), DateTime::UNIX_EPOCH);
        let web = vips.of(&service("web"), now).unwrap();
        assert!(web.to_string().starts_with("241."), "{web}");
        assert_eq!(vips.of(&service("web"), now), Some(web));
        assert_ne!(vips.of(&service("api"), now), Some(web));
        let again = super::tests::vips("241.0.0.0/8").of(&service("web"), now);
        assert_eq!(again, Some(web), "a zone that remembers nothing comes to the same");
        let six = super::tests::vips("fd00:1::/64").of(&service("web"), now).unwrap();
        assert!(six.to_string().starts_with("fd00:1::"), "{six}");
    }

    /// Whoever makes up the names of services in one zone can make them lead to the same address.
    #[test]
    fn what_is_taken_behind_an_address_is_not_gone_through() {
        let (mut vips, now) = (vips("10.0.0.0/16"), DateTime::UNIX_EPOCH);
        let wanted = vips.free(&service("web"), now).unwrap();
        let range = vips.ranges.mesh_service;
        let first = (0..range.usable()).find(|number| range.nth(*number) == wanted).unwrap();
        let behind = |number: u128| range.nth(first + number);
        for number in 0..20_000 {
            vips.reserve(&service(&format!("other-{number}")).key, behind(number));
        }
        let found = vips.of(&service("web"), now).unwrap();
        assert!(found != behind(20_000), "it went through all of them");
        assert!(!(0..20_000).any(|number| behind(number) == found), "it is somebody else's");
    }

    #[test]
    fn all_of_a_range_can_be_used_and_no_more() {
        let (mut vips, now) = (vips("10.0.0.0/29"), DateTime::UNIX_EPOCH);
        let mut given: Vec<IpAddr> =
            (0..6).map(|i| vips.of(&service(&format!("s{i}")), now).unwrap()).collect();
        given.sort();
        let all: Vec<IpAddr> = (1..7).map(|i| IpAddr::from([10, 0, 0, i])).collect();
        assert_eq!(given, all);
        assert_eq!(vips.of(&service("one-more"), now), None);

        let gone = service("s3");
        let address = vips.of(&gone, now).unwrap();
        vips.release(&gone.key, now);
        assert_eq!(vips.of(&service("one-more"), now), None, "an address rests first");
        assert_eq!(vips.of(&gone, now), Some(address), "but not from who had it");
        vips.release(&gone.key, now);
        assert_eq!(vips.of(&service("one-more"), now + REST), Some(address));
    }
}
