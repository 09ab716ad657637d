//! What becomes of signatures on the way down.

use std::sync::Arc;

use common::{
    kds::signature::KeyOfResources,
    model::{Resource, labels},
};

/// Who signs what leaves.
#[derive(Clone, Debug)]
pub(crate) enum Signatures {
    /// Nobody. What somebody wrote in the place of a signature is none.
    None,
    /// Global, with this key.
    By(Arc<KeyOfResources>),
    /// Who sent it to this relay.
    PassedOn,
}

impl Signatures {
    /// Signs `form`, in which a resource leaves for zones.
    pub(super) fn put_on(&self, form: &mut Resource) {
        match self {
            Self::None => drop(form.labels.remove(labels::SIGNATURE)),
            Self::By(key) => {
                let signature = key.signature_of(form);
                form.labels.insert(labels::SIGNATURE, signature);
            }
            Self::PassedOn => {}
        }
    }
}
