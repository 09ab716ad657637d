//! Who gives identities to proxies, and who is believed.

use std::sync::Arc;

use common::{
    model::{Resource, ResourceKey, kinds},
    store::index::Index,
};

use super::{MeshState, MeshUpdate};
use crate::mesh::{WorkloadIdentity, authority::Secrets, trust::StatedTrust};

impl MeshState {
    /// Reads a `MeshIdentity` again: it, or a secret it needs, may have changed.
    pub(super) fn identity(&mut self, name: &Arc<str>, index: &Index, update: &mut MeshUpdate) {
        let (zone, mesh) = (Arc::clone(&self.context.zone), Arc::clone(&self.context.mesh));
        let key = ResourceKey::new(&kinds::identity::KIND, &mesh, name);
        let known = self.context.identities.get(name).cloned();
        let secrets = Secrets { zone: &zone, mesh: &mesh, index };
        let read = index.get(&key).map(|resource| {
            WorkloadIdentity::read(resource, &zone, |name| secrets.secret(name), known.as_deref())
        });
        let after = self.usable(&key, read, update).map(Arc::new);
        let encrypted = self.context.is_encrypted();
        self.context.identities.set(name, after.clone());
        // Where nobody has a certificate there are no other zones.
        update.change.everything |= encrypted != self.context.is_encrypted();
        let same = match (&known, &after) {
            (Some(before), Some(after)) => before.is_like(after),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        // What other zones may vouch for follows from it.
        update.change.trust = true;
        let versions = [known, after];
        let meant = self.context.dataplanes.iter().filter(|(_, dataplane)| {
            versions.iter().flatten().any(|identity| identity.spec.selects(&dataplane.resource.labels))
        });
        update.change.dataplanes.extend(meant.map(|(name, _)| Arc::clone(name)));
    }

    /// Finds out again who is believed about whom.
    pub(super) fn believe(&mut self, update: &mut MeshUpdate) {
        let believed = self.context.believed();
        update.change.trust = believed != *self.context.trust_domains;
        if update.change.trust {
            self.context.trust_domains = Arc::new(believed);
        }
    }

    /// Follows a `MeshTrust`.
    pub(super) fn trust(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
        update: &mut MeshUpdate,
    ) {
        let after = self.usable(key, resource.map(StatedTrust::read), update).map(Arc::new);
        let several = self.context.has_trust_domains();
        let before = self.context.trusts.set(&key.name, after.clone());
        let said = |trust: &Option<Arc<StatedTrust>>| {
            trust.as_ref().map(|trust| (trust.domain.clone(), trust.bundle.clone()))
        };
        update.change.trust |= said(&before) != said(&after);
        // Members of one domain are told apart in another way than those of several.
        update.change.everything |= several != self.context.has_trust_domains();
    }
}
