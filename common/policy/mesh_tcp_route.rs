//! `MeshTCPRoute`: where TCP connections go.

use serde::{Deserialize, Serialize};

use super::{Allowed, BackendRef, TargetKind, TargetKind::*, TargetRef, check::DEFINED, decode};
use crate::model::{FieldPath, ItemForm, Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTCPRoute", "meshtcproutes")
    .flow(61)
    .named("meshtcproute", "mtcpr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .items(ItemForm::OneRule)
    .typed::<MeshTcpRoute>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTcpRoute {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<TcpRouteTo>,
}

/// Rules for one destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpRouteTo {
    /// The destination.
    pub target_ref: TargetRef,
    /// At most one.
    #[serde(default, deserialize_with = "decode::list")]
    pub rules: Vec<TcpRouteRule>,
}

/// The one rule, which is also the merged configuration of a destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpRouteRule {
    /// What it does.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: TcpRouteRuleConf,
}

/// What happens to a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpRouteRuleConf {
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_refs: Option<Vec<BackendRef>>,
}

impl Spec for MeshTcpRoute {
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
            violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
        }
        let gateway = self.target_ref.as_ref().is_some_and(|t| t.kind == MeshGateway);
        let kinds = if gateway { &[Mesh][..] } else { TO };
        for (i, to) in self.to.iter().enumerate() {
            let at = path.field("to").index(i);
            violations.extend(Allowed::kinds(kinds).check(&at.field("targetRef"), &to.target_ref));
            let many = to.rules.len() > 1;
            violations.check(many, at.field("rules"), "in body should have at most 1 items");
            for (j, rule) in to.rules.iter().enumerate() {
                let at = at.field("rules").index(j).field("default").field("backendRefs");
                let refs = rule.default.backend_refs.as_deref().unwrap_or_default();
                violations.check(refs.is_empty(), at.clone(), DEFINED);
                violations.extend(check_backend_refs(&at, refs));
            }
        }
        violations
    }
}

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshService, MeshServiceSubset, MeshGateway, Dataplane];
const TO: &[TargetKind] = &[MeshService, MeshExternalService, MeshMultiZoneService];
const BACKENDS: &[TargetKind] = &[MeshService, MeshServiceSubset, MeshExternalService, MeshMultiZoneService];

/// What is wrong with the destinations of a route.
pub(super) fn check_backend_refs(path: &FieldPath, refs: &[BackendRef]) -> Violations {
    let mut violations = Violations::none();
    for (i, backend) in refs.iter().enumerate() {
        let at = path.index(i);
        violations.extend(Allowed::kinds(BACKENDS).check(&at, &backend.target()));
        if backend.kind == MeshMultiZoneService {
            let reason = "must be defined with kind MeshMultiZoneService";
            violations.check(backend.port.is_none(), at.field("port"), reason);
        }
        let out_of_range = backend.port.is_some_and(|p| p == 0 || p > 65535);
        violations.check(out_of_range, at.field("port"), "port must be in the range [1, 65535]");
    }
    violations
}
