//! Which resources may leave, per direction. Pure: who owns a resource is its origin column.

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::features::{
    ATTRIBUTION, Features, HOSTNAME_GENERATOR_MZ_SELECTOR, ISSUING, OPTIONAL_TOP_LEVEL_TARGET_REF,
    PRODUCER_POLICY_FLOW,
};
use crate::{
    ca, issuing,
    model::{
        Origin, Resource,
        kinds::{
            config,
            destinations::HOSTNAME_GENERATOR,
            identity::MeshIdentity,
            mesh_trust::{self, MeshTrust},
            secret,
        },
        labels,
    },
    policy::{PolicyRole, rules::Policy},
    token,
};

const SYNC_DISABLED: &str = "disabled";
/// Where Kuma's replicas of global keep the authority they know each other by.
const INTER_CP_CA: &str = "inter-cp-ca";

/// The zone at the receiving end.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    /// Its name.
    pub zone: &'a str,
    /// What it can do.
    pub features: &'a Features,
    /// Whether it signs workloads with a key of its own.
    pub issues: bool,
}

/// Which zones global sends a resource to, as far as the resource alone tells. Reading its spec is the
/// expensive part, so it is done once per change and not once per zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// The zone it came from, when it is forwarded.
    owner: Option<Arc<str>>,
    /// The only zone it is meant for.
    only: Option<Arc<str>>,
    /// What a receiver must be able to do.
    needs: Vec<&'static str>,
    /// Which half of a key it is that they get; `None` for what is no such key.
    half: Option<KeyHalf>,
}

