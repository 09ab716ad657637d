//! What a mesh believes of whom, and what all meshes believe together.

use std::collections::{BTreeMap, BTreeSet};

use common::model::{Resource, kinds::identity};

use super::{Mtls, TrustBundle, Trusts, trust::may_vouch};

/// What a mesh believes, seen from `zone`: the trust domains of its `MeshTrust`s and that of its own authority, each with
/// who vouches for its members. `identities` are those of the mesh.
pub(super) fn believed<'a, I>(
    mesh: &str,
    zone: &str,
    mtls: Option<&Mtls>,
    trusts: &Trusts,
    identities: impl Fn() -> I,
) -> BTreeMap<String, TrustBundle>
where
    I: Iterator<Item = (&'a Resource, &'a identity::MeshIdentity)>,
{
    let mut believed = trusts.domains(zone, |stated| may_vouch(stated, zone, identities()));
    if let Some(mtls) = mtls {
        // Nobody but its own authorities speaks for members of the mesh.
        believed.remove(mesh);
        believed.extend(TrustBundle::parse(&mtls.roots).ok().map(|roots| (mesh.to_owned(), roots)));
    }
    believed
}

/// Whether a zone has this domain in `mesh` unless it is given another one.
fn is_usual(mesh: &str, domain: &str) -> bool {
    let zone = identity::MeshIdentity::usual_zone(mesh, domain);
    zone.is_some_and(|zone| !zone.is_empty() && !zone.contains('.'))
}

