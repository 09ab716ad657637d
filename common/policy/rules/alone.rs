//! What is refused before it is stored: a policy whose lists overlap in more ways than can be told apart, whatever else
//! there is. What several have in common is found out where they are applied.

use std::sync::Arc;

use chrono::DateTime;

use super::{Destinations, Policy, RulesError, TagRules, access_rules, to::tag_items};
use crate::{
    model::{FieldPath, Kind, Resource, ResourceKey, Violations},
    policy::mesh_traffic_permission,
};

/// What of a policy of `kind` that says this nobody can be told, named by the list. What does not decode is for others to
/// refuse.
pub fn too_much_alone(kind: &'static Kind, spec: &[u8]) -> Violations {
    let mut violations = Violations::none();
    if kind.policy.is_none_or(|policy| !policy.target_ref) {
        return violations;
    }
    let resource =
        Resource::new(ResourceKey::new(kind, "", ""), DateTime::UNIX_EPOCH).with_spec(spec.to_vec());
    let Ok(policy) = Policy::parse(Arc::new(resource)).map(Arc::new) else { return violations };
    let policies = std::slice::from_ref(&policy);
    let of_clients = match kind == &mesh_traffic_permission::KIND {
        true => access_rules(policies),
        false => TagRules::of_clients(policies),
    };
    let of_destinations = || match policy.is_for_route() {
        // How much that is follows from the route.
        true => Ok(TagRules::default()),
        false => TagRules::build(&tag_items(&policy, &Destinations::default())?, None),
    };
    let path = FieldPath::new("spec");
    for (list, rules) in [("from", of_clients), ("to", of_destinations())] {
        if let Err(error @ RulesError::TooManySubsets { .. }) = rules {
            violations.add(path.field(list), error.to_string());
        }
    }
    violations
}
