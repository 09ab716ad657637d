//! Rules and side effects of a write that reach beyond the one resource.

use chrono::{DateTime, Utc};

use crate::{
    keys::KeySupply,
    mode::Mode,
    model::{Kind, Resource, Violations},
    runtime::Env,
    store::{Write, index::Index},
};

/// A put that passed validation and is about to be stored.
pub struct Put<'a> {
    /// Role of this control plane.
    pub mode: &'a Mode,
    /// Everything stored at the moment.
    pub index: &'a Index,
    /// Clock and randomness.
    pub env: &'a Env,
    /// What is stored under the key now; `None` for a create.
    pub existing: Option<&'a Resource>,
    /// What is to be stored; may be changed.
    pub resource: &'a mut Resource,
    /// Keys for what goes along with it. A rule that draws one that is not there yet leaves out what needs
    /// it: nothing is stored, and all rules see the write again when the key is made.
    pub keys: &'a mut KeySupply,
    /// Writes to commit together with it.
    pub also: &'a mut Vec<Write>,
}

impl Put<'_> {
    /// Now.
    pub fn now(&self) -> DateTime<Utc> {
        self.env.now()
    }
}

/// A delete that is about to be committed.
pub struct Deletion<'a> {
    /// Role of this control plane.
    pub mode: &'a Mode,
    /// Everything stored at the moment.
    pub index: &'a Index,
    /// What is to be deleted.
    pub resource: &'a Resource,
}

/// One rule. All rules see every write, in the order of the list.
pub trait Admission: Send + Sync {
    /// Whether this rule has something to say about resources of `kind`.
    fn concerns(&self, kind: &Kind) -> bool;

    /// Before a resource is stored.
    ///
    /// # Errors
    /// Violations refuse the write.
    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        let _ = put;
        Ok(())
    }

    /// Before a resource is deleted.
    ///
    /// # Errors
    /// Violations refuse the delete.
    fn delete(&self, deletion: &Deletion<'_>) -> Result<(), Violations> {
        let _ = deletion;
        Ok(())
    }
}
