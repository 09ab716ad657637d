//! Which resources may leave, per direction. Pure: who owns a resource is its origin column.

use serde_json::Value;

use super::{
    features::{
        Features, HOSTNAME_GENERATOR_MZ_SELECTOR, OPTIONAL_TOP_LEVEL_TARGET_REF, PRODUCER_POLICY_FLOW,
    },
    role::{self, Role},
};
use crate::model::{Origin, Resource, labels};

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
}

/// Whether global sends `resource` to any zone at all.
pub fn may_go_down(resource: &Resource) -> bool {
    let flow = resource.kind().flow;
    let travels = match resource.origin {
        Origin::Global => flow.global_to_zone(),
        Origin::Zone(_) => flow.across_zones(),
    };
    travels && !is_withheld_by_author(resource) && is_for_zones(resource)
}

/// Whether global sends `resource` to `to`. `is_enabled` says whether a zone's resources may be used by
/// others; a zone nobody knows counts as enabled.
pub fn goes_down(resource: &Resource, to: Receiver<'_>, is_enabled: impl Fn(&str) -> bool) -> bool {
    if !may_go_down(resource) || !passes_features(resource, to.features) {
        return false;
    }
    match &resource.origin {
        Origin::Global => true,
        Origin::Zone(owner) => {
            **owner != *to.zone
                && is_enabled(owner)
                && (!is_plugin_policy(resource) || is_produced_for(resource, to))
        }
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
            !GLOBAL_ONLY_SECRETS.contains(&name) && !name.starts_with(USER_SIGNING_KEY)
        }
        _ => true,
    }
}

fn is_plugin_policy(resource: &Resource) -> bool {
    resource.kind().is_json() && resource.kind().policy.is_some()
}

fn passes_features(resource: &Resource, features: &Features) -> bool {
    if is_plugin_policy(resource) && !features.has(OPTIONAL_TOP_LEVEL_TARGET_REF) {
        return member(resource, "/targetRef").is_some_and(|target| !target.is_null());
    }
    if resource.kind().name == "HostnameGenerator" && !features.has(HOSTNAME_GENERATOR_MZ_SELECTOR) {
        return member(resource, "/selector/meshMultiZoneService").is_none_or(|selector| selector.is_null());
    }
    true
}

/// Policies of other zones are forwarded only when they speak for a service their zone offers.
fn is_produced_for(resource: &Resource, to: Receiver<'_>) -> bool {
    if !to.features.has(PRODUCER_POLICY_FLOW) || resource.label(labels::POLICY_ROLE) != Some(role::PRODUCER) {
        return false;
    }
    let Ok(spec) = serde_json::from_slice::<Value>(&resource.spec) else { return false };
    if role::of(&spec, resource.label(labels::NAMESPACE), SYSTEM_NAMESPACE) != Some(Role::Producer) {
        return false;
    }
    let target = spec.get("targetRef");
    let is_subset = target.and_then(|t| t.get("kind")).and_then(Value::as_str) == Some("MeshSubset");
    let zone = target.and_then(|t| t.get("tags")).and_then(|t| t.get(labels::ZONE)).and_then(Value::as_str);
    !is_subset || zone.is_none_or(|zone| zone == to.zone)
}

fn member(resource: &Resource, pointer: &str) -> Option<Value> {
    let mut spec: Value = serde_json::from_slice(&resource.spec).ok()?;
    spec.pointer_mut(pointer).map(Value::take)
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
        goes_down(resource, Receiver { zone: "zone-1", features }, |zone| zone != "switched-off")
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
