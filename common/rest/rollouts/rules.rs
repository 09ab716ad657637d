//! How many rollouts there may be, and what one may demand of everybody.

use std::collections::BTreeSet;

use crate::{
    model::{
        FieldPath, Kind, Resource, ResourceKey, Violations,
        kinds::{
            access_role::RoleVerb,
            mesh,
            rollout::{self, Rollout},
        },
    },
    registry,
    rest::{Admission, ApiError, KindApi, Put},
    roles::{AskedFor, Extent, UserRights},
    rollouts::why_not_carried,
    store::index::Index,
};

/// The newest run of each is kept, and what each demands is looked at with every write.
const MOST_ROLLOUTS: usize = 256;

/// There are not too many of them, and they demand nothing that could not be done.
pub(in crate::rest) struct RolloutRules;

impl Admission for RolloutRules {
    fn concerns(&self, kind: &Kind) -> bool {
        kind == &rollout::KIND
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), Violations> {
        let mut violations = Violations::none();
        let demands = put.resource.spec::<Rollout>().unwrap_or_default().required_for;
        for (n, demand) in demands.iter().enumerate() {
            for (m, kind) in demand.kinds.iter().enumerate() {
                let why = match registry::by_name(kind) {
                    Some(kind) => why_not_carried(kind),
                    None => Some("is no type of resource, as GET /_resources lists them"),
                };
                if let Some(why) = why {
                    let field = FieldPath::new("spec").field("requiredFor").index(n).field("kinds").index(m);
                    violations.add(field, format!("{kind} {why}, so it goes out by no rollout"));
                }
            }
        }
        let is_one_more = put.existing.is_none() && put.index.count(&rollout::KIND) >= MOST_ROLLOUTS;
        let reason =
            format!("there are {MOST_ROLLOUTS} rollouts, and no more may be: delete one that is not used");
        violations.check(is_one_more, "name".into(), reason);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

impl KindApi {
    /// Refuses a rollout by which its author would lock out others: one that demands what he may not write himself, and
    /// was not demanded before, and one for which there is no place in his share. Other types pass.
    pub(in crate::rest) fn require_rollout(
        &self,
        index: &Index,
        rights: &UserRights<'_>,
        resource: &Resource,
    ) -> Result<(), ApiError> {
        if self.kind != &rollout::KIND {
            return Ok(());
        }
        let existing = index.get(&resource.key);
        let before = existing.map(|existing| demanded(existing)).unwrap_or_default();
        for pair in demanded(resource).difference(&before) {
            let (kind, mesh) = pair;
            let Some(kind) = registry::by_name(kind) else { continue };
            // What it demanded in all meshes it demanded in each.
            if before.contains(&(kind.name, None)) {
                continue;
            }
            rights.check(RoleVerb::Write, &all_of(kind, mesh.as_deref())).map_err(|denied| {
                let what = mesh.as_deref().map(|mesh| format!(" in mesh {mesh}")).unwrap_or_default();
                let detail = format!(
                    "spec.requiredFor: who demands a rollout for {}{what} must be allowed to write all of that: {denied}",
                    kind.name
                );
                ApiError::forbidden(detail)
            })?;
        }
        if existing.is_some() || index.count(&rollout::KIND) < MOST_ROLLOUTS / 2 {
            return Ok(());
        }
        let rollouts = index.list(&rollout::KIND).map(|rollout| rollout.name());
        require_share(index, rights, rollouts, MOST_ROLLOUTS, "rollouts: delete one that is not used")
    }
}

/// What a rollout demands: types, and the mesh in which, unless it is in all.
fn demanded(resource: &Resource) -> BTreeSet<(&'static str, Option<String>)> {
    let mut pairs = BTreeSet::new();
    for demand in resource.spec::<Rollout>().unwrap_or_default().required_for {
        for kind in demand.kinds.iter().filter_map(|kind| registry::by_name(kind)) {
            if demand.meshes.is_empty() {
                pairs.insert((kind.name, None));
            }
            pairs.extend(demand.meshes.iter().map(|mesh| (kind.name, Some(mesh.clone()))));
        }
    }
    pairs
}

/// All resources of `kind`, in one mesh where it says so.
fn all_of<'a>(kind: &'static Kind, mesh: Option<&'a str>) -> AskedFor<'a> {
    let all = AskedFor::all_of(kind);
    match mesh {
        Some(mesh) if kind == &mesh::KIND => AskedFor { name: Extent::One(mesh), ..all },
        Some(mesh) if kind.is_mesh_scoped() => AskedFor { mesh: Extent::One(mesh), ..all },
        _ => all,
    }
}

/// Refuses who may write some rollouts only when those have half of all the places there are: the others are for rollouts
/// of others. `taken` names the rollouts that have one.
pub(super) fn require_share<'a>(
    index: &Index,
    rights: &UserRights<'_>,
    taken: impl Iterator<Item = &'a str>,
    places: usize,
    what: &str,
) -> Result<(), ApiError> {
    if rights.check(RoleVerb::Write, &AskedFor::all_of(&rollout::KIND)).is_ok() {
        return Ok(());
    }
    let is_his = |name: &&str| {
        rights.check_resource(index, RoleVerb::Write, &ResourceKey::global(&rollout::KIND, name)).is_ok()
    };
    let share = places / 2;
    if taken.filter(is_his).count() < share {
        return Ok(());
    }
    let user = &rights.user().name;
    Err(ApiError::conflict(format!(
        "{user} may write some rollouts only, and may have {share} of {places} {what}"
    )))
}
