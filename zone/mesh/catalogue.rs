//! What a zone offers to the others through its ingresses, and what of it is told and taken when it is too much.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
    sync::Arc,
};

use common::{
    model::{kinds::zone_ingress, labels},
    proto::kuma::mesh::v1alpha1::zone_ingress::AvailableService,
};
use prost::Message;

use super::Inbound;
use crate::{account::Account, share::SERVICES_OF_ZONE};

/// What an entry takes besides itself.
const FRAME: usize = 6;
/// Bytes of one entry. Every client of its service is sent its tags, and other zones keep them with each of its endpoints.
const LONGEST_ENTRY: usize = 4 * 1024;

/// Bytes of all entries of a catalogue: what does not fit into a message is told to nobody, so one entry too much would
/// keep others from hearing of all that follows.
fn most_bytes() -> usize {
    zone_ingress::KIND.largest / 4 * 3
}

type OfferedTags = Arc<BTreeMap<String, String>>;

/// What one proxy offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// On whose account.
    pub by: Account,
    /// The tags of each inbound.
    pub tags: Vec<OfferedTags>,
}

/// An entry of a catalogue, and on whose accounts it is.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueEntry {
    /// What others are told.
    pub service: AvailableService,
    /// Who offers it.
    pub by: BTreeSet<Account>,
}

/// The healthy inbounds of the proxies of a zone, counted by mesh, whole tag set and account.
#[derive(Debug, Default)]
pub struct Catalogue(BTreeMap<Arc<str>, BTreeMap<OfferedTags, BTreeMap<Account, u32>>>);

/// The tag sets of those of `inbounds` that others may be sent to.
pub fn offered(inbounds: &[Inbound]) -> Vec<OfferedTags> {
    let healthy = inbounds.iter().filter(|inbound| inbound.healthy && inbound.service().is_some());
    healthy.map(|inbound| Arc::new(inbound.tags.clone())).collect()
}

impl Catalogue {
    /// Takes in that a proxy of `mesh` offers something else than before; says whether that makes a difference.
    pub fn moved(&mut self, mesh: &Arc<str>, before: &Offers, after: &Offers) -> bool {
        if before.tags == after.tags && (before.by == after.by || before.tags.is_empty()) {
            return false;
        }
        let of_mesh = self.0.entry(Arc::clone(mesh)).or_default();
        for tags in &before.tags {
            let Some(accounts) = of_mesh.get_mut(tags) else { continue };
            if let Some(count) = accounts.get_mut(&before.by) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    accounts.remove(&before.by);
                }
            }
            if accounts.is_empty() {
                of_mesh.remove(tags);
            }
        }
        for tags in &after.tags {
            let accounts = of_mesh.entry(Arc::clone(tags)).or_default();
            *accounts.entry(after.by.clone()).or_default() += 1;
        }
        if of_mesh.is_empty() {
            self.0.remove(mesh);
        }
        true
    }

    /// The services of all meshes but those that publish them as resources only, by mesh, then tags.
    pub fn services(&self, resources_only: &BTreeSet<Arc<str>>) -> Vec<CatalogueEntry> {
        let published = self.0.iter().filter(|(mesh, _)| !resources_only.contains(*mesh));
        let services = published.flat_map(|(mesh, of_mesh)| {
            of_mesh.iter().map(|(tags, accounts)| CatalogueEntry {
                service: AvailableService {
                    tags: BTreeMap::clone(tags),
                    instances: accounts.values().fold(0, |sum, count| sum.saturating_add(*count)),
                    mesh: mesh.to_string(),
                    external_service: false,
                },
                by: accounts.keys().cloned().collect(),
            })
        });
        services.collect()
    }
}

/// Whether nobody is told of it, or takes it, however little there is besides.
pub(super) fn is_too_long(service: &AvailableService) -> bool {
    service.encoded_len() > LONGEST_ENTRY
}

