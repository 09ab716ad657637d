//! How many services, or workloads, are made on whose account. One stays for a while after its last proxy has gone, so who
//! comes again and again with other tags would have as many as it likes. Whoever has its share waits until one of them
//! goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::model::{Resource, ResourceKey};

use crate::{account::Account, share::SERVICES_OF_ACCOUNT};

/// Services made for proxies of one name in a mesh, with one token where they need one. Those that are about to go are among
/// them.
const OF_PROXY: usize = 256;

/// A service tag or a workload: its mesh and its name.
pub(super) type TagName = (Arc<str>, Arc<str>);

/// Who pays for which service.
#[derive(Debug, Default)]
pub(super) struct ServiceShares {
    /// Services that may be there, and who pays for them.
    granted: BTreeMap<TagName, Vec<Account>>,
    /// How many each pays for.
    counts: BTreeMap<Account, usize>,
    /// Those for which somebody pays for too many others, and all who do.
    waits_for: BTreeMap<TagName, BTreeSet<Account>>,
    waiting: BTreeMap<Account, BTreeSet<TagName>>,
}

/// What was found out about one tag.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SettledShare {
    /// Whether its service may be there.
    pub(super) may: bool,
    /// Tags that waited and for which there may be room now.
    pub(super) follow: Vec<TagName>,
}

impl ServiceShares {
    /// Whether there may be a service for `tag`, which exists or not and is wanted by those who pay with these accounts.
    pub(super) fn settle(
        &mut self,
        tag: &TagName,
        exists: bool,
        wanted: impl Iterator<Item = Vec<Account>>,
    ) -> SettledShare {
        let waited_for = self.stop_waiting(tag);
        let mut wanted = wanted.map(|accounts| limited(accounts).collect::<Vec<_>>());
        if exists {
            // Whoever brought it about pays until it is gone.
            if !self.granted.contains_key(tag)
                && let Some(accounts) = wanted.next()
            {
                self.grant(tag, accounts);
            }
            return SettledShare { may: true, follow: self.next_for(&waited_for) };
        }
        let mut full = BTreeSet::new();
        for accounts in wanted {
            let lacking: Vec<&Account> = accounts.iter().filter(|a| !self.has_room(a, tag)).collect();
            if !lacking.is_empty() {
                full.extend(lacking.into_iter().cloned());
                continue;
            }
            if self.granted.get(tag) == Some(&accounts) {
                return SettledShare { may: true, follow: self.next_for(&waited_for) };
            }
            let mut follow = self.release(tag);
            self.grant(tag, accounts);
            follow.extend(self.next_for(&waited_for));
            return SettledShare { may: true, follow };
        }
        let mut follow = self.release(tag);
        for account in &full {
            self.waiting.entry(account.clone()).or_default().insert(tag.clone());
        }
        if !full.is_empty() {
            self.waits_for.insert(tag.clone(), full);
        }
        // What it did not take is for the next.
        follow.extend(self.next_for(&waited_for));
        SettledShare { may: false, follow }
    }

    fn has_room(&self, account: &Account, tag: &TagName) -> bool {
        let pays_already = || self.granted.get(tag).is_some_and(|accounts| accounts.contains(account));
        let count = self.counts.get(account).copied().unwrap_or_default();
        most(account).is_none_or(|most| count < most) || pays_already()
    }

    fn grant(&mut self, tag: &TagName, accounts: Vec<Account>) {
        for account in &accounts {
            *self.counts.entry(account.clone()).or_default() += 1;
        }
        self.granted.insert(tag.clone(), accounts);
    }

    fn release(&mut self, tag: &TagName) -> Vec<TagName> {
        let mut follow = Vec::new();
        for account in self.granted.remove(tag).unwrap_or_default() {
            if let Some(count) = self.counts.get_mut(&account) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.counts.remove(&account);
                }
            }
            follow.extend(self.next_for([&account]));
        }
        follow
    }

    /// The next that waits for each of these, if that has room.
    fn next_for<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) -> Vec<TagName> {
        let next = accounts.into_iter().filter_map(|account| {
            let tag = self.waiting.get(account)?.first()?;
            self.has_room(account, tag).then(|| tag.clone())
        });
        next.collect()
    }

    /// Gives those it waited for.
    fn stop_waiting(&mut self, tag: &TagName) -> BTreeSet<Account> {
        let accounts = self.waits_for.remove(tag).unwrap_or_default();
        for account in &accounts {
            if let Some(waiting) = self.waiting.get_mut(account) {
                waiting.remove(tag);
                if waiting.is_empty() {
                    self.waiting.remove(account);
                }
            }
        }
        accounts
    }
}

/// Those that may run out.
fn limited(accounts: Vec<Account>) -> impl Iterator<Item = Account> {
    accounts.into_iter().filter(|account| most(account).is_some())
}

/// What the proxy with this resource pays with.
pub(super) fn payers_of(resource: &Resource) -> Vec<Account> {
    payers(Account::of(resource), &resource.key)
}

fn payers(account: Account, proxy: &ResourceKey) -> Vec<Account> {
    match &account {
        Account::Operators | Account::Proxy { .. } => vec![account],
        Account::Token(token) => {
            let alone = Account::proxy(Some(token), proxy);
            vec![account, alone]
        }
    }
}

