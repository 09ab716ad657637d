//! What somebody asks for, as rules of roles can limit it.

use crate::{
    access::{Denied, User},
    model::{
        Kind, Origin, Resource, ResourceKey,
        kinds::{access_role::RoleVerb, zone, zone_insight},
        labels,
    },
    store::index::Index,
};

/// How much of something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<T> {
    /// All of it, or what is of none: a rule that is limited does not allow it.
    All,
    /// Some of it: whoever answers leaves out what is not allowed.
    Any,
    /// This one.
    One(T),
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor<'a> {
    /// Which type of resource.
    pub kind: Extent<&'static Kind>,
    /// In which mesh.
    pub mesh: Extent<&'a str>,
    /// Which one.
    pub name: Extent<&'a str>,
    /// Of which zone.
    pub zone: Extent<&'a str>,
}

impl<'a> AskedFor<'a> {
    /// What is about everything here; of one zone where `zone` says so.
    pub fn everything(zone: Option<&'a str>) -> Self {
        let zone = zone.map_or(Extent::All, Extent::One);
        Self { kind: Extent::All, mesh: Extent::All, name: Extent::All, zone }
    }

    /// Something that only whoever answers knows.
    pub fn something() -> Self {
        Self { kind: Extent::Any, mesh: Extent::Any, name: Extent::Any, zone: Extent::Any }
    }

    /// Some resources of `kind`, of one mesh where `mesh` is not empty.
    pub fn some_of(kind: &'static Kind, mesh: &'a str) -> Self {
        let mesh = if mesh.is_empty() { Extent::Any } else { Extent::One(mesh) };
        Self { kind: Extent::One(kind), mesh, name: Extent::Any, zone: Extent::Any }
    }

    /// All resources of `kind`.
    pub fn all_of(kind: &'static Kind) -> Self {
        Self { kind: Extent::One(kind), ..Self::everything(None) }
    }

    /// One resource, which is of this zone.
    pub fn one(key: &'a ResourceKey, zone: Option<&'a str>) -> Self {
        let zone = zone.map_or(Extent::All, Extent::One);
        Self {
            kind: Extent::One(key.kind),
            mesh: if key.mesh.is_empty() { Extent::All } else { Extent::One(&*key.mesh) },
            name: Extent::One(&*key.name),
            zone,
        }
    }

    /// Says what `verb` does to it; completes "cannot".
    pub(super) fn deed(&self, verb: RoleVerb) -> String {
        let deed = verb.deed();
        let Extent::One(kind) = self.kind else { return deed.to_owned() };
        match verb {
            RoleVerb::ViewSecrets | RoleVerb::Admin => {
                format!("{deed} the resource of type {:?}", kind.name)
            }
            RoleVerb::Read | RoleVerb::Write | RoleVerb::Delete => match (self.mesh, self.name) {
                (Extent::One(mesh), Extent::One(name)) => format!("{deed} {} {mesh}/{name}", kind.name),
                (_, Extent::One(name)) => format!("{deed} {} {name}", kind.name),
                _ => format!("{deed} resources of type {}", kind.name),
            },
            RoleVerb::Tokens
            | RoleVerb::GenerateDataplaneToken
            | RoleVerb::GenerateZoneToken
            | RoleVerb::GenerateUserToken
            | RoleVerb::ConfigDump
            | RoleVerb::ViewConfigDump
            | RoleVerb::ViewStats
            | RoleVerb::ViewClusters
            | RoleVerb::Settings
            | RoleVerb::Audit
            | RoleVerb::Backup
            | RoleVerb::Operate => deed.to_owned(),
        }
    }
}

/// The zone that `resource` belongs to.
pub(crate) fn zone_of(resource: &Resource) -> Option<&str> {
    let kind = resource.kind();
    if kind == &zone::KIND || kind == &zone_insight::KIND {
        return Some(resource.name());
    }
    match &resource.origin {
        Origin::Zone(zone) => Some(zone),
        Origin::Global => resource.label(labels::ZONE),
    }
}

impl super::Rights {
    /// Refuses `user` unless he may do that to the resource `key`, of the zone it is in or would be in.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_resource(&self, user: &User, verb: RoleVerb, key: &ResourceKey) -> Result<(), Denied> {
        self.check_resource_in(&self.index.current(), user, verb, key)
    }

    /// The same as this index shows it.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_resource_in(
        &self,
        index: &Index,
        user: &User,
        verb: RoleVerb,
        key: &ResourceKey,
    ) -> Result<(), Denied> {
        self.of(index, user).check_resource(index, verb, key)
    }
}
