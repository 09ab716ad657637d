//! Secrets of a mesh and of the control plane.

use crate::{
    model::{Kind, KubernetesForm, MessageSpec, SyncStage, Violations},
    proto::kuma::system::v1alpha1::Secret,
};

/// A secret that belongs to one mesh.
pub static SECRET: Kind = Kind::proto("Secret", "secrets", "kuma.system.v1alpha1.Secret")
    .flow(25)
    .named("secret", "")
    .admin_only()
    .keeps_name()
    // It may be meant for a mesh made anew.
    .outlives_mesh()
    .synced(SyncStage::Settings)
    .kubernetes(KubernetesForm::Secret("system.kuma.io/secret"))
    .typed::<Secret>();

/// A secret of the control plane, outside every mesh.
pub static GLOBAL_SECRET: Kind = Kind::proto("GlobalSecret", "globalsecrets", "kuma.system.v1alpha1.Secret")
    .global()
    .flow(25)
    .named("global-secret", "")
    .alias("global-secrets")
    .admin_only()
    .keeps_name()
    .synced(SyncStage::Settings)
    .kubernetes(KubernetesForm::Secret("system.kuma.io/global-secret"))
    .typed::<Secret>();

impl MessageSpec for Secret {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        violations.check(self.data.is_none(), "data".into(), "must be set, encoded as base64");
        violations
    }
}
