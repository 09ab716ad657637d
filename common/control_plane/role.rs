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

/// Takes the store for a control plane of this role; gives the name a zone had when it last ran on it, if
/// that was another one.
///
/// # Errors
/// [`RoleError`] when it belongs to a control plane of the other sort.
pub async fn take(store: &Arc<dyn Store>, mode: &Mode) -> Result<Option<String>, RoleError> {
    let asked = match mode.zone() {
        Some(zone) => format!("{ZONE}{zone}"),
        None => GLOBAL.to_owned(),
    };
    let known = store.sessions(ROLE).await?;
    let owner = known.into_iter().find_map(|(key, owner)| (key == ROLE).then_some(owner));
    let former = match owner {
        Some(owner) if owner == asked => return Ok(None),
        Some(owner) => match (owner.strip_prefix(ZONE), mode.zone()) {
            (Some(former), Some(_)) => Some(former.to_owned()),
            _ => return Err(RoleError::Taken { owner, asked }),
        },
        None => None,
    };
    store.put_sessions(vec![(ROLE.to_owned(), Some(asked))]).await?;
    Ok(former)
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
        assert_eq!(take(&store, &zone("east")).await.unwrap(), None);
        assert_eq!(take(&store, &Mode::federated_zone("east")).await.unwrap(), None);
        assert_eq!(take(&store, &zone("west")).await.unwrap().as_deref(), Some("east"));
        let error = take(&store, &Mode::Global).await.unwrap_err().to_string();
        assert!(error.contains("belongs to zone west") && error.contains("general.workDir"), "{error}");

        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        assert_eq!(take(&store, &Mode::Global).await.unwrap(), None);
        let error = take(&store, &zone("east")).await.unwrap_err().to_string();
        assert!(error.contains("belongs to global, and this is zone east"), "{error}");
    }
}
