//! What wants addresses, and how much of it counts where it is on somebody's account.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    account::Account,
    mesh::{
        Naming,
        address_book::{Named, OutboundEntry},
    },
    share::{
        ADDRESS_BYTES_OF_ACCOUNT, ADDRESS_BYTES_OF_ZONE, FairShare, SERVICES_OF_ACCOUNT, SERVICES_OF_ZONE,
    },
};

/// Bytes that one address takes where it is kept, besides its texts.
const AROUND: usize = 128;
/// And with them, where somebody has a share: tags by which a name is made up may be long.
const LONGEST: usize = 4 * 1024;

/// What wants an address and why.
pub(super) type Wish = (Named, OutboundEntry);
/// The same with its mesh.
pub(super) type MeshWish = (Arc<str>, Wish);

/// Who wants no more than a share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WishPayer {
    /// Another zone.
    Zone(Arc<str>),
    /// Who brought proxies along.
    Account(Account),
}

impl WishPayer {
    /// How many it gets, and how many bytes of them.
    pub(super) fn most(&self) -> (usize, usize) {
        match self {
            Self::Zone(_) => (SERVICES_OF_ZONE, ADDRESS_BYTES_OF_ZONE),
            Self::Account(_) => (SERVICES_OF_ACCOUNT, ADDRESS_BYTES_OF_ACCOUNT),
        }
    }
}

/// What one resource wants.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// On whose account, unless it is an operator of this zone.
    pub(super) payer: Option<WishPayer>,
    /// What gets an address where there is room.
    pub(super) all: BTreeSet<MeshWish>,
    /// How many besides get none, however much room there is.
    pub(super) refused: usize,
}

impl Wishes {
    /// Of `all` what somebody could call, and is no longer than one thing may be on an account.
    pub(super) fn of(payer: Option<WishPayer>, mut all: BTreeSet<MeshWish>, naming: &Naming) -> Self {
        let wanted = all.len();
        all.retain(|wish| {
            let (_, (named, _)) = wish;
            named.is_callable(naming) && (payer.is_none() || weight(wish) <= LONGEST)
        });
        Self { payer, refused: wanted - all.len(), all }
    }
}

/// What counts of what is on one account.
#[derive(Debug)]
pub(super) struct WishShare {
    /// What gets an address, and what waits for room.
    pub(super) share: FairShare<MeshWish>,
    /// How many get none, however much room there is.
    pub(super) refused: usize,
}

impl WishShare {
    /// That of `payer`, of which nothing is taken.
    pub(super) fn of(payer: &WishPayer) -> Self {
        let (most, bytes) = payer.most();
        Self { share: FairShare::within(most, bytes, weight), refused: 0 }
    }

    /// How many have no address.
    pub(super) fn left_out(&self) -> usize {
        self.share.beyond() + self.refused
    }

    /// Whether nothing is on the account.
    pub(super) fn is_empty(&self) -> bool {
        self.share.is_empty() && self.refused == 0
    }
}

/// Bytes that an address takes where it is kept.
fn weight((_, (named, outbound)): &MeshWish) -> usize {
    let tags: usize = outbound.tag_set.iter().map(|(tag, value)| tag.len() + value.len()).sum();
    AROUND + named.bytes() + outbound.origin.len() + tags
}
