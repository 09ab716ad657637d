//! Meshes: proxies that are not well, and policies that lock everybody out.

use serde_json::Value;

use super::CheckLine;
use crate::ages;

const ABOUT: &str = "meshes";

/// What `GET /meshes` lists, with what `GET /mesh-insights` says of each.
pub fn of(meshes: &[Value], insights: &[Value]) -> Vec<CheckLine> {
    if meshes.is_empty() {
        return vec![
            CheckLine::warning(ABOUT, "there is no mesh").but("apply one: `type: Mesh`, and a name for it"),
        ];
    }
    let insight = |name: &Value| insights.iter().find(|insight| insight["name"] == *name);
    let none = Value::Null;
    meshes.iter().flat_map(|mesh| of_one(mesh, insight(&mesh["name"]).unwrap_or(&none))).collect()
}

fn of_one(mesh: &Value, insight: &Value) -> Vec<CheckLine> {
    let name = ages::text(&mesh["name"]);
    let count = |what: &str| insight["dataplanes"][what].as_u64().unwrap_or_default();
    let (total, online) = (count("total"), count("online"));
    let mut findings = Vec::new();
    let has_mtls = mesh["mtls"]["enabledBackend"].as_str().is_some_and(|backend| !backend.is_empty());
    if has_mtls && total > 0 && !has_permissions(insight) {
        findings.push(
            CheckLine::failure(ABOUT, format!("{name}: mTLS is on and nobody is allowed to call anybody"))
                .but("apply a MeshTrafficPermission; examples/allow-all.yaml is one that allows everything"),
        );
    }
    for (what, word) in [("offline", "offline"), ("partiallyDegraded", "degraded in part")] {
        if count(what) > 0 {
            findings.push(
                CheckLine::warning(
                    ABOUT,
                    format!("{name}: {} of {total} dataplanes are {word}", count(what)),
                )
                .but(format!("`straitctl inspect dataplanes --mesh {name}` names them")),
            );
        }
    }
    if findings.is_empty() {
        findings.push(CheckLine::ok(ABOUT, format!("{name}: {online} of {total} dataplanes are online")));
    }
    findings
}

fn has_permissions(insight: &Value) -> bool {
    let total = |kind: &str| insight["policies"][kind]["total"].as_u64().unwrap_or_default();
    total("MeshTrafficPermission") + total("TrafficPermission") > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::CheckVerdict;

    #[test]
    fn a_mesh_that_lets_nobody_through_is_a_failure() {
        let mesh = json!({"name": "default", "mtls": {"enabledBackend": "ca-1"}});
        let insight = |permissions: u32| {
            json!({"dataplanes": {"total": 2, "online": 2},
                   "policies": {"MeshTrafficPermission": {"total": permissions}}})
        };
        let verdict = |mesh: &Value, insight: &Value| of_one(mesh, insight)[0].verdict;
        assert_eq!(verdict(&mesh, &insight(0)), CheckVerdict::Failure);
        assert_eq!(verdict(&mesh, &insight(1)), CheckVerdict::Ok);
        assert_eq!(verdict(&json!({"name": "default"}), &insight(0)), CheckVerdict::Ok);
        assert_eq!(verdict(&mesh, &json!({})), CheckVerdict::Ok, "nobody is there to be locked out");
    }

    #[test]
    fn dataplanes_that_are_not_well_are_counted() {
        let insight = json!({"dataplanes": {"total": 5, "online": 2, "offline": 2, "partiallyDegraded": 1}});
        let found = of_one(&json!({"name": "default"}), &insight);
        assert_eq!(found.len(), 2);
        assert!(found[0].found.contains("2 of 5 dataplanes are offline"), "{found:?}");
    }
}
