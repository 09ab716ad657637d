//! Opens the store a URL names.

use std::{path::Path, sync::Arc};

use sqlx::postgres::PgConnectOptions;

use super::{
    RETAINED, Store, StoreError,
    memory::MemoryStore,
    postgres::PostgresStore,
    sqlite::{self, SqliteStore},
};
use crate::{
    config::{StoreSection, StoreType},
    runtime::Entropy,
};

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

/// Opens the store of the settings; an SQLite file without a path is `strait.db` in `work_dir`.
///
/// # Errors
/// As [`open`].
pub async fn open_configured(section: &StoreSection, work_dir: &Path) -> Result<Arc<dyn Store>, StoreError> {
    match section.kind {
        StoreType::Memory => open("memory:").await,
        StoreType::Sqlite if section.sqlite.path.is_empty() => {
            Ok(Arc::new(SqliteStore::open(work_dir.join("strait.db")).await?))
        }
        StoreType::Sqlite => Ok(Arc::new(SqliteStore::open(&section.sqlite.path).await?)),
        StoreType::Postgres => {
            let at = &section.postgres;
            // Without what the libpq environment would add: settings come from `config` alone.
            let options = PgConnectOptions::new_without_pgpass().port(at.port).username(&at.user);
            let options = options.password(&at.password).database(&at.db_name);
            let options =
                if at.host.starts_with('/') { options.socket(&at.host) } else { options.host(&at.host) };
            Ok(Arc::new(PostgresStore::connect(options, RETAINED).await?))
        }
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
