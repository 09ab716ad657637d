//! `straitctl export`: what a control plane owns, as documents that `straitctl import` and `kumactl apply` take.

use clap::{Args, ValueEnum};
use common::{
    ca,
    model::{
        Kind,
        kinds::{dataplane, mesh, mesh_gateway, secret},
        labels,
        text::to_yaml,
    },
    registry, token,
};
use serde_json::{Map, Value, json};

use crate::{client::ApiClient, output};

/// Members of a document that the control plane makes.
const MADE: [&str; 5] = ["creationTime", "modificationTime", "status", "kri", "snis"];
/// Secrets by which a control plane knows its own parts; another one has its own.
const OF_THE_PROCESS: [&str; 2] = [ca::ADMIN_SECRET, "inter-cp-ca"];

/// Which resources an export has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportProfile {
    /// Everything this control plane owns and a user may write
    Own,
    /// What a zone brings into a federation: no policies of the newer generation, no gateways
    Federation,
    /// The same with policies
    FederationWithPolicies,
    /// Everything but insights, also what others own
    All,
    /// The same without dataplanes
    NoDataplanes,
}

/// Writes the resources of a control plane to standard output, as YAML. Meshes come first and the keys of users last, so
/// that they can be applied in this order.
#[derive(Args)]
pub(crate) struct Export {
    /// Which resources
    #[arg(short, long, default_value = "own")]
    profile: ExportProfile,
    /// With secrets and keys, for which one has to be an administrator. Keep the output where nobody else reads it
    #[arg(long, visible_alias = "with-secrets")]
    include_admin: bool,
}

impl Export {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let selection =
            ExportSelection { profile: self.profile, secrets: self.include_admin, here: here(client).await? };
        let mut documents = Vec::new();
        for kind in served(client).await? {
            if !selection.has_kind(kind) {
                continue;
            }
            let items = client.list(&format!("/{}", kind.path)).await?;
            documents
                .extend(items.into_iter().filter(|item| selection.has(kind, item)).map(|item| (kind, item)));
        }
        documents.sort_by_cached_key(|(kind, item)| rank(kind, item));
        for (kind, item) in documents {
            output::text(&format!("---\n{}", to_yaml(&selection.document(kind, item))?));
        }
        if !self.include_admin {
            crate::output::note!("secrets were left out; --include-admin writes them too");
        }
        Ok(())
    }
}

/// What resources of the control plane itself say about their origin.
async fn here(client: &ApiClient) -> anyhow::Result<&'static str> {
    let index: Value = client.get("/").await?;
    Ok(if index["strait"]["mode"] == "zone" { labels::ORIGIN_ZONE } else { labels::ORIGIN_GLOBAL })
}

/// The kinds the control plane serves.
async fn served(client: &ApiClient) -> anyhow::Result<Vec<&'static Kind>> {
    let answer: Value = client.get("/_resources").await?;
    let names = answer["resources"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|resource| resource["name"].as_str()).collect();
    let known = names.into_iter().filter_map(|name| {
        let kind = registry::by_name(name).filter(|kind| !kind.path.is_empty());
        if kind.is_none() {
            crate::output::note!("warning: {name} is unknown to this program and left out");
        }
        kind
    });
    Ok(known.collect())
}

struct ExportSelection {
    profile: ExportProfile,
    secrets: bool,
    /// The origin of what the control plane itself owns.
    here: &'static str,
}

impl ExportSelection {
    fn is_federation(&self) -> bool {
        matches!(self.profile, ExportProfile::Federation | ExportProfile::FederationWithPolicies)
    }

    fn has_kind(&self, kind: &Kind) -> bool {
        if kind.is_insight
            || (kind.read_only && self.profile != ExportProfile::All)
            || (kind.admin_only && !self.secrets)
        {
            return false;
        }
        let is_policy = kind.policy.is_some_and(|policy| policy.target_ref);
        match self.profile {
            ExportProfile::Own | ExportProfile::All => true,
            ExportProfile::NoDataplanes => kind != &dataplane::KIND,
            ExportProfile::FederationWithPolicies => kind.flow.global_to_zone(),
            ExportProfile::Federation => {
                kind.flow.global_to_zone() && !is_policy && kind != &mesh_gateway::KIND
            }
        }
    }

    fn has(&self, kind: &Kind, item: &Value) -> bool {
        if kind == &secret::GLOBAL_SECRET && OF_THE_PROCESS.iter().any(|name| item["name"] == *name) {
            return false;
        }
        let origin = item["labels"][labels::ORIGIN].as_str().unwrap_or(self.here);
        self.profile != ExportProfile::Own || origin == self.here
    }

    /// The document as it is applied elsewhere.
    fn document(&self, kind: &Kind, mut item: Value) -> Value {
        let Some(members) = item.as_object_mut() else { return item };
        MADE.iter().for_each(|made| drop(members.remove(*made)));
        if self.is_federation() {
            if let Some(labels) = members.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(labels::ORIGIN);
                labels.remove(labels::ZONE);
            }
            if kind == &mesh::KIND {
                federate(members);
            }
        }
        if members.get("labels").and_then(Value::as_object).is_some_and(Map::is_empty) {
            members.remove("labels");
        }
        item
    }
}

