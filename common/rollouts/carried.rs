//! Which types go out in waves at all.

use crate::model::Kind;

/// Why resources of `kind` go out by no rollout, for people; nothing where they can. So nothing is demanded that nobody
/// could do.
pub fn why_not_carried(kind: &Kind) -> Option<&'static str> {
    if kind.path.is_empty() || kind.read_only || !kind.flow.global_to_zone() {
        return Some("does not go from global to zones");
    }
    kind.admin_only.then_some("cannot be kept for going back")
}
