//! Which resources may leave, per direction. Pure: who owns a resource is its origin column.

use std::sync::Arc;

use serde_json::Value;

use super::{
    features::{
        Features, HOSTNAME_GENERATOR_MZ_SELECTOR, ISSUING, OPTIONAL_TOP_LEVEL_TARGET_REF,
        PRODUCER_POLICY_FLOW,
    },
    role::{self, Role},
};
use crate::{
    issuing,
    model::{Origin, Resource, labels},
    token,
};

/// Name of the one `Config` that zones need.
pub const CLUSTER_ID: &str = "kuma-cluster-id";
const SYSTEM_NAMESPACE: &str = "kuma-system";
const SYNC_DISABLED: &str = "disabled";
/// Secrets of global's own administration.
const GLOBAL_ONLY_SECRETS: [&str; 4] =
    ["envoy-admin-ca", "admin-user-token", "inter-cp-ca", "user-token-revocations"];
const USER_SIGNING_KEY: &str = "user-token-signing-key";

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
    half: Option<Half>,
}

/// A half of a key that signs for a whole mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// What signs, for zones that have no key of their own.
    Private,
    /// What checks, for zones that have.
    Public,
}

impl Audience {
    /// The audiences of `resource`, one for each form it leaves in. None when it stays on global.
    pub fn of(resource: &Resource) -> Vec<Self> {
        let Some(whole) = Self::of_whole(resource) else { return Vec::new() };
        if resource.kind().name != "Secret" || !issuing::is_by_zone(resource) {
            return vec![whole];
        }
        let half = |half| Self { half: Some(half), ..whole.clone() };
        match token::is_dataplane_key(resource.name()) {
            true => vec![half(Half::Private), half(Half::Public)],
            false => vec![half(Half::Private)],
        }
    }

    fn of_whole(resource: &Resource) -> Option<Self> {
        let flow = resource.kind().flow;
        let (travels, owner) = match &resource.origin {
            Origin::Global => (flow.global_to_zone(), None),
            Origin::Zone(owner) => (flow.across_zones(), Some(Arc::clone(owner))),
        };
        if !travels || is_withheld_by_author(resource) || !is_for_zones(resource) {
            return None;
        }
        let mut audience = Self { owner, ..Self::default() };
        if resource.label(labels::ISSUER).is_some() {
            audience.needs.push(ISSUING);
        }
        if resource.kind().is_json() && resource.kind().policy.is_some() {
            audience.narrow_to_policy(resource)?;
        } else if resource.kind().name == "HostnameGenerator"
            && !spec(resource).pointer("/selector/meshMultiZoneService").is_none_or(Value::is_null)
        {
            audience.needs.push(HOSTNAME_GENERATOR_MZ_SELECTOR);
        }
        Some(audience)
    }

    /// Policies of other zones are forwarded only when they speak for a service their zone offers.
    fn narrow_to_policy(&mut self, resource: &Resource) -> Option<()> {
        let spec = spec(resource);
        let target = spec.get("targetRef").filter(|target| !target.is_null());
        if target.is_none() {
            self.needs.push(OPTIONAL_TOP_LEVEL_TARGET_REF);
        }
        if self.owner.is_none() {
            return Some(());
        }
        self.needs.push(PRODUCER_POLICY_FLOW);
        let role = role::of(&spec, resource.label(labels::NAMESPACE), SYSTEM_NAMESPACE);
        if resource.label(labels::POLICY_ROLE) != Some(role::PRODUCER) || role != Some(Role::Producer) {
            return None;
        }
        let subset = target.filter(|target| target["kind"] == "MeshSubset");
        self.only = subset.and_then(|subset| subset["tags"][labels::ZONE].as_str()).map(Into::into);
        Some(())
    }

    /// Whether they get the public half of a key in place of the key.
    pub fn gets_public_half(&self) -> bool {
        self.half == Some(Half::Public)
    }

    /// Whether `to` is one of them. `is_enabled` says whether a zone's resources may be used by others; a
    /// zone nobody knows counts as enabled.
    pub fn includes(&self, to: Receiver<'_>, is_enabled: impl Fn(&str) -> bool) -> bool {
        self.needs.iter().all(|feature| to.features.has(feature))
            && self.half.is_none_or(|half| (half == Half::Public) == to.issues)
            && self.only.as_ref().is_none_or(|only| **only == *to.zone)
            && self.owner.as_ref().is_none_or(|owner| **owner != *to.zone && is_enabled(owner))
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
    match resource.kind().name {
        "Config" => resource.name() == CLUSTER_ID,
        "GlobalSecret" => {
            let name = resource.name();
            !GLOBAL_ONLY_SECRETS.contains(&name)
                && !name.starts_with(USER_SIGNING_KEY)
                && name != issuing::KEY_SECRET
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
    fn what_goes_down() {
        let ours = Features::ours();
        let check = |r: Resource, expected: bool| assert_eq!(down(&r, &ours), expected, "{}", r.key);
        let global = |kind, name| resource(kind, name, Origin::Global);
        check(global(&kinds::mesh::KIND, "default"), true);
        check(global(&mesh_timeout::KIND, "t"), true);
        check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "disabled"), false);
        check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "enabled"), true);
        check(global(&kinds::config::KIND, CLUSTER_ID), true);
        check(global(&kinds::config::KIND, "other"), false);
        check(global(&kinds::secret::GLOBAL_SECRET, "envoy-admin-ca"), false);
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
