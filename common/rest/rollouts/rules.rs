//! How many rollouts there may be.

use crate::{
    model::{Kind, Violations, kinds::rollout},
    rest::{Admission, Put},
};

/// The newest run of each is kept, and what each demands is looked at with every write.
const MOST_ROLLOUTS: usize = 256;

/// There are not too many of them.
pub(in crate::rest) struct RolloutRules;

impl Admission for RolloutRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &rollout::KIND
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        if put.existing.is_some() || put.index.count(&rollout::KIND) < MOST_ROLLOUTS {
            return Ok(());
        }
        let reason =
            format!("there are {MOST_ROLLOUTS} rollouts, and no more may be: delete one that is not used");
        Err(Violations::one("name", reason))
    }
}