fn most(account: &Account) -> Option<usize> {
    match account {
        Account::Operators => None,
        Account::Token(_) => Some(SERVICES_OF_ACCOUNT),
        Account::Proxy { .. } => Some(OF_PROXY),
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use common::model::kinds::dataplane;

    use super::*;

    fn tag(number: usize) -> TagName {
        ("default".into(), format!("s-{number:05}").into())
    }

    fn of(token: &str, proxy: &str) -> Vec<Account> {
        payers(Account::Token(token.into()), &ResourceKey::new(&dataplane::KIND, "default", proxy))
    }

    /// Where no token is asked for.
    fn unproven(mesh: &str, proxy: &str) -> Vec<Account> {
        let key = ResourceKey::new(&dataplane::KIND, mesh, proxy);
        payers(Account::proxy(None, &key), &key)
    }

    /// How many of so many tags get a service.
    fn made(shares: &mut ServiceShares, mesh: &str, number: usize, payers: &[Account]) -> usize {
        let tags = (0..number).map(|n| -> TagName { (mesh.into(), tag(n).1) });
        tags.filter(|tag| shares.settle(tag, false, iter::once(payers.to_vec())).may).count()
    }

    #[test]
    fn who_has_its_share_waits_until_one_of_them_goes() {
        let mut shares = ServiceShares::default();
        let made = (0..1000).filter(|n| shares.settle(&tag(*n), false, iter::once(of("t", "web"))).may);
        assert_eq!(made.count(), OF_PROXY);
        // It is not there yet, and nothing changed.
        let again = shares.settle(&tag(0), false, iter::once(of("t", "web")));
        assert_eq!(again, SettledShare { may: true, follow: Vec::new() });
        let mut also = |accounts: Vec<Account>| shares.settle(&tag(5000), false, iter::once(accounts)).may;
        assert!(!also(of("t", "web")) && also(of("t", "api")) && also(vec![Account::Operators]));
        // That others have it too is enough.
        let both = [of("t", "web"), of("t", "api")].into_iter();
        assert!(shares.settle(&tag(999), false, both).may);
        // It exists, and nobody serves it any more.
        assert!(shares.settle(&tag(3), true, iter::empty()).may);
        let gone = shares.settle(&tag(3), false, iter::empty());
        assert_eq!(gone, SettledShare { may: false, follow: vec![tag(OF_PROXY)] });
        let next = shares.settle(&tag(OF_PROXY), false, iter::once(of("t", "web")));
        assert_eq!(next, SettledShare { may: true, follow: Vec::new() });
        // What one does not take that waited is for the next.
        assert_eq!(shares.settle(&tag(4), false, iter::empty()).follow, [tag(OF_PROXY + 1)]);
        assert_eq!(shares.settle(&tag(OF_PROXY + 1), false, iter::empty()).follow, [tag(OF_PROXY + 2)]);
        // One that waited and is wanted no more leaves nothing behind.
        for n in 0..6000 {
            shares.settle(&tag(n), false, iter::empty());
        }
        assert!(shares.granted.is_empty() && shares.counts.is_empty());
        assert!(shares.waits_for.is_empty() && shares.waiting.is_empty());
    }

    #[test]
    fn a_name_is_somebody_else_in_another_mesh_and_with_another_token() {
        let mut shares = ServiceShares::default();
        let in_dev = ResourceKey::new(&dataplane::KIND, "dev", "web");
        let thief = payers(Account::Token("thief".into()), &in_dev);
        assert_eq!(made(&mut shares, "dev", 1000, &thief), OF_PROXY);
        assert_eq!(made(&mut shares, "default", 1000, &of("bank", "web")), OF_PROXY);
        // Who has a token in the same mesh takes nothing from who has another.
        let mut shares = ServiceShares::default();
        assert_eq!(made(&mut shares, "a", 1000, &of("thief", "web")), OF_PROXY);
        assert_eq!(made(&mut shares, "b", 1000, &of("bank", "web")), OF_PROXY);
        // Where no token is asked for, whoever has the name in the mesh is one.
        let mut shares = ServiceShares::default();
        assert_eq!(made(&mut shares, "dev", 1000, &unproven("dev", "web")), OF_PROXY);
        assert_eq!(made(&mut shares, "more", 1000, &unproven("dev", "web")), 0);
        assert_eq!(made(&mut shares, "default", 1000, &unproven("default", "web")), OF_PROXY);
    }

    #[test]
    fn what_several_want_waits_for_each_of_them() {
        let mut shares = ServiceShares::default();
        for proxy in ["a", "b"] {
            assert_eq!(made(&mut shares, proxy, OF_PROXY, &of("t", proxy)), OF_PROXY);
        }
        let both = || [of("t", "a"), of("t", "b")].into_iter();
        assert!(!shares.settle(&tag(9000), false, both()).may);
        // The second has room first.
        let gone = shares.settle(&("b".into(), tag(0).1), false, iter::empty());
        assert_eq!(gone.follow, [tag(9000)]);
        assert!(shares.settle(&tag(9000), false, both()).may);
        assert!(shares.waits_for.is_empty() && shares.waiting.is_empty(), "it waits for nobody any more");
        let after = shares.settle(&("a".into(), tag(0).1), false, iter::empty());
        assert_eq!(after, SettledShare::default());
    }

    #[test]
    fn a_token_has_a_share_whatever_names_it_is_good_for() {
        let mut shares = ServiceShares::default();
        let mut made = |token: &'static str| {
            let named = (0..12_000).map(|n| (n, of(token, &format!("web-{token}-{}", n / 64))));
            let made = named.filter(|(n, accounts)| {
                let tag = (Arc::from(token), tag(*n).1);
                shares.settle(&tag, false, iter::once(accounts.clone())).may
            });
            made.count()
        };
        assert_eq!(made("thief"), SERVICES_OF_ACCOUNT);
        assert_eq!(made("other"), SERVICES_OF_ACCOUNT);
    }
}
