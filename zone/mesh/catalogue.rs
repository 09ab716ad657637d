//! What a zone offers to the others through its ingresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::proto::kuma::mesh::v1alpha1::zone_ingress::AvailableService;

use super::Inbound;

type OfferedTags = BTreeMap<String, String>;

/// The healthy inbounds of the proxies of a zone, counted by mesh and whole tag set.
#[derive(Debug, Default)]
pub struct Catalogue(BTreeMap<Arc<str>, BTreeMap<OfferedTags, u32>>);

/// The tag sets of those of `inbounds` that others may be sent to.
pub fn offered(inbounds: &[Inbound]) -> Vec<OfferedTags> {
    let healthy = inbounds.iter().filter(|inbound| inbound.healthy && inbound.service().is_some());
    healthy.map(|inbound| inbound.tags.clone()).collect()
}

impl Catalogue {
    /// Takes in that a proxy of `mesh` offers something else than before; says whether that makes a difference.
    pub fn moved(&mut self, mesh: &Arc<str>, before: &[OfferedTags], after: &[OfferedTags]) -> bool {
        if before == after {
            return false;
        }
        let of_mesh = self.0.entry(Arc::clone(mesh)).or_default();
        for tags in before {
            if let Some(count) = of_mesh.get_mut(tags) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    of_mesh.remove(tags);
                }
            }
        }
        for tags in after {
            *of_mesh.entry(tags.clone()).or_default() += 1;
        }
        if of_mesh.is_empty() {
            self.0.remove(mesh);
        }
        true
    }

    /// The services of all meshes but those that publish them as resources only, by mesh, then tags.
    pub fn services(&self, resources_only: &BTreeSet<Arc<str>>) -> Vec<AvailableService> {
        let published = self.0.iter().filter(|(mesh, _)| !resources_only.contains(*mesh));
        let services = published.flat_map(|(mesh, of_mesh)| {
            of_mesh.iter().map(|(tags, instances)| AvailableService {
                tags: tags.clone(),
                instances: *instances,
                mesh: mesh.to_string(),
                external_service: false,
            })
        });
        services.collect()
    }
}