/// A mesh as a federation takes it over: with the policies it has and the authority it has, whose key becomes an
/// ordinary secret.
fn federate(members: &mut Map<String, Value>) {
    members.insert("skipCreatingInitialPolicies".to_owned(), json!(["*"]));
    let name = members.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(mtls) = members.get_mut("mtls").filter(|mtls| mtls.is_object()) else { return };
    let mut rewritten = false;
    let backends = mtls.get_mut("backends").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten() {
        if backend["type"] != mesh::CA_BUILTIN {
            continue;
        }
        let called = backend["name"].as_str().unwrap_or_default().to_owned();
        backend["type"] = json!(mesh::CA_PROVIDED);
        backend["conf"] = json!({
            "cert": { "secret": ca::certificate_secret(&name, &called) },
            "key": { "secret": ca::key_secret(&name, &called) },
        });
        rewritten = true;
    }
    if rewritten {
        mtls["skipValidation"] = json!(true);
    }
}

/// Meshes first, their secrets, everything else, global secrets; last the keys by which users are known, of which the
/// oldest is the last: who imports shows a token of a key that is replaced then.
fn rank(kind: &Kind, item: &Value) -> (u8, std::cmp::Reverse<u32>) {
    let name = item["name"].as_str().unwrap_or_default();
    let serial = name.rsplit('-').next().and_then(|serial| serial.parse().ok()).unwrap_or(0);
    let rank = match kind {
        kind if kind == &mesh::KIND => 0,
        kind if kind == &secret::SECRET => 1,
        kind if kind != &secret::GLOBAL_SECRET => 2,
        _ if !token::is_of_users(name) => 3,
        _ if name == token::ADMIN_USER_TOKEN => 4,
        _ => return (5, std::cmp::Reverse(serial)),
    };
    (rank, std::cmp::Reverse(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(profile: ExportProfile, secrets: bool) -> ExportSelection {
        ExportSelection { profile, secrets, here: labels::ORIGIN_GLOBAL }
    }

    #[test]
    fn profiles_have_what_kumactl_gives_them() {
        let has = |profile, name: &str| {
            let kind = registry::by_name(name).unwrap_or_else(|| panic!("no kind {name}"));
            selection(profile, true).has_kind(kind)
        };
        use ExportProfile::{All, Federation, FederationWithPolicies, NoDataplanes, Own};
        for (name, profiles) in [
            ("Mesh", vec![Own, Federation, FederationWithPolicies, All, NoDataplanes]),
            ("MeshTimeout", vec![Own, FederationWithPolicies, All, NoDataplanes]),
            ("TrafficPermission", vec![Own, Federation, FederationWithPolicies, All, NoDataplanes]),
            ("MeshGateway", vec![Own, FederationWithPolicies, All, NoDataplanes]),
            ("Dataplane", vec![Own, All]),
            ("DataplaneInsight", vec![]),
            ("Secret", vec![Own, Federation, FederationWithPolicies, All, NoDataplanes]),
        ] {
            for profile in [Own, Federation, FederationWithPolicies, All, NoDataplanes] {
                assert_eq!(has(profile, name), profiles.contains(&profile), "{name} in {profile:?}");
            }
        }
        assert!(!selection(Own, false).has_kind(&secret::SECRET), "secrets have to be asked for");
    }

    #[test]
    fn what_zones_own_is_no_part_of_what_global_owns() {
        let item = |origin: &str| json!({ "name": "x", "labels": { labels::ORIGIN: origin } });
        let kind = &mesh::KIND;
        assert!(selection(ExportProfile::Own, true).has(kind, &item("global")));
        assert!(!selection(ExportProfile::Own, true).has(kind, &item("zone")));
        assert!(selection(ExportProfile::All, true).has(kind, &item("zone")));
        assert!(
            !selection(ExportProfile::All, true)
                .has(&secret::GLOBAL_SECRET, &json!({ "name": "envoy-admin-ca" }))
        );
    }

    #[test]
    fn a_mesh_keeps_its_authority_in_a_federation() {
        let item = json!({
            "type": "Mesh", "name": "m", "creationTime": "then", "labels": { labels::ORIGIN: "zone" },
            "mtls": { "enabledBackend": "ca-1", "backends": [{ "name": "ca-1", "type": "builtin" }] },
        });
        let document = selection(ExportProfile::Federation, true).document(&mesh::KIND, item);
        let expected = json!({
            "type": "Mesh", "name": "m", "skipCreatingInitialPolicies": ["*"],
            "mtls": { "enabledBackend": "ca-1", "skipValidation": true, "backends": [{
                "name": "ca-1", "type": "provided",
                "conf": { "cert": { "secret": "m.ca-builtin-cert-ca-1" }, "key": { "secret": "m.ca-builtin-key-ca-1" } },
            }] },
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn who_imports_is_let_in_until_the_last_document() {
        let global = |name: &str| rank(&secret::GLOBAL_SECRET, &json!({ "name": name }));
        let of = |kind: &Kind| rank(kind, &json!({ "name": "x" }));
        let order = [
            of(&mesh::KIND),
            of(&secret::SECRET),
            of(&common::policy::mesh_timeout::KIND),
            global("zone-token-signing-key-1"),
            global("admin-user-token"),
            global("user-token-signing-key-2"),
            global("user-token-signing-key-1"),
        ];
        assert!(
            order.is_sorted() && order.iter().collect::<std::collections::BTreeSet<_>>().len() == order.len()
        );
    }
}