/// As many of `entries` as others take, in their order, and how many are left out: those that are too long, whosever they
/// are. Where the others are too many, what operators applied comes first, and then everybody else in turn, each with his
/// services in turn: a thousand tag sets of one service, or with one token, leave room for others.
pub fn fair_part(mut entries: Vec<CatalogueEntry>) -> (Vec<AvailableService>, usize) {
    let all = entries.len();
    entries.retain(|entry| !is_too_long(&entry.service));
    let sizes: Vec<usize> = entries.iter().map(|entry| entry.service.encoded_len() + FRAME).collect();
    let mut left_out = all - entries.len();
    if entries.len() > SERVICES_OF_ZONE || sizes.iter().sum::<usize>() > most_bytes() {
        let (mut taken, mut bytes) = (BTreeSet::new(), 0);
        for place in in_turn(&entries, &sizes) {
            if taken.len() < SERVICES_OF_ZONE && bytes + sizes[place] <= most_bytes() {
                taken.insert(place);
                bytes += sizes[place];
            }
        }
        left_out += entries.len() - taken.len();
        let mut place = 0;
        entries.retain(|_| {
            place += 1;
            taken.contains(&(place - 1))
        });
    }
    (entries.into_iter().map(|entry| entry.service).collect(), left_out)
}

/// The same of what another zone offers, which does not say on whose account.
pub fn fair_part_of_zone(services: Vec<AvailableService>) -> (Vec<AvailableService>, usize) {
    let by = BTreeSet::from([Account::Operators]);
    fair_part(services.into_iter().map(|service| CatalogueEntry { service, by: by.clone() }).collect())
}

/// How much is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfferedSize {
    /// Tag sets.
    pub(super) sets: usize,
    /// What they take in a message.
    pub(super) bytes: usize,
}

impl OfferedSize {
    /// That of one entry.
    pub(super) fn of(service: &AvailableService) -> Self {
        Self { sets: 1, bytes: service.encoded_len() }
    }

    /// Whether no more of it is there than `most`.
    pub(super) fn fits(self, most: Self) -> bool {
        self.sets <= most.sets && self.bytes <= most.bytes
    }

    /// How much there is besides `taken`.
    pub(super) fn without(self, taken: Self) -> Self {
        let sets = self.sets.saturating_sub(taken.sets);
        Self { sets, bytes: self.bytes.saturating_sub(taken.bytes) }
    }

    /// The share of each of so many.
    pub(super) fn shared_by(self, number: usize) -> Self {
        Self { sets: self.sets / number.max(1), bytes: self.bytes / number.max(1) }
    }
}