/// What several meshes believe, in one. Of a trust domain that is called after one of them only that one speaks, and
/// where the first speaks nobody else does; where the name of one mesh begins with that of another, the domain that a zone has
/// in a mesh unless it is given another is of that mesh. Of any other that several speak of nothing is believed unless they agree: one
/// mesh may not vouch for members of another.
pub(super) fn together(meshes: &[(&str, &BTreeMap<String, TrustBundle>)]) -> BTreeMap<String, TrustBundle> {
    let owner = |domain: &str| {
        let after = meshes.iter().map(|(mesh, _)| *mesh).filter(|mesh| {
            domain.strip_prefix(mesh).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        after.max_by_key(|mesh| (is_usual(mesh, domain), mesh.len()))
    };
    let is_of_first = |domain: &str| meshes.first().is_some_and(|(_, domains)| domains.contains_key(domain));
    let mut all: BTreeMap<String, TrustBundle> = BTreeMap::new();
    let mut disputed = BTreeSet::new();
    for (n, &(mesh, domains)) in meshes.iter().enumerate() {
        let speaks = |domain: &str| {
            owner(domain).is_none_or(|owner| owner == mesh) && (n == 0 || !is_of_first(domain))
        };
        for (domain, bundle) in domains.iter().filter(|(domain, _)| speaks(domain)) {
            let known = all.entry(domain.clone()).or_insert_with(|| bundle.clone());
            if known.pem != bundle.pem {
                disputed.insert(domain);
            }
        }
    }
    all.retain(|domain, _| !disputed.contains(domain));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::{DateTime, TimeDelta, Utc};
    use common::{
        ca,
        keys::{KeyForm, PrivateKey},
        model::{ResourceKey, kinds::mesh_trust, labels},
    };
    use serde_json::json;

    use super::*;
    use crate::share::ROOTS_OF_ZONE;

    /// Whether it is by zone or by `MeshIdentity` that its workloads are known.
    #[test]
    fn no_zone_vouches_for_what_is_called_after_another() {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("prod", &key, TimeDelta::days(1), DateTime::<Utc>::UNIX_EPOCH).unwrap();
        let bundle = json!({"type": "Pem", "pem": {"value": root.certificate}});
        let trust = |owner: &str, domain: &str| {
            let spec = json!({"trustDomain": domain, "caBundles": [bundle]});
            let key = ResourceKey::new(&mesh_trust::KIND, "prod", "t");
            let trust = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec.to_string());
            Arc::new(if owner.is_empty() { trust } else { trust.with_label(labels::ZONE, owner) })
        };
        let identity = |template: &str, owner: &str| {
            let spec = json!({"spiffeID": {"trustDomain": template}});
            let key = ResourceKey::new(&identity::KIND, "prod", "i");
            let identity = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec.to_string());
            let identity = if owner.is_empty() { identity } else { identity.with_label(labels::ZONE, owner) };
            let spec = identity.spec().unwrap();
            (identity, spec)
        };
        let usual = "prod.zone-2.mesh.local";
        let believes = |owner: &str, domain: &str, given: &[(Resource, identity::MeshIdentity)]| {
            let trusts = Trusts::of([trust(owner, domain)].iter());
            let known = || given.iter().map(|(resource, spec)| (resource, spec));
            !super::believed("prod", "zone-1", None, &trusts, known).is_empty()
        };
        assert!(believes("zone-2", usual, &[]) && believes("", usual, &[]) && believes("zone-1", usual, &[]));
        for owner in ["prod", "mesh", "local", "zone-3"] {
            assert!(!believes(owner, usual, &[]), "{owner}");
        }
        let own = "zone-2.example.com";
        let by_zone = |owner: &str| [identity("{{ .Zone }}.example.com", owner)];
        assert!(!believes("zone-2", own, &[]));
        assert!(believes("zone-2", own, &by_zone("")));
        assert!(!believes("zone-2", own, &by_zone("zone-2")), "there is only its word");
        assert!(!believes("example", own, &by_zone("")));
    }

    /// Each of its roots goes to every proxy of every other zone.
    #[test]
    fn a_zone_is_believed_by_so_much_and_no_more() {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("prod", &key, TimeDelta::days(1), DateTime::<Utc>::UNIX_EPOCH).unwrap();
        let trust = |n: usize, owner: &str| {
            let spec = json!({"trustDomain": format!("prod.{owner}.mesh.local"),
                "caBundles": [{"type": "Pem", "pem": {"value": root.certificate}}]});
            let key = ResourceKey::new(&mesh_trust::KIND, "prod", &format!("{owner}-{n:04}"));
            let trust = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec.to_string());
            Arc::new(trust.with_label(labels::ZONE, owner))
        };
        let many = 2 * ROOTS_OF_ZONE / root.certificate.len();
        let stolen = (0..many).map(|n| trust(n, "stolen"));
        let own = (0..many).map(|n| trust(n, "zone-1"));
        let all: Vec<_> = stolen.chain(own).chain([trust(0, "west")]).collect();
        let believed = super::believed("prod", "zone-1", None, &Trusts::of(all.iter()), || [].into_iter());
        let of = |zone: &str| believed[&format!("prod.{zone}.mesh.local")].pem.len();
        assert!(of("stolen") <= ROOTS_OF_ZONE && of("stolen") > ROOTS_OF_ZONE / 2);
        assert!(of("zone-1") > ROOTS_OF_ZONE && of("west") > 0);
    }

    fn believed(domains: &[(&str, &str)]) -> BTreeMap<String, TrustBundle> {
        let bundle = |pem: &str| TrustBundle { pem: pem.to_owned(), certificates: Vec::new() };
        domains.iter().map(|(domain, pem)| ((*domain).to_owned(), bundle(pem))).collect()
    }

    #[test]
    fn a_mesh_says_nothing_of_what_is_called_after_another() {
        let shop = believed(&[("shop", "1"), ("shop.east.mesh.local", "2"), ("common", "3")]);
        let bank = believed(&[
            ("bank", "4"),
            ("shop", "5"),
            ("shop.west.mesh.local", "6"),
            ("shopping", "7"),
            ("common", "8"),
            ("bank.vault.east", "9"),
        ]);
        let vault = believed(&[("bank.vault.east", "a"), ("bank.west", "b"), ("shopping", "c")]);
        let all = together(&[("shop", &shop), ("bank", &bank), ("bank.vault", &vault)]);
        let all: Vec<_> = all.iter().map(|(domain, bundle)| (domain.as_str(), bundle.pem.as_str())).collect();
        let expected = [
            ("bank", "4"),
            ("bank.vault.east", "a"),
            ("common", "3"),
            ("shop", "1"),
            ("shop.east.mesh.local", "2"),
        ];
        assert_eq!(all, expected, "where the first speaks nobody else does, and of what is disputed nobody");
    }

    #[test]
    fn a_mesh_that_is_called_like_the_domain_of_a_zone_says_nothing_of_it() {
        let shop = believed(&[("shop.east.mesh.local", "1")]);
        let thief = believed(&[("shop.east.mesh.local", "2"), ("shop.east.west.mesh.local", "3")]);
        for first in ["shop", "bank"] {
            let bank = BTreeMap::new();
            let mut meshes = [("shop", &shop), ("shop.east", &thief), ("bank", &bank)];
            meshes.sort_by_key(|(mesh, _)| *mesh != first);
            let all = together(&meshes);
            assert_eq!(all["shop.east.mesh.local"].pem, "1", "{first}");
            assert_eq!(all["shop.east.west.mesh.local"].pem, "3", "{first}");
        }
    }
}