/// Why a resource of global is not sent to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotSent<'a> {
    /// Nothing of its kind travels.
    #[error("resources of this kind stay on global")]
    Kind,
    /// It is of a zone, and of a kind that global only keeps.
    #[error("it is from zone {0}, and zones do not get this of each other")]
    OfAnotherZone(&'a str),
    /// Its author keeps it here.
    #[error("its label {label} is {SYNC_DISABLED:?}", label = labels::KDS_SYNC)]
    ByItsAuthor,
    /// A setting or a secret of global.
    #[error("global alone uses it")]
    ForGlobal,
    /// A policy of a zone that is about its own proxies.
    #[error(
        "it is a policy of zone {0} for its own proxies; others get only those that are for a service of that zone and for all \
         who call it"
    )]
    OfItsOwnProxies(&'a str),
    /// The zone made it.
    #[error("it is from this zone itself")]
    OfThisZone,
    /// It selects proxies of one zone.
    #[error("it selects proxies of zone {0} only")]
    ForAnotherZone(&'a str),
    /// An older zone would misunderstand it.
    #[error("the zone does not announce the feature {0:?}: it is older, or of another make")]
    Lacks(&'static str),
    /// The zone gets another half of a key, or none.
    #[error("zones that sign with keys of their own do not get this one, and others not its public half")]
    OtherHalf,
    /// An operator took the zone it is from out of traffic.
    #[error("zone {0}, where it is from, is disabled, or lost and withdrawn")]
    FromDisabledZone(&'a str),
}

/// A half of a key that signs for a whole mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyHalf {
    /// What signs, for zones that have no key of their own.
    Private,
    /// What checks, for zones that have.
    Public,
}

impl Audience {
    /// The audiences of `resource`, one for each form it leaves in. None when it stays on global.
    pub fn of(resource: &Resource) -> Vec<Self> {
        let Ok(whole) = Self::of_whole(resource) else { return Vec::new() };
        if resource.kind() != &secret::SECRET || !issuing::is_by_zone(resource) {
            return vec![whole];
        }
        let half = |half| Self { half: Some(half), ..whole.clone() };
        let signs = (!issuing::is_by_zone_only(resource)).then(|| half(KeyHalf::Private));
        let checks = token::is_dataplane_key(resource.name()).then(|| half(KeyHalf::Public));
        signs.into_iter().chain(checks).collect()
    }

    fn of_whole(resource: &Resource) -> Result<Self, NotSent<'_>> {
        let flow = resource.kind().flow;
        let mut believed_by = None;
        let owner = match &resource.origin {
            Origin::Global if !flow.global_to_zone() => return Err(NotSent::Kind),
            Origin::Global => None,
            Origin::Zone(owner) => {
                if !flow.across_zones() && !flow.across_our_zones() {
                    believed_by = Some(vouching(resource, owner).ok_or(NotSent::OfAnotherZone(owner))?);
                }
                Some(Arc::clone(owner))
            }
        };
        if is_withheld_by_author(resource) {
            return Err(NotSent::ByItsAuthor);
        }
        if !is_for_zones(resource) {
            return Err(NotSent::ForGlobal);
        }
        let mut audience = Self { owner, ..Self::default() };
        audience.needs.extend(resource.kind().known_by);
        audience.needs.extend(believed_by.flatten());
        if resource.label(labels::ISSUER).is_some() {
            audience.needs.push(ISSUING);
        }
        if resource.kind().is_json() && resource.kind().policy.is_some() {
            let spec = match &resource.origin {
                Origin::Global => spec(resource),
                Origin::Zone(owner) if !is_for_callers(resource) => {
                    return Err(NotSent::OfItsOwnProxies(owner));
                }
                Origin::Zone(_) => decoded_spec(resource),
            };
            audience.narrow_to_policy(&spec);
        } else if resource.kind() == &HOSTNAME_GENERATOR
            && !spec(resource).pointer("/selector/meshMultiZoneService").is_none_or(Value::is_null)
        {
            audience.needs.push(HOSTNAME_GENERATOR_MZ_SELECTOR);
        }
        Ok(audience)
    }

    fn narrow_to_policy(&mut self, spec: &Value) {
        let target = spec.get("targetRef").filter(|target| !target.is_null());
        if target.is_none() {
            self.needs.push(OPTIONAL_TOP_LEVEL_TARGET_REF);
        }
        if self.owner.is_none() {
            return;
        }
        self.needs.push(PRODUCER_POLICY_FLOW);
        let subset = target.filter(|target| target["kind"] == "MeshSubset");
        self.only = subset.and_then(|subset| subset["tags"][labels::ZONE].as_str()).map(Into::into);
    }

    /// Whether they get the public half of a key in place of the key.
    pub fn gets_public_half(&self) -> bool {
        self.half == Some(KeyHalf::Public)
    }

    /// Whether `to` is one of them. `is_enabled` says whether a zone's resources may be used by others; a
    /// zone nobody knows counts as enabled.
    pub fn includes(&self, to: Receiver<'_>, is_enabled: impl Fn(&str) -> bool) -> bool {
        self.objection(to, is_enabled).is_none()
    }

    /// Why `to` is none of them; `None` when it is.
    fn objection(&self, to: Receiver<'_>, is_enabled: impl Fn(&str) -> bool) -> Option<NotSent<'_>> {
        if let Some(owner) = &self.owner {
            if **owner == *to.zone {
                return Some(NotSent::OfThisZone);
            }
            if !is_enabled(owner) {
                return Some(NotSent::FromDisabledZone(owner));
            }
        }
        if let Some(only) = self.only.as_ref().filter(|only| ***only != *to.zone) {
            return Some(NotSent::ForAnotherZone(only));
        }
        if self.half.is_some_and(|half| (half == KeyHalf::Public) != to.issues) {
            return Some(NotSent::OtherHalf);
        }
        let lacking = self.needs.iter().find(|feature| !to.features.has(feature));
        lacking.map(|feature| NotSent::Lacks(feature))
    }
}

/// Why global does not send `resource` to `to`, in words for an operator; `None` when it does.
pub fn why_not_sent(
    resource: &Resource,
    to: Receiver<'_>,
    is_enabled: impl Fn(&str) -> bool,
) -> Option<String> {
    if let Err(reason) = Audience::of_whole(resource) {
        return Some(reason.to_string());
    }
    let audiences = Audience::of(resource);
    let objections: Vec<_> = audiences.iter().map(|all| all.objection(to, &is_enabled)).collect();
    if objections.iter().any(Option::is_none) {
        return None;
    }
    // Without any audience it is a key that leaves in no form.
    Some(objections.into_iter().flatten().next().unwrap_or(NotSent::OtherHalf).to_string())
}

/// Whether a policy of a zone speaks to callers in other zones: of those only policies for a service the zone
/// offers are forwarded. That is judged as whoever applies it reads it, and not by what else its author wrote.
fn is_for_callers(resource: &Resource) -> bool {
    let parsed =
        || Policy::parse(Arc::new(resource.clone())).is_ok_and(|policy| policy.speaks_for_services());
    PolicyRole::of(resource) == PolicyRole::Producer && parsed()
}

/// Whether `resource` is what a zone says about who is in a trust domain that is called after the zone: others have to know
/// that to call it. `Some(None)` where nobody else can be meant, for the domain is the one the zone has unless a `MeshIdentity`
/// gives it another; `Some` of a feature where only those may hear of it who look at what a `MeshIdentity` gives it.
fn vouching(resource: &Resource, zone: &str) -> Option<Option<&'static str>> {
    let trust =
        (resource.kind() == &mesh_trust::KIND).then(|| resource.spec::<MeshTrust>().ok()).flatten()?;
    match MeshIdentity::usual_zone(resource.mesh(), &trust.trust_domain) {
        Some(named) if named == zone => Some(None),
        // A zone may be called after the mesh, or by another word of what zones have in common.
        Some(named) if !named.contains('.') => None,
        _ => trust.trust_domain.split('.').any(|label| label == zone).then_some(Some(ATTRIBUTION)),
    }
}

/// Whether zone `zone` sends `resource` to global.
pub fn goes_up(resource: &Resource, zone: &str) -> bool {
    resource.kind().flow.requested_by_global()
        && !is_withheld_by_author(resource)
        && matches!(&resource.origin, Origin::Zone(owner) if **owner == *zone)
}

fn is_withheld_by_author(resource: &Resource) -> bool {
    resource.label(labels::KDS_SYNC) == Some(SYNC_DISABLED)
}

/// Settings and secrets of the control plane itself stay on global.
fn is_for_zones(resource: &Resource) -> bool {
    match resource.kind() {
        kind if kind == &config::KIND => resource.name() == config::CLUSTER_ID,
        kind if kind == &secret::GLOBAL_SECRET => {
            let name = resource.name();
            ![ca::ADMIN_SECRET, INTER_CP_CA].contains(&name)
                && !token::is_of_users(name)
                && ![issuing::KEY_SECRET, token::ZONE_CERTIFICATE_REVOCATIONS].contains(&name)
                && issuing::requesting_zone(name).is_none()
        }
        _ => true,
    }
}

/// The JSON spec without what nobody reads; null when it does not decode.
fn decoded_spec(resource: &Resource) -> Value {
    let read = resource.kind().normalize(&resource.spec).ok();
    read.and_then(|read| serde_json::from_slice(&read).ok()).unwrap_or_default()
}

/// The JSON spec; null when it does not decode.
fn spec(resource: &Resource) -> Value {
    serde_json::from_slice(&resource.spec).unwrap_or_default()
}

#[cfg(test)]
mod tests;
