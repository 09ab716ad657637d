//! How many services, or workloads, are made on whose account. One stays for a while after its last proxy has gone, so who
//! comes again and again with other tags would have as many as it likes. Whoever has its share waits until one of them
//! goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::model::Resource;

use crate::{account::Account, share::SERVICES_OF_ACCOUNT};

/// Services made for proxies of one name, those included that are about to go.
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
    /// Those for which somebody pays for too many others, and who that is.
    waits_for: BTreeMap<TagName, Account>,
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
            return SettledShare { may: true, follow: self.next_for(waited_for) };
        }
        let mut full = None;
        for accounts in wanted {
            match accounts.iter().find(|account| !self.has_room(account, tag)) {
                Some(account) => _ = full.get_or_insert(account.clone()),
                None if self.granted.get(tag) == Some(&accounts) => {
                    return SettledShare { may: true, follow: Vec::new() };
                }
                None => {
                    let mut follow = self.release(tag);
                    self.grant(tag, accounts);
                    follow.extend(self.next_for(waited_for));
                    return SettledShare { may: true, follow };
                }
            }
        }
        let mut follow = self.release(tag);
        if let Some(account) = full {
            self.waiting.entry(account.clone()).or_default().insert(tag.clone());
            self.waits_for.insert(tag.clone(), account);
        }
        // What it did not take is for the next.
        follow.extend(self.next_for(waited_for));
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
            follow.extend(self.next_for(Some(account)));
        }
        follow
    }

    /// The next that waits for this one, if that has room.
    fn next_for(&self, account: Option<Account>) -> Vec<TagName> {
        let next = account.and_then(|account| {
            let tag = self.waiting.get(&account)?.first()?;
            self.has_room(&account, tag).then(|| tag.clone())
        });
        next.into_iter().collect()
    }

    fn stop_waiting(&mut self, tag: &TagName) -> Option<Account> {
        let account = self.waits_for.remove(tag)?;
        if let Some(waiting) = self.waiting.get_mut(&account) {
            waiting.remove(tag);
            if waiting.is_empty() {
                self.waiting.remove(&account);
            }
        }
        Some(account)
    }
}

/// Those that may run out.
fn limited(accounts: Vec<Account>) -> impl Iterator<Item = Account> {
    accounts.into_iter().filter(|account| most(account).is_some())
}

/// What the proxy with this resource pays with.
pub(super) fn payers_of(resource: &Resource) -> Vec<Account> {
    payers(Account::of(resource), &resource.key.name)
}

fn payers(account: Account, name: &Arc<str>) -> Vec<Account> {
    match account {
        Account::Operators | Account::Proxy(_) => vec![account],
        Account::Token(_) => vec![account, Account::Proxy(Arc::clone(name))],
    }
}

fn most(account: &Account) -> Option<usize> {
    match account {
        Account::Operators => None,
        Account::Token(_) => Some(SERVICES_OF_ACCOUNT),
        Account::Proxy(_) => Some(OF_PROXY),
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn tag(number: usize) -> TagName {
        ("default".into(), format!("s-{number:05}").into())
    }

    fn of(token: &str, proxy: &str) -> Vec<Account> {
        payers(Account::Token(token.into()), &proxy.into())
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
        assert!(!also(of("other", "web")) && also(of("t", "api")) && also(vec![Account::Operators]));
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