impl AddAssign for OfferedSize {
    fn add_assign(&mut self, more: Self) {
        self.sets = self.sets.saturating_add(more.sets);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// The places of entries, by their mesh and service.
type PlacesOfServices<'a> = BTreeMap<(&'a str, Option<&'a String>), Vec<usize>>;

/// The places of `entries`, those first that others are told first.
fn in_turn(entries: &[CatalogueEntry], sizes: &[usize]) -> Vec<usize> {
    let mut by_account: BTreeMap<&Account, PlacesOfServices<'_>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        let service = (entry.service.mesh.as_str(), entry.service.tags.get(labels::TAG_SERVICE));
        for account in &entry.by {
            by_account.entry(account).or_default().entry(service).or_default().push(place);
        }
    }
    // When each has its turn: at the earliest of those who offer it.
    let mut turns = vec![(true, usize::MAX); entries.len()];
    for (account, services) in by_account {
        let mut own: Vec<(usize, usize, usize)> = Vec::new();
        for mut places in services.into_values() {
            // What is short comes first: who writes much has no more of it.
            places.sort_by_key(|place| (sizes[*place], *place));
            own.extend(places.into_iter().enumerate().map(|(round, place)| (round, sizes[place], place)));
        }
        own.sort_unstable();
        for (turn, (.., place)) in own.into_iter().enumerate() {
            turns[place] = turns[place].min((*account != Account::Operators, turn));
        }
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|place| (turns[*place], sizes[*place], *place));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(service: &str, tags: &[(&str, String)], by: Account) -> CatalogueEntry {
        let mut all: BTreeMap<String, String> =
            tags.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        all.insert(labels::TAG_SERVICE.to_owned(), service.to_owned());
        let service =
            AvailableService { tags: all, instances: 1, mesh: "default".to_owned(), external_service: false };
        CatalogueEntry { service, by: [by].into() }
    }

    fn token(name: &str) -> Account {
        Account::Token(name.into())
    }

    /// How many entries of each service are in it.
    fn told(entries: Vec<CatalogueEntry>) -> (BTreeMap<String, usize>, usize) {
        let (services, left_out) = fair_part(entries);
        let bytes: usize = services.iter().map(|service| service.encoded_len() + FRAME).sum();
        assert!(services.len() <= SERVICES_OF_ZONE && bytes <= most_bytes());
        let mut counts = BTreeMap::new();
        for service in &services {
            *counts.entry(service.tags[labels::TAG_SERVICE].clone()).or_default() += 1;
        }
        assert!(services.is_sorted_by_key(|service| &service.tags), "in their order");
        (counts, left_out)
    }

    /// Many tag sets of one service, that come before all others.
    fn greedy(service: &str, number: usize, by: &str, long: usize) -> Vec<CatalogueEntry> {
        let value = |n: usize| format!("{n:06}{}", "x".repeat(long));
        (0..number).map(|n| entry(service, &[("a", value(n))], token(by))).collect()
    }

    #[test]
    fn what_fits_is_told() {
        let few: Vec<_> =
            (0..SERVICES_OF_ZONE).map(|n| entry(&format!("s-{n:05}"), &[], token("t"))).collect();
        assert_eq!(told(few).1, 0);
    }

    #[test]
    fn what_is_long_is_told_to_nobody() {
        let many = |number: usize| -> Vec<(String, String)> {
            (0..number).map(|n| (format!("t{n:05}"), "x".to_owned())).collect()
        };
        let long = |service: &str, number: usize, by: Account| {
            let tags = many(number);
            let tags: Vec<(&str, String)> = tags.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
            entry(service, &tags, by)
        };
        // As many tags as one inbound may bring along are told, and an operator's are as long as anybody's for others.
        let entries = vec![
            long("bank", 64, token("bank")),
            long("thief", 12_000, token("thief")),
            long("big", 12_000, Account::Operators),
            entry("web", &[("a", "x".repeat(LONGEST_ENTRY))], token("web")),
        ];
        let (services, left_out) = fair_part(entries.clone());
        let told: Vec<&str> = services.iter().map(|s| &*s.tags[labels::TAG_SERVICE]).collect();
        assert_eq!((told, left_out), (vec!["bank"], 3));
        let of_zone = fair_part_of_zone(entries.into_iter().map(|entry| entry.service).collect());
        assert_eq!((of_zone.0.len(), of_zone.1), (1, 3));
    }

    #[test]
    fn a_token_for_one_service_hides_no_other() {
        for long in [0, 500] {
            let mut entries = greedy("web", 20_000, "thief", long);
            entries.push(entry("bank", &[], token("bank")));
            entries.push(entry("payments", &[], token("payments")));
            let (counts, left_out) = told(entries);
            assert_eq!((counts["bank"], counts["payments"]), (1, 1));
            assert_eq!(counts["web"] + left_out, 20_000);
            assert!(counts["web"] > 5000, "there is room for more of it: {}", counts["web"]);
        }
    }

    #[test]
    fn proxies_with_the_same_token_share_by_service() {
        let mut entries = greedy("web", 20_000, "all", 0);
        entries.extend((0..50).map(|n| entry(&format!("z-{n}"), &[("z", n.to_string())], token("all"))));
        entries.sort_by(|a, b| a.service.tags.cmp(&b.service.tags));
        let (counts, _) = told(entries);
        assert_eq!(counts.len(), 51);
    }

    #[test]
    fn a_token_for_any_service_has_its_turn_with_others() {
        let of_thief = (0..20_000).map(|n| entry(&format!("a-{n:05}"), &[], token("thief")));
        let of_shop = (0..3000).map(|n| entry(&format!("shop-{n:05}"), &[], token("shop")));
        let applied = (0..3000).map(|n| entry(&format!("t-{n:05}"), &[], Account::Operators));
        let (counts, _) = told(of_thief.chain(of_shop).chain(applied).collect());
        let of = |start: &str| counts.keys().filter(|service| service.starts_with(start)).count();
        assert_eq!((of("shop-"), of("t-"), of("a-")), (3000, 3000, 4000));
    }

    #[test]
    fn what_another_zone_offers_is_taken_of_all_services() {
        let all = greedy("web", 12_000, "t", 0).into_iter().chain([entry("payments", &[], token("p"))]);
        let (taken, left_out) = fair_part_of_zone(all.map(|entry| entry.service).collect());
        assert_eq!((taken.len(), left_out), (SERVICES_OF_ZONE, 2001));
        assert_eq!(taken.last().map(|last| &*last.tags[labels::TAG_SERVICE]), Some("payments"));
    }
}
