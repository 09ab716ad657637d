//! What is damaged in a store, row by row, and who can look.

use std::fmt;

use async_trait::async_trait;

use super::{
    StoreError,
    checksum::Checksum,
    record::{RawColumns, identity_sum},
};

/// What becomes of a damaged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is deleted.
    Remove,
    /// What it holds now counts as what was written.
    Accept,
}

/// Something that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where the store has it, in the words of the store.
    pub(super) place: String,
    pub(super) what: FindingSubject,
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FindingSubject {
    Resource(Box<RawColumns>),
    Session {
        key: Vec<u8>,
        document: Vec<u8>,
    },
    /// Some entry of the change log; all of it is begun anew.
    Log,
    /// The identity of the store, which has a checksum in a file only.
    Identity {
        store_id: String,
        epoch: i64,
    },
}

impl fmt::Display for Finding {
    /// The name an operator gives it. What is no plain text is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            FindingSubject::Resource(row) => {
                let [kind, mesh, name] = [&row.kind, &row.mesh, &row.name].map(|part| plain(part.as_deref()));
                write!(f, "resource/{kind}/{mesh}/{name}")
            }
            FindingSubject::Session { key, .. } => write!(f, "session/{}", plain(Some(key))),
            FindingSubject::Log => f.write_str("log"),
            FindingSubject::Identity { .. } => f.write_str("identity"),
        }
    }
}

fn plain(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).escape_default().to_string()
}

impl Finding {
    /// The sum of what is there now.
    pub(super) fn sum(&self) -> i64 {
        match &self.what {
            FindingSubject::Resource(row) => row.sum().unwrap_or_default(),
            FindingSubject::Session { key, document } => {
                Checksum::default().bytes(key).bytes(document).finish()
            }
            FindingSubject::Log => 0,
            FindingSubject::Identity { store_id, epoch } => identity_sum(store_id, *epoch),
        }
    }
}

/// A store that can be looked into although it is damaged.
#[async_trait]
pub(super) trait Wreck: Send {
    /// Everything that is not what was written. What is found stays as it is until [`Wreck::settle`] or the
    /// end of this value.
    async fn findings(&mut self) -> Result<Vec<Finding>, StoreError>;

    /// Settles one finding for good.
    async fn settle(&mut self, finding: &Finding, settlement: Settlement) -> Result<(), StoreError>;

    /// Lets go of the store.
    async fn close(self: Box<Self>);
}
