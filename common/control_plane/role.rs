//! Whose store this is. A zone that ran on the store of a global would take it over, and a global on that
//! of a zone would offer the proxies of one zone as its own.

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

/// The name a zone had when it last ran on this store, if that was another one.
///
/// # Errors
/// [`RoleError`] when the store belongs to a control plane of the other sort.
pub async fn former(store: &Arc<dyn Store>, mode: &Mode) -> Result<Option<String>, RoleError> {
    let asked = role(mode);
    let known = store.sessions(ROLE).await?;
    let owner = known.into_iter().find_map(|(key, owner)| (key == ROLE).then_some(owner));
    match owner {
        Some(owner) if owner == asked => Ok(None),
        Some(owner) => match (owner.strip_prefix(ZONE), mode.zone()) {
            (Some(former), Some(_)) => Ok(Some(former.to_owned())),
            _ => Err(RoleError::Taken { owner, asked }),
        },
        None => Ok(None),
    }
}

/// Takes the store for a control plane of this role.
///
/// # Errors
/// As [`former`].
pub async fn take(store: &Arc<dyn Store>, mode: &Mode) -> Result<(), RoleError> {
    former(store, mode).await?;
    store.put_sessions(vec![(ROLE.to_owned(), Some(role(mode)))]).await?;
    Ok(())
}

/// Takes the store for a relay.
///
/// # Errors
/// As [`former`].
pub async fn take_relay(store: &Arc<dyn Store>) -> Result<(), RoleError> {
    let known = store.sessions(ROLE).await?;
    let owner = known.into_iter().find_map(|(key, owner)| (key == ROLE).then_some(owner));
    match owner {
        Some(owner) if owner == RELAY => Ok(()),
        Some(owner) => Err(RoleError::Taken { owner, asked: RELAY.to_owned() }),
        None => Ok(store.put_sessions(vec![(ROLE.to_owned(), Some(RELAY.to_owned()))]).await?),
    }
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
        assert_eq!(former(&store, &zone("east")).await.unwrap(), None);
        take(&store, &zone("east")).await.unwrap();
        assert_eq!(former(&store, &Mode::federated_zone("east")).await.unwrap(), None);
        assert_eq!(former(&store, &zone("west")).await.unwrap().as_deref(), Some("east"));
        take(&store, &zone("west")).await.unwrap();
        assert_eq!(former(&store, &zone("west")).await.unwrap(), None);
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
