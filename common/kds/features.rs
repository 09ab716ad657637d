//! What a peer can do, by the names it announces in headers and in its node metadata.

use std::{collections::BTreeSet, sync::Arc};

use crate::model::kinds::{access_role, zone_ingress_insight};

/// The zone pings, so that silence means something.
pub const ZONE_PING_HEALTH: &str = "zone-ping-health";
/// Names are hashed rather than prefixed with the zone.
pub const HASH_SUFFIX: &str = "hash-suffix";
/// The zone validates zone tokens.
pub const ZONE_TOKEN: &str = "zone-token";
/// Understands host name generators for multi-zone services.
pub const HOSTNAME_GENERATOR_MZ_SELECTOR: &str = "hg-mz-selector";
/// Understands policies of other zones.
pub const PRODUCER_POLICY_FLOW: &str = "producer-policy-flow";
/// Understands policies without a top-level target.
pub const OPTIONAL_TOP_LEVEL_TARGET_REF: &str = "optional-top-level-target-ref";
/// Resumes: `initial_resource_versions` says what the receiver holds, versions are hashes of content, the
/// first response is a difference like any other, and deletes are always named. Not spoken by Kuma.
pub const RESUME: &str = "strait-resume";
/// Who resumes may begin with a digest of what it holds of each type, and lists it page by page where it is asked to. Not
/// spoken by Kuma.
pub const DIGESTS: &str = "strait-digests";
/// The kinds that Kuma does not know, each by what says that it is known.
pub const INGRESS_INSIGHTS: &str = zone_ingress_insight::KNOWN_BY;
/// See [`INGRESS_INSIGHTS`].
pub const ROLES: &str = access_role::KNOWN_BY;
/// The zone names itself in everything it sends, so an item that names another zone is refused rather than
/// rewritten. Not spoken by Kuma.
pub const ATTRIBUTION: &str = "strait-attribution";

/// The zone has an issuing key of its own, and sends its certificate request along. Not spoken by Kuma.
pub const ISSUING: &str = "strait-issuing";

/// What every peer announces in its node metadata.
const NODE: [&str; 12] = [
    ZONE_TOKEN,
    ZONE_PING_HEALTH,
    HASH_SUFFIX,
    HOSTNAME_GENERATOR_MZ_SELECTOR,
    PRODUCER_POLICY_FLOW,
    OPTIONAL_TOP_LEVEL_TARGET_REF,
    RESUME,
    DIGESTS,
    INGRESS_INSIGHTS,
    ROLES,
    ATTRIBUTION,
    ISSUING,
];

/// What global announces with where it stands.
pub const OF_GLOBAL: [&str; 4] = [RESUME, DIGESTS, INGRESS_INSIGHTS, ROLES];

/// Features of a peer that are kept, and bytes of the name of one; what is longer is none we know.
const KEPT: usize = 64;
const LONGEST: usize = 64;

/// A set of feature names. What a peer announces is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(BTreeSet<Arc<str>>);

impl Features {
    /// Everything this implementation can do.
    pub fn ours() -> Self {
        NODE.into_iter().collect()
    }

    /// Whether `name` was announced.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Adds the names of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Adds one name.
    pub fn insert(&mut self, name: &str) {
        self.0.insert(name.into());
    }

    /// The same without `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// All names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }
}

impl<'a> FromIterator<&'a str> for Features {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self(names.into_iter().filter(|name| name.len() <= LONGEST).take(KEPT).map(Into::into).collect())
    }
}
