//! The way on with a store that has damaged rows and no backup: what is damaged, and taking out or taking as it
//! is one row of it. Works on a store that no process can open.
//!
//! Nothing is taken out before it was written to a file, bytes and all. Whatever follows the store takes all of
//! it anew afterwards: the change log is begun again behind a new revision.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};
use thiserror::Error;

pub use super::finding::{Finding, Settlement};
use super::{
    StoreError,
    finding::{FindingSubject, Wreck},
    open::masked,
    record::RawColumns,
};
use crate::{document, model::Resource};

/// Why nothing was salvaged.
#[derive(Debug, Error)]
pub enum SalvageError {
    /// The store cannot be looked into.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing damaged is called so.
    #[error("no damaged row is called {row}; `list` shows what is damaged")]
    Unknown {
        /// What was asked for.
        row: String,
    },
    /// The row would stop the next start as well.
    #[error("{row} cannot be taken as it is ({reason}): remove it")]
    Unusable {
        /// Which row.
        row: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This is no row, or the store does not go without it.
    #[error("{row} cannot be removed, only accepted: the store is nothing without it")]
    Needed {
        /// What was asked for.
        row: String,
    },
    /// What is taken out could not be kept.
    #[error("keep what is damaged in {path}, which must not be there yet: {source}")]
    Backup {
        /// Which file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// This sort of store keeps nothing.
    #[error("{0} keeps nothing on a disk, so nothing of it can be damaged")]
    Nothing(String),
}

impl Finding {
    /// The resource a damaged row says it is, when it says something.
    fn resource(&self) -> Option<Arc<Resource>> {
        let FindingSubject::Resource(row) = &self.what else { return None };
        row.resource().ok().flatten()
    }

    fn may(&self, settlement: Settlement) -> Result<(), SalvageError> {
        let unusable = |reason: String| SalvageError::Unusable { row: self.to_string(), reason };
        match (&self.what, settlement) {
            (FindingSubject::Identity { .. }, Settlement::Remove) => {
                Err(SalvageError::Needed { row: self.to_string() })
            }
            (FindingSubject::Resource(row), Settlement::Accept) => match row.resource() {
                Ok(Some(resource)) => {
                    document::render(&resource).map_err(|error| unusable(error.to_string())).map(|_| ())
                }
                Ok(None) => Err(unusable("its kind is unknown".to_owned())),
                Err(error) => Err(unusable(error.to_string())),
            },
            (FindingSubject::Session { key, document }, Settlement::Accept) => {
                let texts = [key, document].map(|text| std::str::from_utf8(text));
                match texts.into_iter().find_map(Result::err) {
                    Some(error) => Err(unusable(error.to_string())),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Everything that is there, for a person or a program that knows better.
    fn document(&self) -> Value {
        let mut kept = Map::new();
        kept.insert("row".to_owned(), self.to_string().into());
        kept.insert("place".to_owned(), self.place.clone().into());
        match &self.what {
            FindingSubject::Resource(row) => {
                kept.insert("columns".to_owned(), columns(row));
            }
            FindingSubject::Session { key, document } => {
                kept.insert("key".to_owned(), bytes(Some(key)));
                kept.insert("document".to_owned(), bytes(Some(document)));
            }
            FindingSubject::Identity { store_id, epoch } => {
                kept.insert("identity".to_owned(), json!({ "store_id": store_id, "epoch": epoch }));
            }
            FindingSubject::Log => {}
        }
        if let Some(document) = self.resource().and_then(|resource| document::render(&resource).ok()) {
            kept.insert("resource".to_owned(), document);
        }
        Value::Object(kept)
    }
}

/// Text as it is, anything else as base64.
fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => text.into(),
        Some((bytes, Err(_))) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

fn columns(row: &RawColumns) -> Value {
    json!({
        "kind": bytes(row.kind.as_deref()),
        "mesh": bytes(row.mesh.as_deref()),
        "name": bytes(row.name.as_deref()),
        "origin_zone": bytes(row.origin_zone.as_deref()),
        "display_name": bytes(row.display_name.as_deref()),
        "labels": bytes(row.labels.as_deref()),
        "spec": bytes(row.spec.as_deref()),
        "status": bytes(row.status.as_deref()),
        "owner_kind": bytes(row.owner_kind.as_deref()),
        "owner_mesh": bytes(row.owner_mesh.as_deref()),
        "owner_name": bytes(row.owner_name.as_deref()),
        "created": row.created,
        "modified": row.modified,
        "revision": row.revision,
        "checksum": row.checksum,
    })
}

async fn wreck(url: &str) -> Result<Box<dyn Wreck>, SalvageError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "sqlite" => Ok(Box::new(super::sqlite::SqliteWreck::open(&super::sqlite::path_of(rest)).await?)),
        "postgres" | "postgresql" => Ok(Box::new(super::postgres::PostgresWreck::open(url).await?)),
        _ => Err(SalvageError::Nothing(masked(url))),
    }
}

/// Everything in the store at `url` that is not what was written.
///
/// # Errors
/// [`SalvageError::Store`] when it cannot be looked into, or its structure is damaged as well.
pub async fn list(url: &str) -> Result<Vec<Finding>, SalvageError> {
    let mut wreck = wreck(url).await?;
    let found = wreck.findings().await;
    wreck.close().await;
    Ok(found?)
}

/// Settles the damaged row that [`list`] calls `row`, after everything it holds was written to `backup`.
///
/// # Errors
/// [`SalvageError`]; nothing is changed then.
pub async fn settle(url: &str, row: &str, settlement: Settlement, backup: &Path) -> Result<(), SalvageError> {
    let mut wreck = wreck(url).await?;
    let settled = settle_in(&mut *wreck, row, settlement, backup).await;
    wreck.close().await;
    settled
}

async fn settle_in(
    wreck: &mut dyn Wreck,
    row: &str,
    settlement: Settlement,
    backup: &Path,
) -> Result<(), SalvageError> {
    let found = wreck.findings().await?;
    let finding = found.iter().find(|finding| finding.to_string() == row);
    let finding = finding.ok_or_else(|| SalvageError::Unknown { row: row.to_owned() })?;
    finding.may(settlement)?;
    keep(finding, backup)
        .map_err(|source| SalvageError::Backup { path: backup.display().to_string(), source })?;
    Ok(wreck.settle(finding, settlement).await?)
}

/// Durable before anything is changed; for its owner only, as the store is.
fn keep(finding: &Finding, backup: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(backup)?;
    let text = serde_json::to_string_pretty(&finding.document())?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
