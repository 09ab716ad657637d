//! Who may connect, when all groups that may are taken together.

use std::sync::Arc;

use super::{Policy, RulesError, TagRule, TagRules, overlap::OverlapBudget};
use crate::policy::mesh_traffic_permission::{Action, TrafficPermissionConf};

/// Permissions by groups of clients, such that no client is in a group that may connect unless the
/// policies say so.
///
/// Groups as they are looked up elsewhere may overlap; the first that has a client counts. A proxy has no
/// such order: with "everyone but `c` may" beside "`a` may not", `a` would get in. Where that would happen
/// the groups are cut until none overlaps another.
///
/// # Errors
/// [`RulesError::TooManySubsets`] when the lists overlap in too many ways.
pub fn access_rules(policies: &[Arc<Policy>]) -> Result<TagRules, RulesError> {
    let rules = TagRules::of_clients(policies)?;
    if rules.0.iter().all(may_connect) {
        return Ok(rules);
    }
    let disjoint = TagRules::of_disjoint_clients(policies)?;
    let denied: Vec<&TagRule> = disjoint.0.iter().filter(|r| !may_connect(r)).collect();
    let mut effort = OverlapBudget::default();
    // Where there are too many to look, those that do not overlap are right in any case.
    let mut lets_in = |rule: &TagRule| {
        let mut lets_in = |denied: &&TagRule| {
            effort.compare(&denied.subset, &rule.subset).is_err() || denied.subset.overlaps(&rule.subset)
        };
        may_connect(rule) && denied.iter().any(&mut lets_in)
    };
    Ok(if rules.0.iter().any(&mut lets_in) { disjoint } else { rules })
}

/// Whether clients of this group may connect. What does not decode may not.
fn may_connect(rule: &TagRule) -> bool {
    let action = rule.conf::<TrafficPermissionConf>().ok().and_then(|conf| conf.action);
    matches!(action, Some(Action::Allow | Action::AllowWithShadowDeny))
}
