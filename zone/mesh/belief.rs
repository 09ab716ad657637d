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
    let by_zone = mtls.is_some_and(Mtls::is_by_zone);
    let mut believed = trusts.domains(|stated| !by_zone || may_vouch(stated, zone, identities()));
    if let Some(mtls) = mtls {
        // Nobody but its own authorities speaks for members of the mesh.
        believed.remove(mesh);
        believed.extend(TrustBundle::parse(&mtls.roots).ok().map(|roots| (mesh.to_owned(), roots)));
    }
    believed
}

/// What several meshes believe, in one. Of a trust domain that is called after one of them only that one speaks, and
/// where the first speaks nobody else does. Of any other that several speak of nothing is believed unless they agree: one
/// mesh may not vouch for members of another.
pub(super) fn together(meshes: &[(&str, &BTreeMap<String, TrustBundle>)]) -> BTreeMap<String, TrustBundle> {
    let owner = |domain: &str| {
        let after = meshes.iter().map(|(mesh, _)| *mesh).filter(|mesh| {
            domain.strip_prefix(mesh).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        after.max_by_key(|mesh| mesh.len())
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
    use super::*;

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
}
