//! Whose store this is. A zone that ran on the store of a global would take it over, and a global on that
//! of a zone would offer the proxies of one zone as its own.
//!
//! It is taken in one statement, before anything else is written, because several may start at once.

use std::sync::Arc;

use thiserror::Error;

use crate::{
    mode::Mode,
    store::{Store, StoreError},
};

/// Under this key a store remembers whose it is.
const ROLE: &str = "control-plane/role";
const GLOBAL: &str = "global";
const RELAY: &str = "relay";
const ZONE: &str = "zone ";

/// Why a control plane may not run on a store.
#[derive(Debug, Error)]
pub enum RoleError {
    /// It was made by a control plane of the other sort.
    #[error(
        "the store belongs to {owner}, and this is {asked}: give this one a store of its own (setting \
         general.workDir or store.postgres.dbName)"
    )]
    Taken {
        /// Whose it is.
        owner: String,
        /// Who wants it.
        asked: String,
    },
    /// The store did not answer.
    #[error("read whose store this is: {0}")]
    Store(#[from] StoreError),
}

/// Whose a store is, to a control plane that wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOwner {
    /// Nobody has taken it yet.
    Nobody,
    /// This one, or another replica of it.
    This,
    /// A zone of this other name, when a zone asks: it may have been renamed.
    Zone(String),
}

/// Whose this store is.
///
/// # Errors
/// [`RoleError`] when it belongs to a control plane of the other sort.
pub async fn owner(store: &Arc<dyn Store>, mode: &Mode) -> Result<StoreOwner, RoleError> {
    let known = store.sessions(ROLE).await?;
    let owner = known.into_iter().find_map(|(key, owner)| (key == ROLE).then_some(owner));
    let asked = role(mode);
    match owner {
        None => Ok(StoreOwner::Nobody),
        Some(owner) if owner == asked => Ok(StoreOwner::This),
        Some(owner) => match (owner.strip_prefix(ZONE), mode.zone()) {
            (Some(other), Some(_)) => Ok(StoreOwner::Zone(other.to_owned())),
            _ => Err(RoleError::Taken { owner, asked }),
        },
    }
}

/// Takes the store for a control plane of this role. Of several that do so at once one has it.
///
/// # Errors
/// [`RoleError`] when it belongs to another one.
pub async fn take(store: &Arc<dyn Store>, mode: &Mode) -> Result<(), RoleError> {
    claim(store, role(mode), None).await
}

/// Takes the store over from the zone `former`, which runs no more.
///
/// # Errors
/// [`RoleError`] when it belongs to another one by now.
pub async fn succeed(store: &Arc<dyn Store>, mode: &Mode, former: &str) -> Result<(), RoleError> {
    claim(store, role(mode), Some(format!("{ZONE}{former}"))).await
}

/// Takes the store for a relay.
///
/// # Errors
/// As [`take`].
pub async fn take_relay(store: &Arc<dyn Store>) -> Result<(), RoleError> {
    claim(store, RELAY.to_owned(), None).await
}

async fn claim(store: &Arc<dyn Store>, asked: String, instead_of: Option<String>) -> Result<(), RoleError> {
    let owner = store.claim_session(ROLE, &asked, instead_of.as_deref()).await?;
    if owner == asked { Ok(()) } else { Err(RoleError::Taken { owner, asked }) }
}

fn role(mode: &Mode) -> String {
    mode.zone().map_or_else(|| GLOBAL.to_owned(), |zone| format!("{ZONE}{zone}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use uuid::Uuid;

    use super::*;
    use crate::store::memory::MemoryStore;

    #[tokio::test]
    async fn a_store_stays_with_its_sort_and_remembers_the_name_of_its_zone() {
        let zone = Mode::standalone_zone;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        assert_eq!(owner(&store, &zone("east")).await.unwrap(), StoreOwner::Nobody);
        take(&store, &zone("east")).await.unwrap();
        assert_eq!(owner(&store, &Mode::federated_zone("east")).await.unwrap(), StoreOwner::This);
        assert_eq!(owner(&store, &zone("west")).await.unwrap(), StoreOwner::Zone("east".to_owned()));
        let error = take(&store, &zone("west")).await.unwrap_err().to_string();
        assert!(error.contains("belongs to zone east, and this is zone west"), "{error}");
        succeed(&store, &zone("west"), "east").await.unwrap();
        assert_eq!(owner(&store, &zone("west")).await.unwrap(), StoreOwner::This);
        let late = succeed(&store, &zone("north"), "east").await.unwrap_err().to_string();
        assert!(late.contains("belongs to zone west, and this is zone north"), "{late}");
        let error = take(&store, &Mode::Global).await.unwrap_err().to_string();
        assert!(error.contains("belongs to zone west") && error.contains("general.workDir"), "{error}");

        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        take(&store, &Mode::Global).await.unwrap();
        let error = take(&store, &zone("east")).await.unwrap_err().to_string();
        assert!(error.contains("belongs to global, and this is zone east"), "{error}");
        let error = take_relay(&store).await.unwrap_err().to_string();
        assert!(error.contains("belongs to global, and this is relay"), "{error}");

        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        for _ in 0..2 {
            take_relay(&store).await.unwrap();
        }
        let error = take(&store, &zone("east")).await.unwrap_err().to_string();
        assert!(error.contains("belongs to relay, and this is zone east"), "{error}");
    }
}
