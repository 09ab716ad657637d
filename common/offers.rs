//! What a peer refused, offered to it once more because an operator says so.
//!
//! ```text
//!  API ──► OffersAgain ──► OffersDoor of the stream ──► the task that serves it ──► the same, with a new nonce
//!              └──► mailbox of the replica that has the stream ──► its OffersDoor
//! ```
//!
//! Why something was refused may lie in the surroundings of the peer, and be over. It is tried again by itself, after
//! pauses that grow; who mended it need not wait for that, and need not touch the resource either.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::{
    model::{Kind, ResourceKey},
    registry,
};

/// Wishes that may wait at a stream.
const WAITING: usize = 16;

/// Which of what was refused is meant; what it does not say, it leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedSelection {
    /// Name of a type, empty for all of them.
    pub kind: String,
    /// Mesh as it is here.
    pub mesh: String,
    /// Name as it is here, empty for all of the type.
    pub name: String,
}

impl RefusedSelection {
    /// As an operator says it: the type by its name, its path or as commands call it.
    ///
    /// # Errors
    /// What makes no sense about it.
    pub fn parse(kind: &str, mesh: &str, name: &str) -> Result<Self, String> {
        if kind.is_empty() {
            return match (mesh, name) {
                ("", "") => Ok(Self::default()),
                _ => Err("a name and a mesh need a kind".to_owned()),
            };
        }
        let is_it = |known: &&&Kind| [known.name, known.path, known.arg].contains(&kind);
        let known = registry::ALL.iter().find(is_it);
        let known = known.ok_or_else(|| format!("there is no type {kind:?}; GET /_resources lists them"))?;
        Ok(Self { kind: known.name.to_owned(), mesh: mesh.to_owned(), name: name.to_owned() })
    }

    /// Whether it means what is stored here under `key`; `None` where nothing is any more.
    pub fn selects(&self, type_name: &str, key: Option<&ResourceKey>) -> bool {
        let is_any = self.name.is_empty() && self.mesh.is_empty();
        let is_it = |key: &ResourceKey| {
            (self.name.is_empty() || *key.name == *self.name)
                && (self.mesh.is_empty() || *key.mesh == *self.mesh)
        };
        (self.kind.is_empty() || self.kind == type_name) && (is_any || key.is_some_and(is_it))
    }
}

/// Why nothing was offered again.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotOffered {
    /// Nobody is connected who could take it.
    #[error("zone {zone} cannot be offered anything: {reason}")]
    Away {
        /// Which zone.
        zone: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A relay stands between, which offers by itself.
    #[error(
        "zone {zone} is below relay {relay}, which offers what it refused again by itself, after ten minutes at most"
    )]
    BelowRelay {
        /// Which zone.
        zone: String,
        /// Which relay.
        relay: String,
    },
    /// The replica of this control plane that has the stream did not do it.
    #[error("{0}")]
    Elsewhere(String),
}

/// Who can offer again what zones refused, wherever they are connected.
#[async_trait]
pub trait OffersAgain: Send + Sync + 'static {
    /// Offers again what `zone` refused, as far as it is meant. How many resources that is.
    ///
    /// # Errors
    /// [`NotOffered`].
    async fn offer_again(&self, zone: &str, meant: &RefusedSelection) -> Result<usize, NotOffered>;
}

/// A wish on its way to the task of a stream.
#[derive(Debug)]
pub struct OfferWish {
    /// What is to be offered again.
    pub meant: RefusedSelection,
    reply: oneshot::Sender<usize>,
}

impl OfferWish {
    /// So many resources are offered again.
    pub fn done(self, offered: usize) {
        let _nobody_waits = self.reply.send(offered);
    }
}

/// Where a stream takes wishes.
pub type OfferWishes = mpsc::Receiver<OfferWish>;

/// Where wishes for one stream go in, whichever stream that is at the moment.
#[derive(Debug, Default)]
pub struct OffersDoor(Mutex<Option<mpsc::Sender<OfferWish>>>);

impl OffersDoor {
    /// A stream takes wishes from here on; an older one does no more.
    pub fn open(&self) -> OfferWishes {
        let (sender, wishes) = mpsc::channel(WAITING);
        *self.lock() = Some(sender);
        wishes
    }

    /// How many resources are offered again; `None` when no stream takes the wish.
    pub async fn ask(&self, meant: RefusedSelection) -> Option<usize> {
        let (reply, done) = oneshot::channel();
        let sender = self.lock().clone()?;
        sender.try_send(OfferWish { meant, reply }).ok()?;
        done.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<mpsc::Sender<OfferWish>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_left_open_means_everything() {
        let kind = registry::by_name("MeshTimeout").unwrap();
        let key = ResourceKey::new(kind, "default", "quick");
        let check = |said: [&str; 3], type_name: &str, key: Option<&ResourceKey>, expected: bool| {
            let meant = RefusedSelection::parse(said[0], said[1], said[2]).unwrap();
            assert_eq!(meant.selects(type_name, key), expected, "{said:?} {type_name} {key:?}");
        };
        for said in [["", "", ""], ["MeshTimeout", "", ""], ["meshtimeouts", "default", "quick"]] {
            check(said, "MeshTimeout", Some(&key), true);
        }
        check(["meshtimeout", "", "quick"], "MeshTimeout", Some(&key), true);
        check(["MeshTimeout", "other", "quick"], "MeshTimeout", Some(&key), false);
        check(["MeshTimeout", "", "slow"], "MeshTimeout", Some(&key), false);
        check(["MeshRetry", "", ""], "MeshTimeout", Some(&key), false);
        // Of what is gone here only the type is known.
        check(["MeshTimeout", "", ""], "MeshTimeout", None, true);
        check(["MeshTimeout", "", "quick"], "MeshTimeout", None, false);
        assert!(RefusedSelection::parse("", "", "quick").is_err());
        assert!(RefusedSelection::parse("Nonsense", "", "").is_err());
    }

    #[tokio::test]
    async fn a_wish_goes_to_the_newest_stream() {
        let door = OffersDoor::default();
        assert_eq!(door.ask(RefusedSelection::default()).await, None, "there is no stream");
        let older = door.open();
        let mut wishes = door.open();
        drop(older);
        let serving = async { wishes.recv().await.unwrap().done(3) };
        let (asked, ()) = tokio::join!(door.ask(RefusedSelection::default()), serving);
        assert_eq!(asked, Some(3));
        drop(wishes);
        assert_eq!(door.ask(RefusedSelection::default()).await, None, "it ended");
    }
}
