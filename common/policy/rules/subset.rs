//! Groups of proxies by their tags.

use std::collections::{BTreeMap, HashMap};

use crate::{
    model::labels,
    policy::{TargetKind, TargetRef},
};

/// The tags of one proxy.
pub type Element = BTreeMap<String, String>;

/// A condition on one tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Tag name.
    pub key: String,
    /// Tag value.
    pub value: String,
    /// Whether the tag must *not* have the value.
    pub not: bool,
}

impl Tag {
    /// The tag must have this value.
    pub fn is(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), not: false }
    }

    /// The tag must not have this value.
    pub fn is_not(key: &str, value: &str) -> Self {
        Self { not: true, ..Self::is(key, value) }
    }

    /// Whether everything that meets `other` meets this.
    fn covers(&self, other: &Self) -> bool {
        self.key == other.key
            && match (self.not, other.not) {
                (false, true) => false,
                (true, false) => self.value != other.value,
                _ => self.value == other.value,
            }
    }
}

/// All proxies that meet every condition. No condition means all proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subset(pub Vec<Tag>);

/// To what the members of a group are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confined<'a> {
    /// Nothing: everybody is a member.
    Nothing,
    /// A service: all of it are members, and nobody else.
    Service(&'a str),
    /// Something else.
    Otherwise,
}

impl Subset {
    /// The group a reference stands for, `None` when its kind cannot be told by tags.
    pub fn of(target: &TargetRef) -> Option<Self> {
        let service = || Tag::is(labels::TAG_SERVICE, target.name());
        let tags = target.tags().map(|(k, v)| Tag::is(k, v));
        match target.kind {
            TargetKind::Mesh => Some(Self::default()),
            TargetKind::MeshSubset => Some(Self(tags.collect())),
            TargetKind::MeshService => Some(Self(vec![service()])),
            TargetKind::MeshServiceSubset => Some(Self(std::iter::once(service()).chain(tags).collect())),
            _ => None,
        }
    }

    /// The service all members belong to, when they belong to one. (With two no proxy is a member.)
    pub fn service(&self) -> Option<&str> {
        let confines = |tag: &&Tag| !tag.not && tag.key == labels::TAG_SERVICE;
        self.0.iter().find(confines).map(|tag| tag.value.as_str())
    }

    /// What of a service is in the group.
    pub(super) fn confined(&self) -> Confined<'_> {
        match self.0.as_slice() {
            [] => Confined::Nothing,
            [tag] if !tag.not && tag.key == labels::TAG_SERVICE => Confined::Service(&tag.value),
            _ => Confined::Otherwise,
        }
    }

    /// How many tags must have a value.
    pub fn positives(&self) -> usize {
        self.0.iter().filter(|t| !t.not).count()
    }

    /// Whether every member of `other` is a member of this group.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().all(|tag| {
            let mut same_key = other.0.iter().filter(|t| t.key == tag.key).peekable();
            same_key.peek().is_some() && same_key.all(|t| tag.covers(t))
        })
    }

    /// Whether a proxy may be a member of both groups, which have no negations.
    pub fn intersects(&self, other: &Self) -> bool {
        self.0.iter().all(|tag| other.0.iter().all(|t| t.key != tag.key || t.value == tag.value))
    }

    /// Whether the group, which has no negations, asks for one value per tag.
    pub(super) fn is_possible(&self) -> bool {
        let mut values = HashMap::new();
        self.0.iter().all(|tag| *values.entry(&*tag.key).or_insert(&*tag.value) == tag.value)
    }

    /// Whether a proxy may be a member of both groups, negations included.
    pub fn overlaps(&self, other: &Self) -> bool {
        let compatible = |a: &Tag, b: &Tag| match (a.not, b.not) {
            (true, true) => true,
            (false, false) => a.value == b.value,
            _ => a.value != b.value,
        };
        self.0.iter().all(|a| other.0.iter().all(|b| a.key != b.key || compatible(a, b)))
    }

    /// Whether a proxy with these tags is a member. A missing tag meets only a negation. A proxy of which
    /// nothing is known is a member of the group of all proxies only.
    pub fn contains(&self, element: &Element) -> bool {
        if self.0.is_empty() {
            return true;
        }
        !element.is_empty()
            && self.0.iter().all(|tag| match element.get(&tag.key) {
                Some(value) => (*value == tag.value) != tag.not,
                None => tag.not,
            })
    }
}
