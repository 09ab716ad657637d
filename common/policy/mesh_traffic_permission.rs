//! `MeshTrafficPermission`: who may talk to whom.

use serde::{Deserialize, Serialize};

use super::{Allowed, PeerItem, PeerMatch, TargetKind, TargetKind::*, TargetRef, check::DEFINED, decode};
use crate::model::{FieldPath, Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTrafficPermission", "meshtrafficpermissions")
    .flow(61)
    .named("meshtrafficpermission", "mtp")
    .policy(PolicyTraits { target_ref: true, to: false, from: true, rules: true, from_as_rules: false })
    .typed::<MeshTrafficPermission>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTrafficPermission {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Clients by tags.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<TrafficPermissionConf>>,
    /// Clients by identity.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<TrafficPermissionRule>,
}

/// What happens to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// May connect.
    Allow,
    /// May not connect.
    Deny,
    /// May connect; that it would be denied is recorded.
    AllowWithShadowDeny,
}

/// The configuration of a `from` item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficPermissionConf {
    /// What happens to these clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
}

/// An entry of `rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficPermissionRule {
    /// The clients.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: TrafficPermissionRuleConf,
}

/// Clients by identity. A denied client is denied whatever allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPermissionRuleConf {
    /// May not connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<PeerMatch>>,
    /// May connect; that it would be denied is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_with_shadow_deny: Option<Vec<PeerMatch>>,
    /// May connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<PeerMatch>>,
}

impl Spec for MeshTrafficPermission {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let path = FieldPath::new("spec");
        let mut violations = Violations::none();
        if let Some(target) = &self.target_ref {
            let inbound = !self.from.is_empty() || !self.rules.is_empty();
            violations.extend(Allowed::top(TOP, inbound).check(&path.field("targetRef"), target));
        }
        if !self.from.is_empty() && !self.rules.is_empty() {
            violations.add(path.clone(), "field 'from' must be empty when 'rules' is defined");
        }
        if self.from.is_empty() && self.rules.is_empty() {
            violations.add(path.clone(), "at least one of 'from' or 'rules' has to be defined");
        }
        for (i, rule) in self.rules.iter().enumerate() {
            violations.extend(check_rule(&path.field("rules").index(i), &rule.default));
        }
        for (i, item) in self.from.iter().enumerate() {
            let at = path.field("from").index(i);
            violations.extend(Allowed::kinds(FROM).check(&at.field("targetRef"), &item.target_ref));
            let action = at.field("default").field("action");
            violations.check(item.default.action.is_none(), action, DEFINED);
        }
        violations
    }
}

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshService, MeshServiceSubset, Dataplane];
const FROM: &[TargetKind] = &[Mesh, MeshSubset, MeshService, MeshServiceSubset];

/// Lists are named as if they stood in the rule itself, where clients of the API look for what is wrong.
fn check_rule(path: &FieldPath, conf: &TrafficPermissionRuleConf) -> Violations {
    let mut violations = Violations::none();
    let lists =
        [("allow", &conf.allow), ("allowWithShadowDeny", &conf.allow_with_shadow_deny), ("deny", &conf.deny)];
    if lists.iter().all(|(_, list)| list.as_ref().is_none_or(Vec::is_empty)) {
        let reason = "at least one of 'allow', 'allowWithShadowDeny', 'deny' has to be defined";
        violations.add(path.clone(), reason);
    }
    for (name, list) in lists {
        for (i, peer) in list.iter().flatten().enumerate() {
            violations.extend(peer.check(&path.field(name).index(i)));
        }
    }
    violations
}
