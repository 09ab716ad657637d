//! A row that may not be what was written.

use std::sync::Arc;

use sqlx::FromRow;

use super::{ResourceRecord, damaged};
use crate::{model::Resource, store::StoreError};

/// A row as its bytes, whatever they are; what must be there may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub(in crate::store) struct RawColumns {
    pub(in crate::store) kind: Option<Vec<u8>>,
    pub(in crate::store) mesh: Option<Vec<u8>>,
    pub(in crate::store) name: Option<Vec<u8>>,
    pub(in crate::store) origin_zone: Option<Vec<u8>>,
    pub(in crate::store) display_name: Option<Vec<u8>>,
    pub(in crate::store) labels: Option<Vec<u8>>,
    pub(in crate::store) spec: Option<Vec<u8>>,
    pub(in crate::store) status: Option<Vec<u8>>,
    pub(in crate::store) owner_kind: Option<Vec<u8>>,
    pub(in crate::store) owner_mesh: Option<Vec<u8>>,
    pub(in crate::store) owner_name: Option<Vec<u8>>,
    pub(in crate::store) created: Option<i64>,
    pub(in crate::store) modified: Option<i64>,
    pub(in crate::store) revision: Option<i64>,
    pub(in crate::store) checksum: Option<i64>,
}

impl RawColumns {
    /// The row, when there is text where text must be.
    fn record(&self) -> Option<ResourceRecord> {
        let text = |column: &Option<Vec<u8>>| String::from_utf8(column.clone()?).ok();
        let optional = |column: &Option<Vec<u8>>| match column {
            None => Some(None),
            Some(bytes) => Some(Some(String::from_utf8(bytes.clone()).ok()?)),
        };
        Some(ResourceRecord {
            kind: text(&self.kind)?,
            mesh: text(&self.mesh)?,
            name: text(&self.name)?,
            origin_zone: text(&self.origin_zone)?,
            display_name: text(&self.display_name)?,
            labels: text(&self.labels)?,
            spec: self.spec.clone()?,
            status: self.status.clone(),
            owner_kind: optional(&self.owner_kind)?,
            owner_mesh: optional(&self.owner_mesh)?,
            owner_name: optional(&self.owner_name)?,
            created: self.created?,
            modified: self.modified?,
            revision: self.revision?,
            checksum: self.checksum,
        })
    }

    /// The checksum of what is there, when it can be a row at all.
    pub(in crate::store) fn sum(&self) -> Option<i64> {
        Some(self.record()?.sum())
    }

    /// Whether a reader would refuse it.
    pub(in crate::store) fn is_damaged(&self) -> bool {
        match self.record() {
            Some(row) => row.into_resource().is_err(),
            None => true,
        }
    }

    /// The resource this would be if it were taken as it is.
    ///
    /// # Errors
    /// When it would be none.
    pub(in crate::store) fn resource(&self) -> Result<Option<Arc<Resource>>, StoreError> {
        let row = self.record().ok_or_else(|| damaged(format_args!("a column that must be text")))?;
        ResourceRecord { checksum: None, ..row }.into_resource()
    }
}
