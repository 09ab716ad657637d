//! Which resources may leave, per direction. Pure: who owns a resource is its origin column.

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::{
    features::{
        Features, HOSTNAME_GENERATOR_MZ_SELECTOR, ISSUING, OPTIONAL_TOP_LEVEL_TARGET_REF,
        PRODUCER_POLICY_FLOW,
    },
    role,
};
use crate::{
    ca, issuing,
    model::{
        Origin, Resource,
        kinds::{
            config,
            destinations::HOSTNAME_GENERATOR,
            mesh_trust::{self, MeshTrust},
            secret,
        },
        labels,
    },
    policy::PolicyRole,
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
        "it is a policy of zone {0} for its own proxies; others get only those for a service of that zone"
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
        let owner = match &resource.origin {
            Origin::Global if !flow.global_to_zone() => return Err(NotSent::Kind),
            Origin::Global => None,
            Origin::Zone(owner)
                if !flow.across_zones()
                    && !flow.across_our_zones()
                    && !vouches_for_itself(resource, owner) =>
            {
                return Err(NotSent::OfAnotherZone(owner));
            }
            Origin::Zone(owner) => Some(Arc::clone(owner)),
        };
        if is_withheld_by_author(resource) {
            return Err(NotSent::ByItsAuthor);
        }
        if !is_for_zones(resource) {
            return Err(NotSent::ForGlobal);
        }
        let mut audience = Self { owner, ..Self::default() };
        audience.needs.extend(resource.kind().known_by);
        if resource.label(labels::ISSUER).is_some() {
            audience.needs.push(ISSUING);
        }
        if resource.kind().is_json() && resource.kind().policy.is_some() {
            let spec = spec(resource);
            if let Origin::Zone(owner) = &resource.origin
                && !is_for_callers(resource, &spec)
            {
                return Err(NotSent::OfItsOwnProxies(owner));
            }
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
/// offers are forwarded.
fn is_for_callers(resource: &Resource, spec: &Value) -> bool {
    let role = role::of(spec, resource.label(labels::NAMESPACE), labels::SYSTEM_NAMESPACE);
    PolicyRole::of(resource) == PolicyRole::Producer && role == Some(PolicyRole::Producer)
}

/// Whether `resource` is what a zone says about who is in a trust domain that is called after the zone. Others have to
/// know that to call it, and nobody else can be meant.
fn vouches_for_itself(resource: &Resource, zone: &str) -> bool {
    let trust = (resource.kind() == &mesh_trust::KIND).then(|| resource.spec::<MeshTrust>().ok()).flatten();
    trust.is_some_and(|trust| trust.trust_domain.split('.').any(|label| label == zone))
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

/// The JSON spec; null when it does not decode.
fn spec(resource: &Resource) -> Value {
    serde_json::from_slice(&resource.spec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::{
        model::{Kind, ResourceKey, kinds},
        policy::{mesh_http_route, mesh_timeout},
    };

    fn resource(kind: &'static Kind, name: &str, origin: Origin) -> Resource {
        let mut r = Resource::new(ResourceKey::new(kind, "default", name), DateTime::UNIX_EPOCH);
        r.origin = origin;
        r
    }

    fn zone(name: &str) -> Origin {
        Origin::Zone(name.into())
    }

    fn down(resource: &Resource, features: &Features) -> bool {
        let receiver = Receiver { zone: "zone-1", features, issues: false };
        Audience::of(resource).iter().any(|all| all.includes(receiver, |zone| zone != "switched-off"))
    }

    #[test]
    fn what_does_not_go_down_has_a_reason_and_nothing_else_has() {
        let ours = Features::ours();
        let of_kuma = Features::default();
        let policy = |origin| {
            let spec = br#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"}}]}"#;
            resource(&mesh_timeout::KIND, "t", origin).with_spec(&spec[..])
        };
        let ingress = |owner| resource(&kinds::zone_ingress::KIND, "in", zone(owner));
        let insight = |owner| resource(&kinds::zone_ingress_insight::KIND, "in", zone(owner));
        for (resource, features, expected) in [
            (policy(Origin::Global), &ours, None),
            (resource(&kinds::zone::KIND, "zone-1", Origin::Global), &ours, Some("stay on global")),
            (
                policy(Origin::Global).with_label(labels::KDS_SYNC, "disabled"),
                &ours,
                Some("kuma.io/kds-sync"),
            ),
            (resource(&kinds::dataplane::KIND, "d", zone("zone-2")), &ours, Some("is from zone zone-2, and")),
            (policy(zone("zone-2")), &ours, Some("for its own proxies")),
            (ingress("zone-2"), &ours, None),
            (ingress("zone-1"), &ours, Some("from this zone itself")),
            (ingress("switched-off"), &ours, Some("switched-off, where it is from, is disabled")),
            (insight("zone-2"), &ours, None),
            (insight("zone-2"), &of_kuma, Some("does not announce the feature \"strait-ingress-insights\"")),
            (insight("zone-1"), &ours, Some("from this zone itself")),
            (insight("switched-off"), &ours, Some("switched-off, where it is from, is disabled")),
            (
                resource(&mesh_timeout::KIND, "t", Origin::Global).with_spec(&b"{}"[..]),
                &of_kuma,
                Some("does not announce"),
            ),
        ] {
            let receiver = Receiver { zone: "zone-1", features, issues: false };
            let told = why_not_sent(&resource, receiver, |zone| zone != "switched-off");
            assert_eq!(told.is_none(), down(&resource, features), "{told:?}");
            match (expected, &told) {
                (None, None) => {}
                (Some(expected), Some(told)) => assert!(told.contains(expected), "{told}"),
                _ => panic!("{}: {told:?}, expected {expected:?}", resource.key),
            }
        }
    }

    #[test]
    fn what_goes_down() {
        let ours = Features::ours();
        let check = |r: Resource, expected: bool| assert_eq!(down(&r, &ours), expected, "{}", r.key);
        let global = |kind, name| resource(kind, name, Origin::Global);
        check(global(&kinds::mesh::KIND, "default"), true);
        check(global(&mesh_timeout::KIND, "t"), true);
        check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "disabled"), false);
        check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "enabled"), true);
        check(global(&kinds::config::KIND, config::CLUSTER_ID), true);
        check(global(&kinds::config::KIND, "other"), false);
        check(global(&kinds::secret::GLOBAL_SECRET, ca::ADMIN_SECRET), false);
        check(global(&kinds::secret::GLOBAL_SECRET, "user-token-signing-key-1"), false);
        check(global(&kinds::secret::GLOBAL_SECRET, "zone-token-signing-key-1"), true);
        check(global(&kinds::secret::SECRET, "ca"), true);
        check(global(&kinds::zone::KIND, "zone-1"), false);
        check(global(&kinds::zone_insight::KIND, "zone-1"), false);
    }

    #[test]
    fn keys_of_a_mesh_whose_zones_have_their_own() {
        let features = Features::ours();
        // Whether it goes, and as public half, to those who have a key of their own and to those who have none.
        let forms = |name: &str, by: &str| {
            let secret =
                resource(&kinds::secret::SECRET, name, Origin::Global).with_label(labels::ISSUING, by);
            [true, false].map(|issues| {
                let to = Receiver { zone: "zone-1", features: &features, issues };
                let all = Audience::of(&secret).into_iter().filter(|a| a.includes(to, |_| true));
                all.map(|audience| audience.gets_public_half()).collect::<Vec<_>>()
            })
        };
        let (key, root) = ("dataplane-token-signing-key-default-1", "default.ca-builtin-key-ca");
        assert_eq!(forms(key, "zone"), [vec![true], vec![false]]);
        assert_eq!(forms(root, "zone"), [vec![], vec![false]]);
        assert_eq!(forms(key, "mesh"), [vec![false], vec![false]]);
        assert_eq!(forms(root, "mesh"), [vec![false], vec![false]]);
        assert_eq!(forms(key, "zone-only"), [vec![true], vec![]]);
        assert!(forms(root, "zone-only").iter().all(Vec::is_empty));
    }

    #[test]
    fn what_crosses_zones() {
        let ours = Features::ours();
        let check = |r: Resource, expected: bool| assert_eq!(down(&r, &ours), expected, "{}", r.key);
        let ingress = |owner| resource(&kinds::zone_ingress::KIND, "i", zone(owner));
        check(ingress("zone-2"), true);
        check(ingress("zone-1"), false);
        check(ingress("switched-off"), false);
        check(resource(&kinds::dataplane::KIND, "d", zone("zone-2")), false);
        check(resource(&kinds::zone_egress::KIND, "e", zone("zone-2")), false);
        check(resource(&mesh_timeout::KIND, "t", zone("zone-2")), false);
    }

    #[test]
    fn producer_policies_cross_zones() {
        let produced = |spec: &str| {
            resource(&mesh_http_route::KIND, "r", zone("zone-2"))
                .with_label(labels::POLICY_ROLE, "producer")
                .with_label(labels::NAMESPACE, "demo")
                .with_spec(spec.as_bytes().to_vec())
        };
        let own = r#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"MeshService","name":"a"}}]}"#;
        let foreign = r#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"}}]}"#;
        let pinned = |to: &str| {
            format!(
                r#"{{"targetRef":{{"kind":"MeshSubset","tags":{{"kuma.io/zone":"{to}"}}}},
                     "to":[{{"targetRef":{{"kind":"MeshService","name":"a"}}}}]}}"#
            )
        };
        let ours = Features::ours();
        assert!(down(&produced(own), &ours));
        assert!(!down(&produced(own), &ours.clone().without(PRODUCER_POLICY_FLOW)));
        assert!(!down(&produced(foreign), &ours));
        assert!(down(&produced(&pinned("zone-1")), &ours));
        assert!(!down(&produced(&pinned("zone-3")), &ours));
        let unlabelled = Resource { labels: Default::default(), ..produced(own) };
        assert!(!down(&unlabelled, &ours));
    }

    #[test]
    fn older_peers_are_spared_what_they_cannot_read() {
        let old =
            Features::ours().without(OPTIONAL_TOP_LEVEL_TARGET_REF).without(HOSTNAME_GENERATOR_MZ_SELECTOR);
        let bare = resource(&mesh_timeout::KIND, "t", Origin::Global);
        assert!(!down(&bare, &old));
        assert!(down(&bare.with_spec(&br#"{"targetRef":{"kind":"Mesh"}}"#[..]), &old));
        let generator = resource(&kinds::destinations::HOSTNAME_GENERATOR, "g", Origin::Global);
        let multi_zone = generator.clone().with_spec(&br#"{"selector":{"meshMultiZoneService":{}}}"#[..]);
        assert!(down(&generator, &old));
        assert!(!down(&multi_zone, &old));
        assert!(down(&multi_zone, &Features::ours()));
    }

    #[test]
    fn what_goes_up() {
        let check = |r: Resource, expected: bool| assert_eq!(goes_up(&r, "zone-1"), expected, "{}", r.key);
        check(resource(&kinds::dataplane::KIND, "d", zone("zone-1")), true);
        check(resource(&kinds::dataplane::KIND, "d", Origin::Global), false);
        check(resource(&kinds::zone_ingress::KIND, "i", Origin::Global), false);
        check(resource(&mesh_timeout::KIND, "t", zone("zone-1")), true);
        check(resource(&mesh_timeout::KIND, "t", Origin::Global), false);
        let withheld =
            resource(&mesh_timeout::KIND, "t", zone("zone-1")).with_label(labels::KDS_SYNC, "disabled");
        check(withheld, false);
        check(resource(&kinds::secret::SECRET, "s", zone("zone-1")), false);
        check(resource(&kinds::zone::KIND, "zone-1", zone("zone-1")), false);
    }
}
