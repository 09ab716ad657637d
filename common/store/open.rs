//! Opens the store a URL names.

use std::sync::Arc;

use super::{
    Store, StoreError,
    memory::MemoryStore,
    postgres::PostgresStore,
    sqlite::{self, SqliteStore},
};
use crate::runtime::Entropy;

/// Opens the store at `url`: `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `memory:`.
///
/// # Errors
/// [`StoreError::Foreign`] when the URL names no store, or one that is not ours or not free, with what to
/// do; [`StoreError::Backend`] when it cannot be reached. No message shows a password.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "sqlite" if !sqlite::path_of(rest).as_os_str().is_empty() => {
            Ok(Arc::new(SqliteStore::open(sqlite::path_of(rest)).await?))
        }
        "postgres" | "postgresql" => Ok(Arc::new(PostgresStore::open(url).await?)),
        "memory" => Ok(Arc::new(MemoryStore::new(Entropy::from_os().uuid()))),
        _ => Err(StoreError::Foreign(format!(
            "{} names no store: use sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or memory:",
            masked(url)
        ))),
    }
}

/// The URL without its password and without its query, where one may hide too.
pub fn masked(url: &str) -> String {
    let plain = url.split_once('?').map_or(url, |(plain, _)| plain);
    let Some((scheme, rest)) = plain.split_once("://") else { return plain.to_owned() };
    // The last `@`: a password may hold others, unescaped.
    match rest.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
            None => plain.to_owned(),
        },
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_message_shows_a_password() {
        let cases = [
            ("postgres://a:secret@h/db?password=secret", "postgres://a:***@h/db"),
            ("postgres://a:s@cret@h/db", "postgres://a:***@h/db"),
            ("postgres://a@h/db", "postgres://a@h/db"),
            ("postgres://h/db?password=secret", "postgres://h/db"),
            ("sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db"),
        ];
        for (url, shown) in cases {
            assert_eq!(masked(url), shown);
        }
    }

    #[tokio::test]
    async fn a_url_names_its_store() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("new/folder/store.db");
        for url in [format!("sqlite:{}", file.display()), format!("sqlite://{}", file.display())] {
            open(&url).await.unwrap().close().await;
        }
        open("memory:").await.unwrap();
        for url in ["sqlite:", "mysql://a:secret@h/db", "store.db", ""] {
            let error = open(url).await.err().unwrap().to_string();
            assert!(error.contains("sqlite:PATH") && !error.contains("secret"), "{error}");
        }
    }
}
